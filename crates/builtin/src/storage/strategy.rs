//! Strategies of volume attachments and volume attributes classes, and the default storage class of claims.
//!
//! Volumes and claims are in the core group.

use keelson_meta::{ApiError, Object};
use keelson_registry::strategy::{
    ClosedFields, CreateStrategy, DeleteStrategy, FieldPath, Strategies, UpdateStrategy, metadata_of_status,
};
use keelson_registry::{BuiltinStagePlugin, Registry, Target};

use crate::strategy::RETURNS_DELETED;
use crate::strategy::classes::{has_annotation, newest_default, set_class};
use crate::strategy::protect;

/// The strategies of a resource of the group.
pub(crate) fn strategies(plural: &str) -> &'static Strategies {
    match plural {
        "csidrivers" | "csinodes" | "storageclasses" => &RETURNS_DELETED,
        "volumeattachments" => &const { Strategies::ORDINARY.update(&VolumeAttachments).delete(&VolumeAttachments) },
        "volumeattributesclasses" => {
            &const { Strategies::ORDINARY.create(&VolumeAttributesClasses).delete(&VolumeAttributesClasses) }
        }
        _ => &Strategies::ORDINARY,
    }
}

/// The fields of a resource that feature gates guard.
pub(crate) fn closed_fields(plural: &str) -> Vec<ClosedFields> {
    match plural {
        "csinodes" => vec![ClosedFields::new("CSIVolumeHealth", &["status"], &[&["storageHealth"]])],
        _ => Vec::new(),
    }
}

const IS_DEFAULT: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];
/// The annotation for the class of a claim that preceded the field.
const CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// Sets the default storage class of a claim that names none.
pub(crate) fn take_default_class(registry: &Registry, claim: &mut Object) -> Result<(), ApiError> {
    let named = claim.get(&["spec", "storageClassName"]).is_some_and(|class| !class.is_null());
    if named || has_annotation(claim, CLASS) || !registry.does(BuiltinStagePlugin::DefaultStorageClass) {
        return Ok(());
    }
    let class = newest_default(registry, "storage.k8s.io", "storageclasses", &IS_DEFAULT)?;
    set_class(claim, "storageClassName", class);
    Ok(())
}

/// The strategy of volume attachments.
pub(crate) struct VolumeAttachments;

impl UpdateStrategy for VolumeAttachments {
    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }
}

impl DeleteStrategy for VolumeAttachments {
    fn returns_deleted(&self) -> bool {
        true
    }
}

/// The strategy of volume attributes classes.
pub(crate) struct VolumeAttributesClasses;

impl CreateStrategy for VolumeAttributesClasses {
    fn admit(&self, registry: &Registry, _: &Target, object: &mut Object) -> Result<bool, ApiError> {
        Ok(protect(registry, object, "kubernetes.io/vac-protection"))
    }
}

impl DeleteStrategy for VolumeAttributesClasses {
    fn returns_deleted(&self) -> bool {
        true
    }
}
