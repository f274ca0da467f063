//! Decodes a client's object into the requested version: kind, types of all fields, unknown fields, defaults, and
//! Kubernetes' order of fields.
//!
//! Invariant: this module does not know what is stored. Defaults come before the walk over the schema, so that one pass
//! checks and orders everything, including the defaults.

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Value, ValueKind};
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupKind, GroupVersion, GroupVersionKind, Object, go_format};
use keelson_resources::ResponseKind;
use keelson_schema::{Structural, WalkOptions, WalkReport};

use crate::subresources;
use crate::target::Target;
use crate::warnings::Warnings;

/// Decodes an object sent to the target's URL: an object of its resource, or of the kind of its subresource. `faults`
/// were found while parsing and matter to field validation only. Faults that are not refused become warnings.
///
/// # Errors
/// 400 for a value that is not an object, for another kind, version or namespace, and for a field of a wrong type. With
/// strict field validation, also 400 for an unknown or duplicate field.
pub fn accept(
    target: &Target,
    sent: Value,
    faults: &[String],
    validation: FieldValidation,
    warnings: &Warnings,
) -> Result<Object, ApiError> {
    if target.subresource.as_ref().is_some_and(|below| below.response != ResponseKind::Parent) {
        return subresources::accept(target, sent, faults, validation, warnings);
    }
    let mut object = object_of(sent, &target.resource.kind)?;
    check_type(target, &mut object)?;
    let kind = target.kind();
    let minded = conform(target, kind, &mut object, faults, validation).map_err(|fault| {
        let GroupVersionKind { version, kind, .. } = kind;
        ApiError::BadRequest(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {fault}"))
    })?;
    warnings.extend(minded);
    match_url(target, &mut object)?;
    Ok(object)
}

/// Decodes an object that the server itself creates. Unknown fields are dropped without a warning.
///
/// # Errors
/// As [`accept`].
pub fn fit(target: &Target, object: &mut Object) -> Result<(), ApiError> {
    let sent = Value::Object(std::mem::take(&mut object.0));
    *object = accept(target, sent, &[], FieldValidation::Ignore, &Warnings::default())?;
    Ok(())
}

/// Normalizes an object by its schema, and returns the warnings for its sender. `faults` were found before and matter
/// to field validation only.
///
/// # Errors
/// The text of upstream's decoder for a field of a wrong type, or of strict field validation.
pub(crate) fn conform(
    target: &Target,
    kind: &GroupVersionKind,
    object: &mut Object,
    faults: &[String],
    validation: FieldValidation,
) -> Result<Vec<String>, String> {
    if target.resource.is_builtin() {
        keep_reset(object);
    }
    let Some((schema, defaults)) = target.form_of(kind) else {
        return strict(faults.iter().cloned(), validation).map_err(|faults| format!("strict decoding error: {faults}"));
    };
    if let Some(rules) = target.version.structural().filter(|_| schema.is_structural()) {
        check_embedded(rules, object)?;
    }
    let mut report = WalkReport::default();
    if let Some(defaults) = defaults {
        defaults.fill(object);
    }
    schema.walk(object, &mut report, WalkOptions::STORE);
    if let Some(fault) = report.type_error() {
        return Err(fault);
    }
    if report.is_overfilled() {
        return Err("its defaults would make it too large to be stored".to_owned());
    }
    let mut unknown: Vec<String> = report.unknown_field_messages().collect();
    let stated_twice = faults.iter().cloned();
    let faults: Vec<String> = if schema.is_structural() {
        // As upstream, which finds unknown fields after its decoder has run, in no order of fields.
        unknown.sort_unstable();
        stated_twice.chain(unknown).collect()
    } else {
        unknown.into_iter().chain(stated_twice).collect()
    };
    strict(faults.into_iter(), validation).map_err(|faults| format!("strict decoding error: {faults}"))
}

/// Checks parts that the walk would prune: metadata that is not an object, and embedded objects of a custom resource,
/// which upstream decodes before it applies the schema.
///
/// # Errors
/// The text of upstream's decoder.
fn check_embedded(rules: &Structural, object: &mut Object) -> Result<(), String> {
    if let Some(other) = object.0.get("metadata").filter(|metadata| !metadata.is_object() && !metadata.is_null()) {
        let found = go_format::found(&ValueKind::from_value(other), "");
        return Err(format!("json: cannot unmarshal {found} into Go value of type v1.ObjectMeta"));
    }
    let value = Value::Object(std::mem::take(&mut object.0));
    let fault = rules.type_fault_of_embedded(&value);
    *object = Object::from_value(value).unwrap_or_default();
    fault.map_or(Ok(()), |fault| Err(fault.to_string()))
}

/// An empty list of managed fields resets the owners, but would be dropped like any empty list. One empty entry has the
/// same effect and is kept. Upstream drops the empty list of a custom resource first, so it has no effect there.
fn keep_reset(object: &mut Object) {
    if object.meta("managedFields").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        object.set_meta("managedFields", keelson_meta::json::json!([{}]));
    }
}

/// The warnings or the error that field validation makes of faults.
pub(crate) fn strict(faults: impl Iterator<Item = String>, validation: FieldValidation) -> Result<Vec<String>, String> {
    match validation {
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(faults.collect()),
        FieldValidation::Strict => match faults.collect::<Vec<_>>() {
            none if none.is_empty() => Ok(none),
            some => Err(some.join(", ")),
        },
    }
}

