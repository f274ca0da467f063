//! Tests of the defaults of each kind. A second run changes nothing, present fields stay, and missing defaults are
//! detected in the bytes of an object.

use keelson_codec::{ParsedObject, StoredObject};
use keelson_meta::json::{Value, json};
use keelson_meta::{GroupVersion, GroupVersionKind, Object, Revision};

use super::Defaults;

/// Fills in an object and checks the values at some paths. Also checks that filling in again changes nothing.
fn check(api_version: &str, kind: &str, object: Value, expected: &[(&str, Value)]) {
    let GroupVersion { group, version } = GroupVersion::parse(api_version).unwrap();
    let of = GroupVersionKind { group, version, kind: kind.to_owned() };
    let mut filled = Object::from_value(object).unwrap();
    filled.set_type(&of);
    check_lacks(&of, filled.0.clone().into());
    fill(&of, &mut filled);
    let once = filled.clone();
    fill(&of, &mut filled);
    assert_eq!(filled, once, "{kind}: filling in twice");
    let filled = filled.into_value();
    for lesser in without_each(&filled) {
        check_lacks(&of, lesser);
    }
    for (path, value) in expected {
        assert_eq!(filled.pointer(path).unwrap_or(&Value::Null), value, "{kind}{path} in {filled}");
    }
}

fn fill(kind: &GroupVersionKind, object: &mut Object) {
    Defaults::for_kind(kind).into_iter().for_each(|defaults| defaults.fill(object));
}

/// Checks that [`Defaults::lacks`] agrees with [`Defaults::fill`].
fn check_lacks(kind: &GroupVersionKind, object: Value) {
    let stored = StoredObject::encode(&Object::from_value(object).unwrap());
    let before = stored.decode(Revision::ZERO);
    let mut filled = before.clone();
    fill(kind, &mut filled);
    let text = stored.text().into_owned();
    let lacks = Defaults::for_kind(kind).is_some_and(|defaults| defaults.lacks(&ParsedObject::from(stored)));
    assert_eq!(lacks, filled != before, "{text}");
}

/// Variants of a value: each one lacks one member or item, or has null, an empty string, zero or `true` in its place.
fn without_each(value: &Value) -> Vec<Value> {
    let mut lesser = Vec::new();
    let members: Vec<(String, &Value)> = match value {
        Value::Object(map) => map.iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        Value::Array(items) => items.iter().enumerate().map(|(place, item)| (place.to_string(), item)).collect(),
        _ => return lesser,
    };
    let with = |place: &str, item: Value| {
        let mut value = value.clone();
        match value.get_mut(place) {
            Some(member) => *member = item,
            None => value[place.parse::<usize>().unwrap()] = item,
        }
        value
    };
    for (place, item) in members {
        if matches!(&*place, "kind" | "apiVersion" | "metadata") {
            continue;
        }
        lesser.extend([Value::Null, json!(""), json!(0), json!(true)].map(|instead| with(&place, instead)));
        lesser.extend(without_each(item).into_iter().map(|item| with(&place, item)));
        let mut without = value.clone();
        match &mut without {
            Value::Object(map) => drop(map.remove(&place)),
            Value::Array(items) => drop(items.remove(place.parse().unwrap())),
            _ => {}
        }
        lesser.push(without);
    }
    lesser
}

#[test]
fn a_minimal_pod_gets_its_defaults() {
    let pod = json!({ "spec": { "containers": [{ "name": "c", "image": "nginx",
        "resources": { "limits": { "cpu": "1" } }, "livenessProbe": { "httpGet": { "port": 80 } } }],
        "volumes": [{ "name": "a" }, { "name": "s", "secret": { "secretName": "s" } }, { "name": "h", "hostPath": {} }],
        "serviceAccount": "robot" } });
    check(
        "v1",
        "Pod",
        pod,
        &[
            ("/spec/restartPolicy", json!("Always")),
            ("/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/securityContext", json!({})),
            ("/spec/enableServiceLinks", json!(true)),
            ("/spec/serviceAccountName", json!("robot")),
            ("/spec/tolerations", Value::Null),
            ("/spec/containers/0/imagePullPolicy", json!("Always")),
            ("/spec/containers/0/terminationMessagePolicy", json!("File")),
            ("/spec/containers/0/resources/requests/cpu", json!("1")),
            ("/spec/containers/0/livenessProbe/httpGet/scheme", json!("HTTP")),
            ("/spec/containers/0/livenessProbe/failureThreshold", json!(3)),
            ("/spec/volumes/0/emptyDir", json!({})),
            ("/spec/volumes/1/secret/defaultMode", json!(420)),
            ("/spec/volumes/2/hostPath/type", json!("")),
        ],
    );
}

