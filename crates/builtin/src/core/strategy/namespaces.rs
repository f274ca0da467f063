//! Strategy of namespaces: a finalizer in `spec` keeps them until their content is deleted, and `status.phase` shows
//! that.
//!
//! The controller in `controllers/namespace_deletion` deletes the content and then removes the finalizer. Some
//! namespaces can never be deleted.

use std::time::SystemTime;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, json};
use keelson_meta::names::label_key_faults;
use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{CreateStrategy, DeleteStrategy, UpdateStrategy};
use keelson_registry::{BuiltinStagePlugin, Registry, Target, Warnings};

/// The label with the name of a namespace, for selectors (KEP-2161).
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that stays until the content of the namespace is deleted.
const FINALIZER: &str = "kubernetes";
/// Namespaces that clients expect to exist always. kube-apiserver's NamespaceLifecycle protects the same three.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

fn prepare_create(object: &mut Object) {
    label_with_name(object);
    let mut finalizers = finalizers(object).cloned().unwrap_or_default();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(json!(FINALIZER));
    }
    set_finalizers(object, finalizers);
    object.0.insert("status", json!({ "phase": "Active" }));
}

/// Keeps the finalizers in `spec`, which only `/finalize` may change.
fn prepare_update(target: &Target, current: &Object, next: &mut Object) {
    label_with_name(next);
    if target.subresource_name() == Some("finalize") {
        return;
    }
    match current.0.get("spec") {
        Some(spec) => next.0.insert("spec", spec.clone()),
        None => next.0.remove("spec"),
    };
}

fn check_delete(registry: &Registry, target: &Target, name: &str) -> Result<(), ApiError> {
    if !IMMORTAL.contains(&name) || !registry.does(BuiltinStagePlugin::NamespaceLifecycle) {
        return Ok(());
    }
    Err(ApiError::Refused {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: "this namespace may not be deleted".to_owned(),
        causes: Vec::new(),
    })
}

fn mark_terminating(object: &mut Object) {
    let status = object.0.entry("status").or_insert_with(|| json!({}));
    if let Value::Object(status) = status {
        status.insert("phase", json!("Terminating"));
    }
}

/// Checks the finalizers in the `spec` of a namespace, for an update of `/finalize`.
///
/// # Errors
/// 422 for a finalizer that is neither `kubernetes` nor starts with a domain.
fn check_finalizers(target: &Target, object: &Object) -> Result<(), ApiError> {
    let wanted = finalizers(object).cloned().unwrap_or_default();
    let errors: Vec<FieldError> = wanted.iter().enumerate().flat_map(|(index, name)| faults(index, name)).collect();
    if !errors.is_empty() {
        return Err(ApiError::Invalid { kind: target.group_kind(), name: object.name().to_owned(), errors });
    }
    Ok(())
}

fn faults(index: usize, finalizer: &Value) -> Vec<FieldError> {
    let name = finalizer.as_str().unwrap_or_default();
    let field = format!("spec.finalizers[{index}]");
    let mut faults = label_key_faults(name);
    if faults.is_empty() && !name.contains('/') && name != FINALIZER {
        faults.push("name is neither a standard finalizer name nor is it fully qualified".to_owned());
    }
    faults.into_iter().map(|fault| FieldError::invalid(field.as_str(), name, fault)).collect()
}

/// Returns true if `spec` has no finalizers. Invalid finalizers count as finalizers, so that no namespace is deleted
/// before it is empty.
fn is_finalized(object: &Object) -> bool {
    let spec = object.0.get("spec").and_then(Value::as_object);
    spec.is_some_and(|spec| match spec.get("finalizers") {
        None | Some(Value::Null) => true,
        Some(finalizers) => finalizers.as_array().is_some_and(Vec::is_empty),
    })
}

/// Removes the finalizer for the content; others stay.
fn finalize(object: &mut Object) {
    let others = finalizers(object).into_iter().flatten().filter(|finalizer| *finalizer != FINALIZER);
    let others = others.cloned().collect();
    set_finalizers(object, others);
}

fn finalizers(object: &Object) -> Option<&Vec<Value>> {
    object.get(&["spec", "finalizers"])?.as_array()
}

fn set_finalizers(object: &mut Object, finalizers: Vec<Value>) {
    let spec = object.0.entry("spec").or_insert_with(|| json!({}));
    if !spec.is_object() {
        *spec = json!({});
    }
    if let Value::Object(spec) = spec {
        if finalizers.is_empty() {
            spec.remove("finalizers");
        } else {
            spec.insert("finalizers", Value::Array(finalizers));
        }
    }
}

fn label_with_name(object: &mut Object) {
    let name = object.name().to_owned();
    if name.is_empty() {
        return;
    }
    let labels = object.metadata_mut().entry("labels").or_insert_with(|| json!({}));
    if let Value::Object(labels) = labels {
        labels.insert(NAME_LABEL, name);
    }
}

/// The strategy of namespaces.
pub(super) struct Namespaces;

impl CreateStrategy for Namespaces {
    fn complete_new(&self, object: &mut Object, _: SystemTime) -> bool {
        label_with_name(object);
        true
    }

    fn prepare_create(&self, object: &mut Object, _: &Warnings) -> bool {
        prepare_create(object);
        true
    }
}

impl UpdateStrategy for Namespaces {
    fn complete_update(&self, _: &Object, next: &mut Object, _: SystemTime) -> bool {
        label_with_name(next);
        true
    }

    fn prepare_update(&self, target: &Target, current: &Object, next: &mut Object) -> bool {
        prepare_update(target, current, next);
        true
    }

    fn check_subresource(&self, target: &Target, object: &Object) -> Result<(), ApiError> {
        match target.subresource_name() {
            Some("finalize") => check_finalizers(target, object),
            _ => Ok(()),
        }
    }
}

impl DeleteStrategy for Namespaces {
    fn finalize(&self, namespace: &mut Object) {
        finalize(namespace);
    }

    fn check_delete(&self, registry: &Registry, target: &Target, name: &str) -> Result<(), ApiError> {
        check_delete(registry, target, name)
    }

    fn is_deleted_by_uid(&self) -> bool {
        true
    }

    fn states_grace_period(&self) -> bool {
        false
    }

    fn mark_terminating(&self, object: &mut Object) {
        mark_terminating(object);
    }

    fn may_go(&self, object: &Object) -> bool {
        is_finalized(object)
    }
}