/// Checks that an object has the namespace and name of the URL. A missing namespace is filled in. A missing name is an
/// error, since such an object may have lost all its metadata.
///
/// # Errors
/// 400 if it has no name, or another name or namespace.
pub(crate) fn match_url(target: &Target, object: &mut Object) -> Result<(), ApiError> {
    match_namespace(target, object)?;
    target.name.as_deref().map_or(Ok(()), |name| match_name(name, object))
}

/// Checks that an object has the namespace of the URL. A missing namespace is filled in.
///
/// # Errors
/// 400 if it has another namespace.
pub(crate) fn match_namespace(target: &Target, object: &mut Object) -> Result<(), ApiError> {
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
    Ok(())
}

/// Checks that an object, or its form at a subresource, has the name of the URL.
///
/// # Errors
/// 400 if it has no name or another name.
pub fn match_name(name: &str, object: &Object) -> Result<(), ApiError> {
    let message = match object.name() {
        found if found == name => return Ok(()),
        "" => format!("the name of the object ({name} based on URL) was undeterminable: name must be provided"),
        found => format!("the name of the object ({found}) does not match the name on the URL ({name})"),
    };
    Err(ApiError::BadRequest(message))
}

/// Checks that an object has the target's kind and version. Missing ones are filled in.
///
/// # Errors
/// 400 if it has others.
pub(crate) fn check_type(target: &Target, object: &mut Object) -> Result<(), ApiError> {
    if is_of_type(target, object) {
        return Ok(());
    }
    let expected = target.kind();
    let kind = object.kind().filter(|kind| !kind.is_empty()).unwrap_or(&expected.kind);
    let expected_version = expected.group_version().to_string();
    let stated = object.api_version().unwrap_or_default();
    // A slash before the version means the core group. A slash alone means no version.
    let stated = match stated.strip_prefix('/') {
        Some(version) if target.resource.is_builtin() && !version.contains('/') => version,
        _ => stated,
    };
    let api_version = if stated.is_empty() { &expected_version } else { stated };
    if kind == expected.kind && api_version == expected_version {
        object.set_type(expected);
        return Ok(());
    }
    if !target.resource.is_builtin() {
        return Err(wrong_custom_type(target, object, (kind, api_version)));
    }
    let wrong_type = |why: String| {
        ApiError::BadRequest(format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
            expected.kind,
            version = api_version.rsplit('/').next().unwrap_or(api_version),
        ))
    };
    if !is_known(target, api_version, kind) {
        return Err(wrong_type(format!(
            "no kind \"{kind}\" is registered for version \"{api_version}\" in scheme \"{}\"",
            scheme(&expected.group)
        )));
    }
    if kind != expected.kind {
        return Err(wrong_type(unknown_conversion(api_version, kind, expected)));
    }
    Err(ApiError::BadRequest(format!(
        "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
    )))
}

/// Returns true if this server serves the kind in this version.
pub(crate) fn is_known(target: &Target, api_version: &str, kind: &str) -> bool {
    GroupVersion::parse(api_version).is_some_and(|sent| {
        target.surface.by_kind(&sent.group, kind).is_some_and(|known| known.version(&sent.version).is_some())
    })
}

/// Upstream's text for an object of a known kind where another kind is expected.
pub(crate) fn unknown_conversion(api_version: &str, kind: &str, expected: &GroupVersionKind) -> String {
    let version = api_version.rsplit('/').next().unwrap_or(api_version);
    let package = internal_package(&expected.group);
    format!("converting ({version}.{kind}) to ({package}.{}): unknown conversion", expected.kind)
}

/// The error for a custom resource of another kind or version, which upstream decodes and then refuses.
fn wrong_custom_type(target: &Target, object: &Object, (kind, api_version): (&str, &str)) -> ApiError {
    let (expected, expected_version) = (target.kind(), target.version.api_version());
    if api_version != expected_version {
        return ApiError::BadRequest(format!(
            "the API version in the data ({api_version}) does not match the expected API version ({expected_version})"
        ));
    }
    let fault = FieldError::invalid("kind", kind.to_owned(), format!("must be {}", expected.kind));
    let sent = GroupKind { group: expected.group.clone(), kind: kind.to_owned() };
    ApiError::Invalid { kind: sent, name: object.name().to_owned(), errors: vec![fault] }
}

/// Returns true if an object names the target's kind and version exactly as the server writes them.
fn is_of_type(target: &Target, object: &Object) -> bool {
    object.kind() == Some(&*target.resource.kind) && object.api_version() == Some(target.version.api_version())
}

/// The scheme that upstream's messages name for the types of a group.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// The package that upstream's messages name for the unversioned types of a group.
fn internal_package(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.split('.').next().unwrap_or(group) }
}

/// Returns the document as an object.
///
/// # Errors
/// 400 for a list, a text, a number or nothing.
pub fn object_of(value: Value, kind: &str) -> Result<Object, ApiError> {
    Object::from_value(value).ok_or_else(|| {
        ApiError::BadRequest(format!("the object provided is unrecognized (must be of type {kind}): not a JSON object"))
    })
}
