//! Tests of the condition `Dangling` of flow schemas: it is true if their priority level does not exist.
//!
//! Texts, fields and owners are as recorded.

use std::time::{Duration, Instant};

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const FLOW: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";
const MERGE: &str = "application/merge-patch+json";
const PATIENCE: Duration = Duration::from_secs(60);

fn schema(name: &str, level: &str) -> Value {
    let rule = json!({
        "subjects": [{ "kind": "User", "user": { "name": "nobody" } }],
        "nonResourceRules": [{ "verbs": ["*"], "nonResourceURLs": ["*"] }],
    });
    let spec = json!({ "priorityLevelConfiguration": { "name": level }, "matchingPrecedence": 100, "rules": [rule] });
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// Waits until the condition of a flow schema has these values.
async fn until(raw: &Raw, name: &str, status: &str, reason: &str, end: &str) -> Value {
    let begun = Instant::now();
    loop {
        let found = raw.get(format!("{FLOW}/flowschemas/{name}")).await.expect(200).json();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let dangling = conditions.iter().find(|condition| condition["type"] == "Dangling");
        if let Some(condition) = dangling.filter(|condition| condition["status"] == status) {
            let level = &found["spec"]["priorityLevelConfiguration"]["name"];
            let message =
                format!("This FlowSchema references the PriorityLevelConfiguration object named {level} {end}");
            if condition["message"] == message {
                assert_eq!(condition["reason"], reason);
                return found;
            }
        }
        assert!(begun.elapsed() < PATIENCE, "{found}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flow_schema_says_whether_its_priority_level_exists() {
    const MISSING: (&str, &str, &str) = ("True", "NotFound", "but there is no such object");
    const FOUND: (&str, &str, &str) = ("False", "Found", "and it exists");
    let server = TestServer::start().await;
    let raw = server.raw();
    let becomes =
        async |name: &str, (status, reason, end): (&str, &str, &str)| until(&raw, name, status, reason, end).await;
    // The bootstrap flow schemas have the condition too.
    let all = raw.get(format!("{FLOW}/flowschemas")).await.expect(200).json();
    for item in all["items"].as_array().unwrap() {
        becomes(item["metadata"]["name"].as_str().unwrap(), FOUND).await;
    }

    raw.post(format!("{FLOW}/flowschemas"), &schema("own", "not-there")).await.expect(201);
    let shown = becomes("own", MISSING).await;
    assert_eq!(shown["metadata"]["generation"], 1);
    let owner = shown["metadata"]["managedFields"].as_array().unwrap().iter().find(|of| of["subresource"] == "status");
    let owner = owner.expect("an owner of the status");
    assert_eq!(owner["manager"], "api-priority-and-fairness-config-consumer-v1");
    assert_eq!(owner["operation"], "Apply");
    let fields =
        json!({ ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {} });
    let fields = json!({ "f:status": { "f:conditions": { "k:{\"type\":\"Dangling\"}": fields } } });
    assert_eq!(owner["fieldsV1"], fields);

    // The level is created and deleted.
    let level = json!({ "metadata": { "name": "not-there" }, "spec": { "type": "Limited", "limited": { "limitResponse": { "type": "Reject" } } } });
    raw.post(format!("{FLOW}/prioritylevelconfigurations"), &level).await.expect(201);
    becomes("own", FOUND).await;
    raw.delete(format!("{FLOW}/prioritylevelconfigurations/not-there")).await.expect(200);
    becomes("own", MISSING).await;

    // The schema refers to another level. Conditions of other writers remain, and a removed condition is set again.
    let changed = json!({ "spec": { "priorityLevelConfiguration": { "name": "workload-low" } } });
    raw.patch(format!("{FLOW}/flowschemas/own"), MERGE, &changed).await.expect(200);
    becomes("own", FOUND).await;
    let foreign = json!({ "type": "Own", "status": "True", "lastTransitionTime": "2024-01-01T00:00:00Z", "reason": "R", "message": "m" });
    let status = json!({ "status": { "conditions": [foreign] } });
    raw.patch(format!("{FLOW}/flowschemas/own/status"), MERGE, &status).await.expect(200);
    let shown = becomes("own", FOUND).await;
    let conditions = shown["status"]["conditions"].as_array().unwrap();
    assert!(conditions.len() == 2 && conditions.contains(&foreign), "{conditions:?}");
    // An unchanged condition is not written again.
    let revision = shown["metadata"]["resourceVersion"].clone();
    raw.post(format!("{FLOW}/flowschemas"), &schema("later", "exempt")).await.expect(201);
    becomes("later", FOUND).await;
    let shown = raw.get(format!("{FLOW}/flowschemas/own")).await.expect(200).json();
    assert_eq!(shown["metadata"]["resourceVersion"], revision);
}
