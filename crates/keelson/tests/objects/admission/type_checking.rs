//! Tests of the status of validating policies: type errors of their expressions, for built-in and custom kinds.
//!
//! The crate `admission` tests which expressions are checked, and the texts.

use std::time::Duration;

use keelson_server::Switches;
use keelson_testkit::{DEFINITIONS, Raw, TestServer, definition, definition_version};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{GROUP, MERGE};

const DEADLINE: Duration = Duration::from_secs(60);
const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";

fn policy(name: &str, group: &str, resource: &str, expression: &str) -> Value {
    let rule = json!({ "operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource] });
    let spec =
        json!({ "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": expression }] });
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// Waits until a policy's status has this generation, and returns it.
async fn status(raw: &Raw, name: &str, generation: u64) -> Value {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let policy = raw.get(format!("{POLICIES}/{name}")).await.expect(200).json();
        if policy["status"]["observedGeneration"] == generation {
            assert_eq!(policy["metadata"]["generation"], generation);
            return policy["status"].clone();
        }
        assert!(Instant::now() < deadline, "{policy}");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn policy_status_reports_type_checking_warnings() {
    let controllers = Switches::parse(["validatingadmissionpolicy-status-controller"]).unwrap();
    let server = TestServer::builder().configure(|config| config.controllers = controllers).start().await;
    let raw = server.raw();
    assert!(POLICIES.starts_with(GROUP));
    raw.post(POLICIES, &policy("p", "apps", "deployments", "object.spec.nope == 1")).await.expect(201);
    let message = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'\n | object.spec.nope == 1\n | ...........^\n";
    let warning = json!({ "fieldRef": "spec.validations[0].expression", "warning": message });
    let checked = json!({ "observedGeneration": 1, "typeChecking": { "expressionWarnings": [warning] } });
    assert_eq!(status(&raw, "p", 1).await, checked);

    let time = "2026-01-01T00:00:00Z";
    let condition = json!({ "type": "T", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": time });
    let told_by_others = json!({ "status": { "conditions": [condition] } });
    raw.patch(format!("{POLICIES}/p/status"), MERGE, &told_by_others).await.expect(200);
    let mended = json!({ "spec": { "validations": [{ "expression": "object.spec.replicas == 1" }] } });
    raw.patch(format!("{POLICIES}/p"), MERGE, &mended).await.expect(200);
    let checked = json!({ "observedGeneration": 2, "typeChecking": {}, "conditions": [condition] });
    assert_eq!(status(&raw, "p", 2).await, checked);
}

#[tokio::test]
async fn custom_kinds_are_checked_by_their_schemas() {
    let controllers = Switches::parse(["validatingadmissionpolicy-status-controller"]).unwrap();
    let server = TestServer::builder().configure(|config| config.controllers = controllers).start().await;
    let raw = server.raw();
    let spec = json!({ "type": "object", "properties": { "size": { "type": "integer" } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let versions = vec![definition_version("v1", true, schema)];
    raw.post(DEFINITIONS, &definition("checked.example.org", "boxes", "Box", versions)).await.expect(201);
    let deadline = Instant::now() + DEADLINE;
    while raw.get("/apis/checked.example.org/v1/boxes").await.status != 200 {
        assert!(Instant::now() < deadline);
        sleep(Duration::from_millis(20)).await;
    }
    let check = async |name: &str, expression: &str, message: &str| {
        raw.post(POLICIES, &policy(name, "checked.example.org", "boxes", expression)).await.expect(201);
        let checked = status(&raw, name, 1).await;
        let warning = checked["typeChecking"]["expressionWarnings"][0]["warning"].as_str().unwrap_or_default();
        assert!(warning.contains(message) && warning.is_empty() == message.is_empty(), "{checked}");
    };
    check("fine", "object.spec.size > 1 && object.metadata.labels['a'] == 'b'", "").await;
    check(
        "words",
        "object.metadata.namespace == 'a' && has(object.metadata.namespace) && request.namespace != 'b'",
        "",
    )
    .await;
    check(
        "field",
        "object.spec.weight > 1",
        "checked.example.org/v1, Kind=Box: ERROR: <input>:1:12: undefined field 'weight'",
    )
    .await;
    check("type", "object.spec.size == 'a'", "found no matching overload for '_==_' applied to '(int, string)'").await;
}
