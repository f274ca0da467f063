//! The versions of the storage kinds.
//!
//! All versions have the same fields.

use crate::converting::families::{Family, family, hub};
use crate::converting::retired::{ALPHA, BETA, BOTH, RetiredVersions, row};

const GROUP: &str = "storage.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[family("VolumeAttributesClass", &[hub(GROUP, "v1"), hub(GROUP, "v1beta1")])];

pub(crate) const RETIRED: &[RetiredVersions] = &[
    row("CSIDriver", GROUP, BETA),
    row("CSINode", GROUP, BETA),
    row("CSIStorageCapacity", GROUP, BOTH),
    row("StorageClass", GROUP, BETA),
    row("VolumeAttachment", GROUP, BOTH),
    row("VolumeAttributesClass", GROUP, ALPHA),
];
