//! The validation rules for `metadata`.
//!
//! Types are validated before, by a walk over the schema. All faults are reported at once, in upstream's order.
//! Upstream visits labels and annotations in random order; here their faults have the order of the document.

use std::borrow::Cow;

use crate::json::{Map, Value, json};

use crate::field_error::{FAULTS_MAX, FieldError};
use crate::gvk::GroupVersion;
use crate::names::{NameRule, label_key_faults, label_value_faults};
use crate::object::Object;
use crate::options::field_manager_errors;

/// The maximum size of all annotations of an object in bytes, keys and values together.
pub const ANNOTATIONS_MAX: usize = 256 * 1024;
/// The maximum length of `subresource` in a managedFields entry, in bytes.
const SUBRESOURCE_MAX: usize = 256;

/// The finalizer that makes the garbage collector orphan dependents.
pub const FINALIZER_ORPHAN: &str = "orphan";
/// The finalizer that makes the garbage collector delete dependents first.
pub const FINALIZER_FOREGROUND: &str = "foregroundDeletion";
/// Finalizers of built-in kinds that need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", FINALIZER_ORPHAN, FINALIZER_FOREGROUND];

/// The faults in the metadata of a new object of a built-in kind. A name must already have been generated.
pub fn validate_metadata(object: &Object, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = validate_custom_metadata(object, namespaced, rule);
    errors.extend(standard_finalizer_errors(object));
    errors
}

/// The faults in the metadata of a new custom object, whose finalizers may have any qualified name.
pub fn validate_custom_metadata(object: &Object, namespaced: bool, rule: NameRule) -> Vec<FieldError> {
    let mut errors = name_errors(object, rule);
    errors.extend(namespace_errors(object.namespace(), namespaced));
    if let Some(generation) = object.generation().filter(|generation| *generation < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("metadata.generation", generation, detail));
    }
    errors.extend(label_errors(object));
    errors.extend(annotation_errors(object));
    errors.extend(owner_errors(object));
    errors.extend(finalizer_errors(object));
    errors.extend(managed_fields_errors(object));
    errors
}

/// The faults in the metadata that an update sets. For a built-in kind, upstream validates the metadata a second time
/// with the old object, and reports such faults twice. If `is_right` is true, [`validate_custom_metadata`] found no
/// fault, so that only the finalizers are checked. `free_finalizers` allows any qualified name for them.
pub fn validate_changed_metadata(object: &Object, is_right: bool, free_finalizers: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !is_right {
        errors.extend(label_errors(object));
        errors.extend(annotation_errors(object));
        errors.extend(owner_errors(object));
        errors.extend(managed_fields_errors(object));
    }
    if !free_finalizers {
        errors.extend(standard_finalizer_errors(object));
    }
    errors
}

fn name_errors(object: &Object, rule: NameRule) -> Vec<FieldError> {
    let complaints = |field: &'static str, name: &str, prefix: bool| -> Vec<FieldError> {
        rule.check(name, prefix).into_iter().map(|fault| FieldError::invalid(field, name, fault)).collect()
    };
    let mut errors = Vec::new();
    if !object.generate_name().is_empty() {
        errors.extend(complaints("metadata.generateName", object.generate_name(), true));
    }
    if object.name().is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else {
        errors.extend(complaints("metadata.name", object.name(), false));
    }
    errors
}

fn namespace_errors(namespace: &str, namespaced: bool) -> Vec<FieldError> {
    const FIELD: &str = "metadata.namespace";
    match (namespaced, namespace) {
        (true, "") => vec![FieldError::required(FIELD, "")],
        (true, name) => {
            let faults = NameRule::DnsLabel.check(name, false).into_iter();
            faults.map(|fault| FieldError::invalid(FIELD, name, fault)).collect()
        }
        (false, "") => Vec::new(),
        (false, _) => vec![FieldError::forbidden(FIELD, "not allowed on this type")],
    }
}

/// The faults of an object's labels.
pub fn label_errors(object: &Object) -> Vec<FieldError> {
    const FIELD: &str = "metadata.labels";
    let mut errors = Vec::new();
    for (key, value) in object.labels() {
        if errors.len() >= FAULTS_MAX {
            break;
        }
        errors.extend(label_key_faults(key).into_iter().map(|fault| FieldError::invalid(FIELD, key, fault)));
        errors.extend(label_value_faults(value).into_iter().map(|fault| FieldError::invalid(FIELD, value, fault)));
    }
    errors
}

/// The faults of an object's annotations.
pub fn annotation_errors(object: &Object) -> Vec<FieldError> {
    const FIELD: &str = "metadata.annotations";
    let mut errors = Vec::new();
    let mut total = 0;
    for (key, value) in object.annotations() {
        total += key.len() + value.len();
        // Keys follow the rule for label keys, except that the domain may have upper-case letters.
        let is_lower_case = key.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase());
        let lower_case = if is_lower_case { Cow::Borrowed(key) } else { Cow::Owned(key.to_lowercase()) };
        if errors.len() >= FAULTS_MAX {
            continue;
        }
        let faults = label_key_faults(&lower_case).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid(FIELD, key, fault)));
    }
    if total > ANNOTATIONS_MAX {
        errors.push(FieldError::too_long(FIELD, ANNOTATIONS_MAX));
    }
    errors
}

