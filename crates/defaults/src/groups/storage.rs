//! Defaults of how storage is provisioned and attached.
//!
//! Volumes and claims are in the core group.

use super::core::SOURCE;
use crate::shape::Rule::{Always, Flag, In, OneOf, TextIfAbsent};
use crate::shape::Shape;

/// The shape of a kind of `storage.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "StorageClass" => Some(&CLASS),
        "VolumeAttachment" => Some(&ATTACHMENT),
        "CSIDriver" => Some(&DRIVER),
        _ => None,
    }
}

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
