//! Tests of the order of policies and webhooks. Mutating policies precede mutating webhooks, both are reinvoked on
//! request, and validating ones follow. Validating webhooks are called concurrently.
//!
//! The objects in each call are as recorded.

use std::sync::Arc;
use std::time::Duration;

use keelson_testkit::{HookReply, HookRequest, HookServer};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use super::policies::applies;
use super::{GROUP, MAPS, WebhookServer, allowed, map, patched, review};

/// Adds `hook` to the data.
fn answer(request: &HookRequest) -> HookReply {
    patched(request, &json!([{ "op": "add", "path": "/data/hook", "value": "x" }]))
}

/// Creates a policy for ConfigMaps with a label with its name, and its binding.
async fn policy(hooked: &WebhookServer, kind: &str, case: &str, with: Value) {
    let operations = json!(["CREATE"]);
    let rule =
        json!({ "operations": operations, "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
    let selector = json!({ "matchLabels": { "case": case } });
    let mut spec = json!({ "matchConstraints": { "resourceRules": [rule], "objectSelector": selector } });
    super::policies::merge(&mut spec, with);
    let policy = json!({ "metadata": { "name": case }, "spec": spec });
    hooked.raw.post(format!("{GROUP}/{kind}admissionpolicies"), &policy).await.expect(201);
    let mut bound = json!({ "policyName": case });
    if kind == "validating" {
        bound["validationActions"] = json!(["Deny"]);
    }
    let binding = json!({ "metadata": { "name": format!("{case}-b") }, "spec": bound });
    hooked.raw.post(format!("{GROUP}/{kind}admissionpolicybindings"), &binding).await.expect(201);
}

#[tokio::test]
async fn mutating_policies_run_before_webhooks_and_reinvoked_ones_after() {
    let hooked = WebhookServer::open(answer).await;
    let looks = "Object{data: {'policy': has(object.data.hook) ? 'saw the hook' : 'saw no hook'}}";
    for (case, again) in [("with-never", "Never"), ("with-ifneeded", "IfNeeded"), ("with-validating", "Never")] {
        let with = json!({ "mutations": [applies(looks)], "reinvocationPolicy": again });
        policy(&hooked, "mutating", case, with).await;
    }
    let text = "object.data.policy + ', hook ' + object.data.hook";
    let judges = json!({ "validations": [{ "expression": "false", "messageExpression": text }] });
    policy(&hooked, "validating", "with-validating", judges).await;
    let before = || json!({ "a": "b", "policy": "saw no hook" });
    let behind = || json!({ "a": "b", "hook": "x", "policy": "saw the hook" });
    for again in ["Never", "IfNeeded"] {
        hooked.configure("mutating", "m", vec![hooked.webhook("adds", json!({ "reinvocationPolicy": again }))]).await;
        let twice = again == "IfNeeded";
        let cases = [
            ("with-never", Ok(json!({ "a": "b", "hook": "x", "policy": "saw no hook" })), vec![before()]),
            ("with-ifneeded", Ok(behind()), if twice { vec![before(), behind()] } else { vec![before()] }),
            ("with-validating", Err("saw no hook, hook x"), vec![before()]),
        ];
        for (case, expected, shown) in cases {
            let mut sent = map("x");
            sent["metadata"]["labels"] = json!({ "case": case });
            let answer = hooked.raw.post(format!("{MAPS}?dryRun=All"), &sent).await;
            match expected {
                Ok(data) => assert_eq!(answer.expect(201).json()["data"], data, "{case} {again}"),
                Err(why) => {
                    let why =
                        format!("ValidatingAdmissionPolicy '{case}' with binding '{case}-b' denied request: {why}");
                    let message = format!("configmaps \"x\" is forbidden: {why}");
                    assert_eq!(answer.expect(422).json()["message"], message, "{case} {again}");
                }
            }
            let seen: Vec<Value> =
                hooked.asked().into_iter().map(|(_, request)| request["object"]["data"].clone()).collect();
            assert_eq!(seen, shown, "{case} {again}");
        }
        hooked.forget("mutating", "m").await;
    }
}

/// Each webhook answers only when all have been called.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn validating_webhooks_are_called_concurrently() {
    const JUDGES: usize = 3;
    let hooked = WebhookServer::open(allowed).await;
    let all_are_asked = Arc::new(Barrier::new(JUDGES));
    let hook = HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
        let all_are_asked = all_are_asked.clone();
        async move {
            // In sequential calls the first webhook would never answer.
            let asked = tokio::time::timeout(Duration::from_secs(20), all_are_asked.wait()).await;
            let refuses = request.path.starts_with("/no") || asked.is_err();
            review(
                &request,
                json!({ "allowed": !refuses, "status": { "message": if asked.is_err() { "alone" } else { "no" } } }),
            )
        }
    })
    .await;
    let webhook = |name: &str| {
        let client = json!({ "url": hook.url(&format!("/{name}")), "caBundle": hook.ca_bundle() });
        hooked.webhook(name, json!({ "clientConfig": client, "timeoutSeconds": 30 }))
    };
    // The webhooks are in two configurations, which makes no difference.
    hooked.configure("validating", "a", ["one", "two"].map(webhook).to_vec()).await;
    hooked.configure("validating", "b", vec![webhook("three")]).await;
    hooked.raw.post(MAPS, &map("x")).await.expect(201);
    hooked.raw.delete(format!("{MAPS}/x")).await.expect(200);
    hooked.forget("validating", "b").await;
    hooked.configure("validating", "b", vec![webhook("no")]).await;
    let body = hooked.raw.post(MAPS, &map("y")).await.expect(400).json();
    assert_eq!(body["message"], "admission webhook \"no.example.org\" denied the request: no");
    hooked.raw.get(format!("{MAPS}/y")).await.expect(404);
}
