//! Defaults of endpoint slices.
//!
//! Ports have a name even where it is empty, unlike those of endpoints.

use crate::defaulting::type_defaults::Rule::{Each, Text, TextIfAbsent};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `discovery.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "EndpointSlice" => Some(&ENDPOINT_SLICE),
        _ => None,
    }
}

const ENDPOINT_SLICE: TypeDefaults = TypeDefaults::of(&[(
    "ports",
    Each(&const { TypeDefaults::of(&[("name", Text("")), ("protocol", TextIfAbsent("TCP"))]) }),
)]);
