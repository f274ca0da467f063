//! Tests of OpenAPI for custom resources: paths and schemas appear and disappear with a definition.
//!
//! `kubectl explain` and client-side validation read them.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, condition, definition, establish, until, until_gone, version};

const PATH: &str = "apis/described.example.com/v1";
const DEFINITION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/gadgets.described.example.com";
const GADGET: &str = "com.example.described.v1.Gadget";
const GADGETS: &str = "com.example.described.v1.GadgetList";
const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// A kind with one of each construct that some version of OpenAPI publishes in another form.
fn gadgets() -> Value {
    let spec = json!({
        "type": "object",
        "description": "What it shall be.",
        "required": ["colour"],
        "properties": {
            "colour": { "type": "string", "enum": ["red", "green"], "default": "red" },
            "replicas": { "type": "integer", "minimum": 1, "format": "int32" },
            "port": { "x-kubernetes-int-or-string": true },
            "note": { "type": "string", "nullable": true },
            "lit": { "type": "boolean", "default": false },
            "any": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            "template": { "type": "object", "x-kubernetes-embedded-resource": true, "properties": { "spec": { "type": "string" } } },
            "labels": { "type": "object", "additionalProperties": { "type": "string" } },
        },
        "x-kubernetes-validations": [{ "rule": "self.colour != 'green'" }],
    });
    let mut version = version("v1", true);
    version["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "description": "A gadget.", "properties": { "spec": spec } });
    version["subresources"] = json!({ "status": {}, "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } });
    version["selectableFields"] = json!([{ "jsonPath": ".spec.colour" }]);
    let mut old = super::version("v1alpha1", false);
    old["served"] = json!(false);
    definition("described.example.com", "gadgets", "Gadget", json!([version, old]))
}

/// The URL of the group version's document in the index.
async fn place(raw: &Raw) -> Option<String> {
    let index = raw.get("/openapi/v3").await.expect(200).json();
    index["paths"][PATH]["serverRelativeURL"].as_str().map(str::to_owned)
}

async fn v3(raw: &Raw) -> Value {
    let place = place(raw).await.expect("the group version is in the index");
    raw.get(place).await.expect(200).json()
}

async fn v2(raw: &Raw) -> Value {
    raw.get("/openapi/v2").await.expect(200).json()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_describes_definitions_while_they_exist() {
    let server = TestServer::start().await;
    let raw = server.raw();
    assert_eq!(place(&raw).await, None);
    let tag = raw.get("/openapi/v2").await.expect(200).header("etag").to_owned();
    let missing = raw.get(format!("/openapi/v3/{PATH}")).await.expect(404);
    assert_eq!((missing.text().as_str(), missing.header("content-type")), ("", ""));

    establish(&raw, &gadgets()).await;
    let first = place(&raw).await.expect("a client that sees it established finds it");
    let document = raw.get(&*first).await.expect(200);
    assert!(first.contains(document.header("etag").trim_matches('"')), "{first}");
    let known = raw.get(&*first).header("if-none-match", document.header("etag")).await.expect(304);
    assert_eq!(known.text(), "");
    let whole = raw.get("/openapi/v2").header("if-none-match", tag).await.expect(200).json();
    assert!(whole["definitions"].get(GADGET).is_some());
    let protobuf = raw.get("/openapi/v2").header("accept", V2_PROTOBUF).await.expect(200);
    let is_there = |name: &str| protobuf.body.windows(name.len()).any(|window| window == name.as_bytes());
    assert!(is_there(GADGETS) && is_there("/apis/described.example.com/v1/namespaces/{namespace}/gadgets"));
    for hidden in ["/openapi/v3/apis/described.example.com/v1alpha1", "/openapi/v3/apis/described.example.com"] {
        raw.get(hidden).await.expect(404);
    }

    let mut changed = gadgets();
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"] =
        json!({ "type": "integer" });
    raw.patch(DEFINITION, MERGE, &changed).await.expect(200);
    let has_field = |document: &Value| spec(&document["components"]["schemas"]).get("size").is_some();
    until(&raw, &format!("/openapi/v3/{PATH}"), has_field).await;
    let second = place(&raw).await.expect("it is there");
    assert_ne!(first, second);
    let moved = raw.get(&*first).await.expect(301);
    assert_eq!(moved.header("location"), second);
    assert_eq!(spec(&v2(&raw).await["definitions"])["size"], json!({ "type": "integer" }));

    raw.delete(DEFINITION).await.expect(200);
    until_gone(&raw, DEFINITION).await;
    until(&raw, "/openapi/v3", |index| index["paths"].get(PATH).is_none()).await;
    raw.get(second).await.expect(404);
    assert!(v2(&raw).await["definitions"].get(GADGET).is_none());
}

/// The fields of a gadget's `spec` among all definitions.
fn spec(definitions: &Value) -> &Value {
    &definitions[GADGET]["properties"]["spec"]["properties"]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schemas_are_published_in_both_openapi_versions() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &gadgets()).await;
    let (v3, v2) = (v3(&raw).await, v2(&raw).await);
    let (v3, v2) = (&v3["components"]["schemas"], &v2["definitions"]);
    for definitions in [v3, v2] {
        let gadget = &definitions[GADGET];
        assert_eq!((&gadget["description"], &gadget["type"]), (&json!("A gadget."), &json!("object")));
        let kind = |kind: &str| json!([{ "group": "described.example.com", "version": "v1", "kind": kind }]);
        assert_eq!(gadget["x-kubernetes-group-version-kind"], kind("Gadget"));
        assert_eq!(gadget["x-kubernetes-selectable-fields"], json!([{ "fieldPath": "spec.colour" }]));
        assert!(gadget["properties"]["kind"]["description"].as_str().unwrap().starts_with("Kind is a string"));
        let list = &definitions[GADGETS];
        assert_eq!(list["x-kubernetes-group-version-kind"], kind("GadgetList"));
        assert_eq!(list["required"], json!(["items"]));
        assert_eq!(gadget["properties"]["spec"]["x-kubernetes-validations"][0]["rule"], "self.colour != 'green'");
        assert_eq!(spec(definitions)["replicas"], json!({ "type": "integer", "minimum": 1, "format": "int32" }));
        assert_eq!(spec(definitions)["labels"]["additionalProperties"], json!({ "type": "string" }));
        assert_eq!(spec(definitions)["template"]["required"], json!(["kind", "apiVersion"]));
    }
    let metadata = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let reference = |value: &Value| value["$ref"].as_str().unwrap_or_default().to_owned();
    let in_v3 = &v3[GADGET]["properties"]["metadata"];
    assert_eq!(reference(&in_v3["allOf"][0]), format!("#/components/schemas/{metadata}"));
    assert!(in_v3["description"].as_str().unwrap().starts_with("Standard object's metadata."));
    assert_eq!(reference(&v2[GADGET]["properties"]["metadata"]), format!("#/definitions/{metadata}"));
    assert!(v3.get(metadata).is_some() && v2.get(metadata).is_some());

    assert_eq!(spec(v3)["colour"], json!({ "type": "string", "enum": ["red", "green"], "default": "red" }));
    assert_eq!(spec(v2)["colour"], json!({ "type": "string", "enum": ["red", "green"] }));
    assert_eq!(spec(v3)["lit"], json!({ "type": "boolean", "default": false }));
    let choices = json!([{ "type": "integer" }, { "type": "string" }]);
    assert_eq!(spec(v3)["port"], json!({ "anyOf": choices, "x-kubernetes-int-or-string": true }));
    assert_eq!(spec(v2)["port"], json!({ "x-kubernetes-int-or-string": true }));
    assert_eq!(spec(v3)["note"], json!({ "type": "string", "nullable": true }));
    assert_eq!(spec(v2)["note"], json!({}));
    assert_eq!(spec(v3)["any"], json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true }));
    assert_eq!(spec(v2)["any"], json!({ "x-kubernetes-preserve-unknown-fields": true }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_are_named_as_generated_clients_know_them() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &gadgets()).await;
    let mut wide = definition("described.example.com", "globes", "Globe", json!([version("v1", true)]));
    wide["spec"]["scope"] = json!("Cluster");
    establish(&raw, &wide).await;
    let document = v3(&raw).await;
    let base = "/apis/described.example.com/v1";
    let mut messages: Vec<(String, Vec<String>)> = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        let operations = item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
        let mut ids: Vec<String> =
            operations.map(|(_, each)| each["operationId"].as_str().unwrap().to_owned()).collect();
        ids.sort_unstable();
        messages.push((path.strip_prefix(base).unwrap().to_owned(), ids));
    }
    messages.sort();
    let v1 = |verb: &str, words: &str| format!("{verb}DescribedExampleComV1{words}");
    let of = |path: &str, ids: &[(&str, &str)]| {
        (path.to_owned(), ids.iter().map(|(verb, words)| v1(verb, words)).collect::<Vec<_>>())
    };
    let part = |path: &str, words: &str| of(path, &[("patch", words), ("read", words), ("replace", words)]);
    let collection = |words: &str| {
        [("create", words), ("delete", &*format!("Collection{words}")), ("list", words)]
            .map(|(verb, words)| v1(verb, words))
            .to_vec()
    };
    let object = |words: &str| ["delete", "patch", "read", "replace"].map(|verb| v1(verb, words)).to_vec();
    assert_eq!(
        messages,
        [
            of("/gadgets", &[("list", "GadgetForAllNamespaces")]),
            ("/globes".to_owned(), collection("Globe")),
            ("/globes/{name}".to_owned(), object("Globe")),
            ("/namespaces/{namespace}/gadgets".to_owned(), collection("NamespacedGadget")),
            ("/namespaces/{namespace}/gadgets/{name}".to_owned(), object("NamespacedGadget")),
            part("/namespaces/{namespace}/gadgets/{name}/scale", "NamespacedGadgetScale"),
            part("/namespaces/{namespace}/gadgets/{name}/status", "NamespacedGadgetStatus"),
        ]
    );
    let patch = &document["paths"][format!("{base}/globes/{{name}}")]["patch"];
    let types: Vec<&str> = patch["requestBody"]["content"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(types, ["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]);
    let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|each| &each["name"]).collect();
    assert_eq!(names, ["dryRun", "fieldManager", "fieldValidation", "force"]);
    let scale = &document["paths"][format!("{base}/namespaces/{{namespace}}/gadgets/{{name}}/scale")]["get"];
    assert_eq!(scale["x-kubernetes-group-version-kind"]["kind"], "Gadget");
    let answer = &scale["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
    assert_eq!(answer, "#/components/schemas/io.k8s.api.autoscaling.v1.Scale");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_that_takes_anything_is_an_object_of_any_fields() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut open = definition("described.example.com", "gadgets", "Gadget", json!([version("v1", true)]));
    open["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    establish(&raw, &open).await;
    let kind = json!([{ "group": "described.example.com", "version": "v1", "kind": "Gadget" }]);
    assert_eq!(
        v2(&raw).await["definitions"][GADGET],
        json!({ "type": "object", "x-kubernetes-group-version-kind": kind })
    );
    let published = v3(&raw).await["components"]["schemas"][GADGET].clone();
    assert_eq!(published["x-kubernetes-preserve-unknown-fields"], true);
    assert!(published["properties"].get("metadata").is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_with_taken_names_are_not_in_openapi() {
    let server = TestServer::start().await;
    let raw = server.raw();
    establish(&raw, &gadgets()).await;
    let before = v3(&raw).await;
    let other = definition("described.example.com", "others", "Gadget", json!([version("v1", true)]));
    raw.post(DEFINITIONS, &other).await.expect(201);
    let path = format!("{DEFINITIONS}/others.described.example.com");
    until(&raw, &path, |found| condition(found, "NamesAccepted").0 == "False").await;
    assert_eq!(v3(&raw).await, before);
}
