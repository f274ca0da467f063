//! Storage classes, drivers and attachments.
//!
//! Knows the rules of these kinds alone; what they share with others stands beside the groups.

use crate::shape::{Kind, kind};

pub(super) const KINDS: &[Kind] = &[
    kind("CSIDriver"),
    kind("CSINode"),
    kind("CSIStorageCapacity"),
    kind("StorageClass"),
    kind("VolumeAttachment"),
    kind("VolumeAttributesClass"),
];
