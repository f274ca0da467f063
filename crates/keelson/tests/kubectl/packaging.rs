//! Tests of the manifests and the chart of `packaging/`, which are applied to a server as to any cluster.
//!
//! Helm is not in this repository: `cargo xtask test` fetches its library, or reports that it can't.

use std::path::PathBuf;
use std::process::Stdio;

use keelson_testkit::{definition, definition_version};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::Shell;

/// The environment variable with the directory of the Helm library for Python.
const HELM: &str = "KEELSON_TEST_HELM";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kubectl/chart.py");

/// A pod as the controller of stateful sets would create it, with an empty volume instead of a claim.
fn pod_of(stateful_set: &Value) -> Value {
    let template = &stateful_set["spec"]["template"];
    let mut spec = template["spec"].clone();
    let volumes = spec["volumes"].as_array().cloned().unwrap_or_default();
    if volumes.iter().all(|volume| volume["name"] != "data") {
        spec["volumes"] = [vec![json!({ "name": "data", "emptyDir": {} })], volumes].concat().into();
    }
    let (name, namespace) =
        (format!("{}-0", stateful_set["metadata"]["name"].as_str().unwrap()), &stateful_set["metadata"]["namespace"]);
    let labels = &template["metadata"]["labels"];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": name, "namespace": namespace, "labels": labels }, "spec": spec,
    })
}

/// Applies a manifest, and checks that a namespace with the strictest pod security level admits its pods.
async fn check(file: &str, replicas: u64, kinds: &[&str]) {
    let shell = Shell::start().await;
    let path = format!("{PACKAGING}/manifests/{file}");
    let applied = format!("apply --validate=strict -f {path}");
    shell.ok(&applied).await;
    shell.ok(&applied).await;
    for kind in kinds {
        shell.ok(&format!("-n keelson get {kind} keelson")).await;
    }
    let stateful_set = shell.json("-n keelson get statefulset keelson -o json").await;
    assert_eq!(stateful_set["spec"]["replicas"], replicas);
    assert_eq!(stateful_set["metadata"]["generation"], 1, "applied again, it is as it was");
    let made = shell.feed("create --validate=strict -f -", pod_of(&stateful_set).to_string()).await;
    assert_eq!(made, "pod/keelson-0 created\n");
}

#[tokio::test]
async fn manifests_are_applied_and_their_pods_are_restricted() {
    check("keelson-single.yaml", 1, &["service", "serviceaccount", "networkpolicy"]).await;
    check("keelson-three.yaml", 3, &["service", "serviceaccount", "networkpolicy", "poddisruptionbudget"]).await;
}

#[tokio::test(flavor = "multi_thread")]
#[allow(clippy::print_stderr, reason = "who runs the tests is told what was not run")]
async fn helm_installs_upgrades_and_removes_the_chart() {
    let Some(library) = std::env::var_os(HELM).filter(|path| !path.is_empty()).map(PathBuf::from) else {
        eprintln!("NOT run: {HELM} names no library of Helm (cargo xtask test fetches it)");
        return;
    };
    let shell = Shell::start().await;
    shell.ok("create namespace keelson").await;
    shell.ok("label namespace keelson pod-security.kubernetes.io/enforce=restricted").await;
    let any = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let monitors = definition(
        "monitoring.coreos.com",
        "servicemonitors",
        "ServiceMonitor",
        json!([definition_version("v1", true, any)]),
    );
    shell.feed("create -f -", monitors.to_string()).await;
    shell.is_established("servicemonitors.monitoring.coreos.com").await;
    let helm = |step: &'static str| {
        let mut command = Command::new("python3");
        command.arg(SCRIPT).arg(format!("{PACKAGING}/helm/keelson")).arg(shell.server.kubeconfig()).arg(step);
        command.env("PYTHONPATH", &library).env("PYTHONDONTWRITEBYTECODE", "1").env_remove("KUBECONFIG");
        command.stdin(Stdio::null()).kill_on_drop(true);
        async move {
            let output = command.output().await.unwrap();
            assert!(output.status.success(), "{step}: {}", String::from_utf8_lossy(&output.stderr));
        }
    };
    helm("install").await;
    let single = shell.json("-n keelson get statefulset single-keelson -o json").await;
    shell.feed("create --validate=strict -f -", pod_of(&single).to_string()).await;
    let history = "-n keelson get statefulset single-keelson -o jsonpath={.spec.template.spec.containers[0].env[?(@.name==\"KEELSON_HISTORY\")].value}";
    helm("upgrade").await;
    assert_eq!(shell.ok(history).await, "10m");
    helm("rollback").await;
    assert_eq!(shell.ok(history).await, "");
    helm("install-three").await;
    let three = shell.json("-n keelson get statefulset three-keelson -o json").await;
    assert_eq!(three["spec"]["replicas"], 3);
    shell.feed("create --validate=strict -f -", pod_of(&three).to_string()).await;
    shell.ok("-n keelson get poddisruptionbudget,networkpolicy,servicemonitor three-keelson").await;
    helm("uninstall").await;
    assert_eq!(shell.ok("-n keelson get statefulset,service,servicemonitor -o name").await, "");
}
