//! The columns of flowcontrol.apiserver.k8s.io: flow schemas and priority levels.
//!
//! The columns are fields of the spec, except for the one about missing priority levels.

use std::cmp::Ordering;

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

use crate::flowcontrol::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "FlowSchema" => Printer::ordered(FLOW_SCHEMA, flow_schema, by_precedence),
        "PriorityLevelConfiguration" => Printer::new(PRIORITY_LEVEL, priority_level),
        _ => return None,
    })
}

const FLOW_SCHEMA: &[Column<'_>] = &[
    NAME,
    Column::text("PriorityLevel", "`name` is the name of the priority level configuration being referenced Required."),
    Column::text("MatchingPrecedence", docs::FLOW_SCHEMA_MATCHING_PRECEDENCE),
    Column::text("DistinguisherMethod", docs::FLOW_SCHEMA_DISTINGUISHER_METHOD),
    AGE,
    Column::text("MissingPL", "references a broken or non-existent PriorityLevelConfiguration"),
];

fn flow_schema(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let dangling = of.at("status").at("conditions").condition("Dangling");
    let method = spec.at("distinguisherMethod");
    vec![
        of.name(),
        spec.at("priorityLevelConfiguration").at("name").cell(),
        spec.at("matchingPrecedence").int_cell(),
        if method.is_set() { method.at("type").cell() } else { "<none>".into() },
        of.age(),
        if dangling.is_set() { dangling.at("status").cell() } else { "?".into() },
    ]
}

/// Sorts flow schemas in the order in which they are matched.
fn by_precedence(a: &Object, b: &Object) -> Ordering {
    let rank =
        |object: &Object| object.get(&["spec", "matchingPrecedence"]).and_then(Value::as_i64).unwrap_or_default();
    rank(a).cmp(&rank(b)).then_with(|| a.name().cmp(b.name()))
}

const PRIORITY_LEVEL: &[Column<'_>] = &[
    NAME,
    Column::text("Type", docs::PRIORITY_LEVEL_CONFIGURATION_TYPE),
    Column::text("NominalConcurrencyShares", docs::PRIORITY_LEVEL_CONFIGURATION_NOMINAL_CONCURRENCY_SHARES),
    Column::text("Queues", docs::PRIORITY_LEVEL_CONFIGURATION_QUEUES),
    Column::text("HandSize", docs::PRIORITY_LEVEL_CONFIGURATION_HAND_SIZE),
    Column::text("QueueLengthLimit", docs::PRIORITY_LEVEL_CONFIGURATION_QUEUE_LENGTH_LIMIT),
    AGE,
];

fn priority_level(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    let limited = spec.at("limited");
    let queuing = limited.at("limitResponse").at("queuing");
    let queue = |field: &str| if queuing.is_set() { queuing.at(field).int_cell() } else { "<none>".into() };
    vec![
        of.name(),
        spec.at("type").cell(),
        match limited.at("nominalConcurrencyShares").set_int() {
            Some(shares) => shares.into(),
            None if limited.is_set() => Value::Null,
            None => "<none>".into(),
        },
        queue("queues"),
        queue("handSize"),
        queue("queueLengthLimit"),
        of.age(),
    ]
}
