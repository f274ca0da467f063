//! `pods/binding`, and `bindings`.
//!
//! Both forms of a binding bind a pod to a node, once.

use serde_json::{Value, json};

use super::{Lab, NAMESPACE, check, check_done};

fn binding(pod: &str, node: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod}, "target": {"kind": "Node", "name": node}})
}

#[tokio::test]
async fn a_binding_assigns_the_pod_once_with_metadata_and_topology() {
    let lab = Lab::start().await;
    lab.node("n1").await;
    let made = lab.pod("p", json!({})).await;
    let mut sent = binding("p", "n1");
    sent["metadata"]["annotations"] = json!({"by": "scheduler"});
    sent["metadata"]["labels"] = json!({"placed": "yes"});
    sent["metadata"]["uid"] = made["metadata"]["uid"].clone();
    check_done(&lab.post("pods/p/binding", sent).await);
    let pod = lab.get("pods/p").await;
    assert_eq!(pod["spec"]["nodeName"], "n1");
    assert_eq!(pod["metadata"]["annotations"]["by"], "scheduler");
    let labels = json!({"app": "web", "placed": "yes", "topology.kubernetes.io/region": "r",
        "topology.kubernetes.io/zone": "a"});
    assert_eq!(pod["metadata"]["labels"], labels);
    let condition = &pod["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["status"]), (&json!("PodScheduled"), &json!("True")));
    assert!(condition["lastTransitionTime"].is_string() && condition["lastProbeTime"].is_null(), "{condition}");
    assert_eq!(pod["metadata"]["generation"], made["metadata"]["generation"]);
    let again = lab.post("pods/p/binding", binding("p", "n2")).await;
    let message = "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\"";
    check(&again, 409, "Conflict", message);
    assert_eq!(again.json()["details"], json!({"name": "p", "kind": "pods/binding"}));
}

#[tokio::test]
async fn the_older_form_names_its_pod_itself() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    check_done(&lab.post("bindings", binding("p", "n1")).await);
    assert_eq!(lab.get("pods/p").await["spec"]["nodeName"], "n1", "a node need not exist");
    let missing = lab.post("bindings", binding("q", "n1")).await;
    check(&missing, 404, "NotFound", "pods \"q\" not found");
}

#[tokio::test]
async fn ports_in_use_are_reported() {
    let lab = Lab::start().await;
    lab.pod("p", json!({})).await;
    lab.pod("gated", json!({"schedulingGates": [{"name": "example.com/wait"}]})).await;
    let conflict = |pod: &str, why: &str| format!("Operation cannot be fulfilled on pods/binding \"{pod}\": {why}");
    let gated = lab.post("pods/gated/binding", binding("gated", "n")).await;
    check(&gated, 409, "Conflict", &conflict("gated", "pod gated has non-empty .spec.schedulingGates"));
    let finalizers = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    lab.raw.patch(format!("{NAMESPACE}/pods/gated"), super::MERGE, &finalizers).await.expect(200);
    lab.raw.delete(format!("{NAMESPACE}/pods/gated")).await.expect(200);
    let leaving = lab.post("pods/gated/binding", binding("gated", "n")).await;
    let why = "pod gated is being deleted, cannot be assigned to a host";
    check(&leaving, 409, "Conflict", &conflict("gated", why));
    let other = lab.post("pods/p/binding", binding("q", "n")).await;
    check(&other, 400, "BadRequest", "name in URL does not match name in Binding object");
    let nowhere = lab.post("pods/p/binding", json!({"metadata": {"name": "p"}, "target": {"kind": "Pod"}})).await;
    let message = "[target.kind: Unsupported value: \"Pod\": supported values: \"Node\", \"<empty>\", target.name: \
                   Required value]";
    check(&nowhere, 500, "", message);
    let unnamed = lab.post("pods/p/binding", binding("p", "Not_A_Node")).await;
    let message = unnamed.json()["message"].as_str().unwrap().to_owned();
    assert!(
        message.starts_with("target.name: Invalid value: \"Not_A_Node\": a lowercase RFC 1123 subdomain"),
        "{message}"
    );
    let mut stale = binding("p", "n");
    stale["metadata"]["uid"] = json!("another");
    assert_eq!(lab.post("pods/p/binding", stale).await.status, 409);
    let mut stale = binding("p", "n");
    stale["metadata"]["resourceVersion"] = json!("1");
    assert_eq!(lab.post("pods/p/binding", stale).await.status, 409);
    check_done(&lab.post("pods/p/binding?dryRun=All", binding("p", "n")).await);
    assert!(lab.get("pods/p").await["spec"]["nodeName"].is_null(), "a dry run binds nothing");
}
