//! Preparation and checks of every object before it is stored, whatever its kind: the fields that the server owns, and
//! the rules for metadata.

use std::collections::BTreeSet;

use keelson_meta::clock::rfc3339;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::metadata_rules::{
    finalizer_warnings, validate_changed_metadata, validate_custom_metadata, validate_metadata,
};
use keelson_meta::names::NameRule;
use keelson_meta::{ApiError, Object, go_format};
use keelson_patch::equal::equal;

use crate::caller::Caller;
use crate::initial_status::initial_status;
use crate::registry::Registry;
use crate::strategy::MetadataRules;
use crate::subresources::scale_faults;
use crate::target::Target;
use crate::warnings::Warnings;

/// Metadata that only the server writes. Values from a client are replaced or dropped.
const SERVER_OWNED: [&str; 4] = ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Sets the uid and creation time of a new object, which is in its stored version. Drops fields that a client may not
/// set in a create.
pub(crate) fn stamp_new(registry: &Registry, target: &Target, object: &mut Object, creator: &Caller) {
    for field in SERVER_OWNED {
        object.remove_meta(field);
    }
    object.set_meta("uid", registry.random.uuid());
    object.set_meta("creationTimestamp", rfc3339(registry.clock.now()));
    if target.resource.generation {
        object.set_meta("generation", 1);
    }
    if target.parts_status() && !target.strategy().create.keeps_status_on_create(creator) {
        match initial_status(target, object, registry.now()).or_else(|| default_status(target)) {
            Some(status) => object.0.insert("status", status),
            None => object.0.remove("status"),
        };
    }
}

/// The status that the schema gives a custom resource after a reset of its status.
fn default_status(target: &Target) -> Option<Value> {
    target.resource.version(&target.storage_kind().version)?.default_status().cloned()
}

/// The schema errors of an object in the version of the request, compared with its state `old`. Errors that it had
/// before are warnings. Only custom resources are validated so.
pub(crate) fn schema_faults(
    target: &Target,
    old: Option<&mut Object>,
    object: &mut Object,
    warnings: &Warnings,
) -> Vec<FieldError> {
    let Some(rules) = target.version.structural() else { return Vec::new() };
    let of_scale = scale_faults(target, object);
    let value = Value::Object(std::mem::take(&mut object.0));
    // As upstream, a write of the status reports errors of the status alone.
    let part = target.subresource_name().filter(|name| *name == "status");
    let found = match old {
        None => rules.validate_beside(&value, None, part, of_scale),
        Some(old) => {
            let before = Value::Object(std::mem::take(&mut old.0));
            let found = rules.validate_beside(&value, Some(&before), part, of_scale);
            *old = Object::from_value(before).unwrap_or_default();
            found
        }
    };
    *object = Object::from_value(value).unwrap_or_default();
    warnings.extend(found.warnings);
    found.faults
}

/// Refuses an object with schema faults if it must be converted before its other faults can be found.
///
/// # Errors
/// 422 with the schema faults.
pub(crate) fn refuse_unconverted(
    target: &Target,
    object: &Object,
    faults: Vec<FieldError>,
) -> Result<Vec<FieldError>, ApiError> {
    if target.kind() != target.storage_kind() {
        refuse(target, object, faults)?;
        return Ok(Vec::new());
    }
    Ok(faults)
}

/// Checks a new object that is ready to be stored, and records warnings. `faults` are its schema faults.
///
/// # Errors
/// 422 with all faults of the object. 500 if the client set a resourceVersion, unless in a dry run.
pub(crate) fn check_new(
    registry: &Registry,
    target: &Target,
    object: &Object,
    faults: Vec<FieldError>,
    caller: &Caller,
) -> Result<(), ApiError> {
    let (rules, warnings) = (target.version.rules(), caller.warnings());
    refuse(target, object, rules.alone(None, object))?;
    let mut errors = target.strategy().create.faults_beside_others(registry, object)?;
    errors.extend(faults_of_new(target, object, faults));
    refuse(target, object, errors)?;
    if warnings.are_read() {
        warnings.extend(rules.warnings(None, object));
        warn_of_finalizers(target, None, object, warnings);
    }
    // A resourceVersion that is not a number is no revision, and a dry run stores no object.
    match object.resource_version().parse::<u64>() {
        Ok(0) | Err(_) => Ok(()),
        Ok(_) if caller.is_dry_run() => Ok(()),
        Ok(_) => Err(ApiError::RevisionOnCreate),
    }
}

/// All faults of a new object. `faults` are its schema faults.
fn faults_of_new(target: &Target, object: &Object, faults: Vec<FieldError>) -> Vec<FieldError> {
    let of_kind = target.version.rules().create(object);
    let (namespaced, rule) = (target.is_namespaced(), target.resource.name_rule);
    let mut errors = match target.version.metadata_rules() {
        MetadataRules::PlainAndLast if !of_kind.is_empty() => return of_kind,
        MetadataRules::PlainAndLast => return validate_custom_metadata(object, namespaced, NameRule::PathSegment),
        MetadataRules::Plain => validate_custom_metadata(object, namespaced, rule),
        MetadataRules::DomainsForFinalizers => validate_metadata(object, namespaced, rule),
    };
    errors.extend(faults);
    errors.extend(of_kind);
    errors
}

