//! The stored version of a target's objects, and the conversions to it and from it.
//!
//! An object that is stored in another version than this server writes is converted when it changes, so that a write
//! always stores the newest form. The conversion may need a webhook and can fail. Then nothing is written.

use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

use crate::converter::{ask, name_of};
use crate::intake::conform;
use crate::registry::Registry;
use crate::surface::{ServedResource, VersionChange};
use crate::target::Target;

impl Registry {
    /// Converts an object from any version to the stored one, and drops fields that a client may not store.
    ///
    /// # Errors
    /// 500 if it is in no version of its kind, or cannot be converted.
    pub(crate) async fn to_storage(&self, target: &Target, mut object: Object) -> Result<Object, ApiError> {
        convert(target, &mut object, target.storage_kind()).await?;
        self.canonical(target, &mut object)?;
        Ok(object)
    }

    /// Drops fields that a client may not store from an object in the stored version.
    ///
    /// # Errors
    /// 500 if it is not of its kind.
    pub(crate) fn canonical(&self, target: &Target, object: &mut Object) -> Result<(), ApiError> {
        let stored = target.storage_kind();
        match target.resource.version(&stored.version).and_then(|version| version.canonical()) {
            Some(canonical) => canonical.convert(object).map_err(|error| {
                unconvertible(&target.resource, Some(object), &stored.version, stored, &error.to_string())
            }),
            None => Ok(()),
        }
    }
}

/// Converts an object from its own version to another one.
///
/// # Errors
/// 500 if it is in no version of its kind, which only a stored object can be, or if it cannot be converted.
pub(crate) async fn convert(target: &Target, object: &mut Object, to: &GroupVersionKind) -> Result<(), ApiError> {
    if convert_now(target, object, to)? {
        return Ok(());
    }
    let converted = convert_both(target, std::slice::from_ref(object), to).await?;
    if let Some(converted) = converted.into_iter().next() {
        *object = converted;
    }
    Ok(())
}

/// Converts objects of one version to another by one call of a webhook.
///
/// # Errors
/// As [`convert`].
pub(crate) async fn convert_both(
    target: &Target,
    objects: &[Object],
    to: &GroupVersionKind,
) -> Result<Vec<Object>, ApiError> {
    let from = objects.first().and_then(Object::api_version).unwrap_or_default();
    let unknown = || unconvertible(&target.resource, objects.first(), from, to, "nothing leads there");
    let source = version_of(&target.resource, from).ok_or_else(unknown)?;
    let version = target.resource.version(&to.version).ok_or_else(unknown)?;
    let converter = target.resource.converter().ok_or_else(unknown)?;
    let mut converted = ask(&**converter, &source, to, objects).await?;
    converted.iter_mut().for_each(|object| version.shape(object));
    Ok(converted)
}

/// Converts an object to another version if no webhook is needed. Returns true if it did.
///
/// # Errors
/// As [`convert`].
pub(crate) fn convert_now(target: &Target, object: &mut Object, to: &GroupVersionKind) -> Result<bool, ApiError> {
    let from = object.api_version().unwrap_or_default();
    let Some(change) = target.resource.change_to(from, to) else {
        let why = "its version is not served";
        return Err(unconvertible(&target.resource, Some(object), from, to, why));
    };
    match change {
        VersionChange::None => {}
        VersionChange::Asked(_) => return Ok(false),
        VersionChange::Name => object.set_type(to),
        VersionChange::Schema => {
            object.set_type(to);
            if let Some(version) = target.resource.version(&to.version) {
                version.shape(object);
            }
        }
        VersionChange::Fields(conversion) => {
            let (name, from) = (name_of(object), from.to_owned());
            conversion
                .convert(object)
                .map_err(|error| failed(&target.resource, &name, &from, to, &error.to_string()))?;
            // Brings fields that the conversion added into the order of their version.
            conform(target, to, object, &[], FieldValidation::Ignore).map_err(ApiError::Internal)?;
        }
    }
    Ok(true)
}

/// The version of a resource with this `apiVersion`.
pub(crate) fn version_of(resource: &ServedResource, api_version: &str) -> Option<GroupVersionKind> {
    let (group, version) = GroupVersion::split(api_version)?;
    let known = resource.version(version).filter(|_| resource.group == group)?;
    Some(known.kind().clone())
}

/// 500: an object cannot be converted.
pub(crate) fn unconvertible(
    resource: &ServedResource,
    object: Option<&Object>,
    from: &str,
    to: &GroupVersionKind,
    why: &str,
) -> ApiError {
    failed(resource, &object.map(name_of).unwrap_or_default(), from, to, why)
}

fn failed(resource: &ServedResource, name: &str, from: &str, to: &GroupVersionKind, why: &str) -> ApiError {
    let (resource, to) = (resource.group_resource(), to.group_version());
    ApiError::Internal(format!("{resource} {name} can't be converted from {from:?} to {to}: {why}"))
}
