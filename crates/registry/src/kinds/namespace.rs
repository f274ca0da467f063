//! Namespaces: a finalizer in `spec` holds them until their content is gone, and `status.phase` shows it.

use keelson_meta::{ApiError, Object};
use serde_json::{Value, json};

use crate::target::Target;

/// The label by which selectors find a namespace (KEP-2161).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that stands for "content is left".
const FINALIZER: &str = "kubernetes";
/// Namespaces that clients expect to be there always: kube-apiserver's NamespaceLifecycle holds the same three.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

pub(super) fn prepare_create(object: &mut Object) {
    label_with_name(object);
    let spec = object.0.entry("spec").or_insert_with(|| json!({}));
    if let Value::Object(spec) = spec {
        let finalizers = spec.entry("finalizers").or_insert_with(|| json!([]));
        if let Value::Array(finalizers) = finalizers
            && !finalizers.iter().any(|finalizer| finalizer == FINALIZER)
        {
            finalizers.push(json!(FINALIZER));
        }
    }
    object.0.insert("status".to_owned(), json!({ "phase": "Active" }));
}

/// An update may not touch the finalizers in `spec`; only `/finalize` may.
pub(super) fn prepare_update(target: &Target, current: &Object, next: &mut Object) {
    label_with_name(next);
    if target.subresource_name() == Some("finalize") {
        return;
    }
    match current.0.get("spec") {
        Some(spec) => next.0.insert("spec".to_owned(), spec.clone()),
        None => next.0.shift_remove("spec"),
    };
}

pub(super) fn check_delete(target: &Target, name: &str) -> Result<(), ApiError> {
    if !IMMORTAL.contains(&name) {
        return Ok(());
    }
    Err(ApiError::Refused {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: "this namespace may not be deleted".to_owned(),
        causes: Vec::new(),
    })
}

pub(super) fn mark_terminating(object: &mut Object) {
    let status = object.0.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        status.insert("phase".to_owned(), json!("Terminating"));
    }
}

pub(super) fn is_finalized(object: &Object) -> bool {
    object.get(&["spec", "finalizers"]).and_then(Value::as_array).is_none_or(Vec::is_empty)
}

pub(super) fn finalize(object: &mut Object) {
    if let Some(Value::Object(spec)) = object.0.get_mut("spec") {
        spec.insert("finalizers".to_owned(), json!([]));
    }
}

fn label_with_name(object: &mut Object) {
    let name = object.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = object.metadata_mut().entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert(NAME_LABEL.to_owned(), Value::String(name));
    }
}
