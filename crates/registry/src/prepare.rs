//! What happens to every object on its way in, whatever its kind: type checks, the fields that the server owns, and the
//! rules for metadata.

use std::collections::BTreeSet;

use keelson_meta::clock::rfc3339;
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::metadata_rules::validate_metadata;
use keelson_meta::metadata_types::check_metadata_types;
use keelson_meta::{ApiError, GroupVersion, Object};
use keelson_resources::Catalogue;
use serde_json::Value;

use crate::registry::Registry;
use crate::target::Target;

/// Metadata that only the server writes; what a client sends there is replaced or dropped.
const SERVER_OWNED: [&str; 6] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields"];

/// Metadata that is left out when it holds nothing, as in every object that a Go server ever stored: clients compare
/// objects, and an empty map is not an absent one to them.
const LEFT_OUT_WHEN_EMPTY: [&str; 6] =
    ["name", "generateName", "labels", "annotations", "ownerReferences", "finalizers"];

/// Checks that an object that was sent fits the URL it was sent to, and fills in what it left out: kind and apiVersion
/// by the URL, the namespace likewise.
///
/// # Errors
/// 400 when it is of another kind or version, in another namespace, or its metadata is not of the right type.
pub fn fit(target: &Target, object: &mut Object) -> Result<(), ApiError> {
    check_type(target, object)?;
    object.set_type(&target.kind());
    check_metadata_types(object, &target.kind())?;
    match &target.namespace {
        Some(namespace) if target.is_namespaced() => {
            if object.namespace().is_empty() {
                object.set_meta("namespace", namespace.as_str());
            } else if object.namespace() != namespace {
                return Err(ApiError::BadRequest(
                    "the namespace of the provided object does not match the namespace sent on the request".to_owned(),
                ));
            }
        }
        _ => object.remove_meta("namespace"),
    }
    if let Some(name) = &target.name {
        if object.name().is_empty() {
            object.set_meta("name", name.as_str());
        } else if object.name() != name {
            return Err(ApiError::BadRequest(format!(
                "the name of the object ({}) does not match the name on the URL ({name})",
                object.name()
            )));
        }
    }
    Ok(())
}

fn check_type(target: &Target, object: &Object) -> Result<(), ApiError> {
    let expected = target.kind();
    let kind = object.kind().filter(|kind| !kind.is_empty()).unwrap_or(&expected.kind);
    let expected_version = expected.group_version().to_string();
    let api_version = object.api_version().filter(|version| !version.is_empty()).unwrap_or(&expected_version);
    if kind == expected.kind && api_version == expected_version {
        return Ok(());
    }
    let wrong_type = |why: String| {
        ApiError::BadRequest(format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
            expected.kind,
            version = api_version.rsplit('/').next().unwrap_or(api_version),
        ))
    };
    let registered = GroupVersion::parse(api_version).is_some_and(|sent| {
        Catalogue::builtin().by_kind(&sent.group, kind).is_some_and(|known| known.version(&sent.version).is_some())
    });
    if !registered {
        return Err(wrong_type(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        )));
    }
    if kind != expected.kind {
        let version = api_version.rsplit('/').next().unwrap_or(api_version);
        return Err(wrong_type(format!(
            "converting ({version}.{kind}) to ({}.{}): unknown conversion",
            internal_package(&expected.group),
            expected.kind
        )));
    }
    Err(ApiError::BadRequest(format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
    )))
}

/// How the reference server's messages name the unversioned types of a group.
fn internal_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

/// Gives a new object what only the server can: its uid and its birth. Drops what a client may not set on creation.
pub(crate) fn stamp_new(registry: &Registry, target: &Target, object: &mut Object) {
    for field in SERVER_OWNED {
        object.remove_meta(field);
    }
    object.remove_meta("generation");
    leave_out_empty(object);
    object.set_meta("uid", registry.random.uuid());
    object.set_meta("creationTimestamp", rfc3339(registry.clock.now()));
    if target.resource.generation {
        object.set_meta("generation", 1);
    }
    if target.resource.has_status() {
        object.0.shift_remove("status");
    }
    object.set_type(&target.storage_kind());
}

