//! The columns of networking.k8s.io: ingresses, network policies and ranges of service addresses.
//!
//! Lists of hosts, ports and ranges are joined to one text, and truncated like upstream.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::selector;
use keelson_tables::text::{join, load_balancer, with_group};

use crate::networking::column_docs as docs;

/// The number of hosts of an ingress that a cell shows.
const SHOWN_HOSTS: usize = 3;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "IPAddress" => Printer::new(IP_ADDRESS, ip_address),
        "Ingress" => Printer::new(INGRESS, ingress),
        "IngressClass" => Printer::new(INGRESS_CLASS, ingress_class),
        "NetworkPolicy" => Printer::new(NETWORK_POLICY, network_policy),
        "ServiceCIDR" => Printer::new(SERVICE_CIDR, service_cidr),
        _ => return None,
    })
}

const INGRESS: &[Column<'_>] = &[
    NAME,
    Column::text("Class", docs::INGRESS_CLASS),
    Column::text("Hosts", "Hosts that incoming requests are matched against before the ingress rule"),
    Column::text("Address", "Address is a list containing ingress points for the load-balancer"),
    Column::text("Ports", "Ports of TLS configurations that open"),
    AGE,
];

fn ingress(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        spec.at("ingressClassName").cell_or("<none>"),
        hosts(spec.at("rules")).into(),
        load_balancer(of.at("status").at("loadBalancer").at("ingress")).into(),
        if spec.at("tls").is_empty() { "80" } else { "80, 443" }.into(),
        of.age(),
    ]
}

/// The hosts of the rules. Like upstream, the number of further hosts counts all rules, even those without a host.
fn hosts(rules: FieldValue<'_>) -> String {
    let mut hosts: Vec<&str> = Vec::new();
    let mut more = false;
    for rule in rules.items() {
        more |= hosts.len() == SHOWN_HOSTS;
        let host = rule.at("host").text();
        if !more && !host.is_empty() {
            hosts.push(host);
        }
    }
    match (hosts.is_empty(), more) {
        (true, _) => "*".to_owned(),
        (false, false) => join(hosts, ","),
        (false, true) => format!("{} + {} more...", join(hosts, ","), rules.len() - SHOWN_HOSTS),
    }
}

const INGRESS_CLASS: &[Column<'_>] = &[
    NAME,
    Column::text("Controller", "Controller that is responsible for handling this class"),
    Column::text("Parameters", "A reference to a resource with additional parameters"),
    AGE,
];

/// The annotation of the default ingress class.
const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";

fn ingress_class(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![of.name_of_class(&[DEFAULT_CLASS]), spec.at("controller").cell(), parameters(spec.at("parameters")), of.age()]
}

fn parameters(parameters: FieldValue<'_>) -> Value {
    if !parameters.is_set() {
        return "<none>".into();
    }
    let kind = with_group(parameters.at("kind").text(), parameters.at("apiGroup").text());
    format!("{kind}/{}", parameters.at("name").text()).into()
}

const NETWORK_POLICY: &[Column<'_>] = &[NAME, Column::text("Pod-Selector", docs::NETWORK_POLICY_POD_SELECTOR), AGE];

fn network_policy(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), selector::label_selector(of.at("spec").at("podSelector")), of.age()]
}

const IP_ADDRESS: &[Column<'_>] = &[NAME, Column::text("ParentRef", docs::IP_ADDRESS_PARENT_REF)];

/// The row has one cell more than there are columns: like upstream, the age has no column.
fn ip_address(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), parent(of.at("spec").at("parentRef")), of.age()]
}

fn parent(parent: FieldValue<'_>) -> Value {
    if !parent.is_set() {
        return "<none>".into();
    }
    let resource = with_group(parent.at("resource").text(), parent.at("group").text()).to_lowercase();
    let name = parent.at("name").text();
    match parent.at("namespace").text() {
        "" => format!("{resource}/{name}").into(),
        namespace => format!("{resource}/{namespace}/{name}").into(),
    }
}

const SERVICE_CIDR: &[Column<'_>] = &[NAME, Column::text("CIDRs", docs::SERVICE_CIDR_CIDRS), AGE];

fn service_cidr(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), join(of.at("spec").at("cidrs").items().map(FieldValue::text), ",").into(), of.age()]
}
