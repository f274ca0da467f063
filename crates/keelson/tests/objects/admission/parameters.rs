//! Tests of policy parameters that are custom resources, namespaced and cluster-scoped, and of parameters of mutating
//! policies.
//!
//! `policies` tests the selection of ConfigMaps as parameters. Texts are as recorded.

use std::time::Duration;

use keelson_testkit::{DEFINITIONS, definition, definition_version};
use serde_json::{Value, json};

use super::policies::{PolicyServer, applies};
use super::{MAPS, MERGE, define, map};

const GROUP: &str = "policy.example.org";
const LIMITS: &str = "/apis/policy.example.org/v1/namespaces/hooked/limits";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(120);
const MISSING: &str =
    "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction";

/// The definition of a kind whose objects contain limits.
fn limits(plural: &str, kind: &str, scope: &str) -> Value {
    let most = json!({ "type": "integer" });
    let schema = json!({ "type": "object", "properties": { "most": most } });
    let mut limits = definition(GROUP, plural, kind, vec![definition_version("v1", true, schema)]);
    limits["spec"]["scope"] = json!(scope);
    limits
}

fn limit(name: &str, most: u32) -> Value {
    json!({ "metadata": { "name": name, "labels": { "limit": "yes" } }, "most": most })
}

/// A policy for ConfigMaps with parameters of a kind.
fn spec(kind: &str) -> Value {
    let longer = "'longer than ' + string(params.most) + ' of ' + params.kind + ' ' + params.apiVersion";
    json!({
        "paramKind": { "apiVersion": "policy.example.org/v1", "kind": kind },
        "validations": [{ "expression": "size(object.data.a) <= params.most", "messageExpression": longer }],
    })
}

fn reference(reference: Value) -> Value {
    let mut reference = reference;
    reference["parameterNotFoundAction"] = json!("Deny");
    json!({ "paramRef": reference })
}

