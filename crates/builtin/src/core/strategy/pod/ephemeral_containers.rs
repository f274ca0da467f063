//! `pods/ephemeralcontainers`: containers that are added to a running pod to look at it (KEP-277). That those
//! which are there stay as they are is judged with all else of the pod.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_registry::strategy::Confined;

/// The annotation of a pod that a kubelet has from a file, and that the server only mirrors.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const FIELD: &str = "ephemeralContainers";

pub(crate) fn confine(stored: &Object, sent: &Object) -> Confined {
    let mut confined = stored.clone();
    if stored.annotations().any(|(name, value)| name == MIRROR && !value.is_empty()) {
        return Confined::Cut(
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
    Confined::Cut(confined, Vec::new())
}
