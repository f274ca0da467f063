//! Tests of definitions that kube-apiserver has stored in `apiextensions.k8s.io/v1beta1`, as it still does.
//!
//! The definitions are shown in `v1`, their resources are served and validated, and a migration stores them in `v1`.

use std::sync::Arc;

use keelson_meta::Object;
use keelson_meta::json::Value as Tree;
use keelson_server::Switches;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, StoreKey, Transaction};
use keelson_testkit::TestServer;
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, until};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";

fn key(plural: &str) -> StoreKey {
    StoreKey::new(format!("/registry/apiextensions.k8s.io/customresourcedefinitions/{plural}.older.example.com"))
}

fn place(plural: &str) -> String {
    format!("/apis/older.example.com/v1/namespaces/default/{plural}")
}

/// A definition in kube-apiserver's stored form.
#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn stored(plural: &str, kind: &str, spec: Value) -> Value {
    let names =
        json!({ "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List") });
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        })
    };
    let conditions = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    let mut object = json!({
        "kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {
            "name": format!("{plural}.older.example.com"), "uid": format!("5cf4b8a1-0c86-4d3a-9a4f-{:0>12}", plural.as_bytes()[0]),
            "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
        },
        "spec": { "group": "older.example.com", "names": names, "scope": "Namespaced" },
        "status": {
            "conditions": conditions, "acceptedNames": names, "storedVersions": ["v1"],
        },
    });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

/// One version, with its parts in the spec.
fn oaks() -> Value {
    let list = json!({ "type": "array", "maxItems": 2, "items": { "type": "string" } });
    let spec = json!({ "type": "object", "properties": { "list": list, "n": { "type": "integer", "default": 7 } } });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    stored(
        "oaks",
        "Oak",
        json!({
            "version": "v1", "versions": [{ "name": "v1", "served": true, "storage": true }],
            "validation": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
            "additionalPrinterColumns": [{ "name": "N", "type": "integer", "JSONPath": ".spec.n" }],
            "conversion": { "strategy": "None" }, "preserveUnknownFields": false,
        }),
    )
}

/// A definition without a list of versions and a structural schema.
fn elms() -> Value {
    let spec = json!({ "properties": { "n": { "type": "integer", "maximum": 5 } } });
    stored(
        "elms",
        "Elm",
        json!({ "version": "v1", "validation": { "openAPIV3Schema": { "properties": { "spec": spec } } } }),
    )
}

/// Two versions with a conversion webhook.
fn firs() -> Value {
    let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
    let column = json!([{ "name": "A", "type": "string", "JSONPath": ".spec.a" }]);
    let version = |name: &str, stored: bool| json!({ "name": name, "served": true, "storage": stored, "schema": schema, "additionalPrinterColumns": column });
    let client = json!({ "url": "https://127.0.0.1:9/convert", "caBundle": "Q0E=" });
    stored(
        "firs",
        "Fir",
        json!({
            "version": "v1", "versions": [version("v1", true), version("v2", false)], "preserveUnknownFields": false,
            "conversion": {
                "strategy": "Webhook", "webhookClientConfig": client, "conversionReviewVersions": ["v1", "v1beta1"],
            },
        }),
    )
}

async fn put(store: &MemoryStore, plural: &str, value: Vec<u8>) {
    store.commit(Transaction::default().put(key(plural), value)).await.unwrap();
}

