//! Tests of an operator in Rust: it applies its definition, reconciles owned objects and finalizers, and defaults and
//! refuses objects by webhooks. It resumes after restarts of the server and of itself.

mod reservoirs;

use std::env;

use keelson_testkit::{HookProcess, Raw, TestServer, hook_process};
use kube::Client;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::{DEFINITIONS, MERGE, condition, until, until_gone};

/// Names the kubeconfig of the operator process.
const KUBECONFIG: &str = "KEELSON_TEST_OPERATOR_KUBECONFIG";
const RESERVOIRS: &str = "/apis/operators.example.org/v1/namespaces/default/reservoirs";
const GAUGES: &str = "/api/v1/namespaces/default/configmaps";

/// Runs the operator, if this program was started as its process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_process_of_the_operator() {
    let Some(kubeconfig) = env::var_os(KUBECONFIG) else { return };
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let client = Client::try_from(config).unwrap();
    tokio::select! {
        () = reservoirs::run(client) => panic!("the operator has ended"),
        () = hook_process(|_, request| reservoirs::admit(request)) => {}
    }
}

/// Configures the operator's webhooks, as its installation would.
async fn install(raw: &Raw, operator: &HookProcess) {
    for (kind, place) in [("mutating", "fill"), ("validating", "judge")] {
        let webhook = json!({
            "name": format!("{place}.operators.example.org"),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "clientConfig": { "url": operator.url(&format!("/{place}")), "caBundle": operator.ca_bundle() },
            "rules": [{ "operations": ["CREATE", "UPDATE"], "apiGroups": ["operators.example.org"], "apiVersions": ["v1"],
                        "resources": ["reservoirs"] }],
        });
        let configuration = json!({ "metadata": { "name": "reservoirs" }, "webhooks": [webhook] });
        let path = format!("/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations");
        raw.post(path, &configuration).await.expect(201);
    }
}

fn reservoir(name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "operators.example.org/v1", "kind": "Reservoir", "metadata": { "name": name }, "spec": spec })
}

/// Waits until the operator has reported this event for a reservoir.
async fn until_event(raw: &Raw, reason: &str, note: &str) {
    let is_it = |event: &Value| event["reason"] == reason && event["note"] == note;
    until(raw, "/apis/events.k8s.io/v1/namespaces/default/events", |found| {
        found["items"].as_array().is_some_and(|events| events.iter().any(is_it))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rust_operator_reconciles_its_objects_and_resumes() {
    let mut server = TestServer::builder().sqlite().start().await;
    let variables = vec![(KUBECONFIG, server.kubeconfig().as_os_str().to_owned())];
    let mut operator = HookProcess::with_variables("operators::rust::the_process_of_the_operator", variables).await;
    let mut raw = server.raw();
    let definition = format!("{DEFINITIONS}/reservoirs.operators.example.org");
    until(&raw, &definition, |found| condition(found, "Established").0 == "True").await;
    install(&raw, &operator).await;

    let made = raw.post(RESERVOIRS, &reservoir("a", &json!({ "level": 5 }))).await.expect(201).json();
    assert_eq!(made["spec"], json!({ "level": 5, "lining": "clay" }), "its webhook fills in");
    let refused = raw.post(RESERVOIRS, &reservoir("b", &json!({ "level": 31 }))).await.expect(400).json();
    let why = "admission webhook \"judge.operators.example.org\" denied the request: clay does not hold 31 metres";
    assert_eq!(refused["message"], why);
    raw.post(RESERVOIRS, &reservoir("b", &json!({ "level": 101, "lining": "steel" }))).await.expect(422);
    let deep =
        raw.post(format!("{RESERVOIRS}?dryRun=All"), &reservoir("b", &json!({ "level": 31, "lining": "steel" })));
    assert_eq!(deep.await.expect(201).header("warning"), "299 - \"that is deep\"");

    // The operator reconciles owned objects, and reports the observed generation.
    let (one, gauge) = (format!("{RESERVOIRS}/a"), format!("{GAUGES}/a"));
    let followed = until(&raw, &one, |found| found["status"] == json!({ "level": 5, "observedGeneration": 1 })).await;
    assert_eq!(followed["metadata"]["finalizers"], json!([reservoirs::FINALIZER]));
    let owned = raw.get(&*gauge).await.expect(200).json();
    assert_eq!(owned["data"], json!({ "level": "5", "lining": "clay" }));
    assert_eq!(owned["metadata"]["ownerReferences"][0]["uid"], made["metadata"]["uid"]);
    until_event(&raw, "Filled", "to 5").await;
    raw.delete(&*gauge).await.expect(200);
    until(&raw, &gauge, |found| found["metadata"]["uid"].is_string()).await;
    raw.patch(&*gauge, MERGE, &json!({ "data": { "level": "0" } })).await.expect(200);
    until(&raw, &gauge, |found| found["data"]["level"] == "5").await;

    // After a restart of the server the operator still works.
    server.restart().await;
    raw = server.raw();
    raw.patch(&*one, MERGE, &json!({ "spec": { "level": 6 } })).await.expect(200);
    until(&raw, &one, |found| found["status"] == json!({ "level": 6, "observedGeneration": 2 })).await;

    // Without the operator no write passes its webhooks. It resumes from the stored state.
    operator.kill().await;
    let told_so = raw.patch(&*one, MERGE, &json!({ "spec": { "level": 7 } })).await.expect(500).json();
    let why = "failed calling webhook \"fill.operators.example.org\"";
    assert!(told_so["message"].as_str().unwrap().contains(why), "{told_so}");
    raw.delete(&*gauge).await.expect(200);
    operator.restart().await;
    until(&raw, &gauge, |found| found["data"]["level"] == "6").await;
    raw.patch(&*one, MERGE, &json!({ "spec": { "level": 8 } })).await.expect(200);
    until(&raw, &one, |found| found["status"] == json!({ "level": 8, "observedGeneration": 3 })).await;

    // Objects are deleted after the finalizer has run.
    raw.delete(&*one).await.expect(200);
    until_gone(&raw, &one).await;
    until_gone(&raw, &gauge).await;
    until_event(&raw, "Drained", "from 8").await;
}
