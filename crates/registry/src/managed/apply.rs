//! Server-side apply of one object to another (KEP-555): computes the new object and its owners.
//!
//! The order of the checks is upstream's, since a client sees only the first that fails.

use std::time::SystemTime;

use keelson_meta::clock::rfc3339;
use keelson_meta::field_error::{FieldError, FieldErrorKind};
use keelson_meta::json::Value;
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};
use keelson_patch::fields::{
    self, BEFORE_FIRST_APPLY, Conflicts, Duplicates, Manager, Owners, Versions as _, validate,
};
use keelson_schema::{SchemaRef, WalkOptions, WalkReport};

use super::{KindVersions, MANAGED_FIELDS, give_back, is_untimed, last_applied, lend};
use crate::intake::conform;
use crate::target::Target;

/// An applied configuration: an object with only the fields that its manager sets.
#[derive(Clone, Debug)]
pub(crate) struct Application<'a> {
    /// The object, as it was sent.
    pub(crate) object: &'a Value,
    /// The field manager.
    pub(crate) manager: &'a str,
    /// True if the request takes over fields of other managers.
    pub(crate) force: bool,
    /// The time of the request.
    pub(crate) now: SystemTime,
}

/// Checks an applied configuration by itself, before it is applied to an object.
///
/// # Errors
/// 400 for another kind or version, or for managedFields in the configuration. 500, as in upstream, for a configuration
/// that does not fit the schema.
pub(crate) fn check(target: &Target, application: &Application<'_>) -> Result<(), ApiError> {
    let kind = target.kind();
    let version = kind.group_version().to_string();
    let schema = KindVersions::new(target).schema(&version).ok_or(ApiError::UnsupportedPatchType)?;
    check_applied(schema, kind, application.object)
}

/// Applies a configuration to a live object in the version of the request, or to the fields that every new object of
/// the kind has. The result is in the same version, with its owners. `managed` has the owners of the live object.
///
/// Nothing is checked against the schema here: stored objects were checked when they were written, and [`check`] has
/// checked the configuration.
///
/// # Errors
/// 409 for fields of other managers with other values. 500, as in upstream, for owners that cannot be read.
pub(crate) async fn apply(
    target: &Target,
    live: &mut Object,
    managed: Option<&str>,
    application: &Application<'_>,
) -> Result<(Object, Option<String>), ApiError> {
    let known = managed
        .map_or_else(|| Ok(Owners::default()), Owners::read_text)
        .map_err(|error| ApiError::Unclassified(format!("failed to decode managed fields: {error}")))?;
    let mut versions = KindVersions::new(target);
    loop {
        let before = lend(live);
        let done = apply_to(&versions, &before, &known, application);
        give_back(live, before);
        if versions.convert_wanted().await? {
            let done = done?;
            // Unchanged parts keep their form too, so that an apply without effect leaves the same bytes.
            let managed =
                if done.owners.are_still(&known) { managed.map(str::to_owned) } else { Some(done.owners.write_text()) };
            return Ok((done.object, managed.filter(|_| !done.owners.is_empty())));
        }
    }
}

/// The result of an apply.
struct ApplyResult {
    object: Object,
    owners: Owners,
}

fn apply_to(
    versions: &KindVersions<'_>,
    live: &Value,
    known: &Owners,
    application: &Application<'_>,
) -> Result<ApplyResult, ApiError> {
    let target = versions.target();
    let version = target.kind().group_version().to_string();
    let schema = versions.schema(&version).ok_or(ApiError::UnsupportedPatchType)?;
    let subresource = target.subresource_name().unwrap_or_default();
    let now = (!is_untimed(subresource)).then(|| rfc3339(application.now));
    let write = Write { versions, version: &version, subresource, now: now.as_deref() };
    let first = known.is_empty().then(|| write.before_first_apply(target.version.empty(), live));
    let owners = first.as_ref().unwrap_or(known);
    let done = write.apply(owners, application, schema, live).map_err(|conflicts| conflict(&conflicts))?;

    let mut object = if done.changed {
        fit(target, application.object, without_foreign_nulls(target, done.object))?
    } else {
        object_of(live.clone())
    };
    if application.manager == last_applied::MANAGER {
        last_applied::renew(&mut object, application.object);
    }
    Ok(ApplyResult { object, owners: done.owners })
}

/// Removes a status with nulls, if the endpoint does not write the status: ignored fields are not validated. The
/// endpoint then sets the status of the live object.
fn without_foreign_nulls(target: &Target, mut object: Value) -> Value {
    let is_ignored = target.subresource.is_none() && !target.resource.is_builtin() && target.parts_status();
    if let Some(object) = object.as_object_mut().filter(|_| is_ignored)
        && object.get("status").is_some_and(has_null)
    {
        object.remove("status");
    }
    object
}

