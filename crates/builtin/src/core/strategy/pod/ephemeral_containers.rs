//! The subresource `pods/ephemeralcontainers` adds containers to a running pod for debugging (KEP-277). Validation of
//! the pod refuses changes of existing ones.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_registry::strategy::AcceptedPart;

/// The annotation of a mirror pod, which represents a static pod of a kubelet.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const FIELD: &str = "ephemeralContainers";

pub(crate) fn confine(stored: &Object, sent: &Object) -> AcceptedPart {
    let mut confined = stored.clone();
    if stored.annotations().any(|(name, value)| name == MIRROR && !value.is_empty()) {
        return AcceptedPart::Cut(
            confined,
            vec![FieldError::forbidden("", "static pods do not support ephemeral containers")],
        );
    }
    let spec = confined.0.entry("spec").or_insert_with(|| json!({}));
    if let Value::Object(spec) = spec {
        match sent.get(&["spec", FIELD]) {
            Some(wanted) => spec.insert(FIELD, wanted.clone()),
            None => spec.remove(FIELD),
        };
    }
    AcceptedPart::Cut(confined, Vec::new())
}
