//! Tests of pods, part by part.
//!
//! Each test changes one field of a valid pod, for each rule.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{change, check_below, check_new, check_update, object, pod_spec, rules_of};

fn pod() -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "default"}, "spec": pod_spec("Always")})
}

/// A pod with these further fields in its container.
fn with_container(fields: &[(&str, Value)]) -> Value {
    let pointers: Vec<(String, Value)> =
        fields.iter().map(|(field, value)| (format!("/spec/containers/0/{field}"), value.clone())).collect();
    let changes: Vec<(&str, Value)> =
        pointers.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect();
    change(&pod(), &changes)
}

#[test]
fn containers_have_names_images_and_policies() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&pod(), changes, expected);
    check(&[("/spec/containers", json!([]))], &["spec.containers: Required value"]);
    check(
        &[("/spec/containers/0/image", json!("")), ("/spec/containers/0/imagePullPolicy", json!("Sometimes"))],
        &[
            "spec.containers[0].image: Required value",
            "spec.containers[0].imagePullPolicy: Unsupported value: \"Sometimes\": supported values: \"Always\", \
             \"IfNotPresent\", \"Never\"",
        ],
    );
    let second = pod()["spec"]["containers"][0].clone();
    check(&[("/spec/containers/-", second)], &["spec.containers[1].name: Duplicate value: \"c\""]);
    check(
        &[("/spec/containers/0/image", json!(" nginx"))],
        &["spec.containers[0].image: Invalid value: \" nginx\": must not have leading or trailing whitespace"],
    );
    check(
        &[("/spec/restartPolicy", json!("Maybe"))],
        &["spec.restartPolicy: Unsupported value: \"Maybe\": supported values: \"Always\", \"OnFailure\", \"Never\""],
    );
    let init = json!([change(&pod(), &[])["spec"]["containers"][0].clone()]);
    check(&[("/spec/initContainers", init)], &["spec.initContainers[0].name: Duplicate value: \"c\""]);
}

#[test]
fn ports_and_variables() {
    let ports = json!([{"name": "http", "containerPort": 80, "protocol": "TCP"}]);
    let valid = with_container(&[("ports", ports), ("env", json!([{"name": "A", "value": "1"}]))]);
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&valid, changes, expected);
    check(
        &[
            ("/spec/containers/0/ports/0/containerPort", json!(70000)),
            ("/spec/containers/0/ports/0/protocol", json!("XTP")),
        ],
        &[
            "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "spec.containers[0].ports[0].protocol: Unsupported value: \"XTP\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ],
    );
    check(
        &[("/spec/containers/0/ports/-", json!({"name": "http", "containerPort": 81, "protocol": "TCP"}))],
        &["spec.containers[0].ports[1].name: Duplicate value: \"http\""],
    );
    check(
        &[("/spec/hostNetwork", json!(true))],
        &[
            "spec.containers[0].ports[0].hostPort: Invalid value: 0: must match `containerPort` when `hostNetwork` is true",
        ],
    );
    check(
        &[("/spec/containers/0/env/0", json!({"name": "", "valueFrom": {}}))],
        &[
            "spec.containers[0].env[0].name: Required value",
            "spec.containers[0].env[0].valueFrom: Invalid value: \"\": must specify one of: `fieldRef`, `resourceFieldRef`, \
             `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ],
    );
    let unknown = json!({"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.what"}}});
    check(
        &[("/spec/containers/0/env/0", unknown)],
        &["spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: \"spec.what\": error converting \
           fieldPath: field label not supported: spec.what"],
    );
}

