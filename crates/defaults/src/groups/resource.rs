//! Defaults of claims to devices.
//!
//! In `v1beta1` a request is flat; later versions have one object for the exact case and a list of alternatives.

use keelson_meta::json::{Map, Value};

use crate::shape::Rule::{Each, In, Number, Positive, Text};
use crate::shape::{Shape, Step, text};

/// The shape of a kind of `resource.k8s.io` in a version.
pub(crate) fn shape(version: &str, kind: &str) -> Option<&'static Shape> {
    match (version, kind) {
        ("v1beta1", "ResourceClaim") => Some(&FLAT_CLAIM),
        ("v1beta1", "ResourceClaimTemplate") => Some(&FLAT_CLAIM_TEMPLATE),
        (_, "ResourceClaim") => Some(&CLAIM),
        (_, "ResourcePoolStatusRequest") => Some(&POOL_STATUS_REQUEST),
        (_, "ResourceClaimTemplate") => Some(&CLAIM_TEMPLATE),
        _ => None,
    }
}

const POOL_STATUS_REQUEST: Shape = Shape::of(&[("spec", In(&const { Shape::of(&[("limit", Number(100))]) }))]);

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