#[test]
fn pod_level_requests_default_to_those_of_the_containers() {
    let asks = |requests: Value| json!({ "image": "i:1", "resources": { "requests": requests } });
    let sidecar =
        json!({ "image": "i:1", "restartPolicy": "Always", "resources": { "requests": { "memory": "1Gi" } } });
    let pod = |resources: Value| {
        json!({ "spec": { "resources": resources, "initContainers": [asks(json!({ "cpu": "3" })), sidecar],
            "containers": [asks(json!({ "cpu": "500m", "memory": "512Mi", "ephemeral-storage": "1Gi" })), asks(json!({ "cpu": "1" }))] } })
    };
    let checks = [
        (
            json!({ "limits": { "cpu": "4" } }),
            json!({ "limits": { "cpu": "4" }, "requests": { "cpu": "3", "memory": "1536Mi" } }),
        ),
        (
            json!({ "limits": { "hugepages-2Mi": "4Mi", "cpu": "4" }, "requests": { "cpu": "4" } }),
            json!({ "limits": { "hugepages-2Mi": "4Mi", "cpu": "4" },
                "requests": { "cpu": "4", "memory": "1536Mi", "hugepages-2Mi": "4Mi" } }),
        ),
        (json!({ "requests": { "cpu": "4" } }), json!({ "requests": { "cpu": "4" } })),
        (json!({}), json!({})),
    ];
    for (stated, expected) in checks {
        check("v1", "Pod", pod(stated), &[("/spec/resources", expected)]);
    }
    let pages = json!({ "image": "i:1", "resources": { "limits": { "hugepages-2Mi": "2Mi" } } });
    let pod = json!({ "spec": { "resources": { "requests": { "cpu": "1" } }, "containers": [pages.clone(), pages] } });
    let expected = json!({ "requests": { "cpu": "1", "hugepages-2Mi": "4Mi" }, "limits": { "hugepages-2Mi": "4Mi" } });
    check("v1", "Pod", pod, &[("/spec/resources", expected)]);
}

#[test]
fn empty_strings_in_non_string_fields_are_kept() {
    let empty = |api_version: &str, kind: &str, object: Value, paths: &[&str]| {
        let expected: Vec<(&str, Value)> = paths.iter().map(|path| (*path, json!(""))).collect();
        check(api_version, kind, object, &expected);
    };
    let pod = json!({ "spec": { "securityContext": "", "terminationGracePeriodSeconds": "", "enableServiceLinks": "",
        "containers": [{ "image": "i", "ports": [{ "containerPort": 80, "hostPort": "" }] }] } });
    let paths = ["/spec/securityContext", "/spec/terminationGracePeriodSeconds", "/spec/enableServiceLinks"];
    empty("v1", "Pod", pod, &paths);
    empty("apps/v1", "Deployment", json!({ "spec": "" }), &["/spec"]);
    empty("apps/v1", "Deployment", json!({ "spec": { "replicas": "" } }), &["/spec/replicas"]);
    let job = json!({ "spec": { "completions": "", "parallelism": "", "backoffLimit": "" } });
    empty("batch/v1", "Job", job, &["/spec/completions", "/spec/parallelism", "/spec/backoffLimit"]);
    let service = json!({ "spec": { "ports": [{ "port": 80, "targetPort": "" }] } });
    check("v1", "Service", service, &[("/spec/ports/0/targetPort", json!(80))]);
}

