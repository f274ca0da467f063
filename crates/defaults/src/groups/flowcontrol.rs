//! Defaults of flow schemas and priority levels.
//!
//! A level that is limited has shares and queues, one that is exempt has shares alone.

use crate::shape::Rule::{Always, In, Number, Positive};
use crate::shape::Shape;

/// The shape of a kind of `flowcontrol.apiserver.k8s.io`.
pub(crate) fn shape(kind: &str) -> Option<&'static Shape> {
    match kind {
        "FlowSchema" => Some(&FLOW_SCHEMA),
        "PriorityLevelConfiguration" => Some(&PRIORITY_LEVEL),
        _ => None,
    }
}

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
