//! The kinds that are mostly data: config maps, secrets, namespaces, quotas, service accounts.
//!
//! Data is counted and never shown, so that a table tells no secret.

use keelson_meta::json::Value;

use crate::column::{AGE, Column, NAME};
use crate::docs::core as docs;
use crate::field_value::Subject;
use crate::printer::Printer;
use crate::text::join;

pub(super) const CONFIG_MAP: Printer = Printer::new(CONFIG_MAP_COLUMNS, config_map);

const CONFIG_MAP_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Data", docs::CONFIG_MAP_DATA), AGE];

fn config_map(of: Subject<'_>) -> Vec<Value> {
    let entries = of.at("data").len() + of.at("binaryData").len();
    vec![of.name(), entries.into(), of.age()]
}

pub(super) const SECRET: Printer = Printer::new(SECRET_COLUMNS, secret);

const SECRET_COLUMNS: &[Column<'_>] =
    &[NAME, Column::text("Type", docs::SECRET_TYPE), Column::text("Data", docs::SECRET_DATA), AGE];

fn secret(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("type").cell(), of.at("data").len_cell(), of.age()]
}

pub(super) const SERVICE_ACCOUNT: Printer = Printer::new(&[NAME, AGE], |of| vec![of.name(), of.age()]);

pub(super) const NAMESPACE: Printer = Printer::new(NAMESPACE_COLUMNS, namespace);

const NAMESPACE_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Status", "The status of the namespace"), AGE];

fn namespace(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("status").at("phase").cell(), of.age()]
}

pub(super) const RESOURCE_QUOTA: Printer = Printer::new(RESOURCE_QUOTA_COLUMNS, resource_quota);

const RESOURCE_QUOTA_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Request", "Request represents a minimum amount of cpu/memory that a container may consume."),
    Column::text("Limit", docs::RESOURCE_QUOTA_LIMIT),
    AGE,
];

/// How much of each resource is used, of how much: limits apart from everything else.
fn resource_quota(of: Subject<'_>) -> Vec<Value> {
    let status = of.at("status");
    let mut hard: Vec<_> = status.at("hard").entries().collect();
    hard.sort_unstable_by_key(|(resource, _)| *resource);
    let uses = |limits: bool| {
        let of_sort = hard.iter().filter(|(resource, _)| resource.starts_with("limits.") == limits);
        let used = |resource: &str| status.at("used").at(resource).quantity();
        join(of_sort.map(|(resource, most)| format!("{resource}: {}/{}", used(resource), most.quantity())), ", ")
    };
    vec![of.name(), uses(false).into(), uses(true).into(), of.age()]
}

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

/// The outcome of a request, which a verb may return in place of the object.
fn status(of: Subject<'_>) -> Vec<Value> {
    vec![of.at("status").cell(), of.at("reason").cell(), of.at("message").cell()]
}
