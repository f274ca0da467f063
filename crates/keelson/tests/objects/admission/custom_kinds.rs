//! Tests of custom resources in policies and webhooks: in their own version, and in the version of a rule, to which
//! they are converted and back.
//!
//! Codes, texts and the content of reviews are as recorded.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keelson_testkit::{HookReply, HookRequest, HookServer, converted_review, definition, definition_version};
use serde_json::{Value, json};

use super::policies::{PolicyServer, applies, patches};
use super::{MERGE, WebhookServer, allowed, define, patched};

const GADGETS: &str = "policy.example.org";
const HOSTS: &str = "hooks.example.org";

fn gadgets(version: &str) -> String {
    format!("/apis/{GADGETS}/{version}/namespaces/hooked/gadgets?dryRun=All")
}

async fn define_gadgets(judged: &PolicyServer) {
    let list = json!({ "type": "array", "items": { "type": "string" } });
    let properties = json!({ "n": { "type": "integer" }, "l": list, "q": { "type": "string" } });
    let schema = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": properties } } });
    let versions = ["v1", "v2"].map(|name| definition_version(name, name == "v1", schema.clone())).to_vec();
    define(&judged.raw, &definition(GADGETS, "gadgets", "Gadget", versions)).await;
}

fn gadget(case: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": "g", "labels": { "case": case } }, "spec": spec })
}

/// The constraints of a policy for gadgets of the first version with a label with its name.
fn on_gadgets(name: &str) -> Value {
    let operations = json!(["CREATE", "UPDATE"]);
    let rule =
        json!({ "operations": operations, "apiGroups": [GADGETS], "apiVersions": ["v1"], "resources": ["gadgets"] });
    json!({ "resourceRules": [rule], "objectSelector": { "matchLabels": { "case": name } } })
}

#[tokio::test]
async fn policies_validate_custom_resources_in_the_version_of_their_rules() {
    let judged = PolicyServer::open().await;
    define_gadgets(&judged).await;
    let text = "'n ' + string(object.spec.n) + ' l ' + string(size(object.spec.l)) + ' of ' + object.apiVersion + ' asked for ' + request.requestKind.version";
    let spec = json!({
        "matchConstraints": on_gadgets("m-gadget"),
        "validations": [{ "expression": "object.spec.n < 5 && oldObject == null", "messageExpression": text }],
    });
    judged.policy("m-gadget", spec, json!({})).await;
    for version in ["v1", "v2"] {
        let sent = gadget("m-gadget", &json!({ "n": 7, "l": ["a"], "q": "50%" }));
        let answer = judged.raw.post(gadgets(version), &sent).await.expect(422).json();
        let why = format!("n 7 l 1 of {GADGETS}/v1 asked for {version}");
        let message = format!("ValidatingAdmissionPolicy 'm-gadget' with binding 'm-gadget-b' denied request: {why}");
        assert_eq!(answer["message"], format!("gadgets.{GADGETS} \"g\" is forbidden: {message}"));
        let causes = json!([{ "message": message }]);
        let details = json!({ "name": "g", "group": GADGETS, "kind": "gadgets", "causes": causes });
        assert_eq!((&answer["details"], &answer["reason"]), (&details, &json!("Invalid")));
        judged.raw.post(gadgets(version), &gadget("m-gadget", &json!({ "n": 4 }))).await.expect(201);
        judged.raw.post(gadgets(version), &gadget("other", &json!({ "n": 7 }))).await.expect(201);
    }
}

#[tokio::test]
async fn policies_change_custom_resources_in_each_of_their_versions() {
    let judged = PolicyServer::open().await;
    define_gadgets(&judged).await;
    let change = async |name: &str, mutation: Value| {
        judged.mutation(name, json!([mutation]), json!({ "matchConstraints": on_gadgets(name) })).await;
    };
    change("gadget", applies("Object{spec: Object.spec{n: 9}}")).await;
    for version in ["v1", "v2"] {
        let made = judged.raw.post(gadgets(version), &gadget("gadget", &json!({ "n": 1 }))).await.expect(201).json();
        assert_eq!((&made["spec"], &made["apiVersion"]), (&json!({ "n": 9 }), &json!(format!("{GADGETS}/{version}"))));
    }
    change("gadget-bad", applies("Object{spec: Object.spec{nope: 'x'}}")).await;
    let body = judged.raw.post(gadgets("v1"), &gadget("gadget-bad", &json!({ "n": 1 }))).await.expect(403).json();
    let why = "error applying patch: failed to convert patch object to typed object: .spec.nope: field not declared in schema";
    let message = format!("policy 'gadget-bad' with binding 'gadget-bad-b' denied request: {why}");
    assert_eq!((&body["message"], &body["reason"]), (&json!(message), &json!("Invalid")));
    let causes = json!([{ "message": message }]);
    assert_eq!(body["details"], json!({ "name": "g", "group": GADGETS, "kind": "gadgets", "causes": causes }));
    change("gadget-jp", patches("[JSONPatch{op: 'replace', path: '/spec/n', value: 'many'}]")).await;
    let body = judged.raw.post(gadgets("v1"), &gadget("gadget-jp", &json!({ "n": 1 }))).await.expect(422).json();
    let why = "Invalid value: \"string\": spec.n in body must be of type integer: \"string\"";
    assert_eq!(body["message"], format!("Gadget.{GADGETS} \"g\" is invalid: spec.n: {why}"));
    let cause = json!({ "reason": "FieldValueTypeInvalid", "message": why, "field": "spec.n" });
    assert_eq!(body["details"]["causes"], json!([cause]));
}

