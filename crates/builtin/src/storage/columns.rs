//! The columns of storage.k8s.io: storage classes, volume attachments and CSI drivers.
//!
//! The default storage class is marked after its name.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::{join, or};

use crate::storage::column_docs as docs;

/// The annotations of the default storage class.
const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "CSIDriver" => Printer::new(CSI_DRIVER, csi_driver),
        "CSINode" => Printer::new(CSI_NODE, csi_node),
        "StorageClass" => Printer::new(STORAGE_CLASS, storage_class),
        "VolumeAttachment" => Printer::new(VOLUME_ATTACHMENT, volume_attachment),
        "VolumeAttributesClass" => Printer::new(VOLUME_ATTRIBUTES_CLASS, volume_attributes_class),
        _ => return None,
    })
}

const STORAGE_CLASS: &[Column<'_>] = &[
    NAME,
    Column::text("Provisioner", "provisioner indicates the type of the provisioner."),
    Column::text("ReclaimPolicy", docs::STORAGE_CLASS_RECLAIM_POLICY),
    Column::text("VolumeBindingMode", docs::STORAGE_CLASS_VOLUME_BINDING_MODE),
    Column::text("AllowVolumeExpansion", "allowVolumeExpansion shows whether the storage class allow volume expand."),
    AGE,
];

fn storage_class(of: Subject<'_>) -> Vec<Value> {
    vec![
        of.name_of_class(&DEFAULT_CLASS),
        of.at("provisioner").cell(),
        of.at("reclaimPolicy").cell_or("Delete"),
        of.at("volumeBindingMode").cell_or("Immediate"),
        of.at("allowVolumeExpansion").flag().into(),
        of.age(),
    ]
}

const VOLUME_ATTRIBUTES_CLASS: &[Column<'_>] =
    &[NAME, Column::text("DriverName", "Name of the CSI driver This field is immutable."), AGE];

fn volume_attributes_class(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("driverName").cell(), of.age()]
}

const VOLUME_ATTACHMENT: &[Column<'_>] = &[
    NAME,
    Column::text("Attacher", docs::VOLUME_ATTACHMENT_ATTACHER).named(),
    Column::text("PV", "persistentVolumeName represents the name of the persistent volume to attach."),
    Column::text("Node", "nodeName represents the node that the volume should be attached to."),
    Column::boolean("Attached", docs::VOLUME_ATTACHMENT_ATTACHED),
    AGE,
];

fn volume_attachment(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        spec.at("attacher").cell(),
        spec.at("source").at("persistentVolumeName").cell(),
        spec.at("nodeName").cell(),
        of.at("status").at("attached").flag().into(),
        of.age(),
    ]
}

const CSI_NODE: &[Column<'_>] =
    &[NAME, Column::integer("Drivers", "Drivers indicates the number of CSI drivers registered on the node"), AGE];

fn csi_node(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("drivers").len_cell(), of.age()]
}

const CSI_DRIVER: &[Column<'_>] = &[
    NAME,
    Column::boolean("AttachRequired", docs::CSI_DRIVER_ATTACH_REQUIRED),
    Column::boolean("PodInfoOnMount", docs::CSI_DRIVER_POD_INFO_ON_MOUNT),
    Column::boolean("StorageCapacity", docs::CSI_DRIVER_STORAGE_CAPACITY),
    Column::text("TokenRequests", docs::CSI_DRIVER_TOKEN_REQUESTS),
    Column::boolean("RequiresRepublish", docs::CSI_DRIVER_REQUIRES_REPUBLISH),
    Column::text("Modes", docs::CSI_DRIVER_MODES),
    AGE,
];

fn csi_driver(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let requests = spec.at("tokenRequests");
    let audiences = join(requests.items().map(|request| request.at("audience").text()), ",");
    let modes = join(spec.at("volumeLifecycleModes").items().map(FieldValue::text), ",");
    vec![
        of.name(),
        spec.at("attachRequired").set_flag().unwrap_or(true).into(),
        spec.at("podInfoOnMount").flag().into(),
        spec.at("storageCapacity").flag().into(),
        if requests.is_set() { audiences.into() } else { "<unset>".into() },
        spec.at("requiresRepublish").flag().into(),
        or(&modes, "<none>").into(),
        of.age(),
    ]
}