#[test]
fn stated_fields_of_a_pod_are_not_defaulted() {
    let pod = json!({ "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "enableServiceLinks": false,
        "hostNetwork": true,
        "containers": [{ "image": "a:latest", "imagePullPolicy": "Never", "ports": [{ "containerPort": 80 }] }] } });
    check(
        "v1",
        "Pod",
        pod,
        &[
            ("/spec/restartPolicy", json!("Never")),
            ("/spec/terminationGracePeriodSeconds", json!(0)),
            ("/spec/enableServiceLinks", json!(false)),
            ("/spec/containers/0/imagePullPolicy", json!("Never")),
            ("/spec/containers/0/ports/0/hostPort", json!(80)),
        ],
    );
}

#[test]
fn pod_templates_get_pod_defaults_but_no_admission_defaults() {
    let workload = json!({ "spec": { "template": { "spec": { "containers": [{ "image": "a:1" }] } } } });
    for (api_version, kind, template) in [
        ("apps/v1", "Deployment", "/spec/template"),
        ("apps/v1", "DaemonSet", "/spec/template"),
        ("apps/v1", "StatefulSet", "/spec/template"),
        ("apps/v1", "ReplicaSet", "/spec/template"),
        ("batch/v1", "Job", "/spec/template"),
        ("v1", "ReplicationController", "/spec/template"),
    ] {
        let at = |path: &str| format!("{template}/spec/{path}");
        check(
            api_version,
            kind,
            workload.clone(),
            &[
                (&at("dnsPolicy"), json!("ClusterFirst")),
                (&at("containers/0/imagePullPolicy"), json!("IfNotPresent")),
                (&at("tolerations"), Value::Null),
                (&at("enableServiceLinks"), Value::Null),
            ],
        );
    }
    let cron = json!({ "spec": { "jobTemplate": { "spec": workload["spec"] } } });
    check(
        "batch/v1",
        "CronJob",
        cron,
        &[
            ("/spec/jobTemplate/spec/template/spec/dnsPolicy", json!("ClusterFirst")),
            ("/spec/jobTemplate/spec/backoffLimit", Value::Null),
            ("/spec/concurrencyPolicy", json!("Allow")),
        ],
    );
}

#[test]
fn workloads_get_their_strategies() {
    let spec = |spec: Value| json!({ "spec": spec });
    check(
        "apps/v1",
        "Deployment",
        spec(json!({})),
        &[
            ("/spec/replicas", json!(1)),
            (
                "/spec/strategy",
                json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": "25%", "maxSurge": "25%" } }),
            ),
        ],
    );
    check(
        "apps/v1",
        "Deployment",
        spec(json!({ "replicas": 0, "strategy": { "type": "Recreate" } })),
        &[("/spec/replicas", json!(0)), ("/spec/strategy", json!({ "type": "Recreate" }))],
    );
    check(
        "apps/v1",
        "DaemonSet",
        spec(json!({})),
        &[("/spec/updateStrategy/rollingUpdate", json!({ "maxUnavailable": 1, "maxSurge": 0 }))],
    );
    check(
        "apps/v1",
        "StatefulSet",
        spec(json!({ "volumeClaimTemplates": [{ "spec": {} }] })),
        &[
            ("/spec/updateStrategy/rollingUpdate", json!({ "partition": 0 })),
            ("/spec/persistentVolumeClaimRetentionPolicy/whenScaled", json!("Retain")),
            ("/spec/volumeClaimTemplates/0/spec/volumeMode", json!("Filesystem")),
            ("/spec/volumeClaimTemplates/0/kind", json!("PersistentVolumeClaim")),
        ],
    );
    check(
        "apps/v1",
        "StatefulSet",
        spec(json!({ "updateStrategy": { "type": "RollingUpdate" } })),
        &[("/spec/updateStrategy", json!({ "type": "RollingUpdate" }))],
    );
    check(
        "batch/v1",
        "Job",
        spec(json!({ "parallelism": 2 })),
        &[("/spec/completions", Value::Null), ("/spec/backoffLimit", json!(6))],
    );
    check(
        "batch/v1",
        "Job",
        spec(json!({ "backoffLimitPerIndex": 1, "podFailurePolicy": { "rules": [] } })),
        &[
            ("/spec/completions", json!(1)),
            ("/spec/backoffLimit", json!(2_147_483_647)),
            ("/spec/podReplacementPolicy", json!("Failed")),
        ],
    );
}

