//! The columns of persistent volumes and claims.
//!
//! While a volume is being deleted, the status shows that instead of the phase.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;
use keelson_tables::text::access_modes;

use crate::core::column_docs as docs;

/// The annotation for the storage class that preceded the field. It still takes precedence.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";

pub(super) const VOLUME: Printer = Printer::new(VOLUME_COLUMNS, volume);

const VOLUME_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Capacity", docs::PERSISTENT_VOLUME_CAPACITY),
    Column::text("Access Modes", docs::PERSISTENT_VOLUME_ACCESS_MODES),
    Column::text("Reclaim Policy", docs::PERSISTENT_VOLUME_RECLAIM_POLICY),
    Column::text("Status", docs::PERSISTENT_VOLUME_STATUS),
    Column::text("Claim", docs::PERSISTENT_VOLUME_CLAIM),
    Column::text("StorageClass", "StorageClass of the pv"),
    Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pv"),
    Column::text("Reason", docs::PERSISTENT_VOLUME_REASON),
    AGE,
    Column::text("VolumeMode", docs::PERSISTENT_VOLUME_VOLUME_MODE).wide(),
];

fn volume(of: Subject<'_>) -> Vec<Value> {
    let (spec, claim) = (of.at("spec"), of.at("spec").at("claimRef"));
    let claim = if claim.is_set() {
        format!("{}/{}", claim.at("namespace").text(), claim.at("name").text()).into()
    } else {
        "".into()
    };
    vec![
        of.name(),
        spec.at("capacity").at("storage").quantity().into(),
        access_modes(spec.at("accessModes")).into(),
        spec.at("persistentVolumeReclaimPolicy").cell(),
        phase(&of),
        claim,
        storage_class(&of),
        spec.at("volumeAttributesClassName").cell_or("<unset>"),
        of.at("status").at("reason").cell(),
        of.age(),
        spec.at("volumeMode").cell_or("<unset>"),
    ]
}

pub(super) const CLAIM: Printer = Printer::new(CLAIM_COLUMNS, claim);

const CLAIM_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Status", "phase represents the current phase of PersistentVolumeClaim."),
    Column::text("Volume", "volumeName is the binding reference to the PersistentVolume backing this claim."),
    Column::text("Capacity", "capacity represents the actual resources of the underlying volume."),
    Column::text("Access Modes", docs::PERSISTENT_VOLUME_CLAIM_ACCESS_MODES),
    Column::text("StorageClass", "StorageClass of the pvc"),
    Column::text("VolumeAttributesClass", "VolumeAttributesClass of the pvc"),
    AGE,
    Column::text("VolumeMode", docs::PERSISTENT_VOLUME_CLAIM_VOLUME_MODE).wide(),
];

/// Capacity and access modes are those of the bound volume, so they are empty before there is one.
fn claim(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let volume = spec.at("volumeName").text();
    let (capacity, modes) = if volume.is_empty() {
        (String::new(), String::new())
    } else {
        (status.at("capacity").at("storage").quantity(), access_modes(status.at("accessModes")))
    };
    vec![
        of.name(),
        phase(&of),
        volume.into(),
        capacity.into(),
        modes.into(),
        storage_class(&of),
        spec.at("volumeAttributesClassName").cell_or("<unset>"),
        of.age(),
        spec.at("volumeMode").cell_or("<unset>"),
    ]
}

fn phase(of: &Subject<'_>) -> Value {
    if of.deleting() { "Terminating".into() } else { of.at("status").at("phase").cell() }
}

fn storage_class(of: &Subject<'_>) -> Value {
    match of.annotation(CLASS_ANNOTATION) {
        Some(class) => class.into(),
        None => of.at("spec").at("storageClassName").cell(),
    }
}
