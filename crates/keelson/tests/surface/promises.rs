//! Tests of OpenAPI: every operation of every document is sent, and its response is checked against the document.
//!
//! The tests use version 3, for built-in and custom kinds, in every media type. Version 2 must have the same
//! operations. Writes are dry runs, so that no operation changes the objects of the next one.

use std::collections::BTreeMap;

use http::Method;
use keelson_server::AdmissionPlugins;
use keelson_testkit::{Answer, Call, Raw, TestServer};
use serde_json::{Value, json};

use crate::documented::{Operation, Stored, collections, documents, kinds, misfit, renamed};

const JSON: &str = "application/json";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const YAML: &str = "application/yaml";

/// Operations that reject a request like those for other kinds: the name of an IPAddress must be the address.
const REFUSED: [&str; 2] = ["createNetworkingV1IPAddress", "createNetworkingV1beta1IPAddress"];
/// Operations that return a `Status`, as in kube-apiserver, which documents the kind of their body instead.
const ACTS: [&str; 3] =
    ["createCoreV1NamespacedBinding", "createCoreV1NamespacedPodBinding", "createCoreV1NamespacedPodEviction"];

async fn server() -> TestServer {
    let plain = |config: &mut keelson_server::Config| {
        let off = ["LimitRanger", "ServiceAccount"].map(str::to_owned).to_vec();
        config.admission = AdmissionPlugins::new(Vec::new(), off).unwrap();
    };
    TestServer::builder().every_version().configure(plain).start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_operation_answers_as_its_document_says() {
    let server = server().await;
    let raw = server.raw();
    let stored = Stored::make(&raw).await;
    let documents = documents(&raw).await;
    assert!(documents.contains_key("apis/promised.example.org/v1"), "{:?}", documents.keys());
    let mut broken = Vec::new();
    let mut sent = 0;
    for document in documents.values() {
        for operation in Operation::all(document) {
            sent += 1;
            if let Err(why) = check(&raw, &stored, &operation).await {
                broken.push(format!("{} ({} {}): {why}", operation.id(), operation.method, operation.path));
            }
        }
    }
    assert!(sent > 900, "{sent} operations");
    assert!(broken.is_empty(), "{} of {sent} operations break their promise:\n{}", broken.len(), broken.join("\n"));
}

/// Sends an operation in each media type.
async fn check(raw: &Raw, stored: &Stored, operation: &Operation<'_>) -> Result<(), String> {
    let Some(path) = path(raw, stored, operation).await else { return Ok(()) };
    match operation.action() {
        "" | "get" | "list" => check_reads(raw, operation, &path).await,
        "watch" | "watchlist" => check_watches(raw, operation, &path, operation.produces()).await,
        "post" => {
            let Some(body) = new_object(raw, stored, operation).await else { return Ok(()) };
            check_writes(raw, operation, Method::POST, &path, &body).await
        }
        "put" => check_writes(raw, operation, Method::PUT, &path, &current(raw, &path).await).await,
        "patch" => check_patches(raw, operation, &path).await,
        "delete" => {
            for media_type in operation.produces() {
                let answer = raw.delete(dry(&path)).header("accept", media_type).await;
                fits(operation, &answer, media_type)?;
            }
            Ok(())
        }
        "deletecollection" => {
            let none = format!("{}&fieldSelector=metadata.name%3Dmissing", dry(&path));
            let answer = raw.delete(none).header("accept", JSON).await;
            // As in kube-apiserver, the response is the list of deleted objects, although the document says Status.
            let is_list = answer.json()["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
            if answer.status == 200 && is_list { Ok(()) } else { Err(answer.text()) }
        }
        other => Err(format!("there is no action {other:?}")),
    }
}

/// The path of an operation with the names of existing objects; `None` if there is none.
async fn path(raw: &Raw, stored: &Stored, operation: &Operation<'_>) -> Option<String> {
    let (plural, _) = operation.resource();
    let path = operation.path.replace("{namespace}", "default");
    if !path.contains("{name}") {
        return Some(path);
    }
    let name = match stored.object(&operation.api_version(), plural) {
        Some(object) => object["metadata"]["name"].as_str()?.to_owned(),
        // The server creates these objects itself, if they exist.
        None => {
            let all = raw.get(collections(&operation.api_version(), plural)[1].as_str()).await.expect(200).json();
            all["items"][0]["metadata"]["name"].as_str()?.to_owned()
        }
    };
    Some(path.replace("{name}", &name))
}

fn dry(path: &str) -> String {
    format!("{path}?dryRun=All&fieldManager=promises")
}

/// The object at a path, or its parent if the subresource can't be read.
async fn current(raw: &Raw, path: &str) -> Value {
    let answer = raw.get(path).await;
    if answer.status == 200 {
        return answer.json();
    }
    let (object, _) = path.rsplit_once('/').unwrap();
    raw.get(object).await.expect(200).json()
}

/// Sends an object in each media type.
async fn check_writes(
    raw: &Raw,
    operation: &Operation<'_>,
    method: Method,
    path: &str,
    body: &Value,
) -> Result<(), String> {
    for media_type in operation.consumes().into_iter().filter(|it| *it != PROTOBUF) {
        let call = raw.call(method.clone(), dry(path)).body(body.to_string()).header("content-type", media_type);
        fits(operation, &call.header("accept", JSON).await, JSON)?;
    }
    Ok(())
}

async fn check_reads(raw: &Raw, operation: &Operation<'_>, path: &str) -> Result<(), String> {
    let (streams, whole): (Vec<&str>, Vec<&str>) =
        operation.produces().into_iter().partition(|media_type| media_type.ends_with(";stream=watch"));
    for media_type in whole {
        fits(operation, &raw.get(path).header("accept", media_type).await, media_type)?;
    }
    check_watches(raw, operation, &format!("{path}?watch=true"), streams).await
}

async fn check_watches(raw: &Raw, operation: &Operation<'_>, path: &str, types: Vec<&str>) -> Result<(), String> {
    for media_type in types {
        let (plain, _) = media_type.split_once(';').unwrap_or((media_type, ""));
        let stream = raw.get(path).header("accept", plain).stream().await;
        let found = stream.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        if stream.status != 200 || !found.starts_with(plain) {
            return Err(format!("a watch as {media_type} is {} {found}", stream.status));
        }
        let stated = operation.answer(200, media_type);
        if !stated.is_object() {
            return Err(format!("a watch as {media_type} has no schema"));
        }
    }
    Ok(())
}

async fn check_patches(raw: &Raw, operation: &Operation<'_>, path: &str) -> Result<(), String> {
    let current = current(raw, path).await;
    for media_type in operation.consumes() {
        let body = match media_type {
            "application/json-patch+json" => json!([]),
            "application/apply-patch+yaml" => {
                let mut applied = renamed(&current, current["metadata"]["name"].as_str().unwrap());
                applied
                    .as_object_mut()
                    .unwrap()
                    .retain(|field, _| ["apiVersion", "kind", "metadata", "spec"].contains(&field.as_str()));
                applied
            }
            _ => json!({}),
        };
        let forced = if media_type == "application/apply-patch+yaml" { "&force=true" } else { "" };
        let answer = raw.patch(format!("{}{forced}", dry(path)), media_type, &body).header("accept", JSON).await;
        fits(operation, &answer, JSON).map_err(|why| format!("as {media_type}: {why}"))?;
    }
    Ok(())
}

/// Checks that the document has the code, the media type and the body of a response.
fn fits(operation: &Operation<'_>, answer: &Answer, media_type: &str) -> Result<(), String> {
    if answer.status >= 400 && REFUSED.contains(&operation.id()) {
        return Ok(());
    }
    let stated = operation.answer(answer.status, media_type);
    if !stated.is_object() {
        return Err(format!("{} as {media_type} is not among the answers: {}", answer.status, answer.text()));
    }
    let found = answer.header("content-type");
    if found.split(';').next() != Some(media_type) {
        return Err(format!("{media_type} was wanted and {found} came"));
    }
    let body: Value = match media_type {
        JSON => answer.json(),
        YAML => return if answer.text().is_empty() { Err("an empty body".to_owned()) } else { Ok(()) },
        PROTOBUF if answer.body.starts_with(b"k8s\0") => return Ok(()),
        _ => return Err(format!("a body of an unknown form as {media_type}")),
    };
    if ACTS.contains(&operation.id()) && body["kind"] == "Status" && body["status"] == "Success" {
        return Ok(());
    }
    // As in kube-apiserver, the response contains an object that is still being deleted, whatever the document says.
    if operation.action() == "delete" && body["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let kinds = kinds(operation.document, stated);
    let own = (text(&body["apiVersion"]), text(&body["kind"]));
    // Old pages have no version in their path.
    let is_one = |(version, kind): &(String, String)| *kind == own.1 && (own.0.is_empty() || *version == own.0);
    if !kinds.is_empty() && !kinds.iter().any(is_one) {
        return Err(format!("published is {kinds:?} and {own:?} came"));
    }
    misfit(operation.document, stated, &body, "").map_or(Ok(()), Err)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An object that can be created in addition to the existing one, or the body of a create that stores nothing; `None`
/// if there is no object.
async fn new_object(raw: &Raw, stored: &Stored, operation: &Operation<'_>) -> Option<Value> {
    let (plural, part) = operation.resource();
    let object = |group: &str, kind: &str, spec: Value| json!({ "apiVersion": group, "kind": kind, "spec": spec });
    let pods = json!({ "namespace": "default", "verb": "get", "resource": "pods" });
    Some(match (plural, part) {
        ("pods", "binding") | ("bindings", "") => json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": { "name": "stored" },
            "target": { "kind": "Node", "name": "stored" },
        }),
        ("pods", "eviction") => {
            json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": { "name": "stored" } })
        }
        ("serviceaccounts", "token") => object("authentication.k8s.io/v1", "TokenRequest", json!({})),
        ("tokenreviews", _) => object("authentication.k8s.io/v1", "TokenReview", json!({ "token": "none" })),
        ("selfsubjectreviews", _) => json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview" }),
        ("localsubjectaccessreviews", _) => {
            let spec = json!({ "user": "ann", "resourceAttributes": pods });
            let mut review = object("authorization.k8s.io/v1", "LocalSubjectAccessReview", spec);
            review["metadata"] = json!({ "namespace": "default" });
            review
        }
        ("subjectaccessreviews", _) => {
            let spec = json!({ "user": "ann", "resourceAttributes": pods });
            object("authorization.k8s.io/v1", "SubjectAccessReview", spec)
        }
        ("selfsubjectaccessreviews", _) => {
            object("authorization.k8s.io/v1", "SelfSubjectAccessReview", json!({ "resourceAttributes": pods }))
        }
        ("selfsubjectrulesreviews", _) => {
            object("authorization.k8s.io/v1", "SelfSubjectRulesReview", json!({ "namespace": "default" }))
        }
        _ => {
            let made = stored.object(&operation.api_version(), plural)?;
            let name = made["metadata"]["name"].as_str().unwrap();
            let shown = current(raw, &format!("{}/{name}", operation.path.replace("{namespace}", "default"))).await;
            other(plural, &shown)
        }
    })
}

/// A copy of an object without the fields that must be unique.
fn other(plural: &str, shown: &Value) -> Value {
    let mut object = renamed(shown, "another");
    match plural {
        "services" => {
            let spec = object["spec"].as_object_mut().unwrap();
            spec.retain(|field, _| !field.starts_with("clusterIP") && !field.starts_with("ipFamil"));
        }
        "jobs" => {
            object["spec"].as_object_mut().unwrap().remove("selector");
            object["spec"]["template"]["metadata"] = json!({});
        }
        "customresourcedefinitions" => {
            let name = format!("another{}", shown["spec"]["names"]["plural"].as_str().unwrap());
            object["metadata"]["name"] = json!(format!("{name}.{}", shown["spec"]["group"].as_str().unwrap()));
            let names =
                [("plural", name.as_str()), ("singular", "another"), ("kind", "Another"), ("listKind", "AnotherList")];
            names.into_iter().for_each(|(member, name)| object["spec"]["names"][member] = json!(name));
        }
        "apiservices" => {
            object["spec"]["group"] = json!("another.example.org");
            let version = shown["spec"]["version"].as_str().unwrap();
            object["metadata"]["name"] = json!(format!("{version}.another.example.org"));
        }
        // The names of these kinds follow from their content or have their own format.
        "storageversions" => object["metadata"]["name"] = json!("another.things"),
        "servicecidrs" => object["spec"] = json!({ "cidrs": ["192.0.2.0/28"] }),
        "priorityclasses" => object["metadata"]["name"] = json!("another-class"),
        _ => {}
    }
    object
}

/// The operations of version 2 by id, with their paths.
fn operations_of_v2(document: &Value) -> BTreeMap<&str, (&str, &Value)> {
    let mut found = BTreeMap::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if method != "parameters" {
                let id = operation["operationId"].as_str().unwrap();
                assert!(found.insert(id, (path.as_str(), operation)).is_none(), "{id} names two operations");
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_2_and_3_describe_each_operation_equally() {
    let server = server().await;
    let raw = server.raw();
    Stored::make(&raw).await;
    let documents = documents(&raw).await;
    let v2 = raw.get("/openapi/v2").header("accept", JSON).await.expect(200).json();
    let of_v2 = operations_of_v2(&v2);
    let mut seen = 0;
    for operation in documents.values().flat_map(Operation::all) {
        seen += 1;
        let id = operation.id();
        let (path, stated) = of_v2.get(id).unwrap_or_else(|| panic!("version 2 has no {id}"));
        assert_eq!(*path, operation.path, "{id}");
        let sorted = |mut list: Vec<String>| {
            list.sort_unstable();
            list
        };
        let of_v2 = |member: &str| sorted(stated[member].as_array().into_iter().flatten().map(text).collect());
        let of_v3 = |list: Vec<&str>| sorted(list.into_iter().map(ToOwned::to_owned).collect());
        assert_eq!(of_v2("produces"), of_v3(operation.produces()), "{id}");
        assert_eq!(of_v2("consumes"), of_v3(operation.consumes()), "{id}");
        for (code, answer) in stated["responses"].as_object().unwrap() {
            let other = &operation.stated["responses"][code];
            assert_eq!(answer["description"], other["description"], "{id} {code}");
            let schema = other["content"].as_object().and_then(|content| content.values().next());
            let reference = schema.map_or(&Value::Null, |schema| &schema["schema"]["$ref"]);
            let name = |reference: &Value| text(reference).rsplit('/').next().unwrap_or_default().to_owned();
            assert_eq!(name(&answer["schema"]["$ref"]), name(reference), "{id} {code}");
        }
        assert_eq!(
            stated["responses"].as_object().unwrap().len(),
            operation.stated["responses"].as_object().unwrap().len()
        );
    }
    assert_eq!(seen, of_v2.len());
}

#[tokio::test]
async fn documents_of_version_3_come_as_protobuf_too() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for path in ["/openapi/v3/apis/apps/v1", "/openapi/v3/version"] {
        let json = raw.get(path).header("accept", JSON).await.expect(200);
        for separator in ["@", "."] {
            let wanted = format!("application/com.github.proto-openapi.spec.v3{separator}v1.0+protobuf");
            let answer = raw.get(path).header("accept", wanted).await.expect(200);
            assert_eq!(answer.header("content-type"), "application/com.github.proto-openapi.spec.v3.v1.0+protobuf");
            assert_eq!(answer.header("etag"), json.header("etag"), "{path}");
            // The first field is the version.
            assert!(answer.body.starts_with(b"\x0a\x053.0.0"), "{:?}", &answer.body[..16]);
            let tag = answer.header("etag");
            let wanted = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
            raw.get(path).header("accept", wanted).header("if-none-match", tag).await.expect(304);
        }
    }
    raw.get("/openapi/v3/apis/apps/v1").header("accept", "image/png").await.expect(406);
}

/// Sentences that tests of clients expect in `kubectl explain` and in the documents.
#[tokio::test]
async fn parameters_and_lists_are_described() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let v2: Call = raw.get("/openapi/v2").header("accept", JSON);
    let text = v2.await.expect(200).text();
    for sentence in ["list of returned objects", "List of services", "Watch for changes to the described resources"] {
        assert!(text.contains(sentence), "{sentence}");
    }
    let document: Value = serde_json::from_str(&text).unwrap();
    for (name, parameter) in document["parameters"].as_object().unwrap() {
        assert!(parameter["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
    }
    for (name, definition) in document["definitions"].as_object().unwrap() {
        for member in ["items", "metadata"].into_iter().filter(|_| name.ends_with("List")) {
            let field = &definition["properties"][member];
            assert!(field.is_null() || field["description"].is_string(), "{name}.{member}");
        }
    }
}