fn finalizer_errors(object: &Object) -> Vec<FieldError> {
    const FIELD: &str = "metadata.finalizers";
    let finalizers = object.finalizers();
    let mut errors = Vec::new();
    for finalizer in &finalizers {
        if errors.len() >= FAULTS_MAX {
            break;
        }
        let faults = label_key_faults(finalizer).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid(FIELD, *finalizer, fault)));
    }
    if finalizers.contains(&FINALIZER_ORPHAN) && finalizers.contains(&FINALIZER_FOREGROUND) {
        let detail = format!("finalizer {FINALIZER_ORPHAN} and {FINALIZER_FOREGROUND} cannot be both set");
        errors.push(FieldError::invalid(FIELD, finalizers, detail));
    }
    errors
}

/// Warnings about new finalizers of a custom resource: a finalizer whose name has no path may conflict with other users
/// of the name.
pub fn finalizer_warnings(old: Option<&Object>, object: &Object) -> Vec<String> {
    let known = old.map(Object::finalizers).unwrap_or_default();
    let is_told = |finalizer: &&str| {
        !known.contains(finalizer) && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(finalizer)
    };
    let told = |finalizer: &str| {
        let path = if finalizer.contains('.') { " including a path (/)" } else { "" };
        format!(
            "metadata.finalizers: {}: prefer a domain-qualified finalizer name{path} to avoid accidental conflicts with other \
             finalizer writers",
            crate::go_format::quote(finalizer)
        )
    };
    object.finalizers().into_iter().filter(is_told).map(told).collect()
}

fn standard_finalizer_errors(object: &Object) -> Vec<FieldError> {
    let detail = "name is neither a standard finalizer name nor is it fully qualified";
    let finalizers = object.finalizers().into_iter().enumerate();
    finalizers
        .filter(|(_, name)| !name.contains('/') && !STANDARD_FINALIZERS.contains(name))
        .map(|(index, name)| FieldError::invalid(format!("metadata.finalizers[{index}]"), name, detail))
        .take(FAULTS_MAX)
        .collect()
}

/// The maximum number of references in all messages about a second controller together. Each message lists all
/// references. The first message is reported even if it exceeds the limit.
const MOST_OWNERS_NAMED: usize = 4096;

fn owner_errors(object: &Object) -> Vec<FieldError> {
    const FIELD: &str = "metadata.ownerReferences";
    let references: Vec<_> = object.meta_list("ownerReferences").iter().filter_map(Value::as_object).collect();
    let mut errors = Vec::new();
    let mut first_controller: Option<&Map> = None;
    let mut told = 0;
    for reference in &references {
        if errors.len() >= FAULTS_MAX {
            break;
        }
        errors.extend(owner_reference_errors(FIELD, reference));
        if reference.get("controller") != Some(&Value::Bool(true)) {
            continue;
        }
        match first_controller {
            None => first_controller = Some(reference),
            Some(_) if told > 0 && (told + 1) * references.len() > MOST_OWNERS_NAMED => {}
            Some(first) => {
                told += 1;
                let named = |owner: &Map| format!("{}/{}", text(owner, "kind"), text(owner, "name"));
                let (first, controller) = (named(first), named(reference));
                let all: Vec<Value> = references.iter().map(|reference| owner_value(reference)).collect();
                let detail = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} and \
                     {controller}"
                );
                errors.push(FieldError::invalid(FIELD, all, detail));
            }
        }
    }
    errors
}

fn owner_reference_errors(field: &str, reference: &Map) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let api_version = text(reference, "apiVersion");
    let version = GroupVersion::parse(api_version);
    if version.as_ref().is_none_or(|version| version.version.is_empty()) {
        let detail = "version must not be empty";
        errors.push(FieldError::invalid(format!("{field}.apiVersion"), api_version, detail));
    }
    for part in ["kind", "name", "uid"] {
        if text(reference, part).is_empty() {
            errors.push(FieldError::invalid(format!("{field}.{part}"), "", "must not be empty"));
        }
    }
    // Events expire, so they can't own objects.
    if api_version == "v1" && text(reference, "kind") == "Event" {
        let detail = "/v1, Kind=Event is disallowed from being an owner";
        errors.push(FieldError::invalid(field, owner_value(reference), detail));
    }
    errors
}

/// The reference with the fields of upstream's type.
fn owner_value(reference: &Map) -> Value {
    let mut value = json!({
        "apiVersion": text(reference, "apiVersion"),
        "kind": text(reference, "kind"),
        "name": text(reference, "name"),
        "uid": text(reference, "uid"),
    });
    for flag in ["controller", "blockOwnerDeletion"] {
        if let Some(set) = reference.get(flag).filter(|set| set.is_boolean()) {
            value[flag] = set.clone();
        }
    }
    value
}

fn managed_fields_errors(object: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, entry) in object.meta_list("managedFields").iter().enumerate() {
        let Some(entry) = entry.as_object() else { continue };
        let field = format!("metadata.managedFields[{index}]");
        let operation = text(entry, "operation");
        if !matches!(operation, "Apply" | "Update") {
            errors.push(FieldError::invalid(format!("{field}.operation"), operation, "must be `Apply` or `Update`"));
        }
        let fields_type = text(entry, "fieldsType");
        if !matches!(fields_type, "" | "FieldsV1") {
            errors.push(FieldError::invalid(format!("{field}.fieldsType"), fields_type, "must be `FieldsV1`"));
        }
        errors.extend(field_manager_errors(&format!("{field}.manager"), text(entry, "manager")));
        if text(entry, "subresource").len() > SUBRESOURCE_MAX {
            errors.push(FieldError::too_long(format!("{field}.subresource"), SUBRESOURCE_MAX));
        }
    }
    errors
}

fn text<'a>(map: &'a Map, field: &str) -> &'a str {
    map.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