#[test]
fn resources_fit_their_limits() {
    let resources = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2"}});
    let valid = with_container(&[("resources", resources)]);
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&valid, changes, expected);
    check(
        &[("/spec/containers/0/resources/limits/cpu", json!("500m"))],
        &[
            "spec.containers[0].resources.requests: Invalid value: \"1\": must be less than or equal to cpu limit of 500m",
        ],
    );
    check(
        &[
            ("/spec/containers/0/resources/limits/cpu", json!("-2")),
            ("/spec/containers/0/resources/requests", Value::Null),
        ],
        &["spec.containers[0].resources.limits[cpu]: Invalid value: \"-2\": must be greater than or equal to 0"],
    );
    check(
        &[("/spec/containers/0/resources/limits/gpu", json!("1"))],
        &[
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource type or fully \
             qualified",
            "spec.containers[0].resources.limits[gpu]: Invalid value: \"gpu\": must be a standard resource for containers",
        ],
    );
    check(
        &[("/spec/containers/0/resources/requests/example.com~gpu", json!("1"))],
        &[
            "spec.containers[0].resources.requests[example.com~gpu]: Invalid value: \"example.com~gpu\": name part must \
             consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character \
             (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
             '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
            "spec.containers[0].resources.requests[example.com~gpu]: Invalid value: \"example.com~gpu\": must be a standard \
             resource for containers",
        ],
    );
}

#[test]
fn pod_level_requests_are_at_least_the_container_sum() {
    let asks = |amount: &str| json!({"requests": {"memory": amount}});
    let mut valid = with_container(&[("resources", asks("1Gi"))]);
    valid["spec"]["resources"] = asks("2Gi");
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&valid, changes, expected);
    let told = |stated: &str, sum: &str| {
        format!(
            "spec.resources.requests[memory]: Invalid value: \"{stated}\": must be greater than or equal to aggregate \
             container requests of {sum}"
        )
    };
    check(&[("/spec/resources", asks("1Gi"))], &[]);
    check(&[("/spec/resources", asks("512Mi"))], &[&told("512Mi", "1Gi")]);
    let mut first = valid["spec"]["containers"][0].clone();
    first["name"] = json!("first");
    first["resources"] = asks("3Gi");
    check(&[("/spec/initContainers", json!([first]))], &[&told("2Gi", "3Gi")]);
    first["restartPolicy"] = json!("Always");
    check(&[("/spec/initContainers", json!([first]))], &[&told("2Gi", "4Gi")]);
}

#[test]
fn volumes_and_mounts() {
    let mounts = json!([{"name": "v", "mountPath": "/v"}]);
    let valid = change(
        &with_container(&[("volumeMounts", mounts)]),
        &[("/spec/volumes", json!([{"name": "v", "emptyDir": {}}]))],
    );
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&valid, changes, expected);
    check(
        &[("/spec/containers/0/volumeMounts/0/name", json!("w"))],
        &["spec.containers[0].volumeMounts[0].name: Not found: \"w\""],
    );
    check(
        &[("/spec/volumes/0", json!({"name": "v"}))],
        &[
            "spec.volumes[0]: Required value: must specify a volume type",
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ],
    );
    check(
        &[("/spec/volumes/0/hostPath", json!({"path": "/x", "type": ""}))],
        &[
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            "spec.containers[0].volumeMounts[0].name: Not found: \"v\"",
        ],
    );
    check(
        &[("/spec/volumes/-", json!({"name": "v", "secret": {"secretName": "s", "defaultMode": 420}}))],
        &["spec.volumes[1].name: Duplicate value: \"v\""],
    );
    check(
        &[(
            "/spec/volumes/-",
            json!({"name": "s", "secret": {"defaultMode": 4200, "items": [{"key": "k", "path": "../p"}]}}),
        )],
        &[
            "spec.volumes[1].secret.secretName: Required value",
            "spec.volumes[1].secret.defaultMode: Invalid value: 4200: must be a number between 0 and 0777 (octal), both \
             inclusive",
            "spec.volumes[1].secret.items[0].path: Invalid value: \"../p\": must not contain '..'",
        ],
    );
    check(
        &[("/spec/containers/0/volumeMounts/-", json!({"name": "v", "mountPath": "/v"}))],
        &["spec.containers[0].volumeMounts[1].mountPath: Invalid value: \"/v\": must be unique"],
    );
}

