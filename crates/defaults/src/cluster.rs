//! Defaults of what belongs to the cluster as a whole, and of small kinds that stand alone.
//!
//! Nodes, secrets and limits are here, as are flow control, extensions and devices.

use keelson_meta::json::{Map, Value};

use crate::admission::CLIENT;
use crate::shape::Rule::{Always, Copied, Each, In, Number, Positive, Text, TextIfAbsent};
use crate::shape::{Shape, Step, copy_missing, is_absent, is_unset, object, peek, set, text};

/// The shape of a kind of the core group, of flow control and of scheduling.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "Secret" => Some(&SECRET),
        "LimitRange" => Some(&LIMIT_RANGE),
        "Namespace" => Some(&NAMESPACE),
        "Node" => Some(&NODE),
        "FlowSchema" => Some(&FLOW_SCHEMA),
        "PriorityLevelConfiguration" => Some(&PRIORITY_LEVEL),
        "PriorityClass" => Some(&PRIORITY_CLASS),
        "PodGroup" => Some(&POD_GROUP),
        _ => None,
    }
}

/// The shape of a kind by which the API itself is extended.
pub(crate) fn extension(kind: &str) -> Option<&'static Shape> {
    match kind {
        "CustomResourceDefinition" => Some(&DEFINITION),
        "APIService" => Some(&API_SERVICE),
        _ => None,
    }
}

/// The shape of a kind of `resource.k8s.io` in a version.
pub(crate) fn devices(version: &str, kind: &str) -> Option<&'static Shape> {
    match (version, kind) {
        ("v1beta1", "ResourceClaim") => Some(&FLAT_CLAIM),
        ("v1beta1", "ResourceClaimTemplate") => Some(&FLAT_CLAIM_TEMPLATE),
        (_, "ResourceClaim") => Some(&CLAIM),
        (_, "ResourcePoolStatusRequest") => Some(&POOL_STATUS_REQUEST),
        (_, "ResourceClaimTemplate") => Some(&CLAIM_TEMPLATE),
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

const FLOW_SCHEMA: Shape =
    Shape::of(&[("spec", Always(&const { Shape::of(&[("matchingPrecedence", Positive(1000))]) }))]);

const PRIORITY_LEVEL: Shape =
    Shape::of(&[("spec", In(&const { Shape::of(&[("exempt", In(&EXEMPT)), ("limited", In(&LIMITED))]) }))]);

const EXEMPT: Shape = Shape::of(&[("nominalConcurrencyShares", Number(0)), ("lendablePercent", Number(0))]);

const LIMITED: Shape = Shape::of(&[
    ("nominalConcurrencyShares", Number(30)),
    ("lendablePercent", Number(0)),
    ("limitResponse", In(&const { Shape::of(&[("queuing", In(&QUEUING))]) })),
]);

const QUEUING: Shape =
    Shape::of(&[("queues", Positive(64)), ("handSize", Positive(8)), ("queueLengthLimit", Positive(50))]);

const PRIORITY_CLASS: Shape = Shape::of(&[("preemptionPolicy", TextIfAbsent("PreemptLowerPriority"))]);

const POD_GROUP: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("disruptionMode", Text("Pod"))]) }))]);

const POOL_STATUS_REQUEST: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("limit", Number(100))]) }))]);

const API_SERVICE: Shape = Shape::of(&[("spec", In(&CLIENT))]);

const DEFINITION: Shape = Shape::of(&[(
    "spec",
    In(&const {
        Shape::of(&[
            (
                "names",
                In(&const { Shape { fields: &[], then: &[Step::Run(&["kind", "singular", "listKind"], names)] } }),
            ),
            ("conversion", Always(&CONVERSION)),
        ])
    }),
)]);

const CONVERSION: Shape =
    Shape::of(&[("strategy", Text("None")), ("webhook", In(&const { Shape::of(&[("clientConfig", In(&CLIENT))]) }))]);

fn names(names: &mut Map) {
    let kind = text(names, "kind").to_owned();
    if kind.is_empty() {
        return;
    }
    if is_unset(names, "singular") {
        set(names, "singular", kind.to_lowercase());
    }
    if is_unset(names, "listKind") {
        set(names, "listKind", format!("{kind}List"));
    }
}

const CLAIM: Shape = Shape::of(&[("spec", In(&CLAIM_SPEC)), ("status", In(&CLAIM_STATUS))]);

const CLAIM_TEMPLATE: Shape = Shape::of(&[("spec", In(&CLAIM))]);

const CLAIM_STATUS: Shape = Shape::of(&[(
    "allocation",
    In(&const { Shape::of(&[("devices", In(&const { Shape::of(&[("results", Each(&TOLERANT))]) }))]) }),
)]);

const TOLERANT: Shape = Shape::of(&[("tolerations", Each(&TOLERATION))]);

const CLAIM_SPEC: Shape = Shape::of(&[("devices", In(&const { Shape::of(&[("requests", Each(&REQUEST))]) }))]);

const REQUEST: Shape = Shape::of(&[("exactly", In(&COUNTED)), ("firstAvailable", Each(&COUNTED))]);

const COUNTED: Shape = Shape {
    fields: &[("allocationMode", Text("ExactCount")), ("tolerations", Each(&TOLERATION))],
    then: &[Step::Run(&["allocationMode", "count"], count)],
};

const TOLERATION: Shape = Shape::of(&[("operator", Text("Equal"))]);

const FLAT_CLAIM: Shape = Shape::of(&[("spec", In(&FLAT_CLAIM_SPEC)), ("status", In(&CLAIM_STATUS))]);

const FLAT_CLAIM_TEMPLATE: Shape = Shape::of(&[("spec", In(&FLAT_CLAIM))]);

const FLAT_CLAIM_SPEC: Shape =
    Shape::of(&[("devices", In(&const { Shape::of(&[("requests", Each(&FLAT_REQUEST))]) }))]);

const FLAT_REQUEST: Shape = Shape {
    fields: &[("firstAvailable", Each(&COUNTED)), ("tolerations", Each(&TOLERATION))],
    then: &[Step::Run(&["firstAvailable", "allocationMode", "count"], flat_request)],
};

/// A request that offers alternatives has no count of its own.
fn flat_request(request: &mut Map) {
    if request.get("firstAvailable").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        COUNTED.fill(request);
    }
}

fn count(request: &mut Map) {
    if text(request, "allocationMode") == "ExactCount" {
        Positive(1).apply(request, "count");
    }
}
