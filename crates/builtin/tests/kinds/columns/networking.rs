//! Tests the tables of ingresses, network policies, addresses and endpoint slices.
//!
//! Long lists are truncated like upstream.

use keelson_meta::json::{Value, json};

use super::{cell, check};

const GROUP: &str = "networking.k8s.io";

#[test]
fn ingresses_show_hosts_and_address() {
    let fields = json!({
        "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example"}, {"host": "b.example"}], "tls": [{}]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}},
    });
    check(GROUP, "Ingress", fields, json!(["x", "nginx", "a.example,b.example", "192.0.2.9", "80, 443", "3d4h"]));
    check(GROUP, "Ingress", json!({}), json!(["x", "<none>", "*", "", "80", "3d4h"]));
    let hosts = |rules: Value| cell(GROUP, "Ingress", "Hosts", json!({"spec": {"rules": rules}}));
    assert_eq!(hosts(json!([{}, {"host": "a"}])), "a");
    assert_eq!(hosts(json!([{"host": "a"}, {"host": "b"}, {"host": "c"}])), "a,b,c");
    assert_eq!(hosts(json!([{"host": "a"}, {}, {"host": "b"}, {"host": "c"}, {"host": "d"}])), "a,b,c + 2 more...");
}

#[test]
fn ingress_classes_show_their_parameters() {
    let spec = |parameters: Value| json!({"spec": {"controller": "example.org/in", "parameters": parameters}});
    let row = |parameters: &str| json!(["x", "example.org/in", parameters, "3d4h"]);
    check(GROUP, "IngressClass", spec(Value::Null), row("<none>"));
    check(GROUP, "IngressClass", spec(json!({"kind": "ConfigMap", "name": "c"})), row("ConfigMap/c"));
    let mut default = spec(Value::Null);
    default["metadata"] = json!({"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}});
    check(GROUP, "IngressClass", default, json!(["x (default)", "example.org/in", "<none>", "3d4h"]));
    let grouped = json!({"apiGroup": "example.org", "kind": "Params", "name": "p"});
    check(GROUP, "IngressClass", spec(grouped), row("Params.example.org/p"));
}

#[test]
fn policies_show_the_pods_they_apply_to() {
    check(GROUP, "NetworkPolicy", json!({"spec": {"podSelector": {}}}), json!(["x", "<none>", "3d4h"]));
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
    check(GROUP, "NetworkPolicy", json!({"spec": {"podSelector": selector}}), json!(["x", "a", "3d4h"]));
}

#[test]
fn ip_addresses_show_their_parent_reference() {
    let parent = |parent: Value| cell(GROUP, "IPAddress", "ParentRef", json!({"spec": {"parentRef": parent}}));
    assert_eq!(parent(json!({"resource": "services", "namespace": "d", "name": "web"})), "services/d/web");
    assert_eq!(parent(json!({"group": "Example.org", "resource": "things", "name": "one"})), "things.example.org/one");
    assert_eq!(parent(Value::Null), "<none>");
    check(
        GROUP,
        "ServiceCIDR",
        json!({"spec": {"cidrs": ["10.0.0.0/24", "fd00::/112"]}}),
        json!(["x", "10.0.0.0/24,fd00::/112", "3d4h"]),
    );
}

#[test]
fn endpoint_slices_show_the_first_three() {
    let fields = json!({
        "addressType": "IPv4",
        "ports": [{"port": 80}, {"name": "any"}, {}, {"port": 81}],
        "endpoints": [{"addresses": ["10.0.0.1", "10.0.0.2"]}, {"addresses": ["10.0.0.3"]},
            {"addresses": ["10.0.0.4", "10.0.0.5"]}],
    });
    let expected = json!(["x", "IPv4", "80,any,* + 1 more...", "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more...", "3d4h"]);
    check("discovery.k8s.io", "EndpointSlice", fields, expected);
    check(
        "discovery.k8s.io",
        "EndpointSlice",
        json!({"addressType": "FQDN"}),
        json!(["x", "FQDN", "<unset>", "<unset>", "3d4h"]),
    );
}
