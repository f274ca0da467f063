//! Tests of warnings about valid objects.
//!
//! Each case is an object with the expected warnings.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use super::{change, object, pod_spec, rules_of, selector, template};

fn told(object_now: &Value) -> Vec<String> {
    let new = object(object_now);
    rules_of(&new).warnings(None, &new)
}

/// Checks the warnings for a pod template with these changes to its spec.
fn check_template(changes: &[(&str, Value)], expected: &[&str]) {
    let spec = change(&pod_spec("Always"), changes);
    let template =
        json!({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "t"}, "template": {"spec": spec}});
    assert_eq!(told(&template), expected, "{changes:?}");
}

#[test]
fn templates() {
    check_template(&[], &[]);
    check_template(
        &[("/hostAliases", json!([{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}])), ("/imagePullSecrets", json!([{}]))],
        &[
            "template.spec.hostAliases[1].ip: duplicate ip \"1.1.1.1\"",
            "template.spec.imagePullSecrets[0].name: invalid empty name \"\"",
        ],
    );
    check_template(
        &[("/containers/0/env", json!([{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A"}]))],
        &[
            "template.spec.containers[0].env[2]: hides previous definition of \"A\", which may be dropped when using apply",
        ],
    );
    let port = |host_ip: &str| json!({"name": "p", "containerPort": 80, "protocol": "TCP", "hostIP": host_ip});
    check_template(
        &[("/containers/0/ports", json!([port("127.0.0.1")]))],
        &["template.spec.containers[0].ports[0]: hostIP set without hostPort: {Name:p HostPort:0 ContainerPort:80 \
           Protocol:TCP HostIP:127.0.0.1}"],
    );
    check_template(
        &[("/containers/0/ports", json!([port(""), port("")]))],
        &[
            "template.spec.containers[0].ports[1]: duplicate port definition with template.spec.containers[0].ports[0]",
            "template.spec.containers[0].ports[1]: duplicate port name \"p\" with template.spec.containers[0].ports[0], \
             services and probes that select ports by name will use template.spec.containers[0].ports[0]",
        ],
    );
    let items = json!([{"key": "a", "path": "x"}, {"key": "b", "path": "x/y"}]);
    let projected = json!({"sources": [{}, {"configMap": {"name": "c", "items": items}}]});
    check_template(
        &[(
            "/volumes",
            json!([{"name": "m", "configMap": {"name": "c", "items": items}}, {"name": "p", "projected": projected},
                {"name": "r", "rbd": {}}]),
        )],
        &[
            "template.spec.volumes[2].rbd: deprecated in v1.28, non-functional in v1.31+",
            "volume \"m\" (ConfigMap \"c\"): overlapping paths: \"x/y\" with \"x\"",
            "volume \"p\" (Projected) has no sources provided",
            "volume \"p\" (Projected): overlapping paths: \"x/y\" (ConfigMap \"c\") with \"x\" (ConfigMap \"c\")",
        ],
    );
    check_template(
        &[
            ("/terminationGracePeriodSeconds", json!(-1)),
            ("/topologySpreadConstraints", json!([{"topologyKey": "beta.kubernetes.io/os"}])),
            ("/containers/0/resources", json!({"limits": {"memory": "100m"}})),
        ],
        &[
            "template.spec.topologySpreadConstraints[0].topologyKey: beta.kubernetes.io/os is deprecated since v1.14; use \
             \"kubernetes.io/os\" instead",
            "template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
            "template.spec.containers[0].resources.limits[memory]: fractional byte value \"100m\" is invalid, must be an \
             integer",
            "template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ],
    );
}

#[test]
fn workloads_get_warnings_when_their_generation_changes() {
    let of = |generation: i64, name: &str| {
        let template = change(&template("Always"), &[("/spec/hostAliases", json!([{"ip": "::1"}, {"ip": "::1"}]))]);
        object(
            &json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "generation": generation},
            "spec": {"selector": selector(), "template": template}}),
        )
    };
    let (old, new) = (of(1, "a.b"), of(2, "a.b"));
    let alias = "spec.template.spec.hostAliases[1].ip: duplicate ip \"::1\"";
    let name = "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS \
                label is recommended: [must not contain dots]";
    assert_eq!(rules_of(&new).warnings(None, &new), [name, alias]);
    assert_eq!(rules_of(&new).warnings(Some(&old), &new), [alias]);
    assert_eq!(rules_of(&new).warnings(Some(&new), &new), [""; 0]);
}

#[test]
fn services() {
    let check = |spec: Value, expected: &[&str]| {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": spec});
        assert_eq!(told(&service), expected, "{spec}");
    };
    let plain =
        json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "sessionAffinity": "None"});
    check(plain.clone(), &[]);
    check(
        change(&plain, &[("/externalIPs", json!(["2001:DB8::1"])), ("/externalName", json!("x"))]),
        &[
            "spec.externalIPs[0]: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ],
    );
    check(
        json!({"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP", "loadBalancerIP": "1.2.3.4",
            "externalIPs": ["1.2.3.4"], "trafficDistribution": "PreferClose"}),
        &[
            "spec.loadBalancerIP is ignored for headless services",
            "spec.externalIPs is ignored for headless services",
            "spec.SessionAffinity is ignored for headless services",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ],
    );
}

#[test]
fn small_kinds() {
    let check = |kind: &str, fields: Value, expected: &[&str]| {
        let group = if kind == "CSIDriver" { "storage.k8s.io/v1" } else { "v1" };
        let mut object = json!({"apiVersion": group, "kind": kind, "metadata": {"name": "x"}});
        for (name, value) in fields.as_object().unwrap() {
            object[name] = value.clone();
        }
        assert_eq!(told(&object), expected, "{object}");
    };
    let none = "tls: failed to find any PEM data in certificate input";
    check("Secret", json!({"type": "kubernetes.io/tls", "data": {"tls.crt": "YQ==", "tls.key": "Yg=="}}), &[none]);
    check("Secret", json!({"type": "Opaque", "data": {"tls.crt": "YQ=="}}), &[]);
    let external = "spec.externalID: this field is deprecated, and is unused by Kubernetes";
    check("Node", json!({"spec": {"externalID": "x"}}), &[external]);
    let unset = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
                 logging of tokens in volume attributes";
    check("CSIDriver", json!({"spec": {"tokenRequests": [{"audience": "a"}]}}), &[unset]);
    check("CSIDriver", json!({"spec": {}}), &[]);
    let fraction = "spec.resources.requests[storage]: fractional byte value \"1500m\" is invalid, must be an integer";
    check("PersistentVolumeClaim", json!({"spec": {"resources": {"requests": {"storage": "1500m"}}}}), &[fraction]);
}
