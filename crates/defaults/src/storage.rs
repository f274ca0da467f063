//! Volumes, claims, and how storage is provisioned.

use keelson_meta::json::{Map, Value};

use crate::shape::Rule::{Always, Flag, In, OneOf, Text};
use crate::shape::{Shape, Step, is_absent, set};
use crate::volumes::{AZURE_DISK, HOST_PATH, ISCSI, RBD, SCALE_IO};

/// The shape of a kind of `storage.k8s.io`, and of volumes and claims.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "PersistentVolume" => Some(&VOLUME),
        "PersistentVolumeClaim" => Some(&CLAIM),
        "StorageClass" => Some(&CLASS),
        "VolumeAttachment" => Some(&ATTACHMENT),
        "CSIDriver" => Some(&DRIVER),
        _ => None,
    }
}

/// The spec of a claim.
pub(crate) const CLAIM_SPEC: Shape = Shape {
    fields: &[("volumeMode", Text("Filesystem"))],
    then: &[Step::Run(&["dataSource", "dataSourceRef"], same_source)],
};

/// A claim inside of a stateful set, which is written with its kind and with the status of a new one.
pub(crate) const CLAIM_TEMPLATE: Shape = Shape {
    fields: &[("spec", Always(&CLAIM_SPEC)), ("status", Always(&const { Shape::of(&[("phase", Text("Pending"))]) }))],
    then: &[Step::Run(&["kind", "apiVersion"], |claim| {
        set(claim, "kind", "PersistentVolumeClaim");
        set(claim, "apiVersion", "v1");
    })],
};

const CLAIM: Shape = Shape::of(&[("spec", Always(&CLAIM_SPEC))]);

/// The ways to storage that have defaults.
const SOURCE: Shape = Shape::of(&[
    ("hostPath", In(&HOST_PATH)),
    ("azureDisk", In(&AZURE_DISK)),
    ("iscsi", In(&ISCSI)),
    ("rbd", In(&RBD)),
    ("scaleIO", In(&SCALE_IO)),
]);

const VOLUME: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape {
                fields: &[("persistentVolumeReclaimPolicy", Text("Retain")), ("volumeMode", Text("Filesystem"))],
                then: &[Step::Also(&SOURCE)],
            }
        },
    ),
)]);

/// What is attached may be described here itself, rather than by a volume.
const ATTACHMENT: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape::of(&[("source", In(&const { Shape::of(&[("inlineVolumeSpec", In(&SOURCE))]) }))]) }),
)]);

const CLASS: Shape = Shape::of(&[("reclaimPolicy", Text("Delete")), ("volumeBindingMode", Text("Immediate"))]);

const DRIVER: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("attachRequired", Flag(true)),
                ("podInfoOnMount", Flag(false)),
                ("volumeLifecycleModes", OneOf("Persistent")),
                ("storageCapacity", Flag(false)),
                ("fsGroupPolicy", Text("ReadWriteOnceWithFSType")),
                ("requiresRepublish", Flag(false)),
                ("seLinuxMount", Flag(false)),
            ])
        },
    ),
)]);

/// `dataSource` and `dataSourceRef` say the same, unless the reference leads to another namespace.
fn same_source(spec: &mut Map) {
    let elsewhere =
        spec.get("dataSourceRef").and_then(|source| source.get("namespace")).and_then(Value::as_str).unwrap_or("");
    if !elsewhere.is_empty() {
        return;
    }
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if is_absent(spec, to)
            && let Some(Value::Object(source)) = spec.get(from).cloned()
        {
            set(spec, to, source);
        }
    }
}