/// Waits until the response to a ConfigMap with `a: four` has this code, and its message ends with this text.
async fn until(judged: &PolicyServer, name: &str, code: u16, text: &str) {
    let answered = async {
        loop {
            let told = judged.asks(name, json!({ "a": "four" })).await;
            let message = told.json()["message"].as_str().unwrap_or_default().to_owned();
            if told.status == code && message.ends_with(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, answered).await.unwrap_or_else(|_| panic!("{name} never says {code} {text}"));
}

#[tokio::test]
async fn custom_resources_serve_as_parameters_while_they_are_defined() {
    let judged = PolicyServer::open().await;
    let raw = &judged.raw;
    judged.policy("named", spec("Limit"), reference(json!({ "name": "small" }))).await;
    let unknown = "failed to configure policy: failed to find resource referenced by paramKind: 'policy.example.org/v1, Kind=Limit'";
    let body = judged.asks("named", json!({ "a": "four" })).await.expect(422).json();
    let refused = format!("configmaps \"x\" is forbidden: ValidatingAdmissionPolicy 'named' denied request: {unknown}");
    assert_eq!(body["message"], refused);

    define(raw, &limits("limits", "Limit", "Namespaced")).await;
    until(&judged, "named", 422, MISSING).await;
    raw.post(LIMITS, &limit("small", 2)).await.expect(201);
    until(&judged, "named", 422, "denied request: longer than 2 of Limit policy.example.org/v1").await;
    judged.asks("named", json!({ "a": "ab" })).await.expect(201);
    judged
        .policy("selected", spec("Limit"), reference(json!({ "selector": { "matchLabels": { "limit": "yes" } } })))
        .await;
    judged.asks("selected", json!({ "a": "four" })).await.expect(422);
    judged.asks("selected", json!({ "a": "ab" })).await.expect(201);
    raw.post(LIMITS, &limit("least", 1)).await.expect(201);
    until(&judged, "selected", 422, "denied request: longer than 1 of Limit policy.example.org/v1").await;
    judged.asks("selected", json!({ "a": "ab" })).await.expect(422);
    judged.asks("selected", json!({ "a": "a" })).await.expect(201);

    raw.patch(format!("{LIMITS}/small"), MERGE, &json!({ "most": 4 })).await.expect(200);
    until(&judged, "named", 201, "").await;
    raw.delete(format!("{LIMITS}/small")).await.expect(200);
    until(&judged, "named", 422, MISSING).await;
    raw.delete(format!("{DEFINITIONS}/limits.{GROUP}")).await.expect(200);
    until(&judged, "named", 422, unknown).await;
    judged.raw.get(format!("{MAPS}/x")).await.expect(404);
}

#[tokio::test]
async fn parameters_that_are_in_no_namespace_have_none_and_others_need_one() {
    let judged = PolicyServer::open().await;
    let raw = &judged.raw;
    define(raw, &limits("ceilings", "Ceiling", "Cluster")).await;
    define(raw, &limits("limits", "Limit", "Namespaced")).await;
    raw.post("/apis/policy.example.org/v1/ceilings", &limit("three", 3)).await.expect(201);
    raw.post(LIMITS, &limit("small", 2)).await.expect(201);
    judged.policy("cluster", spec("Ceiling"), reference(json!({ "name": "three" }))).await;
    until(&judged, "cluster", 422, "denied request: longer than 3 of Ceiling policy.example.org/v1").await;
    judged.asks("cluster", json!({ "a": "abc" })).await.expect(201);
    judged.policy("placed", spec("Ceiling"), reference(json!({ "name": "three", "namespace": "hooked" }))).await;
    let placed =
        "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`";
    judged.refuses("placed", 422, placed).await;

    // For a cluster-scoped object the parameters are in the named namespace, or there are none.
    let roles = json!([{ "operations": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "resources": ["clusterroles"] }]);
    for name in ["own", "given"] {
        let mut spec = spec("Limit");
        spec["matchConstraints"] =
            json!({ "resourceRules": roles, "objectSelector": { "matchLabels": { "case": name } } });
        spec["validations"] = json!([{ "expression": "params.most > 2", "message": "too small" }]);
        let mut place = json!({ "name": "small" });
        if name == "given" {
            place["namespace"] = json!("hooked");
        }
        judged.policy(name, spec, reference(place)).await;
    }
    let role = |case: &str| json!({ "metadata": { "name": "x", "labels": { "case": case } }, "rules": [] });
    let scope = "failed to configure binding: cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
    for (name, why) in [("own", scope), ("given", "too small")] {
        let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All";
        let body = raw.post(roles, &role(name)).await.expect(422).json();
        let message = format!("ValidatingAdmissionPolicy '{name}' with binding '{name}-b' denied request: {why}");
        let expected = format!("clusterroles.rbac.authorization.k8s.io \"x\" is forbidden: {message}");
        assert_eq!(
            (&body["message"], &body["details"]["causes"]),
            (&json!(expected), &json!([{ "message": message }]))
        );
    }
}

#[tokio::test]
async fn a_policy_that_changes_objects_does_so_for_each_of_its_parameters() {
    let judged = PolicyServer::open().await;
    for (name, value) in [("mconf", "parameter"), ("mconf2", "second")] {
        let parameter = json!({ "metadata": { "name": name, "labels": { "conf": "yes" } }, "data": { "v": value } });
        judged.raw.post(MAPS, &parameter).await.expect(201);
    }
    define(&judged.raw, &limits("limits", "Limit", "Namespaced")).await;
    judged.raw.post(LIMITS, &limit("small", 2)).await.expect(201);
    let of = |api_version: &str, kind: &str| json!({ "paramKind": { "apiVersion": api_version, "kind": kind } });
    let change = async |name: &str, expression: &str, kind: Value, place: Value| {
        let binding = json!({ "paramRef": place });
        judged.bound_mutation(name, json!([applies(expression)]), kind, binding).await;
        judged.asks(name, map("x")["data"].clone()).await
    };
    let deny = |mut place: Value| {
        place["parameterNotFoundAction"] = json!("Deny");
        place
    };
    let own = "Object{data: {'p': params.data.v}}";
    let made = change("params", own, of("v1", "ConfigMap"), deny(json!({ "name": "mconf" }))).await;
    assert_eq!(made.expect(201).json()["data"], json!({ "a": "b", "p": "parameter" }));
    let each = "Object{data: {params.metadata.name: params.data.v}}";
    let selector = json!({ "selector": { "matchLabels": { "conf": "yes" } } });
    let made = change("params-sel", each, of("v1", "ConfigMap"), deny(selector)).await;
    assert_eq!(made.expect(201).json()["data"], json!({ "a": "b", "mconf": "parameter", "mconf2": "second" }));
    let custom = "Object{data: {'most': string(params.most)}}";
    let made = change("custom", custom, of("policy.example.org/v1", "Limit"), deny(json!({ "name": "small" }))).await;
    assert_eq!(made.expect(201).json()["data"], json!({ "a": "b", "most": "2" }));

    let told = change("params-missing", own, of("v1", "ConfigMap"), deny(json!({ "name": "none" }))).await;
    let body = told.expect(403).json();
    let message = format!("policy 'params-missing' with binding 'params-missing-b' denied request: {MISSING}");
    assert_eq!((&body["message"], &body["reason"]), (&json!(message), &json!("Forbidden")));
    assert_eq!(body["details"]["causes"], json!([{ "message": message }]));
    let allowed = json!({ "name": "none", "parameterNotFoundAction": "Allow" });
    let made = change("params-allowed", own, of("v1", "ConfigMap"), allowed).await;
    assert_eq!(made.expect(201).json()["data"], json!({ "a": "b" }));
}
