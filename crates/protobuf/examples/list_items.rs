//! Measures the cost of one item in a protobuf list: `cargo run --release -p keelson-protobuf --example list_items`.
//!
//! The items are pods of one replica set, which differ only in names and addresses, or pods that have no text in
//! common. The output is in nanoseconds for each item, the minimum of many rounds. There are three cases: the item is
//! written, it is measured, or it is written alone as for a get. `alike` or `unlike` after `--` measures only one kind
//! of pods.
#![allow(clippy::print_stdout, clippy::expect_used, reason = "a program that measures talks")]

use std::hint::black_box;
use std::time::Instant;

use keelson_meta::json::{Value, json};
use keelson_protobuf::{ListForm, MessageType};

/// The number of items in a block of a list.
const PODS: usize = 26;
const ROUNDS: usize = 4000;

fn main() {
    let only = std::env::args().nth(1);
    for (what, alike) in [("alike", true), ("unlike", false)] {
        if only.as_ref().is_some_and(|only| only != what) {
            continue;
        }
        let texts: Vec<String> = (0..PODS).map(|number| pod(number, alike).to_string()).collect();
        let form = ListForm::new("v1", "PodList", "Pod").expect("pods have a list");
        let message = MessageType::new("v1", "Pod").expect("pods have a message");
        let mut out = Vec::with_capacity(1 << 20);
        let written = least(|| {
            out.clear();
            let mut writer = form.write_items(&mut out);
            texts.iter().for_each(|text| writer.item(text.as_bytes()).expect("a pod fits"));
        });
        let measured = least(|| {
            let mut measure = form.measure_items();
            texts.iter().for_each(|text| measure.item(text.as_bytes()).expect("a pod fits"));
            black_box(measure.bytes());
        });
        let alone = least(|| {
            out.clear();
            texts.iter().for_each(|text| message.write_json(text.as_bytes(), None, &mut out).expect("a pod fits"));
            black_box(&out);
        });
        let bytes = texts.iter().map(String::len).sum::<usize>() / PODS;
        println!("{what}: {bytes} bytes of JSON: written {written} ns, measured {measured} ns, alone {alone} ns");
    }
}

fn least(mut round: impl FnMut()) -> u128 {
    let timed = (0..ROUNDS).map(|_| {
        let start = Instant::now();
        round();
        start.elapsed().as_nanos() / PODS as u128
    });
    timed.min().unwrap_or(0)
}

/// A pod of 4.9 KB.
fn pod(number: usize, alike: bool) -> Value {
    // A prefix of texts. With it, no long text begins like one of another pod.
    let own = if alike { String::new() } else { format!("{:08x}", number.wrapping_mul(0x9e37_79b9) as u32) };
    let owned = |paths: &[&str]| paths.iter().map(|path| (format!("f:{path}"), json!({}))).collect::<Value>();
    let spec_fields = ["dnsPolicy", "enableServiceLinks", "nodeName", "restartPolicy", "schedulerName", "tolerations"];
    let container_fields = ["args", "image", "imagePullPolicy", "name", "env", "ports", "resources", "volumeMounts"];
    let variable = |name: &str, path: &str| json!({"name": format!("{own}{name}"), "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}});
    let mount = |name: &str| json!({"name": format!("{own}{name}"), "readOnly": true, "mountPath": format!("/etc/{name}{own}")});
    let probe = |path: &str| {
        json!({"httpGet": {"path": format!("/{own}{path}"), "port": 8080, "scheme": "HTTP"}, "initialDelaySeconds": 5,
            "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3})
    };
    let toleration = |key: &str| json!({"key": format!("{own}node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let condition = |kind: &str| json!({"type": format!("{own}{kind}"), "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    json!({
        "metadata": {
            "name": format!("service-001-6d4f8b7c9-{number:08x}"), "namespace": "bench-01",
            "uid": format!("7c1b2a5e-4b1f-4f57-9c7d-3f1e{number:08x}"), "resourceVersion": (1_000_000 + number).to_string(),
            "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app.kubernetes.io/name": format!("service-001{own}"), "app.kubernetes.io/part-of": "bench", "pod-template-hash": "6d4f8b7c9", "sample": "no"},
            "annotations": {"example.com/description": format!("{own}{number:08x} a text that says what this is for ").repeat(16), "prometheus.io/port": "9090", "prometheus.io/scrape": "true"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{own}service-001-6d4f8b7c9"), "uid": "7c1b2a5e-4b1f-4f57-9c7d-3f1e5f0f6a21", "controller": true, "blockOwnerDeletion": true}],
            "managedFields": [{"manager": format!("bench{own}"), "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:annotations": owned(&["example.com/description", "prometheus.io/port", "prometheus.io/scrape"]), "f:labels": owned(&["app.kubernetes.io/name", "app.kubernetes.io/part-of", "pod-template-hash", "sample"])},
                    "f:spec": {"f:containers": {"k:{\"name\":\"main\"}": owned(&container_fields)}, "f:more": owned(&spec_fields), "f:volumes": owned(&["k:{\"name\":\"config\"}", "k:{\"name\":\"credentials\"}"])}}}],
        },
        "spec": {
            "volumes": [{"name": format!("{own}config"), "configMap": {"name": "service-001", "defaultMode": 420}}, {"name": format!("{own}credentials"), "secret": {"secretName": "service-001", "defaultMode": 420}}],
            "containers": [{
                "name": format!("{own}main"), "image": "example.com/bench/service-001:v1.8.2",
                "args": [format!("--listen=:8080{own}"), "--metrics=:9090", "--config=/etc/service/config.yaml"],
                "ports": [{"name": format!("{own}http"), "containerPort": 8080, "protocol": "TCP"}, {"name": format!("{own}metrics"), "containerPort": 9090, "protocol": "TCP"}],
                "env": [variable("POD_NAME", "metadata.name"), variable("POD_IP", "status.podIP")],
                "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [mount("config"), mount("credentials")],
                "livenessProbe": probe("healthz"), "readinessProbe": probe("ready"),
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "serviceAccount": "default", "automountServiceAccountToken": false, "nodeName": format!("node-{number:04}"),
            "securityContext": {"runAsUser": 65532, "runAsNonRoot": true}, "schedulerName": "default-scheduler",
            "tolerations": [toleration("not-ready"), toleration("unreachable")], "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
            "hostIP": "192.0.2.17", "podIP": format!("198.51.100.{number}"), "podIPs": [{"ip": format!("198.51.100.{number}")}], "startTime": "2026-01-02T03:04:05Z",
            "containerStatuses": [{"name": format!("{own}main"), "state": {"running": {"startedAt": "2026-01-02T03:04:09Z"}}, "lastState": {}, "ready": true, "restartCount": 0,
                "image": "example.com/bench/service-001:v1.8.2", "imageID": "example.com/bench/service-001@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08", "started": true}],
            "qosClass": "Burstable",
        },
    })
}