#[test]
fn a_replication_controller_takes_selector_and_labels_from_its_template() {
    let template = json!({ "metadata": { "labels": { "a": "b" } } });
    check(
        "v1",
        "ReplicationController",
        json!({ "spec": { "template": template } }),
        &[("/spec/selector", json!({ "a": "b" })), ("/metadata/labels", json!({ "a": "b" }))],
    );
}

#[test]
fn services_depend_on_their_type() {
    let spec = |spec: Value| json!({ "spec": spec });
    let ports = json!([{ "port": 80 }]);
    check(
        "v1",
        "Service",
        spec(json!({ "ports": ports, "sessionAffinity": "ClientIP" })),
        &[
            ("/spec/type", json!("ClusterIP")),
            ("/spec/ports/0/targetPort", json!(80)),
            ("/spec/sessionAffinityConfig/clientIP/timeoutSeconds", json!(10_800)),
            ("/spec/internalTrafficPolicy", json!("Cluster")),
            ("/spec/externalTrafficPolicy", Value::Null),
        ],
    );
    check(
        "v1",
        "Service",
        spec(json!({ "type": "LoadBalancer" })),
        &[("/spec/externalTrafficPolicy", json!("Cluster")), ("/spec/allocateLoadBalancerNodePorts", json!(true))],
    );
    check("v1", "Service", spec(json!({ "type": "ExternalName" })), &[("/spec/internalTrafficPolicy", Value::Null)]);
}

#[test]
fn addresses_of_load_balancers_have_a_mode() {
    let service = |kind: &str| {
        json!({ "spec": { "type": kind }, "status": { "loadBalancer": { "ingress": [
            { "ip": "192.0.2.1" }, { "ip": "192.0.2.2", "ipMode": "Proxy" }, { "hostname": "a.example" }, { "ip": "" }] } } })
    };
    let modes = |object: Value, expected: [Value; 4]| {
        let paths = [0, 1, 2, 3].map(|place| format!("/status/loadBalancer/ingress/{place}/ipMode"));
        let expected: Vec<(&str, Value)> = paths.iter().map(String::as_str).zip(expected).collect();
        check("v1", "Service", object, &expected);
    };
    modes(service("LoadBalancer"), [json!("VIP"), json!("Proxy"), Value::Null, Value::Null]);
    modes(service("NodePort"), [Value::Null, json!("Proxy"), Value::Null, Value::Null]);
}

#[test]
fn mirrored_address_fields_are_kept_equal() {
    let addresses = |ips: &[&str]| json!(ips.iter().map(|ip| json!({ "ip": ip })).collect::<Vec<_>>());
    for (stated, one, many) in [
        (json!({ "podIP": "10.0.0.1" }), json!("10.0.0.1"), addresses(&["10.0.0.1"])),
        (
            json!({ "podIPs": addresses(&["10.0.0.1", "fd00::1"]) }),
            json!("10.0.0.1"),
            addresses(&["10.0.0.1", "fd00::1"]),
        ),
        (
            json!({ "podIP": "10.0.0.1", "podIPs": addresses(&["10.0.0.1", "fd00::1"]) }),
            json!("10.0.0.1"),
            addresses(&["10.0.0.1", "fd00::1"]),
        ),
        (
            json!({ "podIP": "10.0.0.2", "podIPs": addresses(&["10.0.0.1", "fd00::1"]) }),
            json!("10.0.0.2"),
            addresses(&["10.0.0.2"]),
        ),
        (json!({ "podIP": "", "podIPs": [] }), json!(""), json!([])),
        (json!({ "podIP": 1, "podIPs": 2 }), json!(1), json!(2)),
        (json!({ "podIP": "10.0.0.1", "podIPs": [3] }), json!("10.0.0.1"), json!([3])),
    ] {
        check("v1", "Pod", json!({ "status": stated }), &[("/status/podIP", one), ("/status/podIPs", many)]);
    }
    for (stated, one, many) in [
        (json!({ "podCIDR": "10.0.0.0/24" }), json!("10.0.0.0/24"), json!(["10.0.0.0/24"])),
        (
            json!({ "podCIDRs": ["10.0.0.0/24", "fd00::/64"] }),
            json!("10.0.0.0/24"),
            json!(["10.0.0.0/24", "fd00::/64"]),
        ),
        (
            json!({ "podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.0.0/24", "fd00::/64"] }),
            json!("10.0.1.0/24"),
            json!(["10.0.1.0/24"]),
        ),
        (json!({}), Value::Null, Value::Null),
        (json!({ "podCIDR": "10.0.0.0/24", "podCIDRs": [{}] }), json!("10.0.0.0/24"), json!([{}])),
    ] {
        check("v1", "Node", json!({ "spec": stated }), &[("/spec/podCIDR", one), ("/spec/podCIDRs", many)]);
    }
}

