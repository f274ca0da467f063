//! Tests of bindings and statuses in webhooks and policies: the objects that they get, and the effect of a denial or a
//! change.
//!
//! `webhooks` tests evictions, tokens and connections. Reviews are as recorded.

use serde_json::{Value, json};

use super::policies::PolicyServer;
use super::{MERGE, WebhookServer, allowed, patched, review};

const PODS: &str = "/api/v1/namespaces/hooked/pods";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/hooked/deployments";

fn pod(name: &str) -> Value {
    let containers = json!([{ "name": "c", "image": "i" }]);
    json!({ "metadata": { "name": name, "labels": { "x": "on" } }, "spec": { "containers": containers } })
}

fn deployment(name: &str) -> Value {
    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": pod("")["spec"] });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    json!({ "metadata": { "name": name, "labels": { "case": "m-status" } }, "spec": spec })
}

fn binding(pod: &str, node: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": pod }, "target": { "kind": "Node", "name": node } })
}

fn on(resources: &[&str]) -> Value {
    let rule = json!({ "operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": resources });
    json!({ "rules": [rule] })
}

/// The subject of each request in one line, and the request.
fn calls(hooked: &WebhookServer) -> Vec<(String, Value)> {
    let line = |(path, request): (String, Value)| {
        let text = |member: &str| request[member].as_str().unwrap_or_default().to_owned();
        assert_eq!(request["subResource"], request["requestSubResource"]);
        assert_eq!(request["kind"], request["requestKind"]);
        let resource = request["resource"]["resource"].as_str().unwrap();
        let kind = request["kind"]["kind"].as_str().unwrap();
        (format!("{path} {} {resource}/{} {} {kind}", text("operation"), text("subResource"), text("name")), request)
    };
    hooked.asked().into_iter().map(line).collect()
}

#[tokio::test]
async fn webhooks_see_bindings_of_both_endpoints_and_may_refuse_them() {
    let hooked = WebhookServer::open(|request| {
        let refuses = request.body["request"]["object"]["target"]["name"] == "bad";
        review(request, json!({ "allowed": !refuses, "status": { "message": "no such node for us" } }))
    })
    .await;
    for name in ["p", "q", "r"] {
        hooked.raw.post(PODS, &pod(name)).await.expect(201);
    }
    hooked.configure("validating", "v", vec![hooked.webhook("any", on(&["*/*"]))]).await;
    hooked.raw.post(format!("{PODS}/p/binding"), &binding("p", "n")).await.expect(201);
    let told = calls(&hooked);
    assert_eq!(told.len(), 1, "the pod that it changes nobody is asked about: {told:?}");
    let (what, request) = &told[0];
    assert_eq!(what, "/any CREATE pods/binding p Binding");
    let mut shown = binding("p", "n");
    shown["metadata"]["namespace"] = json!("hooked");
    assert_eq!((&request["object"], &request["oldObject"]), (&shown, &Value::Null));
    let options = json!({ "kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1" });
    assert_eq!((&request["namespace"], &request["options"]), (&json!("hooked"), &options));

    hooked.raw.post("/api/v1/namespaces/hooked/bindings", &binding("q", "n")).await.expect(201);
    let told = calls(&hooked);
    assert_eq!((told.len(), told[0].0.as_str()), (1, "/any CREATE bindings/ q Binding"));
    shown["metadata"]["name"] = json!("q");
    assert_eq!(told[0].1["object"], shown);

    let refused = "admission webhook \"any.example.org\" denied the request: no such node for us";
    for place in [format!("{PODS}/r/binding"), "/api/v1/namespaces/hooked/bindings".to_owned()] {
        let response_body = hooked.raw.post(&*place, &binding("r", "bad")).await.expect(400).json();
        assert_eq!(response_body["message"], refused, "{place}");
    }
    let unbound = hooked.raw.get(format!("{PODS}/r")).await.expect(200).json();
    assert_eq!(unbound["spec"]["nodeName"], Value::Null);
}

#[tokio::test]
async fn bindings_are_selected_by_their_labels_and_mutated() {
    let hooked = WebhookServer::open(|request| match request.path.split('?').next().unwrap() {
        "/moves" => patched(request, &json!([{ "op": "replace", "path": "/target/name", "value": "other" }])),
        _ => allowed(request),
    })
    .await;
    for name in ["p", "q"] {
        hooked.raw.post(PODS, &pod(name)).await.expect(201);
    }
    let mut selecting = on(&["*/*"]);
    selecting["objectSelector"] = json!({ "matchLabels": { "x": "on" } });
    hooked.configure("validating", "v", vec![hooked.webhook("on", selecting)]).await;
    hooked.raw.post(format!("{PODS}/p/binding"), &binding("p", "n")).await.expect(201);
    assert_eq!(calls(&hooked), [], "it is the pod that has the label");
    let mut labelled = binding("p", "n");
    labelled["metadata"]["labels"] = json!({ "x": "on" });
    hooked.raw.post(format!("{PODS}/p/binding"), &labelled).await.expect(409);
    assert_eq!(calls(&hooked)[0].0, "/on CREATE pods/binding p Binding");

    hooked.configure("mutating", "m", vec![hooked.webhook("moves", on(&["pods/binding"]))]).await;
    hooked.raw.post(format!("{PODS}/q/binding"), &binding("q", "n")).await.expect(201);
    assert_eq!(hooked.raw.get(format!("{PODS}/q")).await.expect(200).json()["spec"]["nodeName"], "other");
}

