//! `pods/ephemeralcontainers`: containers that are added to a running pod to look at it (KEP-277). Those that are there
//! can be neither changed nor removed.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::quote;
use serde_json::{Value, json};

/// The annotation of a pod that a kubelet has from a file, and that the server only mirrors.
pub(super) const MIRROR: &str = "kubernetes.io/config.mirror";
const FIELD: &str = "ephemeralContainers";

pub(super) fn confine(stored: &Object, sent: &Object) -> (Object, Vec<FieldError>) {
    let mut confined = stored.clone();
    if stored.annotations().any(|(name, value)| name == MIRROR && !value.is_empty()) {
        return (confined, vec![FieldError::forbidden("", "static pods do not support ephemeral containers")]);
    }
    let spec = confined.0.entry("spec").or_insert_with(|| json!({}));
    if let Value::Object(spec) = spec {
        match sent.get(&["spec", FIELD]) {
            Some(wanted) => spec.insert(FIELD.to_owned(), wanted.clone()),
            None => spec.shift_remove(FIELD),
        };
    }
    let errors = containers(stored).iter().filter_map(|container| fault(container, containers(sent))).collect();
    (confined, errors)
}

fn containers(pod: &Object) -> &[Value] {
    pod.get(&["spec", FIELD]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn fault(container: &Value, wanted: &[Value]) -> Option<FieldError> {
    let name = quote(container["name"].as_str().unwrap_or_default());
    // Of several of one name the last counts, as upstream has it.
    let what = match wanted.iter().rev().find(|wanted| wanted["name"] == container["name"]) {
        Some(same) if same == container => return None,
        Some(_) => "changed",
        None => "removed",
    };
    Some(FieldError::forbidden(
        format!("spec.{FIELD}"),
        format!("existing ephemeral containers {name} may not be {what}\n"),
    ))
}