/// A conversion webhook for hosts: `host` in the first version is `address` in the second.
async fn converter(works: Arc<AtomicBool>) -> HookServer {
    HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
        let works = works.load(Ordering::SeqCst);
        let review = converted_review(&request.body, |spec, wanted| {
            let value = [&spec["host"], &spec["address"]].into_iter().find(|value| value.is_string()).cloned();
            let mut spec = spec.clone();
            spec.as_object_mut().unwrap().retain(|field, _| field == "replicas");
            spec[if wanted.ends_with("v2") { "address" } else { "host" }] = value.into();
            spec
        });
        std::future::ready(if works { HookReply::Json(review) } else { HookReply::Closes })
    })
    .await
}

/// The definition of hosts, with a conversion webhook.
fn hosts(converter: &HookServer) -> Value {
    let text = json!({ "type": "string" });
    let number = json!({ "type": "integer" });
    let version = |name: &str, field: &str| {
        let spec = json!({ "type": "object", "properties": { field: text, "replicas": number } });
        let status = json!({ "type": "object", "properties": { "replicas": number } });
        let schema = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
        let mut version = definition_version(name, name == "v1", schema);
        let scale = json!({ "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" });
        version["subresources"] = json!({ "status": {}, "scale": scale });
        version
    };
    let mut hosts = definition(HOSTS, "hosts", "Host", vec![version("v1", "host"), version("v2", "address")]);
    let client = json!({ "url": converter.url("/convert"), "caBundle": converter.ca_bundle() });
    let webhook = json!({ "clientConfig": client, "conversionReviewVersions": ["v1"] });
    hosts["spec"]["conversion"] = json!({ "strategy": "Webhook", "webhook": webhook });
    hosts
}

fn answer(request: &HookRequest) -> HookReply {
    let object = &request.body["request"]["object"];
    match (request.path.split('?').next().unwrap(), object["spec"]["host"].as_str()) {
        ("/changes", Some(host)) => {
            let host = format!("{host}.local");
            patched(request, &json!([{ "op": "replace", "path": "/spec/host", "value": host }]))
        }
        _ => allowed(request),
    }
}

