//! Tests of ingresses, ingress classes, network policies and addresses.
//!
//! Formats of addresses and names are tested with one example of each error.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_below, check_new, check_update};

fn ingress() -> Value {
    json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}, "spec": {
        "rules": [{"host": "a.example.com", "http": {"paths": [
            {"path": "/a", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}})
}

#[test]
fn ingresses_have_hosts_paths_and_backends() {
    let path = |field: &str| format!("/spec/rules/0/http/paths/0/{field}");
    check_new(
        &ingress(),
        &[("/spec/rules", Value::Null)],
        &["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"],
    );
    check_new(
        &ingress(),
        &[("/spec/rules/0/host", json!("10.0.0.1")), (&path("path"), json!("a//b/.."))],
        &[
            "spec.rules[0].host: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b/..\": must be an absolute path",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b/..\": must not contain '//'",
            "spec.rules[0].http.paths[0].path: Invalid value: \"a//b/..\": cannot end with '/..'",
        ],
    );
    check_new(
        &ingress(),
        &[(&path("pathType"), Value::Null)],
        &["spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"],
    );
    check_new(
        &ingress(),
        &[(&path("pathType"), json!("Regex")), (&path("backend"), json!({}))],
        &[
            "spec.rules[0].http.paths[0].pathType: Unsupported value: \"Regex\": supported values: \"Exact\", \
             \"ImplementationSpecific\", \"Prefix\"",
            "spec.rules[0].http.paths[0].backend: Invalid value: \"\": resource or service backend is required",
        ],
    );
    check_new(
        &ingress(),
        &[(&path("backend/service/port"), json!({"name": "http", "number": 80}))],
        &["spec.rules[0].http.paths[0].backend: Invalid value: \"\": cannot set both port name & port number"],
    );
    let annotated = [
        ("/metadata/annotations", json!({"kubernetes.io/ingress.class": "a"})),
        ("/spec/ingressClassName", json!("b")),
    ];
    let differs = "annotations.kubernetes.io/ingress.class: Invalid value: \"a\": must match `ingressClassName` when both are \
                   specified";
    check_new(&ingress(), &annotated, &[differs]);
    check_update(&ingress(), &annotated, &[]);
    check_below(
        Some("status"),
        &ingress(),
        &[("/status", json!({"loadBalancer": {"ingress": [{"ip": "x", "hostname": "10.0.0.1"}]}}))],
        &[
            "status.loadBalancer.ingress[0].ip: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or \
             2001:db8::ffff)",
            "status.loadBalancer.ingress[0].hostname: Invalid value: \"10.0.0.1\": must be a DNS name, not an IP address",
        ],
    );
}

#[test]
fn ingress_classes_keep_their_controller() {
    let class = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IngressClass", "metadata": {"name": "c"},
        "spec": {"controller": "example.com/c", "parameters": {"kind": "P", "name": "p", "scope": "Cluster"}}});
    check_new(&class, &[("/spec/controller", json!(""))], &["spec.controller: Required value"]);
    check_new(
        &class,
        &[("/spec/parameters/scope", json!("Namespace"))],
        &["spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"],
    );
    check_update(
        &class,
        &[("/spec/controller", json!("example.com/d"))],
        &["spec.controller: Invalid value: \"example.com/d\": field is immutable"],
    );
}

#[test]
fn network_policies_have_ports_and_peers() {
    let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "p"}, "spec": {
        "podSelector": {}, "policyTypes": ["Ingress"],
        "ingress": [{"ports": [{"port": 80, "endPort": 90, "protocol": "TCP"}], "from": [{"ipBlock": {"cidr": "10.0.0.0/8",
            "except": ["10.1.0.0/16"]}}]}]}});
    let field = |field: &str| format!("/spec/ingress/0/{field}");
    check_new(
        &policy,
        &[(&field("ports/0/endPort"), json!(70)), (&field("ports/0/protocol"), json!("ICMP"))],
        &[
            "spec.ingress[0].ports[0].protocol: Unsupported value: \"ICMP\": supported values: \"TCP\", \"UDP\", \"SCTP\"",
            "spec.ingress[0].ports[0].endPort: Invalid value: 70: must be greater than or equal to `port`",
        ],
    );
    check_new(
        &policy,
        &[(&field("ports/0/port"), json!("http"))],
        &["spec.ingress[0].ports[0].endPort: Invalid value: 90: may not be specified when `port` is non-numeric"],
    );
    check_new(
        &policy,
        &[(&field("from/0"), json!({}))],
        &["spec.ingress[0].from[0]: Required value: must specify a peer"],
    );
    check_new(
        &policy,
        &[
            (&field("from/0/podSelector"), json!({})),
            (&field("from/0/ipBlock/except"), json!(["11.0.0.0/16", "10.0.0.0/8"])),
        ],
        &[
            "spec.ingress[0].from[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
            "spec.ingress[0].from[0].ipBlock.except[1]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
            "spec.ingress[0].from[0]: Forbidden: may not specify both ipBlock and another peer",
        ],
    );
    check_new(
        &policy,
        &[("/spec/policyTypes/0", json!("Other"))],
        &["spec.policyTypes[0]: Unsupported value: \"Other\": supported values: \"Ingress\", \"Egress\""],
    );
}

#[test]
fn addresses_and_their_ranges_stay() {
    let address = json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "192.0.2.1"},
        "spec": {"parentRef": {"resource": "services", "name": "s", "namespace": "default"}}});
    check_new(&address, &[("/spec/parentRef", Value::Null)], &["spec.parentRef: Required value"]);
    check_update(
        &address,
        &[("/spec/parentRef/name", json!("t"))],
        &[
            "spec.parentRef: Invalid value: {\"resource\":\"services\",\"name\":\"t\",\"namespace\":\"default\"}: field is immutable",
        ],
    );
    let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", "metadata": {"name": "r"},
        "spec": {"cidrs": ["10.0.0.0/24"]}});
    check_new(&range, &[("/spec/cidrs", json!([]))], &["spec.cidrs: Required value: at least one CIDR required"]);
    check_update(&range, &[("/spec/cidrs/-", json!("fd00::/112"))], &[]);
    check_update(
        &range,
        &[("/spec/cidrs/-", json!("10.1.0.0/24"))],
        &[
            "spec.cidrs: Invalid value: [\"10.0.0.0/24\",\"10.1.0.0/24\"]: may specify no more than one IP for each IP family, \
           i.e 192.168.0.0/24 and 2001:db8::/64",
        ],
    );
    check_update(
        &range,
        &[("/spec/cidrs/0", json!("10.1.0.0/24"))],
        &["spec.cidrs[0]: Invalid value: \"10.1.0.0/24\": field is immutable"],
    );
}