#[test]
fn probes_and_hooks() {
    let probe = json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
        "successThreshold": 1, "failureThreshold": 3});
    let valid = with_container(&[("livenessProbe", probe)]);
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&valid, changes, expected);
    check(
        &[
            ("/spec/containers/0/livenessProbe/successThreshold", json!(2)),
            ("/spec/containers/0/livenessProbe/httpGet/port", json!("--")),
        ],
        &[
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"--\": must contain at least one letter (a-z)",
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"--\": must not contain consecutive hyphens",
            "spec.containers[0].livenessProbe.httpGet.port: Invalid value: \"--\": must not begin or end with a hyphen",
            "spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ],
    );
    check(
        &[("/spec/containers/0/livenessProbe/httpGet", Value::Null)],
        &["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    );
    check(
        &[("/spec/containers/0/lifecycle", json!({"preStop": {"sleep": {"seconds": 31}}}))],
        &["spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than \
           terminationGracePeriodSeconds (30)"],
    );
}

#[test]
fn scheduling_and_security_fields_are_validated() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&pod(), changes, expected);
    check(
        &[("/spec/tolerations", json!([{"operator": "Equal"}]))],
        &[
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \
           \"match all values and all keys\"",
        ],
    );
    let affinity = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}, "topologyKey": "zone"}]}});
    let at = "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector";
    check(
        &[("/spec/affinity", affinity)],
        &[&format!("{at}.matchExpressions[0].operator: Invalid value: \"Like\": not a valid selector operator")],
    );
    let spread = json!({"maxSkew": 0, "topologyKey": "zone", "whenUnsatisfiable": "Whatever"});
    check(
        &[("/spec/topologySpreadConstraints", json!([spread]))],
        &[
            "spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: \"Whatever\": supported values: \
             \"DoNotSchedule\", \"ScheduleAnyway\"",
        ],
    );
    check(
        &[("/spec/securityContext", json!({"runAsUser": -1, "seccompProfile": {"type": "Localhost"}}))],
        &[
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ],
    );
    check(
        &[("/spec/dnsPolicy", json!("None"))],
        &["spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    );
    check(
        &[("/spec/hostUsers", json!(false)), ("/spec/hostPID", json!(true))],
        &["spec.HostPID: Forbidden: when `pod.Spec.HostUsers` is false"],
    );
}

#[test]
fn an_update_changes_images_and_little_else() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_update(&pod(), changes, expected);
    check(&[("/spec/containers/0/image", json!("nginx:2"))], &[]);
    check(&[("/spec/tolerations", json!([{"key": "a", "operator": "Exists"}]))], &[]);
    check(&[("/spec/activeDeadlineSeconds", json!(10))], &[]);
    check(
        &[("/spec/containers/0/name", json!("d"))],
        &["spec: Forbidden: pod updates may not change fields other than \
           `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only \
           additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
           previously negative)\n- containers[0].name: \"c\"\n+ containers[0].name: \"d\"\n"],
    );
    let mut second = pod()["spec"]["containers"][0].clone();
    second["name"] = json!("d");
    check(
        &[("/spec/containers/-", second)],
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    );
    let timed = change(&pod(), &[("/spec/activeDeadlineSeconds", json!(10))]);
    check_update(
        &timed,
        &[("/spec/activeDeadlineSeconds", json!(20))],
        &["spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value"],
    );
    let tolerant = change(&pod(), &[("/spec/tolerations", json!([{"key": "a", "operator": "Exists"}]))]);
    check_update(
        &tolerant,
        &[("/spec/tolerations", json!([]))],
        &["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    );
}

#[test]
fn a_gated_pod_may_be_narrowed_down() {
    let gated = change(&pod(), &[("/spec/schedulingGates", json!([{"name": "a"}]))]);
    check_update(&gated, &[("/spec/nodeSelector", json!({"a": "b"}))], &[]);
    check_update(&gated, &[("/spec/schedulingGates", Value::Null)], &[]);
    let nodes = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}}});
    check_update(&gated, &[("/spec/affinity", nodes)], &[]);
    check_update(
        &gated,
        &[("/spec/schedulingGates", json!([{"name": "b"}]))],
        &["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'b'"],
    );
}

