//! Limit ranges: one that is made without a name gets its uid as its name.
//!
//! Upstream does the same, and no other kind has it.

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
