//! The columns of services: addresses and ports.
//!
//! Ports are joined to one text. The external address may be pending.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::selector;
use keelson_tables::text::{join, load_balancer, or};

use crate::core::column_docs as docs;

pub(super) const SERVICE: Printer = Printer::new(SERVICE_COLUMNS, service);

const SERVICE_COLUMNS: &[Column<'_>] = &[
    NAME,
    Column::text("Type", docs::SERVICE_TYPE),
    Column::text("Cluster-IP", docs::SERVICE_CLUSTER_IP),
    Column::text("External-IP", docs::SERVICE_EXTERNAL_IP),
    Column::text("Port(s)", docs::SERVICE_PORTS),
    AGE,
    Column::text("Selector", docs::SERVICE_SELECTOR).wide(),
];

fn service(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        spec.at("type").cell(),
        spec.at("clusterIPs").nth(0).or(spec.at("clusterIP")).cell_unless_empty("<none>"),
        external_addresses(spec, of.at("status")),
        or(&join(spec.at("ports").items().map(service_port), ","), "<none>").into(),
        of.age(),
        selector::labels(spec.at("selector")),
    ]
}

/// The external addresses of the service: those that the load balancer reports, and those in the spec.
fn external_addresses(spec: FieldValue<'_>, status: FieldValue<'_>) -> Value {
    let declared = join(spec.at("externalIPs").items().map(FieldValue::text), ",");
    match spec.at("type").text() {
        "ClusterIP" | "NodePort" => or(&declared, "<none>").into(),
        "LoadBalancer" => {
            let balanced = load_balancer(status.at("loadBalancer").at("ingress"));
            let known = [balanced, declared];
            or(&join(known.iter().filter(|addresses| !addresses.is_empty()), ","), "<pending>").into()
        }
        "ExternalName" => spec.at("externalName").cell(),
        _ => "<unknown>".into(),
    }
}

/// `80/TCP`, or `80:30080/TCP` with the node port.
fn service_port(port: FieldValue<'_>) -> String {
    let (number, protocol) = (port.at("port").int(), or(port.at("protocol").text(), "TCP"));
    match port.at("nodePort").int() {
        0 => format!("{number}/{protocol}"),
        node_port => format!("{number}:{node_port}/{protocol}"),
    }
}
