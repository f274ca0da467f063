//! Defaults of endpoint slices.
//!
//! Ports have a name even where it is empty, unlike those of endpoints.

use crate::shape::Rule::{Each, Text, TextIfAbsent};
use crate::shape::Shape;

/// The shape of a kind of `discovery.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "EndpointSlice" => Some(&ENDPOINT_SLICE),
        _ => None,
    }
}

const ENDPOINT_SLICE: Shape =
    Shape::of(&[("ports", Each(&const { Shape::of(&[("name", Text("")), ("protocol", TextIfAbsent("TCP"))]) }))]);