/// The calls, sorted: the path, the version of the kind and of the request, the subresource, and the object.
fn sorted_calls(hooked: &WebhookServer) -> Vec<(String, Value)> {
    let mut told: Vec<_> = hooked.asked();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let row = |(path, request): (String, Value)| {
        let spec = |object: &str| json!([request[object]["apiVersion"], request[object]["spec"]]);
        let kinds = [&request["kind"], &request["requestKind"]].map(|kind| &kind["version"]);
        let resources = [&request["resource"], &request["requestResource"]].map(|resource| &resource["version"]);
        assert_eq!(kinds[1], resources[1]);
        (path, json!([kinds, resources[0], request["subResource"], spec("object"), spec("oldObject")]))
    };
    told.into_iter().map(row).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn custom_resources_are_converted_for_webhooks_and_back() {
    let works = Arc::new(AtomicBool::new(true));
    let converter = converter(works.clone()).await;
    let hooked = WebhookServer::open(answer).await;
    define(&hooked.raw, &hosts(&converter)).await;
    let on = |version: &str, policy: &str| {
        let resources = ["hosts", "hosts/status"];
        let rule =
            json!({ "operations": ["*"], "apiGroups": [HOSTS], "apiVersions": [version], "resources": resources });
        json!({ "matchPolicy": policy, "rules": [rule] })
    };
    hooked.configure("mutating", "m", vec![hooked.webhook("changes", on("v1", "Equivalent"))]).await;
    let judges = [("just-v1", on("v1", "Exact")), ("just-v2", on("v2", "Exact")), ("like-v1", on("v1", "Equivalent"))];
    let judges = judges.map(|(name, with)| hooked.webhook(name, with)).to_vec();
    hooked.configure("validating", "v", judges).await;

    let place = |version: &str| format!("/apis/{HOSTS}/{version}/namespaces/hooked/hosts");
    let sent = json!({ "metadata": { "name": "h" }, "spec": { "address": "a" } });
    let made = hooked.raw.post(place("v2"), &sent).await.expect(201).json();
    assert_eq!((&made["apiVersion"], &made["spec"]), (&json!(format!("{HOSTS}/v2")), &json!({ "address": "a.local" })));
    let first = |host: &str| json!([format!("{HOSTS}/v1"), { "host": host }]);
    let second = |address: &str| json!([format!("{HOSTS}/v2"), { "address": address }]);
    let none = || json!([null, null]);
    let row = |path: &str, shown: &str, below: Value, object: Value, old: Value| {
        (path.to_owned(), json!([[shown, "v2"], shown, below, object, old]))
    };
    let expected = [
        row("/changes", "v1", Value::Null, first("a"), none()),
        row("/just-v2", "v2", Value::Null, second("a.local"), none()),
        row("/like-v1", "v1", Value::Null, first("a.local"), none()),
    ];
    assert_eq!(sorted_calls(&hooked), expected);
    let stored = hooked.raw.get(format!("{}/h", place("v1"))).await.expect(200).json();
    assert_eq!(stored["spec"], json!({ "host": "a.local" }));

    let change = json!({ "spec": { "address": "b" } });
    hooked.raw.patch(format!("{}/h", place("v2")), MERGE, &change).await.expect(200);
    let expected = [
        row("/changes", "v1", Value::Null, first("b"), first("a.local")),
        row("/just-v2", "v2", Value::Null, second("b.local"), second("a.local")),
        row("/like-v1", "v1", Value::Null, first("b.local"), first("a.local")),
    ];
    assert_eq!(sorted_calls(&hooked), expected);
    let status = json!({ "status": { "replicas": 5 } });
    let shown = hooked.raw.patch(format!("{}/h/status", place("v2")), MERGE, &status).await.expect(200).json();
    assert_eq!((&shown["spec"], &shown["status"]), (&json!({ "address": "b.local" }), &status["status"]));
    let below = || json!("status");
    let expected = [
        row("/changes", "v1", below(), first("b.local"), first("b.local")),
        row("/just-v2", "v2", below(), second("b.local"), second("b.local")),
        row("/like-v1", "v1", below(), first("b.local"), first("b.local")),
    ];
    assert_eq!(sorted_calls(&hooked), expected);
    hooked.raw.patch(format!("{}/h", place("v1")), MERGE, &json!({ "spec": { "host": "c" } })).await.expect(200);
    let paths: Vec<String> = sorted_calls(&hooked).into_iter().map(|(path, _)| path).collect();
    assert_eq!(paths, ["/changes", "/just-v1", "/like-v1"]);

    // Without the converter the object cannot be converted, and nothing is written.
    works.store(false, Ordering::SeqCst);
    let sent = json!({ "metadata": { "name": "i" }, "spec": { "address": "i" } });
    let refused = hooked.raw.post(place("v2"), &sent).await.expect(500).json();
    assert!(refused["message"].as_str().unwrap().contains(&format!("conversion webhook for {HOSTS}/")), "{refused}");
    assert_eq!(hooked.paths(), Vec::<String>::new());
    hooked.raw.get(format!("{}/i", place("v1"))).await.expect(404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_is_sent_unconverted_with_the_matched_resource() {
    let converter = converter(Arc::new(AtomicBool::new(true))).await;
    let hooked = WebhookServer::open(answer).await;
    define(&hooked.raw, &hosts(&converter)).await;
    let place = format!("/apis/{HOSTS}/v2/namespaces/hooked/hosts");
    let sent = json!({ "metadata": { "name": "h" }, "spec": { "address": "a", "replicas": 3 } });
    hooked.raw.post(&*place, &sent).await.expect(201);
    let rule =
        json!({ "operations": ["*"], "apiGroups": [HOSTS], "apiVersions": ["v1"], "resources": ["hosts/scale"] });
    hooked.configure("validating", "v", vec![hooked.webhook("scales", json!({ "rules": [rule] }))]).await;
    let scaled = hooked.raw.patch(format!("{place}/h/scale"), MERGE, &json!({ "spec": { "replicas": 5 } }));
    assert_eq!(scaled.await.expect(200).json()["spec"]["replicas"], 5);
    let (path, request) = hooked.asked().pop().unwrap();
    let kind = json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" });
    assert_eq!((path.as_str(), &request["kind"], &request["requestKind"]), ("/scales", &kind, &kind));
    let resource = |version: &str| json!({ "group": HOSTS, "version": version, "resource": "hosts" });
    assert_eq!((&request["resource"], &request["requestResource"]), (&resource("v1"), &resource("v2")));
    assert_eq!((&request["subResource"], &request["requestSubResource"]), (&json!("scale"), &json!("scale")));
    let shown = |object: &str| (request[object]["kind"].clone(), request[object]["spec"].clone());
    assert_eq!(shown("object"), (json!("Scale"), json!({ "replicas": 5 })));
    assert_eq!(shown("oldObject"), (json!("Scale"), json!({ "replicas": 3 })));
}
