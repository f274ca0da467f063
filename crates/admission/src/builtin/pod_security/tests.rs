//! Tests each control, with the messages about pods that violate it.
//!
//! Messages are those of kube-apiserver.

use keelson_meta::Object;
use keelson_meta::json::{Value, json};

use super::levels::{Level, Standard, Version};
use super::pod::Pod;
use super::standards::violations;
use super::violation::told;

/// Checks the violations of a pod against a standard.
fn check(standard: &str, pod: Value, expected: &str) {
    let (level, version) = standard.split_once(':').unwrap();
    let standard = Standard { level: Level::parse(level).unwrap(), version: Version::parse(version).unwrap() };
    let pod = Object::from_value(pod).unwrap();
    assert_eq!(told(&violations(standard, &Pod::from_object(&pod))), expected, "{standard} {pod:?}");
}

fn pod(spec: Value) -> Value {
    let mut spec = spec;
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "c" }]);
    }
    json!({ "spec": spec })
}

/// A pod with one container that has this security context.
#[expect(clippy::needless_pass_by_value, reason = "the values of a test are made where they are given")]
fn contained(context: Value) -> Value {
    pod(json!({ "containers": [{ "name": "c", "securityContext": context }] }))
}

/// A pod that satisfies the restricted level, with some fields replaced.
fn hardened(own: &Value, of_pod: &Value, spec: &Value) -> Value {
    let mut container = json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    let mut pod = json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    let mut whole = json!({});
    for (into, from) in [(&mut container, own), (&mut pod, of_pod), (&mut whole, spec)] {
        for (field, value) in from.as_object().unwrap().iter() {
            into[field] = value.clone();
        }
    }
    whole["securityContext"] = pod;
    whole["containers"] = json!([{ "name": "c", "securityContext": container }]);
    json!({ "spec": whole })
}

#[test]
fn the_baseline_knows_what_leads_out_of_a_container() {
    let baseline = |pod: Value, expected: &str| check("baseline:latest", pod, expected);
    baseline(pod(json!({})), "");
    baseline(pod(json!({ "hostPID": true, "hostIPC": true })), "host namespaces (hostPID=true, hostIPC=true)");
    let capable = |name: &str| {
        let add = json!(["SYS_ADMIN", "NET_RAW", "CHOWN"]);
        json!({ "name": name, "securityContext": { "capabilities": { "add": add } } })
    };
    let message = "non-default capabilities (containers \"b\", \"a\" must not include \"NET_RAW\", \"SYS_ADMIN\" in \
                securityContext.capabilities.add)";
    baseline(pod(json!({ "containers": [capable("b"), capable("a")] })), message);
    let volume = |name: &str| json!({ "name": name, "hostPath": { "path": "/" } });
    baseline(pod(json!({ "volumes": [volume("v"), volume("w")] })), "hostPath volumes (volumes \"v\", \"w\")");
    let port = |name: &str, port: u16| json!({ "name": name, "ports": [{ "containerPort": 80, "hostPort": port }] });
    let message = "hostPort (containers \"a\", \"b\" use hostPorts 80, 81)";
    baseline(pod(json!({ "containers": [port("a", 81), port("b", 80)] })), message);
    let message = "forbidden AppArmor profile (container \"c\" must not set AppArmor profile type to \"Unconfined\")";
    baseline(contained(json!({ "appArmorProfile": { "type": "Unconfined" } })), message);
    let mut annotated = contained(json!({ "appArmorProfile": { "type": "Unconfined" } }));
    let key = "container.apparmor.security.beta.kubernetes.io/c";
    annotated["metadata"] = json!({ "annotations": { key: "unconfined" } });
    let message = "forbidden AppArmor profiles (container \"c\" and annotation must not set AppArmor profile type to \
                \"Unconfined\", \"container.apparmor.security.beta.kubernetes.io/c=\"unconfined\"\")";
    baseline(annotated, message);
    let mut both = contained(json!({ "seLinuxOptions": { "type": "bar", "user": "u" } }));
    both["spec"]["securityContext"] = json!({ "seLinuxOptions": { "type": "foo" } });
    let message = "seLinuxOptions (pod and container \"c\" set forbidden securityContext.seLinuxOptions: types \"bar\", \
                \"foo\"; user may not be set)";
    baseline(both, message);
    let of_pod = |context: Value| pod(json!({ "securityContext": context }));
    let message =
        "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: user may not be set; role may not be set)";
    baseline(of_pod(json!({ "seLinuxOptions": { "user": "u", "role": "r" } })), message);
    let message = "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")";
    baseline(of_pod(json!({ "seccompProfile": { "type": "Unconfined" } })), message);
    let sysctls =
        json!({ "sysctls": [{ "name": "kernel.msgmax" }, { "name": "net.ipv4.tcp_rmem" }, { "name": "net.core.x" }] });
    baseline(of_pod(sysctls), "forbidden sysctls (kernel.msgmax, net.core.x)");
    let message = "privileged (container \"c\" must not set securityContext.privileged=true)";
    baseline(contained(json!({ "privileged": true })), message);
    let message = "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
    baseline(contained(json!({ "procMount": "Unmasked" })), message);
    let message = "hostProcess (container \"c\" must not set securityContext.windowsOptions.hostProcess=true)";
    baseline(contained(json!({ "windowsOptions": { "hostProcess": true } })), message);
    let stop = json!({ "preStop": { "httpGet": { "port": 80, "host": "example.org" } } });
    let message = "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"example.org\")";
    baseline(pod(json!({ "containers": [{ "name": "c", "lifecycle": stop }] })), message);
    check("privileged:latest", contained(json!({ "privileged": true })), "");
}

