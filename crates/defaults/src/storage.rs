//! Defaults of volumes, claims, and of how storage is provisioned.
//!
//! The sources of volumes are in `volumes.rs`, since pods have most of them too.

use crate::shape::Rule::{Always, Flag, In, OneOf, Text, TextIfAbsent};
use crate::shape::{Shape, Step, set};
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
pub(crate) const CLAIM_SPEC: Shape = Shape::of(&[("volumeMode", TextIfAbsent("Filesystem"))]);

/// A claim inside of a stateful set, which is written with its kind and with the status of a new one.
pub(crate) const CLAIM_TEMPLATE: Shape = Shape {
    fields: &[("spec", Always(&CLAIM_SPEC)), ("status", Always(&PENDING))],
    then: &[Step::Run(&["kind", "apiVersion"], |claim| {
        set(claim, "kind", "PersistentVolumeClaim");
        set(claim, "apiVersion", "v1");
    })],
};

const CLAIM: Shape = Shape::of(&[("spec", Always(&CLAIM_SPEC)), ("status", Always(&PENDING))]);

/// What nobody has found a place for yet.
const PENDING: Shape = Shape::of(&[("phase", Text("Pending"))]);

/// The ways to storage that have defaults.
const SOURCE: Shape = Shape::of(&[
    ("hostPath", In(&HOST_PATH)),
    ("azureDisk", In(&AZURE_DISK)),
    ("iscsi", In(&ISCSI)),
    ("rbd", In(&RBD)),
    ("scaleIO", In(&SCALE_IO)),
]);

const VOLUME: Shape = Shape::of(&[
    (
        "spec",
        Always(
            &const {
                Shape {
                    fields: &[
                        ("persistentVolumeReclaimPolicy", Text("Retain")),
                        ("volumeMode", TextIfAbsent("Filesystem")),
                    ],
                    then: &[Step::Also(&SOURCE)],
                }
            },
        ),
    ),
    ("status", Always(&PENDING)),
]);

/// What is attached may be described here itself, rather than by a volume.
const ATTACHMENT: Shape = Shape::of(&[(
    "spec",
    In(&const { Shape::of(&[("source", In(&const { Shape::of(&[("inlineVolumeSpec", In(&SOURCE))]) }))]) }),
)]);

const CLASS: Shape =
    Shape::of(&[("reclaimPolicy", TextIfAbsent("Delete")), ("volumeBindingMode", TextIfAbsent("Immediate"))]);

const DRIVER: Shape = Shape::of(&[(
    "spec",
    Always(
        &const {
            Shape::of(&[
                ("attachRequired", Flag(true)),
                ("podInfoOnMount", Flag(false)),
                ("volumeLifecycleModes", OneOf("Persistent")),
                ("storageCapacity", Flag(false)),
                ("fsGroupPolicy", TextIfAbsent("ReadWriteOnceWithFSType")),
                ("requiresRepublish", Flag(false)),
                ("seLinuxMount", Flag(false)),
            ])
        },
    ),
)]);
