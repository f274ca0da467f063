//! The columns of nodes: status, roles, addresses and software versions.
//!
//! Roles come from labels, and addresses from the status.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::{join, or};

use crate::core::column_docs as docs;

/// The label `node-role.kubernetes.io/<role>` gives a node a role, whatever its value.
const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
/// The older label whose value is the role.
const ROLE_LABEL: &str = "kubernetes.io/role";

pub(super) const NODE: Printer = Printer::new(COLUMNS, node);

const COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Status", "The status of the node"),
    Column::text("Roles", "The roles of the node"),
    AGE,
    Column::text("Version", "Kubelet Version reported by the node."),
    Column::text("Internal-IP", docs::NODE_INTERNAL_IP).wide(),
    Column::text("External-IP", docs::NODE_INTERNAL_IP).wide(),
    Column::text("OS-Image", docs::NODE_OS_IMAGE).wide(),
    Column::text("Kernel-Version", "Kernel Version reported by the node from 'uname -r' (e.g. 3.16.0-0.bpo.4-amd64).")
        .wide(),
    Column::text("Container-Runtime", docs::NODE_CONTAINER_RUNTIME).wide(),
];

fn node(of: Subject<'_>) -> Vec<Value> {
    let info = of.at("status").at("nodeInfo");
    let addresses = of.at("status").at("addresses");
    vec![
        of.name(),
        status(&of),
        or(&join(roles(&of), ","), "<none>").into(),
        of.age(),
        info.at("kubeletVersion").cell(),
        address(addresses, "InternalIP"),
        address(addresses, "ExternalIP"),
        info.at("osImage").cell_unless_empty("<unknown>"),
        info.at("kernelVersion").cell_unless_empty("<unknown>"),
        info.at("containerRuntimeVersion").cell_unless_empty("<unknown>"),
    ]
}

fn status(of: &Subject<'_>) -> Value {
    let conditions = of.at("status").at("conditions");
    let ready = match conditions.items().rfind(|condition| condition.at("type").text() == "Ready") {
        Some(ready) if ready.holds() => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    if of.at("spec").at("unschedulable").flag() { format!("{ready},SchedulingDisabled").into() } else { ready.into() }
}

fn roles<'a>(of: &Subject<'a>) -> Vec<&'a str> {
    let role = |(key, value): (&'a str, &'a str)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role),
        None if key == ROLE_LABEL => Some(value),
        None => None,
    };
    let labels = of.at("metadata").at("labels").entries().map(|(key, value)| (key, value.text()));
    let mut roles: Vec<&str> = labels.filter_map(role).filter(|role| !role.is_empty()).collect();
    roles.sort_unstable();
    roles.dedup();
    roles
}

/// The first address of this type.
fn address(addresses: FieldValue<'_>, kind: &str) -> Value {
    let first = addresses.items().find(|address| address.at("type").text() == kind);
    first.map_or_else(|| "<none>".into(), |address| address.at("address").cell())
}
