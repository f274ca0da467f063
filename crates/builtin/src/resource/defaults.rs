//! Defaults of claims.
//!
//! In `v1beta1` the fields of a request are not nested. Later versions have an object for the exact case, and a list of
//! alternatives.

use keelson_meta::json::{Map, Value};

use crate::defaulting::type_defaults::Rule::{Each, In, Number, Positive, Text};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, text};

/// The defaults of a kind of `resource.k8s.io` in a version.
pub(crate) fn defaults(version: &str, kind: &str) -> Option<&'static TypeDefaults> {
    match (version, kind) {
        ("v1beta1", "ResourceClaim") => Some(&FLAT_CLAIM),
        ("v1beta1", "ResourceClaimTemplate") => Some(&FLAT_CLAIM_TEMPLATE),
        (_, "ResourceClaim") => Some(&CLAIM),
        (_, "ResourcePoolStatusRequest") => Some(&POOL_STATUS_REQUEST),
        (_, "ResourceClaimTemplate") => Some(&CLAIM_TEMPLATE),
        _ => None,
    }
}

const POOL_STATUS_REQUEST: TypeDefaults =
    TypeDefaults::new(&[("spec", In(&const { TypeDefaults::new(&[("limit", Number(100))]) }))]);

const CLAIM: TypeDefaults = TypeDefaults::new(&[("spec", In(&CLAIM_SPEC)), ("status", In(&CLAIM_STATUS))]);

const CLAIM_TEMPLATE: TypeDefaults = TypeDefaults::new(&[("spec", In(&CLAIM))]);

const CLAIM_STATUS: TypeDefaults = TypeDefaults::new(&[(
    "allocation",
    In(&const { TypeDefaults::new(&[("devices", In(&const { TypeDefaults::new(&[("results", Each(&TOLERANT))]) }))]) }),
)]);

const TOLERANT: TypeDefaults = TypeDefaults::new(&[("tolerations", Each(&TOLERATION))]);

const CLAIM_SPEC: TypeDefaults =
    TypeDefaults::new(&[("devices", In(&const { TypeDefaults::new(&[("requests", Each(&REQUEST))]) }))]);

const REQUEST: TypeDefaults = TypeDefaults::new(&[("exactly", In(&COUNTED)), ("firstAvailable", Each(&COUNTED))]);

const COUNTED: TypeDefaults = TypeDefaults {
    fields: &[("allocationMode", Text("ExactCount")), ("tolerations", Each(&TOLERATION))],
    then: &[FollowUp::Run(&["allocationMode", "count"], count)],
};

const TOLERATION: TypeDefaults = TypeDefaults::new(&[("operator", Text("Equal"))]);

const FLAT_CLAIM: TypeDefaults = TypeDefaults::new(&[("spec", In(&FLAT_CLAIM_SPEC)), ("status", In(&CLAIM_STATUS))]);

const FLAT_CLAIM_TEMPLATE: TypeDefaults = TypeDefaults::new(&[("spec", In(&FLAT_CLAIM))]);

const FLAT_CLAIM_SPEC: TypeDefaults =
    TypeDefaults::new(&[("devices", In(&const { TypeDefaults::new(&[("requests", Each(&FLAT_REQUEST))]) }))]);

const FLAT_REQUEST: TypeDefaults = TypeDefaults {
    fields: &[("firstAvailable", Each(&COUNTED)), ("tolerations", Each(&TOLERATION))],
    then: &[FollowUp::Run(&["firstAvailable", "allocationMode", "count"], flat_request)],
};

/// A request with alternatives gets no count of its own.
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