#[test]
fn amounts_of_resources_are_whole_thousandths() {
    let fine = || json!({ "cpu": "1500u", "memory": "0.5", "storage": 0.0001, "pods": "2" });
    let rounded = |at: &str| -> Vec<(String, Value)> {
        let amounts = [("cpu", json!("2m")), ("memory", json!("0.5")), ("storage", json!("1m")), ("pods", json!("2"))];
        amounts.into_iter().map(|(name, amount)| (format!("{at}/{name}"), amount)).collect()
    };
    let check_each = |api_version: &str, kind: &str, object: Value, places: &[&str]| {
        let expected: Vec<(String, Value)> = places.iter().flat_map(|at| rounded(at)).collect();
        let expected: Vec<(&str, Value)> = expected.iter().map(|(at, value)| (at.as_str(), value.clone())).collect();
        check(api_version, kind, object, &expected);
    };
    let resources = json!({ "limits": fine(), "requests": fine() });
    let container = json!([{ "image": "i:1", "resources": resources }]);
    let pod = json!({ "initContainers": container, "containers": container, "ephemeralContainers": container,
        "overhead": fine(), "resources": resources });
    let given = json!([{ "allocatedResources": fine(), "resources": resources }]);
    let status = json!({ "containerStatuses": given, "resources": resources, "allocatedResources": fine() });
    let of_pod = [
        "/spec/initContainers/0/resources/limits",
        "/spec/containers/0/resources/requests",
        "/spec/ephemeralContainers/0/resources/limits",
        "/spec/overhead",
        "/spec/resources/limits",
        "/spec/resources/requests",
        "/status/containerStatuses/0/allocatedResources",
        "/status/containerStatuses/0/resources/requests",
        "/status/resources/limits",
        "/status/allocatedResources",
    ];
    check_each("v1", "Pod", json!({ "spec": pod, "status": status }), &of_pod);
    let template = "/spec/template/spec/containers/0/resources/limits";
    check_each("apps/v1", "Deployment", json!({ "spec": { "template": { "spec": pod } } }), &[template]);
    let claim =
        json!({ "spec": { "resources": resources }, "status": { "capacity": fine(), "allocatedResources": fine() } });
    let of_claim = ["/spec/resources/requests", "/status/capacity", "/status/allocatedResources"];
    check_each("v1", "PersistentVolumeClaim", claim.clone(), &of_claim);
    let sets = json!({ "spec": { "volumeClaimTemplates": [claim] } });
    check_each("apps/v1", "StatefulSet", sets, &["/spec/volumeClaimTemplates/0/spec/resources/requests"]);
    check_each("v1", "PersistentVolume", json!({ "spec": { "capacity": fine() } }), &["/spec/capacity"]);
    let node = json!({ "status": { "capacity": fine() } });
    check_each("v1", "Node", node, &["/status/capacity", "/status/allocatable"]);
    let quota = json!({ "spec": { "hard": fine() }, "status": { "hard": fine(), "used": fine() } });
    check_each("v1", "ResourceQuota", quota, &["/spec/hard", "/status/hard", "/status/used"]);
    let range = json!({ "spec": { "limits": [{ "type": "Container", "max": fine() }] } });
    let of_range = ["/spec/limits/0/max", "/spec/limits/0/default", "/spec/limits/0/defaultRequest"];
    check_each("v1", "LimitRange", range, &of_range);
    let class = json!({ "overhead": { "podFixed": fine() } });
    check_each("node.k8s.io/v1", "RuntimeClass", class, &["/overhead/podFixed"]);
    let attachment = json!({ "spec": { "source": { "inlineVolumeSpec": { "capacity": fine() } } } });
    check_each("storage.k8s.io/v1", "VolumeAttachment", attachment, &["/spec/source/inlineVolumeSpec/capacity"]);
}

