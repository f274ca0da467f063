//! The columns of component statuses, and of `Status`, the response to some requests.
//!
//! Neither kind is stored.

use keelson_meta::json::Value;
use keelson_tables::column::{Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

pub(super) const COMPONENT_STATUS: Printer = Printer::new(COMPONENT_STATUS_COLUMNS, component_status);

const COMPONENT_STATUS_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Status", "Status of the component conditions"),
    Column::text("Message", "Message of the component conditions"),
    Column::text("Error", "Error of the component conditions"),
];

fn component_status(of: Subject<'_>) -> Vec<Value> {
    let healthy = of.at("conditions").condition("Healthy");
    let status = match (healthy.is_set(), healthy.holds()) {
        (true, true) => "Healthy",
        (true, false) => "Unhealthy",
        (false, _) => "Unknown",
    };
    vec![of.name(), status.into(), healthy.at("message").cell(), healthy.at("error").cell()]
}

pub(super) const STATUS: Printer = Printer::new(STATUS_COLUMNS, status);

const STATUS_COLUMNS: &[Column<'_>] = &[
    Column::text("Status", STATUS_DOC),
    Column::text("Reason", REASON_DOC),
    Column::text("Message", "A human-readable description of the status of this operation."),
];

const STATUS_DOC: &str = "\
    Status of the operation. One of: \"Success\" or \"Failure\". More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#spec-and-status";
const REASON_DOC: &str = "\
    A machine-readable description of why this operation is in the \"Failure\" status. If this value is empty there is \
    no information available. A Reason clarifies an HTTP status code but does not override it.";

/// The row of a `Status`, which some verbs return instead of an object.
fn status(of: Subject<'_>) -> Vec<Value> {
    vec![of.at("status").cell(), of.at("reason").cell(), of.at("message").cell()]
}
