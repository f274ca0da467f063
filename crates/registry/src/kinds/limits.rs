//! Limit ranges: they need no name.

use keelson_meta::Object;

use super::strategy::Strategy;

/// The strategy of limit ranges.
pub(super) struct LimitRanges;

impl Strategy for LimitRanges {
    fn prepare_create(&self, object: &mut Object) -> bool {
        let unnamed = object.name().is_empty();
        if unnamed {
            let name = object.uid().to_owned();
            object.set_meta("name", name);
        }
        unnamed
    }
}
