//! The columns of events, which read the fields of both the core group and events.k8s.io.
//!
//! Events of both groups have the same columns. The age is computed from the times that an event has.

use keelson_meta::json::Value;
use keelson_tables::column::{self, Column};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;

use crate::events::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    (kind == "Event").then_some(EVENT)
}

pub(crate) const EVENT: Printer = Printer::new(COLUMNS, event);

const COLUMNS: &[Column<'_>] = &[
    Column::text("Last Seen", "The time at which the most recent occurrence of this event was recorded."),
    Column::text("Type", "Type of this event (Normal, Warning), new types could be added in the future"),
    Column::text("Reason", docs::REASON),
    Column::text("Object", "The object that this event is about."),
    Column::text("Subobject", docs::SUBOBJECT).wide(),
    Column::text("Source", "The component reporting this event. Should be a short machine understandable string.")
        .wide(),
    Column::text("Message", "A human-readable description of the status of this operation."),
    Column::text("First Seen", docs::FIRST_SEEN).wide(),
    Column::text("Count", "The number of times this event has occurred.").wide(),
    Column::text("Name", column::NAME_DOC).named().wide(),
];

fn event(of: Subject<'_>) -> Vec<Value> {
    let (first, last) = seen(&of);
    let about = of.at("involvedObject").or(of.at("regarding"));
    vec![
        last.into(),
        of.at("type").cell(),
        of.at("reason").cell(),
        target(about),
        about.at("fieldPath").cell(),
        source(&of),
        of.at("message").or(of.at("note")).text().trim().into(),
        first.into(),
        count(&of).into(),
        of.name(),
    ]
}

/// The ages of the first and last occurrence. Newer clients set one time, and a series when the event repeats.
fn seen(of: &Subject<'_>) -> (String, String) {
    let first = of.at("firstTimestamp").or(of.at("deprecatedFirstTimestamp")).or(of.at("eventTime"));
    let last = of.at("lastTimestamp").or(of.at("deprecatedLastTimestamp")).or(first);
    let series = of.at("series");
    let last = if series.is_set() { series.at("lastObservedTime") } else { last };
    (of.since(first), of.since(last))
}

fn count(of: &Subject<'_>) -> i64 {
    let series = of.at("series");
    if series.is_set() {
        return series.at("count").int();
    }
    // A single event of newer clients has no count, so it counts as one.
    match of.at("count").or(of.at("deprecatedCount")).int() {
        0 => 1,
        count => count,
    }
}

/// The involved object, such as `pod/web-1`.
fn target(about: FieldValue<'_>) -> Value {
    let kind = about.at("kind").text().to_lowercase();
    match about.at("name").text() {
        "" => kind.into(),
        name => format!("{kind}/{name}").into(),
    }
}

/// The reporting component and its instance, such as `kubelet, node-1`.
fn source(of: &Subject<'_>) -> Value {
    let source = of.at("source").or(of.at("deprecatedSource"));
    let reporter = of.at("reportingComponent").or(of.at("reportingController"));
    let component = source.at("component").or(reporter).text();
    match source.at("host").or(of.at("reportingInstance")).text() {
        "" => component.into(),
        host => format!("{component}, {host}").into(),
    }
}
