//! Runtime classes of `node.k8s.io/v1alpha1`, whose fields are in a `spec`.
//!
//! In later versions the same fields are at the top level.

use keelson_meta::json::Map;

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{ALPHA, BETA, RetiredVersions, row};
use crate::converting::tree::{take, take_object};

const GROUP: &str = "node.k8s.io";

pub(crate) const RETIRED: &[RetiredVersions] =
    &[row("RuntimeClass", GROUP, BETA), row("RuntimeClass", GROUP, ALPHA).by(runtime_class_from_v1alpha1)];

/// Converts from v1alpha1 to v1.
pub(crate) fn runtime_class_from_v1alpha1(class: &mut Map) -> Result<(), ConversionError> {
    let Some(mut spec) = take_object(class, "spec")? else { return Ok(()) };
    for (from, to) in [("runtimeHandler", "handler"), ("overhead", "overhead"), ("scheduling", "scheduling")] {
        if let Some(value) = take(&mut spec, from) {
            class.insert(to, value);
        }
    }
    Ok(())
}
