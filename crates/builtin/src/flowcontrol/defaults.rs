//! Defaults of flow schemas and priority levels.
//!
//! A limited priority level has shares and queues, an exempt one has only shares.

use crate::defaulting::type_defaults::Rule::{Always, In, Number, Positive};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `flowcontrol.apiserver.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "FlowSchema" => Some(&FLOW_SCHEMA),
        "PriorityLevelConfiguration" => Some(&PRIORITY_LEVEL),
        _ => None,
    }
}

const FLOW_SCHEMA: TypeDefaults =
    TypeDefaults::new(&[("spec", Always(&const { TypeDefaults::new(&[("matchingPrecedence", Positive(1000))]) }))]);

const PRIORITY_LEVEL: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    In(&const { TypeDefaults::new(&[("exempt", In(&EXEMPT)), ("limited", In(&LIMITED))]) }),
)]);

const EXEMPT: TypeDefaults =
    TypeDefaults::new(&[("nominalConcurrencyShares", Number(0)), ("lendablePercent", Number(0))]);

const LIMITED: TypeDefaults = TypeDefaults::new(&[
    ("nominalConcurrencyShares", Number(30)),
    ("lendablePercent", Number(0)),
    ("limitResponse", In(&const { TypeDefaults::new(&[("queuing", In(&QUEUING))]) })),
]);

const QUEUING: TypeDefaults =
    TypeDefaults::new(&[("queues", Positive(64)), ("handSize", Positive(8)), ("queueLengthLimit", Positive(50))]);
