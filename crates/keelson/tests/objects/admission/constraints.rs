//! Tests of the match constraints of policies and of their bindings: names, excluded resources, namespaces, and their
//! combination.
//!
//! `webhooks` tests the rules that policies share with webhooks.

use serde_json::{Value, json};

use super::policies::{PolicyServer, merge};
use super::{MERGE, map};

/// A server with a second namespace, of another team, and policies that deny everything that they match.
struct Lab(PolicyServer);

/// A rule for ConfigMaps.
fn rule(with: Value) -> Value {
    let mut rule =
        json!({ "operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
    merge(&mut rule, with);
    rule
}

impl Lab {
    async fn open() -> Self {
        let judged = PolicyServer::open().await;
        let other = json!({ "metadata": { "name": "other", "labels": { "team": "blue" } } });
        judged.raw.post("/api/v1/namespaces", &other).await.expect(201);
        Self(judged)
    }

    /// Creates a policy with these additional constraints, and a binding with these match resources.
    async fn policy(&self, name: &str, constraints: Value, bound: Value) {
        let mut whole =
            json!({ "resourceRules": [rule(json!({}))], "objectSelector": { "matchLabels": { "case": name } } });
        merge(&mut whole, constraints);
        let spec =
            json!({ "matchConstraints": whole, "validations": [{ "expression": "false", "message": "matched" }] });
        self.0.policy(name, spec, if bound.is_null() { json!({}) } else { json!({ "matchResources": bound }) }).await;
    }

    /// Returns true if a policy denies a dry run of a ConfigMap in a namespace.
    async fn refuses(&self, case: &str, namespace: &str, name: &str) -> bool {
        let mut sent = map(name);
        sent["metadata"]["labels"] = json!({ "case": case });
        let response = self.0.raw.post(format!("/api/v1/namespaces/{namespace}/configmaps?dryRun=All"), &sent).await;
        let is_refused = response.status == 422;
        if is_refused {
            let refused = format!("ValidatingAdmissionPolicy '{case}' with binding '{case}-b' denied request: matched");
            assert_eq!(response.json()["message"], format!("configmaps \"{name}\" is forbidden: {refused}"));
        } else {
            response.expect(201);
        }
        is_refused
    }
}

#[tokio::test]
async fn names_and_exclusions_say_which_objects_a_policy_is_about() {
    let lab = Lab::open().await;
    let spared = json!({ "excludeResourceRules": [rule(json!({ "resourceNames": ["spared"] }))] });
    lab.policy("m-exclude", spared, Value::Null).await;
    assert!(lab.refuses("m-exclude", "hooked", "x").await);
    assert!(!lab.refuses("m-exclude", "hooked", "spared").await);
    let updates = json!({ "excludeResourceRules": [rule(json!({ "operations": ["CREATE"] }))] });
    lab.policy("m-updates", updates, Value::Null).await;
    assert!(!lab.refuses("m-updates", "hooked", "x").await);
    let picked = json!({ "resourceRules": [rule(json!({ "resourceNames": ["picked", "chosen"] }))] });
    lab.policy("m-names", picked, Value::Null).await;
    assert!(!lab.refuses("m-names", "hooked", "x").await);
    assert!(lab.refuses("m-names", "hooked", "picked").await && lab.refuses("m-names", "other", "chosen").await);
    let blue = json!({ "namespaceSelector": { "matchLabels": { "team": "blue" } } });
    lab.policy("m-ns", blue, Value::Null).await;
    assert!(!lab.refuses("m-ns", "hooked", "x").await);
    assert!(lab.refuses("m-ns", "other", "x").await);
}

#[tokio::test]
async fn a_binding_narrows_the_match_constraints_of_its_policy() {
    let lab = Lab::open().await;
    let blue = json!({ "matchLabels": { "team": "blue" } });
    lab.policy("m-binding", json!({}), json!({ "namespaceSelector": blue })).await;
    assert!(!lab.refuses("m-binding", "hooked", "x").await);
    assert!(lab.refuses("m-binding", "other", "x").await);
    let named = json!({ "resourceRules": [rule(json!({ "resourceNames": ["picked"] }))], "namespaceSelector": blue });
    lab.policy("m-both", json!({}), named).await;
    assert!(!lab.refuses("m-both", "other", "x").await && !lab.refuses("m-both", "hooked", "picked").await);
    assert!(lab.refuses("m-both", "other", "picked").await);
    let spared = json!({ "excludeResourceRules": [rule(json!({ "resourceNames": ["spared"] }))] });
    lab.policy("m-spared", json!({}), spared).await;
    assert!(lab.refuses("m-spared", "hooked", "x").await);
    assert!(!lab.refuses("m-spared", "hooked", "spared").await);
    let labelled = json!({ "objectSelector": { "matchLabels": { "more": "yes" } } });
    lab.policy("m-label", json!({}), labelled).await;
    assert!(!lab.refuses("m-label", "hooked", "x").await);

    lab.policy("m-rules", json!({}), json!({ "resourceRules": [rule(json!({ "operations": ["UPDATE"] }))] })).await;
    assert!(!lab.refuses("m-rules", "hooked", "mbr").await);
    let mut sent = map("mbr");
    sent["metadata"]["labels"] = json!({ "case": "m-rules" });
    lab.0.raw.post(super::MAPS, &sent).await.expect(201);
    let place = format!("{}/mbr", super::MAPS);
    let body = lab.0.raw.patch(&*place, MERGE, &json!({ "data": { "z": "1" } })).await.expect(422).json();
    let refused = "ValidatingAdmissionPolicy 'm-rules' with binding 'm-rules-b' denied request: matched";
    assert_eq!(body["message"], format!("configmaps \"mbr\" is forbidden: {refused}"));
    assert_eq!(lab.0.raw.get(&*place).await.expect(200).json()["data"], json!({ "a": "b" }));
}