fn in_protobuf(definition: &Value) -> Vec<u8> {
    let tree: Tree = serde_json::from_value(definition.clone()).unwrap();
    let object = Object::from_value(tree).unwrap();
    keelson_protobuf::encode("apiextensions.k8s.io/v1beta1", "CustomResourceDefinition", &object).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_stored_in_v1beta1_are_served_in_v1() {
    // SIZE: one story, in its order.
    let store = MemoryStore::new();
    put(&store, "oaks", oaks().to_string().into()).await;
    let builder = TestServer::builder().shared_store(Arc::new(store.clone()));
    let switches = ["*", "-root-ca-certificate-publisher-controller", "-serviceaccount-controller"];
    let server = builder.configure(|config| config.controllers = Switches::parse(switches).unwrap()).start().await;
    let raw = server.raw();
    // One exists when the server starts, the others appear while it runs.
    put(&store, "elms", in_protobuf(&elms())).await;
    put(&store, "firs", firs().to_string().into()).await;

    let shown = raw.get(format!("{DEFINITIONS}/oaks.older.example.com")).await.expect(200).json();
    let version = &shown["spec"]["versions"][0];
    assert_eq!(shown["apiVersion"], "apiextensions.k8s.io/v1");
    assert_eq!(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["list"]["maxItems"], 2);
    assert_eq!(version["additionalPrinterColumns"][0]["jsonPath"], ".spec.n");
    assert_eq!(version["subresources"], json!({ "status": {} }));
    for gone in ["version", "validation", "subresources", "additionalPrinterColumns", "preserveUnknownFields"] {
        assert_eq!(shown["spec"][gone], Value::Null, "{gone}");
    }
    let oak = |list: &[&str]| json!({ "metadata": { "name": "a" }, "spec": { "list": list, "unknown": 1 } });
    raw.post(place("oaks"), &oak(&["1", "2", "3"])).await.expect(422);
    let made = raw.post(place("oaks"), &oak(&["1", "2"])).await.expect(201).json();
    assert_eq!(made["spec"], json!({ "list": ["1", "2"], "n": 7 }), "pruned and defaulted");
    let rows = raw.get(place("oaks")).header("accept", TABLE).await.expect(200).json();
    assert_eq!(rows["rows"][0]["cells"], json!(["a", 7]));

    // Unknown fields are preserved, and the schema validates the others.
    let elm = |n: u64| json!({ "metadata": { "name": "a" }, "spec": { "n": n, "unknown": { "deep": [1] } } });
    raw.post(place("elms"), &elm(6)).await.expect(422);
    assert_eq!(raw.post(place("elms"), &elm(5)).await.expect(201).json()["spec"], elm(5)["spec"]);
    let shown = raw.get(format!("{DEFINITIONS}/elms.older.example.com")).await.expect(200).json();
    assert_eq!(shown["spec"]["preserveUnknownFields"], true);
    assert_eq!(shown["spec"]["conversion"], json!({ "strategy": "None" }));
    assert_eq!(shown["spec"]["versions"][0]["name"], "v1");

    // A condition reports the non-structural schema.
    let condition = |found: &Value| {
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().find(|condition| condition["type"] == "NonStructuralSchema")
    };
    let elms_place = format!("{DEFINITIONS}/elms.older.example.com");
    let shown = until(&raw, &elms_place, |found| condition(found).is_some()).await;
    let shown = condition(&shown).unwrap();
    let at = "spec.versions[0].schema.openAPIV3Schema";
    let why = format!(
        "[{at}.properties[spec].type: Required value: must not be empty for specified object fields, \
         {at}.type: Required value: must not be empty at the root]"
    );
    assert_eq!((&shown["status"], &shown["reason"]), (&json!("True"), &json!("Violations")));
    assert_eq!(shown["message"], why);
    assert!(condition(&raw.get(format!("{DEFINITIONS}/oaks.older.example.com")).await.expect(200).json()).is_none());

    let shown = raw.get(format!("{DEFINITIONS}/firs.older.example.com")).await.expect(200).json();
    let webhook = &shown["spec"]["conversion"]["webhook"];
    assert_eq!(webhook["clientConfig"]["url"], "https://127.0.0.1:9/convert");
    assert_eq!(webhook["conversionReviewVersions"], json!(["v1", "v1beta1"]));
    let listed = raw.get(DEFINITIONS).await.expect(200).json();
    assert_eq!((listed["items"].as_array().unwrap().len(), listed.to_string().contains("JSONPath")), (3, false));

    // A change stores them in v1.
    let labels = json!({ "metadata": { "labels": { "a": "b" } } });
    for plural in ["oaks", "elms"] {
        let path = format!("{DEFINITIONS}/{plural}.older.example.com");
        raw.patch(path, MERGE, &labels).await.expect(200);
        assert!(text(&store, plural).await.contains("\"apiextensions.k8s.io/v1\""), "{plural}");
    }
    raw.post(place("elms"), &json!({ "metadata": { "name": "b" }, "spec": { "other": 1 } })).await.expect(201);

    // A structural schema ends the condition.
    let whole = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let mut versions = raw.get(elms_place.as_str()).await.expect(200).json()["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"] = whole;
    let structural = json!({ "spec": { "versions": versions, "preserveUnknownFields": false } });
    raw.patch(elms_place.as_str(), MERGE, &structural).await.expect(200);
    until(&raw, &elms_place, |found| condition(found).is_none()).await;

    // A migration stores the rest.
    let resource = json!({ "group": "apiextensions.k8s.io", "resource": "customresourcedefinitions" });
    let migration = json!({ "metadata": { "name": "definitions" }, "spec": { "resource": resource } });
    raw.post(MIGRATIONS, &migration).await.expect(201);
    until(&raw, &format!("{MIGRATIONS}/definitions"), |found| {
        found["status"]["conditions"].to_string().contains("Succeeded")
    })
    .await;
    assert!(text(&store, "firs").await.contains("\"apiextensions.k8s.io/v1\""));
}

async fn text(store: &MemoryStore, plural: &str) -> String {
    String::from_utf8(store.get(&key(plural)).await.unwrap().unwrap().value.to_vec()).unwrap()
}