#[test]
fn the_restricted_level_wants_it_said_that_a_pod_is_hardened() {
    let restricted = |own: Value, of_pod: Value, spec: Value, expected: &str| {
        check("restricted:latest", hardened(&own, &of_pod, &spec), expected);
    };
    let none = || json!({});
    restricted(none(), none(), none(), "");
    let plain = "allowPrivilegeEscalation != false (container \"c\" must set \
                 securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must set \
                 securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" must set \
                 securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
                 securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")";
    check("restricted:latest", pod(none()), plain);
    let message = "unrestricted capabilities (container \"c\" must set securityContext.capabilities.drop=[\"ALL\"]; container \
                \"c\" must not include \"SYS_ADMIN\" in securityContext.capabilities.add)";
    restricted(json!({ "capabilities": { "add": ["SYS_ADMIN"] } }), none(), none(), message);
    restricted(json!({ "capabilities": { "drop": ["ALL"], "add": ["NET_BIND_SERVICE"] } }), none(), none(), "");
    let message = "runAsNonRoot != true (container \"c\" must not set securityContext.runAsNonRoot=false)";
    restricted(json!({ "runAsNonRoot": false }), none(), none(), message);
    let message = "runAsUser=0 (pod must not set runAsUser=0)";
    restricted(none(), json!({ "runAsUser": 0 }), none(), message);
    restricted(none(), json!({ "runAsUser": 0, "runAsNonRoot": null }), json!({ "hostUsers": false }), "");
    let message = "seccompProfile (pod must not set securityContext.seccompProfile.type to \"Unconfined\")";
    restricted(none(), json!({ "seccompProfile": { "type": "Unconfined" } }), none(), message);
    let volumes = json!({ "volumes": [
        { "name": "n", "nfs": { "server": "s" } }, { "name": "i", "iscsi": {} }, { "name": "h", "hostPath": {} },
        { "name": "e", "emptyDir": {} },
    ] });
    let message = "restricted volume types (volumes \"n\", \"i\", \"h\" use restricted volume types \"hostPath\", \"iscsi\", \
                \"nfs\")";
    restricted(none(), none(), volumes, message);
    let windows = json!({ "os": { "name": "windows" }, "securityContext": { "runAsNonRoot": true } });
    check("restricted:latest", pod(windows), "");
}

#[test]
fn a_standard_stays_as_it_was_with_its_release() {
    let sysctl = |name: &str| pod(json!({ "securityContext": { "sysctls": [{ "name": name }] } }));
    let reserved = "net.ipv4.ip_local_reserved_ports";
    check("baseline:v1.19", sysctl(reserved), "forbidden sysctls (net.ipv4.ip_local_reserved_ports)");
    check("baseline:v1.27", sysctl(reserved), "");
    let engine = || pod(json!({ "securityContext": { "seLinuxOptions": { "type": "container_engine_t" } } }));
    let message = "seLinuxOptions (pod set forbidden securityContext.seLinuxOptions: type \"container_engine_t\")";
    check("baseline:v1.30", engine(), message);
    check("baseline:v1.31", engine(), "");
    let probe = json!({ "tcpSocket": { "port": 1, "host": "h" } });
    let probing = || pod(json!({ "containers": [{ "name": "c", "livenessProbe": probe }] }));
    check("baseline:v1.33", probing(), "");
    check("baseline:v1.34", probing(), "probe or lifecycle host (container \"c\" uses probe or lifecycle host \"h\")");
    let mut old = pod(json!({}));
    old["metadata"] = json!({ "annotations": { "seccomp.security.alpha.kubernetes.io/pod": "unconfined" } });
    let message = "seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod=\"unconfined\")";
    check("baseline:v1.18", old.clone(), message);
    check("baseline:v1.19", old, "");
    let root = json!({ "runAsUser": 0, "runAsNonRoot": null });
    let own_users = hardened(&json!({}), &root, &json!({ "hostUsers": false }));
    let message = "runAsNonRoot != true (pod or container \"c\" must set securityContext.runAsNonRoot=true)";
    check("restricted:v1.22", own_users.clone(), message);
    check("restricted:v1.34", own_users.clone(), &format!("{message}, runAsUser=0 (pod must not set runAsUser=0)"));
    check("restricted:v1.35", own_users.clone(), "");
    let unmasked = hardened(&json!({ "procMount": "Unmasked" }), &json!({}), &json!({ "hostUsers": false }));
    check("baseline:v1.35", unmasked.clone(), "");
    let message = "procMount (container \"c\" must not set securityContext.procMount to \"Unmasked\")";
    check("restricted:v1.35", unmasked, message);
    check("restricted:v1.999", own_users, "");
}
