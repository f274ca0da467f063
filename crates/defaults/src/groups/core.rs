//! Defaults of the core group, but for pods and services.
//!
//! Pods and their volumes are in `pod.rs` and `volumes.rs`, since the kinds of other groups hold them too; services are in
//! `services.rs`.

use keelson_meta::json::Map;

use super::services::{ENDPOINTS, SERVICE};
use crate::pod::{POD, POD_TEMPLATE, TEMPLATE};
use crate::shape::Rule::{Always, Copied, Each, In, Number, Text, TextIfAbsent};
use crate::shape::{Shape, Step, copy_missing, is_absent, object, peek, set, text};
use crate::template::{SELECTION, labels_from_template, selector_from_template};
use crate::volumes::{AZURE_DISK, HOST_PATH, ISCSI, RBD, SCALE_IO};

/// The shape of a kind of the core group.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
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
        "Secret" => Some(&SECRET),
        "Service" => Some(&SERVICE),
        _ => None,
    }
}

const SECRET: Shape = Shape::of(&[("type", Text("Opaque"))]);

const LIMIT_RANGE: Shape = Shape::of(&[(
    "spec",
    In(&const {
        Shape::of(&[(
            "limits",
            Each(
                &const {
                    Shape {
                        fields: &[],
                        then: &[Step::Run(&["type", "max", "default", "defaultRequest", "min"], limits)],
                    }
                },
            ),
        )])
    }),
)]);

/// A container's limit is at most the maximum; it asks for its limit, or else for the minimum.
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

const NAMESPACE: Shape = Shape::of(&[("status", Always(&const { Shape::of(&[("phase", Text("Active"))]) }))]);

/// A node that does not say what of it can be used can be used whole.
const NODE: Shape = Shape::of(&[("status", In(&const { Shape::of(&[("allocatable", Copied("capacity"))]) }))]);

const REPLICATION_CONTROLLER: Shape = Shape {
    fields: &[("spec", Always(&const { Shape::of(&[("replicas", Number(1)), ("template", In(&TEMPLATE))]) }))],
    then: &[Step::Run(SELECTION, selector_from_template), Step::Run(SELECTION, labels_from_template)],
};

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

/// What nobody has found a place for yet.
const PENDING: Shape = Shape::of(&[("phase", Text("Pending"))]);

const CLAIM: Shape = Shape::of(&[("spec", Always(&CLAIM_SPEC)), ("status", Always(&PENDING))]);

/// The ways to storage that have defaults.
pub(super) const SOURCE: Shape = Shape::of(&[
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