/// Checks the new state of an object, by itself and against the old state, and records warnings.
///
/// # Errors
/// 422 with everything that is wrong.
pub(crate) fn validate_update(
    target: &Target,
    (current, next): (&Object, &Object),
    carried: MetadataErrors,
    faults: Vec<FieldError>,
    warnings: &Warnings,
) -> Result<(), ApiError> {
    let rules = target.version.rules();
    if target.subresource.is_none() {
        refuse(target, next, rules.alone(Some(current), next))?;
    }
    // The name cannot have changed, so only the rules for every name apply.
    let mut errors = validate_custom_metadata(next, target.is_namespaced(), NameRule::Stored);
    let is_metadata_right = errors.is_empty();
    errors.extend(faults);
    let beside: Vec<FieldError> = new_finalizers(current, next).into_iter().chain(carried.faults).collect();
    if !target.resource.is_builtin() {
        // Upstream validates these twice.
        errors.extend(beside.iter().cloned());
    }
    errors.extend(beside);
    let free_finalizers = target.version.metadata_rules() != MetadataRules::DomainsForFinalizers;
    errors.extend(validate_changed_metadata(next, is_metadata_right, free_finalizers));
    errors.extend(rules.update(target.subresource_name(), current, next));
    refuse(target, next, errors)?;
    if target.subresource.is_none() && warnings.are_read() {
        warnings.extend(rules.warnings(Some(current), next));
        warn_of_finalizers(target, Some(current), next, warnings);
    }
    Ok(())
}

/// Warns of new finalizers of a custom resource that are not qualified.
fn warn_of_finalizers(target: &Target, current: Option<&Object>, next: &Object, warnings: &Warnings) {
    if !target.resource.is_builtin() {
        warnings.extend(finalizer_warnings(current, next));
    }
}

/// An object that is being deleted gets no new finalizers.
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

/// Returns true if the specification changed, so that the generation increases. Both objects are in one version.
pub(crate) fn asks_for_more(target: &Target, current: &Object, next: &Object) -> bool {
    // A write of the status may change annotations, but never the desired state.
    let asks = target.resource.generation && target.subresource_name() != Some("status");
    let status_asks = !target.resource.is_builtin() && !target.parts_status();
    asks && (target.strategy().update.raises_generation(current, next) || status_asks && !same_status(current, next))
}

/// The errors for metadata that a client sent and cannot change.
#[must_use]
pub(crate) struct MetadataErrors {
    faults: Vec<FieldError>,
}

/// Copies the metadata that an update cannot change from the stored object: uid, times of creation and deletion, and
/// generation. The generation increases by one if `is_counted`.
pub(crate) fn carry_over(current: &Object, next: &mut Object, is_counted: bool) -> MetadataErrors {
    let faults = begun_deletions(current, next);
    for field in SERVER_OWNED {
        match current.metadata().and_then(|metadata| metadata.get(field)) {
            Some(value) => next.set_meta(field, value.clone()),
            None => next.remove_meta(field),
        }
    }
    next.remove_meta("resourceVersion");
    match current.generation() {
        Some(generation) => next.set_meta("generation", generation + i64::from(is_counted)),
        None => next.remove_meta("generation"),
    }
    MetadataErrors { faults }
}

/// The errors of a write that begins a deletion, or changes its grace period. A deletion that has begun stays as it is,
/// whatever the client sends.
fn begun_deletions(current: &Object, next: &Object) -> Vec<FieldError> {
    let is_new = |field: &&str| match (current.meta(field), next.meta(field)) {
        (_, None | Some(Value::Null)) => false,
        (None, Some(_)) => true,
        (Some(before), Some(now)) => *field == "deletionGracePeriodSeconds" && !equal(before, now),
    };
    let fields = ["deletionTimestamp", "deletionGracePeriodSeconds"].into_iter().filter(is_new);
    let fault = |field: &str| {
        let sent = next.meta(field).cloned().unwrap_or_default();
        FieldError::invalid(format!("metadata.{field}"), sent, "field is immutable")
    };
    fields.map(fault).collect()
}

fn same_status(left: &Object, right: &Object) -> bool {
    match (left.0.get("status"), right.0.get("status")) {
        (None, None) => true,
        (Some(left), Some(right)) => equal(left, right),
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Returns true if only metadata and status changed.
pub fn same_specification(left: &Object, right: &Object) -> bool {
    let own = |key: &str| !matches!(key, "kind" | "apiVersion" | "metadata" | "status");
    let fields = |object: &Object| object.0.iter().filter(|(key, _)| own(key)).count();
    fields(left) == fields(right)
        && left
            .0
            .iter()
            .filter(|(key, _)| own(key))
            .all(|(key, value)| right.0.get(key).is_some_and(|other| equal(value, other)))
}