/// The write of an apply.
struct Write<'w, 't> {
    versions: &'w KindVersions<'t>,
    version: &'w str,
    subresource: &'w str,
    now: Option<&'w str>,
}

impl Write<'_, '_> {
    /// The owners of an object without managedFields: its fields belong to the manager `before-first-apply`.
    fn before_first_apply(&self, nothing: &Value, live: &Value) -> Owners {
        let manager = Manager::updates(BEFORE_FIRST_APPLY, self.version, self.subresource);
        let writer = fields::Writer { manager: &manager, version: self.version, now: self.now };
        fields::update(self.versions, &Owners::default(), writer, nothing, live)
    }

    fn apply(
        &self,
        owners: &Owners,
        application: &Application<'_>,
        schema: SchemaRef<'_>,
        live: &Value,
    ) -> Result<fields::Applied, Conflicts> {
        let manager = Manager::applies(application.manager, self.subresource);
        let writer = fields::Writer { manager: &manager, version: self.version, now: self.now };
        let apply = |force| fields::apply(self.versions, owners, writer, live, application.object, force);
        match apply(application.force) {
            Err(conflicts) if application.manager == last_applied::MANAGER => {
                last_applied::resolve(conflicts, schema, self.version, live)?;
                apply(true)
            }
            done => done,
        }
    }
}

/// Checks an applied configuration by itself.
///
/// # Errors
/// 400 for another kind or version, or for managedFields in it. 500 if it does not fit the schema.
pub(crate) fn check_applied(schema: SchemaRef<'_>, kind: &GroupVersionKind, applied: &Value) -> Result<(), ApiError> {
    check_kind(kind, applied)?;
    if !applied["metadata"][MANAGED_FIELDS].is_null() {
        return Err(ApiError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    validate(schema, applied, Duplicates::Refused).map_err(|violations| {
        let name = identity(applied, kind);
        ApiError::Unclassified(format!("failed to create typed patch object ({name}): {violations}"))
    })
}

fn check_kind(kind: &GroupVersionKind, applied: &Value) -> Result<(), ApiError> {
    let text = |name: &str| applied[name].as_str().unwrap_or_default();
    let GroupVersion { group, version } = GroupVersion::parse(text("apiVersion")).unwrap_or_default();
    let stated = GroupVersionKind { group, version, kind: text("kind").to_owned() };
    if stated == *kind {
        return Ok(());
    }
    Err(ApiError::BadRequest(format!("invalid object type: {}", in_go(&stated))))
}

/// Normalizes an object by its kind: types and defaults. `applied` is the object of the request, which upstream's
/// errors describe.
fn fit(target: &Target, applied: &Value, object: Value) -> Result<Object, ApiError> {
    let kind = target.kind();
    let mut object = object_of(replace_nulls(target, object)?);
    conform(target, kind, &mut object, &[], FieldValidation::Ignore).map_err(|fault| {
        let (name, kind) = (identity(applied, kind), in_go(kind));
        ApiError::Unclassified(format!(
            "failed to convert new object ({name}) to proper version: unable to convert unstructured object to {kind}: \
             error decoding from json: {fault}"
        ))
    })?;
    Ok(object)
}

/// Replaces nulls by defaults, for fields that allow no null. As in upstream, such a null in a custom resource is an
/// error if its field has no default.
///
/// # Errors
/// 422 with each field that has a null and no default.
fn replace_nulls(target: &Target, object: Value) -> Result<Value, ApiError> {
    let Some((rules, schema)) = target.version.structural().zip(target.version.schema()) else { return Ok(object) };
    if !has_null(&object) {
        return Ok(object);
    }
    let mut object = object_of(object);
    schema.walk(&mut object, &mut WalkReport::default(), WalkOptions::DEFAULTS);
    let object = object.into_value();
    let is_null = |fault: &FieldError| matches!(&fault.kind, FieldErrorKind::TypeInvalid { value } if value.as_str() == Some("null"));
    let errors: Vec<FieldError> = rules.validate(&object, None, None).faults.into_iter().filter(is_null).collect();
    if errors.is_empty() {
        return Ok(object);
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    Err(ApiError::Invalid { kind: target.group_kind(), name, errors })
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().any(has_null),
        Value::Object(map) => map.values().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn conflict(conflicts: &Conflicts) -> ApiError {
    ApiError::ApplyConflict { message: conflicts.to_string(), causes: conflicts.causes() }
}

fn object_of(value: Value) -> Object {
    Object::from_value(value).unwrap_or_default()
}

/// The name of an object in upstream's errors about objects that do not fit: namespace and name from its own metadata.
fn identity(object: &Value, kind: &GroupVersionKind) -> String {
    let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
    format!("{}/{}; {}", text("namespace"), text("name"), in_go(kind))
}

fn in_go(kind: &GroupVersionKind) -> String {
    format!("{}/{}, Kind={}", kind.group, kind.version, kind.kind)
}
