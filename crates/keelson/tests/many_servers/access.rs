//! Tests of rights, policies and webhooks that change on one server. Each other server applies a change as soon as a
//! read there shows it.
//!
//! The next request of a client that has read the change on a server is subject to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_testkit::{HookReply, HookServer, Raw};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::engines::{Engine, on_every_engine};
use crate::{CONFIG_MAPS, config_map};

on_every_engine!(
    rights_count_on_another_server_as_soon_as_it_shows_them,
    policies_and_webhooks_are_asked_on_another_server_as_soon_as_it_shows_them
);

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
/// The number of times that each right is granted and revoked. A server that lags slightly would pass some rounds by
/// luck.
const ROUNDS: usize = 10;

/// The status of ann's list of config maps.
async fn ann(raw: &Raw) -> u16 {
    raw.get(CONFIG_MAPS).header("impersonate-user", "ann").await.status
}

async fn rights_count_on_another_server_as_soon_as_it_shows_them(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    let (one, other) = (cluster.raw(0), cluster.raw(1));
    let rules = json!([{ "verbs": ["list"], "apiGroups": [""], "resources": ["configmaps"] }]);
    let role = json!({ "metadata": { "name": "reader" }, "rules": rules });
    one.post(format!("{RBAC}/clusterroles"), &role).await.expect(201);
    let binding = json!({
        "metadata": { "name": "ann" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" }],
    });
    for bindings in [format!("{RBAC}/clusterrolebindings"), format!("{RBAC}/namespaces/default/rolebindings")] {
        let bound = format!("{bindings}/ann");
        for round in 0..ROUNDS {
            one.post(&*bindings, &binding).await.expect(201);
            assert_eq!(ann(&one).await, 200, "round {round}: here it counts at once");
            other.get(&*bound).await.expect(200);
            assert_eq!(ann(&other).await, 200, "round {round}: the binding was shown");
            one.delete(&*bound).await.expect(200);
            assert_eq!(ann(&one).await, 403, "round {round}: here it is gone at once");
            other.get(&*bound).await.expect(404);
            assert_eq!(ann(&other).await, 403, "round {round}: the binding was gone");
        }
    }
    // This also holds for the rules of a role.
    one.post(format!("{RBAC}/clusterrolebindings"), &binding).await.expect(201);
    let path = format!("{RBAC}/clusterroles/reader");
    for (rules, expected) in [(json!([]), 403), (rules, 200)].iter().cycle().take(ROUNDS) {
        one.patch(&*path, "application/merge-patch+json", &json!({ "rules": rules })).await.expect(200);
        let shown = other.get(&*path).await.expect(200).json();
        assert_eq!(shown["rules"].as_array().is_some_and(|all| !all.is_empty()), *expected == 200);
        assert_eq!(ann(&other).await, *expected);
    }
}

/// Creates an object on one server, reads it on another, and returns that server's status for a config map. Then
/// deletes the object, and returns the status again.
async fn with_and_without(one: &Raw, other: &Raw, kind: &str, object: &Value) -> (u16, u16) {
    let made = one.post(format!("{ADMISSION}/{kind}"), object).await.expect(201).json();
    let path = format!("{ADMISSION}/{kind}/{}", crate::name(&made));
    other.get(&*path).await.expect(200);
    let rehearsed = format!("{CONFIG_MAPS}?dryRun=All");
    let with = other.post(&*rehearsed, &config_map("judged", 0)).await.status;
    one.delete(&*path).await.expect(200);
    other.get(&*path).await.expect(404);
    (with, other.post(&*rehearsed, &config_map("judged", 0)).await.status)
}

async fn policies_and_webhooks_are_asked_on_another_server_as_soon_as_it_shows_them(engine: Engine) {
    let cluster = Cluster::start(engine).await;
    let (one, other) = (cluster.raw(0), cluster.raw(1));
    let rule =
        json!({ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] });
    let policy = json!({ "metadata": { "name": "none" }, "spec": {
        "matchConstraints": { "resourceRules": [rule] }, "validations": [{ "expression": "object.metadata.name != 'judged'" }] } });
    let binding =
        json!({ "metadata": { "name": "none" }, "spec": { "policyName": "none", "validationActions": ["Deny"] } });
    let (policies, bindings) = ("validatingadmissionpolicies", "validatingadmissionpolicybindings");
    one.post(format!("{ADMISSION}/{policies}"), &policy).await.expect(201);
    for round in 0..ROUNDS {
        assert_eq!(with_and_without(&one, &other, bindings, &binding).await, (422, 201), "binding, round {round}");
    }
    one.delete(format!("{ADMISSION}/{policies}/none")).await.expect(200);
    one.post(format!("{ADMISSION}/{bindings}"), &binding).await.expect(201);
    for round in 0..ROUNDS {
        assert_eq!(with_and_without(&one, &other, policies, &policy).await, (422, 201), "policy, round {round}");
    }

    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let hook = HookServer::start(&["127.0.0.1"], move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        let response = json!({ "uid": request.body["request"]["uid"], "allowed": false });
        let answer = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        std::future::ready(HookReply::Json(answer))
    })
    .await;
    for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
        let webhook = json!({ "name": "no.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "rules": [rule], "clientConfig": { "url": hook.url("/"), "caBundle": hook.ca_bundle() } });
        let configuration = json!({ "metadata": { "name": "no" }, "webhooks": [webhook] });
        for round in 0..ROUNDS {
            let before = asked.load(Ordering::SeqCst);
            assert_eq!(with_and_without(&one, &other, kind, &configuration).await, (400, 201), "{kind}, round {round}");
            assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{kind}, round {round}: who is gone is not asked");
        }
    }
}