/// Checks a new object that is ready to be stored.
///
/// # Errors
/// 422 with all that is wrong with its metadata; 500 when the client set a resourceVersion.
pub(crate) fn check_new(target: &Target, object: &Object) -> Result<(), ApiError> {
    validate(target, object)?;
    match object.resource_version() {
        "" | "0" => Ok(()),
        _ => Err(ApiError::RevisionOnCreate),
    }
}

/// Checks the metadata of an object.
///
/// # Errors
/// 422 with everything that is wrong.
pub(crate) fn validate(target: &Target, object: &Object) -> Result<(), ApiError> {
    refuse(target, object, validate_metadata(object, target.is_namespaced(), target.resource.name_rule))
}

/// Checks the metadata of what an object shall become, by itself and beside what it was.
///
/// # Errors
/// 422 with everything that is wrong.
pub(crate) fn validate_update(target: &Target, current: &Object, next: &Object) -> Result<(), ApiError> {
    let mut errors = validate_metadata(next, target.is_namespaced(), target.resource.name_rule);
    errors.extend(new_finalizers(current, next));
    refuse(target, next, errors)
}

/// What is on its way out may not be held by anybody new: those who wait for it would wait for somebody unknown.
fn new_finalizers(current: &Object, next: &Object) -> Option<FieldError> {
    current.deletion_timestamp()?;
    let known = current.finalizers();
    let new: BTreeSet<&str> = next.finalizers().into_iter().filter(|finalizer| !known.contains(finalizer)).collect();
    if new.is_empty() {
        return None;
    }
    let found: Vec<String> = new.into_iter().map(go_format::quote).collect();
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        found.join(", ")
    );
    Some(FieldError::forbidden("metadata.finalizers", detail))
}

fn refuse(target: &Target, object: &Object, errors: Vec<FieldError>) -> Result<(), ApiError> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::Invalid { kind: target.group_kind(), name: object.name().to_owned(), errors })
}

/// Carries what an update may not touch over from the stored object: identity, birth, death, and generation. The
/// generation goes up when anything but metadata and status changed.
pub(crate) fn carry_over(target: &Target, current: &Object, next: &mut Object) {
    for field in SERVER_OWNED {
        match current.metadata().and_then(|metadata| metadata.get(field)) {
            Some(value) => next.set_meta(field, value.clone()),
            None => next.remove_meta(field),
        }
    }
    next.set_type(&target.storage_kind());
    next.remove_meta("resourceVersion");
    leave_out_empty(next);
    match current.generation() {
        Some(generation) => {
            let changed = target.resource.generation && !same_specification(current, next);
            next.set_meta("generation", generation + i64::from(changed));
        }
        None => next.remove_meta("generation"),
    }
}

fn leave_out_empty(object: &mut Object) {
    let empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    for field in LEFT_OUT_WHEN_EMPTY {
        if object.metadata().and_then(|metadata| metadata.get(field)).is_some_and(empty) {
            object.remove_meta(field);
        }
    }
}

fn same_specification(left: &Object, right: &Object) -> bool {
    let own = |key: &str| !matches!(key, "kind" | "apiVersion" | "metadata" | "status");
    let fields = |object: &Object| object.0.iter().filter(|(key, _)| own(key)).count();
    fields(left) == fields(right)
        && left.0.iter().filter(|(key, _)| own(key)).all(|(key, value)| right.0.get(key) == Some(value))
}

/// Takes `status` from `from`, or drops it where `from` has none.
pub(crate) fn take_status(object: &mut Object, from: &Object) {
    match from.0.get("status") {
        Some(status) => {
            object.0.insert("status".to_owned(), status.clone());
        }
        None => {
            object.0.shift_remove("status");
        }
    }
}

/// Whether a document is an object at all.
///
/// # Errors
/// 400 when it is a list, a text, a number or nothing.
pub fn object_of(value: Value, kind: &str) -> Result<Object, ApiError> {
    Object::from_value(value).ok_or_else(|| {
        ApiError::BadRequest(format!("the object provided is unrecognized (must be of type {kind}): not a JSON object"))
    })
}
