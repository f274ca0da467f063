//! Defaults of storage classes, CSI drivers and volume attachments.
//!
//! Volumes and claims are in the core group.

use crate::core::defaults::SOURCE;
use crate::defaulting::type_defaults::Rule::{Always, Flag, In, OneOf, TextIfAbsent};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `storage.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "StorageClass" => Some(&CLASS),
        "VolumeAttachment" => Some(&ATTACHMENT),
        "CSIDriver" => Some(&DRIVER),
        _ => None,
    }
}

/// A volume attachment may have the spec of a volume instead of its name.
const ATTACHMENT: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    In(
        &const { TypeDefaults::new(&[("source", In(&const { TypeDefaults::new(&[("inlineVolumeSpec", In(&SOURCE))]) }))]) },
    ),
)]);

const CLASS: TypeDefaults =
    TypeDefaults::new(&[("reclaimPolicy", TextIfAbsent("Delete")), ("volumeBindingMode", TextIfAbsent("Immediate"))]);

const DRIVER: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults::new(&[
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
