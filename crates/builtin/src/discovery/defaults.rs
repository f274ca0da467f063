//! Defaults of endpoint slices.
//!
//! Unlike the ports of Endpoints, each port has a name, which may be empty.

use crate::defaulting::type_defaults::Rule::{Each, Text, TextIfAbsent};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `discovery.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "EndpointSlice" => Some(&ENDPOINT_SLICE),
        _ => None,
    }
}

const ENDPOINT_SLICE: TypeDefaults = TypeDefaults::new(&[(
    "ports",
    Each(&const { TypeDefaults::new(&[("name", Text("")), ("protocol", TextIfAbsent("TCP"))]) }),
)]);