#[test]
fn an_empty_flow_schema_gets_the_default_precedence() {
    for schema in [json!({}), json!({ "spec": {} }), json!({ "spec": { "matchingPrecedence": 0 } })] {
        let precedence = [("/spec/matchingPrecedence", json!(1000))];
        check("flowcontrol.apiserver.k8s.io/v1", "FlowSchema", schema, &precedence);
    }
}

#[test]
fn network_policy_types_default_from_the_stated_rules() {
    let policy = |spec: Value| json!({ "spec": spec });
    let kind = "NetworkPolicy";
    check("networking.k8s.io/v1", kind, policy(json!({})), &[("/spec/policyTypes", json!(["Ingress"]))]);
    check(
        "networking.k8s.io/v1",
        kind,
        policy(json!({ "egress": [{ "ports": [{}] }] })),
        &[("/spec/policyTypes", json!(["Ingress", "Egress"])), ("/spec/egress/0/ports/0/protocol", json!("TCP"))],
    );
}

#[test]
fn autoscalers_default_to_eighty_percent_of_the_cpu() {
    let kind = "HorizontalPodAutoscaler";
    let target = "/spec/targetCPUUtilizationPercentage";
    check("autoscaling/v1", kind, json!({ "spec": {} }), &[(target, json!(80))]);
    let noted =
        json!({ "metadata": { "annotations": { "autoscaling.alpha.kubernetes.io/metrics": "[]" } }, "spec": {} });
    check("autoscaling/v1", kind, noted, &[(target, Value::Null)]);
    check(
        "autoscaling/v2",
        kind,
        json!({ "spec": { "behavior": { "scaleUp": { "selectPolicy": "Min" } } } }),
        &[
            ("/spec/metrics/0/resource/target/averageUtilization", json!(80)),
            ("/spec/behavior/scaleUp/selectPolicy", json!("Min")),
            ("/spec/behavior/scaleUp/policies/0/value", json!(4)),
            ("/spec/behavior/scaleDown/policies/0/type", json!("Percent")),
        ],
    );
}

#[test]
fn kinds_with_few_fields_get_their_defaults() {
    check(
        "v1",
        "LimitRange",
        json!({ "spec": { "limits": [{ "type": "Container", "max": { "cpu": "2" }, "min": { "memory": "1" } }] } }),
        &[
            ("/spec/limits/0/default", json!({ "cpu": "2" })),
            ("/spec/limits/0/defaultRequest", json!({ "cpu": "2", "memory": "1" })),
        ],
    );
    check(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        json!({ "roleRef": {}, "subjects": [{ "kind": "User" }, { "kind": "ServiceAccount" }] }),
        &[
            ("/roleRef/apiGroup", json!("rbac.authorization.k8s.io")),
            ("/subjects/0/apiGroup", json!("rbac.authorization.k8s.io")),
            ("/subjects/1/apiGroup", Value::Null),
        ],
    );
    check(
        "resource.k8s.io/v1",
        "ResourceClaim",
        json!({ "spec": { "devices": { "requests": [{ "exactly": {} }] } } }),
        &[("/spec/devices/requests/0/exactly", json!({ "allocationMode": "ExactCount", "count": 1 }))],
    );
    check(
        "resource.k8s.io/v1beta1",
        "ResourceClaim",
        json!({ "spec": { "devices": { "requests": [{}] } } }),
        &[("/spec/devices/requests/0", json!({ "allocationMode": "ExactCount", "count": 1 }))],
    );
    check(
        "storage.k8s.io/v1",
        "CSIDriver",
        json!({ "spec": { "volumeLifecycleModes": [] } }),
        &[("/spec/volumeLifecycleModes", json!(["Persistent"])), ("/spec/attachRequired", json!(true))],
    );
}

#[test]
fn defaulting_ignores_values_of_wrong_types() {
    for (api_version, kind) in [("v1", "Pod"), ("apps/v1", "Deployment"), ("v1", "Service"), ("batch/v1", "Job")] {
        for spec in
            [json!(5), json!([]), json!({ "containers": 5, "template": [], "ports": [5], "volumes": { "a": 1 } })]
        {
            check(api_version, kind, json!({ "spec": spec }), &[]);
        }
    }
}
