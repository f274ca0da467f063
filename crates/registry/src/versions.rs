//! Which version the objects of a target are stored in, and the way there and back.
//!
//! An object that lies in the store in another version than this server writes is led to that version as soon as it is
//! changed, so that a write always leaves the newest form behind.

use keelson_conversion::Conversion;
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

use crate::intake::shape;
use crate::registry::Registry;
use crate::target::Target;

impl Registry {
    /// Leads an object from any version to the one that it is stored in, and takes off what a client may not leave there.
    ///
    /// # Errors
    /// 500 when it is in no version of its kind.
    pub(crate) fn to_storage(&self, target: &Target, mut object: Object) -> Result<Object, ApiError> {
        let stored = target.storage_kind();
        let gv = (stored.group.as_str(), stored.version.as_str());
        convert(target, &mut object, stored)?;
        if let Some(canonical) = Conversion::canonical(&target.resource.group, &target.resource.kind, gv) {
            canonical.convert(&mut object)?;
        }
        Ok(object)
    }
}

/// Leads an object from the version that it names to another one.
///
/// # Errors
/// 500 when it is in no version of its kind: only what is stored can be that.
pub(crate) fn convert(target: &Target, object: &mut Object, to: &GroupVersionKind) -> Result<(), ApiError> {
    let api_version = object.api_version().unwrap_or_default();
    let foreign =
        || ApiError::Internal(format!("a stored {} is in the version {api_version:?}, which is not served", to.kind));
    let from = GroupVersion::split(api_version).ok_or_else(foreign)?;
    let wanted = (to.group.as_str(), to.version.as_str());
    if from == wanted {
        return Ok(());
    }
    let has = |(group, version): (&str, &str)| {
        !target.resource.is_builtin() && target.resource.group == group && target.resource.version(version).is_some()
    };
    if has(from) && has(wanted) {
        // The versions of what others contribute differ by name alone.
        object.set_type(to);
        return Ok(());
    }
    let conversion = Conversion::between(&target.resource.group, &target.resource.kind, from, wanted);
    let conversion = conversion.ok_or_else(foreign)?;
    conversion.convert(object)?;
    if !conversion.is_rename() {
        // Fields that came with the conversion stand where it put them, not where their version has them.
        shape(target, to, object, &[], FieldValidation::Ignore).map_err(ApiError::Internal)?;
    }
    Ok(())
}
