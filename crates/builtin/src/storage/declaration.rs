//! The declarations of storage classes, CSI drivers and volume attachments.
//!
//! Controllers outside of this server provision and attach volumes.

use keelson_resources::declare::{GroupDeclaration, STATUS, cluster, namespaced, served, version};

use crate::deprecation::{Deprecation, goes};

const GROUP: &str = "storage.k8s.io";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 16800,
    versions: &[version("v1", 15), version("v1beta1", 9)],
    resources: &[
        cluster(GROUP, "csidrivers", "csidriver", "CSIDriver").updated_only_from_a_revision(),
        cluster(GROUP, "csinodes", "csinode", "CSINode").updated_only_from_a_revision(),
        namespaced(GROUP, "csistoragecapacities", "csistoragecapacity", "CSIStorageCapacity")
            .updated_only_from_a_revision(),
        cluster(GROUP, "storageclasses", "storageclass", "StorageClass").short_names(&["sc"]),
        cluster(GROUP, "volumeattachments", "volumeattachment", "VolumeAttachment")
            .versions(&[served("v1").with(&[STATUS])])
            .updated_only_from_a_revision(),
        cluster(GROUP, "volumeattributesclasses", "volumeattributesclass", "VolumeAttributesClass")
            .versions(&[served("v1"), served("v1beta1").until(37)])
            .short_names(&["vac"]),
    ],
};

pub(crate) const DEPRECATIONS: &[Deprecation] =
    &[goes("v1beta1", &["VolumeAttributesClass"], 34).instead("storage.k8s.io/v1 VolumeAttributesClass")];