#[tokio::test]
async fn webhooks_see_the_whole_object_of_status_updates() {
    let hooked = WebhookServer::open(|request| match request.path.split('?').next().unwrap() {
        "/adds" => patched(
            request,
            &json!([
                { "op": "add", "path": "/status/observedGeneration", "value": 1 },
                { "op": "replace", "path": "/spec/replicas", "value": 9 },
            ]),
        ),
        _ => {
            let refuses = request.body["request"]["object"]["status"]["replicas"] == 7;
            review(request, json!({ "allowed": !refuses }))
        }
    })
    .await;
    hooked.raw.post(DEPLOYMENTS, &deployment("d")).await.expect(201);
    hooked.configure("validating", "v", vec![hooked.webhook("any", on(&["*/status"]))]).await;
    let status = format!("{DEPLOYMENTS}/d/status");
    let sent = |replicas: u32| json!({ "status": { "replicas": replicas } });
    hooked.raw.patch(&*status, MERGE, &sent(1)).await.expect(200);
    let told = calls(&hooked);
    assert_eq!((told.len(), told[0].0.as_str()), (1, "/any UPDATE deployments/status d Deployment"));
    let request = &told[0].1;
    let shown =
        ["object", "oldObject"].map(|object| (&request[object]["spec"]["replicas"], &request[object]["status"]));
    assert_eq!(shown, [(&json!(1), &json!({ "replicas": 1 })), (&json!(1), &json!({}))]);
    assert_eq!(request["options"], json!({ "kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1" }));
    hooked.raw.patch(&*status, MERGE, &sent(7)).await.expect(400);
    let stored = async || hooked.raw.get(format!("{DEPLOYMENTS}/d")).await.expect(200).json();
    assert_eq!(stored().await["status"], json!({ "replicas": 1 }));

    hooked.configure("mutating", "m", vec![hooked.webhook("adds", on(&["deployments/status"]))]).await;
    hooked.raw.patch(&*status, MERGE, &sent(2)).await.expect(200);
    let stored = stored().await;
    assert_eq!(stored["status"], json!({ "observedGeneration": 1, "replicas": 2 }));
    assert_eq!(stored["spec"]["replicas"], 1, "what its endpoint can't change it changes for nobody");
    hooked.asked();
    let labelled = json!({ "metadata": { "labels": { "more": "1" } } });
    hooked.raw.patch(format!("{DEPLOYMENTS}/d"), MERGE, &labelled).await.expect(200);
    assert_eq!(calls(&hooked), [], "a change of the object is none of its status");
}

#[tokio::test]
async fn policies_validate_bindings_and_statuses() {
    let judged = PolicyServer::open().await;
    let rule = |group: &str, resources: &[&str]| json!({ "operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": resources });
    let spec = |rule: Value, expression: &str, message: &str, selector: Value| {
        let constraints = json!({ "resourceRules": [rule], "objectSelector": selector });
        json!({ "matchConstraints": constraints, "validations": [{ "expression": expression, "message": message }] })
    };
    let small = "!has(object.status.replicas) || object.status.replicas < 5";
    let labelled = json!({ "matchLabels": { "case": "m-status" } });
    let status = spec(rule("apps", &["deployments/status"]), small, "status too large", labelled);
    judged.policy("m-status", status, json!({})).await;
    let bindings = spec(rule("", &["pods/binding", "bindings"]), "object.target.name != 'bad'", "not there", json!({}));
    judged.policy("m-bind", bindings, json!({})).await;

    judged.raw.post(DEPLOYMENTS, &deployment("st")).await.expect(201);
    let place = format!("{DEPLOYMENTS}/st/status");
    judged.raw.patch(&*place, MERGE, &json!({ "status": { "replicas": 2 } })).await.expect(200);
    let body = judged.raw.patch(&*place, MERGE, &json!({ "status": { "replicas": 7 } })).await.expect(422).json();
    let message = "ValidatingAdmissionPolicy 'm-status' with binding 'm-status-b' denied request: status too large";
    assert_eq!(body["message"], format!("deployments.apps \"st\" is forbidden: {message}"));
    let stored = judged.raw.get(&*place).await.expect(200).json();
    assert_eq!(stored["status"], json!({ "replicas": 2 }));

    judged.raw.post(PODS, &pod("p")).await.expect(201);
    let message = "ValidatingAdmissionPolicy 'm-bind' with binding 'm-bind-b' denied request: not there";
    for (place, resource) in
        [(format!("{PODS}/p/binding"), "pods"), ("/api/v1/namespaces/hooked/bindings".to_owned(), "bindings")]
    {
        let body = judged.raw.post(&*place, &binding("p", "bad")).await.expect(422).json();
        assert_eq!(body["message"], format!("{resource} \"p\" is forbidden: {message}"));
    }
    assert_eq!(judged.raw.get(format!("{PODS}/p")).await.expect(200).json()["spec"]["nodeName"], Value::Null);
    judged.raw.post(format!("{PODS}/p/binding"), &binding("p", "good")).await.expect(201);
}
