//! Defaults of the core group, except for pods.
//!
//! Defaults of pods and volumes are in `pod.rs` and `volumes.rs`, since kinds of other groups contain them too.

mod image;
pub(crate) mod pod;
mod services;
pub(crate) mod template;
mod volumes;

use keelson_meta::json::Map;

use self::services::{ENDPOINTS, SERVICE};
use crate::core::defaults::pod::{POD, POD_TEMPLATE, RESOURCES, TEMPLATE};
use crate::core::defaults::template::{SELECTION, labels_from_template, selector_from_template};
use crate::core::defaults::volumes::{AZURE_DISK, HOST_PATH, ISCSI, RBD, SCALE_IO};
use crate::defaulting::type_defaults::Rule::{Always, Amounts, Copied, Each, In, Number, Text, TextIfAbsent};
use crate::defaulting::type_defaults::{
    FollowUp, TypeDefaults, copy_missing, is_absent, mirror_first, object, peek, set, text,
};

/// The defaults of a kind of the core group.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "Endpoints" => Some(&ENDPOINTS),
        "LimitRange" => Some(&LIMIT_RANGE),
        "Namespace" => Some(&NAMESPACE),
        "Node" => Some(&NODE),
        "PersistentVolume" => Some(&VOLUME),
        "PersistentVolumeClaim" => Some(&CLAIM),
        "Pod" => Some(&POD),
        "PodTemplate" => Some(&POD_TEMPLATE),
        "ReplicationController" => Some(&REPLICATION_CONTROLLER),
        "ResourceQuota" => Some(&QUOTA),
        "Secret" => Some(&SECRET),
        "Service" => Some(&SERVICE),
        _ => None,
    }
}

const SECRET: TypeDefaults = TypeDefaults::new(&[("type", Text("Opaque"))]);

const LIMIT_RANGE: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    In(&const {
        TypeDefaults::new(&[(
            "limits",
            Each(
                &const {
                    TypeDefaults {
                        fields: &[("max", Amounts), ("min", Amounts), ("maxLimitRequestRatio", Amounts)],
                        then: &[
                            FollowUp::Run(&["type", "max", "default", "defaultRequest", "min"], limits),
                            FollowUp::Also(
                                &const { TypeDefaults::new(&[("default", Amounts), ("defaultRequest", Amounts)]) },
                            ),
                        ],
                    }
                },
            ),
        )])
    }),
)]);

/// The default limit of a container is the maximum. Its default request is its default limit, or else the minimum.
fn limits(item: &mut Map) {
    if text(item, "type") != "Container" {
        return;
    }
    for (from, to) in [("max", "default"), ("default", "defaultRequest"), ("min", "defaultRequest")] {
        let Some(values) = peek(item, from).filter(|values| !values.is_empty()).cloned() else { continue };
        if is_absent(item, to) {
            set(item, to, Map::new());
        }
        if let Some(target) = object(item, to) {
            copy_missing(&values, target);
        }
    }
}

const NAMESPACE: TypeDefaults =
    TypeDefaults::new(&[("status", Always(&const { TypeDefaults::new(&[("phase", Text("Active"))]) }))]);

const QUOTA: TypeDefaults = TypeDefaults::new(&[
    ("spec", In(&const { TypeDefaults::new(&[("hard", Amounts)]) })),
    ("status", In(&const { TypeDefaults::new(&[("hard", Amounts), ("used", Amounts)]) })),
]);

const NODE: TypeDefaults = TypeDefaults::new(&[
    ("spec", In(&const { TypeDefaults { fields: &[], then: &[FollowUp::Run(&["podCIDR", "podCIDRs"], pod_ranges)] } })),
    ("status", In(&NODE_STATUS)),
]);

/// The allocatable resources of a node default to its capacity.
const NODE_STATUS: TypeDefaults = TypeDefaults {
    fields: &[("capacity", Amounts), ("allocatable", Copied("capacity"))],
    then: &[FollowUp::Also(&const { TypeDefaults::new(&[("allocatable", Amounts)]) })],
};

fn pod_ranges(spec: &mut Map) {
    mirror_first(spec, "podCIDR", "podCIDRs", None);
}

const REPLICATION_CONTROLLER: TypeDefaults = TypeDefaults {
    fields: &[("spec", Always(&const { TypeDefaults::new(&[("replicas", Number(1)), ("template", In(&TEMPLATE))]) }))],
    then: &[FollowUp::Run(SELECTION, selector_from_template), FollowUp::Run(SELECTION, labels_from_template)],
};

/// The spec of a claim.
pub(crate) const CLAIM_SPEC: TypeDefaults =
    TypeDefaults::new(&[("volumeMode", TextIfAbsent("Filesystem")), ("resources", In(&RESOURCES))]);

/// A claim template of a stateful set, which has a kind and the status of a new claim.
pub(crate) const CLAIM_TEMPLATE: TypeDefaults = TypeDefaults {
    fields: &[("spec", Always(&CLAIM_SPEC)), ("status", Always(&CLAIM_STATUS))],
    then: &[FollowUp::Run(&["kind", "apiVersion"], |claim| {
        set(claim, "kind", "PersistentVolumeClaim");
        set(claim, "apiVersion", "v1");
    })],
};

/// The status of a pod that is not scheduled.
const PENDING: TypeDefaults = TypeDefaults::new(&[("phase", Text("Pending"))]);

const CLAIM_STATUS: TypeDefaults =
    TypeDefaults::new(&[("phase", Text("Pending")), ("capacity", Amounts), ("allocatedResources", Amounts)]);

const CLAIM: TypeDefaults = TypeDefaults::new(&[("spec", Always(&CLAIM_SPEC)), ("status", Always(&CLAIM_STATUS))]);

/// The capacity of a volume, and the volume sources with defaults.
pub(crate) const SOURCE: TypeDefaults = TypeDefaults::new(&[
    ("capacity", Amounts),
    ("hostPath", In(&HOST_PATH)),
    ("azureDisk", In(&AZURE_DISK)),
    ("iscsi", In(&ISCSI)),
    ("rbd", In(&RBD)),
    ("scaleIO", In(&SCALE_IO)),
]);

const VOLUME: TypeDefaults = TypeDefaults::new(&[
    (
        "spec",
        Always(
            &const {
                TypeDefaults {
                    fields: &[
                        ("persistentVolumeReclaimPolicy", Text("Retain")),
                        ("volumeMode", TextIfAbsent("Filesystem")),
                    ],
                    then: &[FollowUp::Also(&SOURCE)],
                }
            },
        ),
    ),
    ("status", Always(&PENDING)),
]);