#[test]
fn ephemeral_containers_are_added_below_a_subresource_alone() {
    let mut container = pod()["spec"]["containers"][0].clone();
    container["name"] = json!("debug");
    let added = ("/spec/ephemeralContainers", json!([container.clone()]));
    check_below(Some("ephemeralcontainers"), &pod(), std::slice::from_ref(&added), &[]);
    check_new(&pod(), std::slice::from_ref(&added), &["spec.ephemeralContainers: Forbidden: cannot be set on create"]);
    let with_debugger = change(&pod(), &[added]);
    check_below(
        Some("ephemeralcontainers"),
        &with_debugger,
        &[("/spec/ephemeralContainers", json!([]))],
        &["spec.ephemeralContainers: Forbidden: existing ephemeral containers \"debug\" may not be removed\n"],
    );
}

#[test]
fn a_status_is_validated_by_separate_rules() {
    let running = change(
        &pod(),
        &[("/status", json!({"qosClass": "BestEffort", "phase": "Running"})), ("/spec/containers/0/image", json!(""))],
    );
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_below(Some("status"), &running, changes, expected);
    check(&[("/status/phase", json!("Failed"))], &[]);
    check(
        &[("/status/qosClass", json!("Burstable"))],
        &["status.qosClass: Invalid value: \"Burstable\": field is immutable"],
    );
    check(
        &[("/status/podIPs", json!([{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]))],
        &[
            "status.podIPs: Invalid value: [{\"IP\":\"10.0.0.1\"},{\"IP\":\"10.0.0.2\"}]: may specify no more than one IP for \
           each IP family",
        ],
    );
}

#[test]
fn variables_from_files() {
    let env = |file: Value| ("/spec/containers/0/env", json!([{"name": "A", "valueFrom": {"fileKeyRef": file}}]));
    let volumes =
        ("/spec/volumes", json!([{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "s"}}]));
    let check = |file: Value, expected: &[&str]| check_new(&pod(), &[env(file), volumes.clone()], expected);
    let at = "spec.containers[0].env[0].valueFrom.fileKeyRef";
    check(json!({"volumeName": "v", "path": "a/b", "key": "K"}), &[]);
    check(
        json!({"volumeName": "none", "path": "../a"}),
        &[
            &format!("{at}.key: Required value"),
            &format!("{at}.path: Invalid value: \"../a\": must not contain '..'"),
            &format!("{at}.volumeName: Not found: \"none\""),
        ],
    );
    check(
        json!({"volumeName": "s", "path": "a", "key": "K"}),
        &[&format!("{at}.volumeName: Invalid value: \"s\": referenced volume must be of type emptyDir")],
    );
}

#[test]
fn many_volumes_with_mounts_are_validated_in_linear_time() {
    const MANY: usize = 45_000;
    let volumes: Vec<Value> = (0..MANY).map(|index| json!({"name": format!("v{index}"), "emptyDir": {}})).collect();
    let mounts: Vec<Value> =
        (0..MANY).map(|index| json!({"name": format!("v{index}"), "mountPath": format!("/m{index}")})).collect();
    let pod = change(&pod(), &[("/spec/volumes", json!(volumes)), ("/spec/containers/0/volumeMounts", json!(mounts))]);
    let pod = object(&pod);
    let begun = std::time::Instant::now();
    assert_eq!(rules_of(&pod).create(&pod), []);
    // Comparing each volume with each mount would take minutes.
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
}
