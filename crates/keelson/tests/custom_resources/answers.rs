//! Tests of responses for custom resources that differ from built-in ones: upstream's separate handler has no router,
//! no protobuf and no strategic patch.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::{APPLY, DEFINITIONS, MERGE, definition, establish, until, version};

const GROUP: &str = "told.example.com";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

fn place(version: &str) -> String {
    format!("/apis/{GROUP}/{version}/namespaces/default/tells")
}

async fn start() -> TestServer {
    let server = TestServer::start().await;
    let mut hidden = version("v3", false);
    hidden["served"] = json!(false);
    let mut v1 = version("v1", true);
    v1["subresources"] = json!({ "status": {} });
    let raw = server.raw();
    establish(&raw, &definition(GROUP, "tells", "Tell", json!([v1, version("v2", false), hidden]))).await;
    raw.post(place("v1"), &json!({ "metadata": { "name": "x" }, "spec": { "a": "1" } })).await.expect(201);
    server
}

fn check(answer: &Answer, code: u16, message: &str) -> Value {
    assert_eq!(answer.status, code, "{}", answer.text());
    let status = answer.json();
    assert_eq!(status["message"], message);
    status
}

fn check_no_page(answer: &Answer) {
    assert_eq!((answer.status, answer.text().as_str()), (404, "404 page not found\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unserved_paths_are_plain_404_and_unknown_subresources_a_status() {
    let server = start().await;
    let raw = server.raw();
    for path in [place("v3"), place("v9"), format!("/apis/{GROUP}/v3"), format!("/apis/{GROUP}/v1/tells/x")] {
        check_no_page(&raw.get(&*path).await);
    }
    check_no_page(&raw.get(format!("/apis/{GROUP}/v1/namespaces/default/others")).await);
    check_no_page(&raw.post(format!("/apis/{GROUP}/v1/tells"), &json!({ "metadata": { "name": "y" } })).await);
    for below in ["v2/namespaces/default/tells/x/status", "v1/namespaces/default/tells/x/scale"] {
        let missing = raw.get(format!("/apis/{GROUP}/{below}")).await;
        let status = check(&missing, 404, "tells.told.example.com \"x\" not found");
        assert_eq!(status["details"], json!({ "name": "x", "group": GROUP, "kind": "tells" }));
    }
    // Built-in groups have another text.
    check(&raw.get("/apis/apps/v9/deployments").await, 404, "the server could not find the requested resource");
    let refused = raw.delete(format!("{}/x/status", place("v1"))).await;
    let status = check(&refused, 405, "delete is not supported on resources of kind \"tells.told.example.com\"");
    assert_eq!(status["details"], json!({ "group": GROUP, "kind": "tells" }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forms_that_custom_resources_do_not_have_are_refused_by_name() {
    let server = start().await;
    let raw = server.raw();
    let one = format!("{}/x", place("v1"));
    let patches = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    let refused = raw.patch(&*one, "application/strategic-merge-patch+json", &json!({})).await;
    let accepted = "the body of the request was in an unknown format - accepted media types include";
    let status = check(&refused, 415, &format!("{accepted}: {patches}"));
    assert_eq!(status["details"], Value::Null);
    let protobuf = "application/vnd.kubernetes.protobuf";
    assert_eq!(raw.get(&*one).header("accept", protobuf).await.status, 406);
    let shown = raw.get(&*one).header("accept", format!("{protobuf},application/json")).await.expect(200);
    assert_eq!(shown.json()["spec"]["a"], "1");
    let bare = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    assert_eq!(raw.get(&*one).header("accept", bare).await.expect(200).header("content-type"), protobuf);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_another_kind_is_refused_by_its_rules() {
    let server = start().await;
    let raw = server.raw();
    let other = json!({ "apiVersion": "told.example.com/v1", "kind": "Other", "metadata": { "name": "y" } });
    check(
        &raw.post(place("v1"), &other).await,
        422,
        "Other.told.example.com \"y\" is invalid: kind: Invalid value: \"Other\": must be Tell",
    );
    let data = |version: &str| {
        format!("the API version in the data ({version}) does not match the expected API version (told.example.com/v1)")
    };
    for version in ["told.example.com/v7", "told.example.com/v2", "v1"] {
        let other = json!({ "apiVersion": version, "kind": "Tell", "metadata": { "name": "y" } });
        check(&raw.post(place("v1"), &other).await, 400, &data(version));
    }
    let taken = raw.patch(format!("{}/x", place("v1")), MERGE, &json!({ "kind": "Other" })).await;
    check(&taken, 422, "Other.told.example.com \"x\" is invalid: kind: Invalid value: \"Other\": must be Tell");
    let list = raw.patch(format!("{}/x?fieldManager=m", place("v1")), APPLY, &json!([])).await;
    let decoder =
        "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value";
    check(&list, 400, &format!("{decoder} of type map[string]interface {{}}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_is_shown_as_it_was_requested() {
    let server = start().await;
    let raw = server.raw();
    let object = json!({ "metadata": { "name": "y" }, "spec": { "a": "1" } });
    let tried =
        raw.post(format!("{}?dryRun=All", place("v1")), &object).header("accept", TABLE).await.expect(201).json();
    assert_eq!((&tried["kind"], &tried["rows"][0]["cells"][0]), (&json!("Table"), &json!("y")));
    assert_eq!(tried["rows"][0]["object"]["metadata"]["resourceVersion"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizers_without_a_path_are_warned_of_once() {
    let server = start().await;
    let raw = server.raw();
    let warning = |name: &str, path: &str| {
        format!(
            "299 - \"metadata.finalizers: \\\"{name}\\\": prefer a domain-qualified finalizer name{path} to avoid accidental \
             conflicts with other finalizer writers\""
        )
    };
    let one = format!("{}/x", place("v1"));
    let mine = json!({ "metadata": { "finalizers": ["mine", "example.com/mine", "orphan"] } });
    assert_eq!(raw.patch(&*one, MERGE, &mine).await.expect(200).header("warning"), warning("mine", ""));
    let more = json!({ "metadata": { "finalizers": ["mine", "mine.example.com"] } });
    let response = raw.patch(&*one, MERGE, &more).await.expect(200);
    assert_eq!(response.header("warning"), warning("mine.example.com", " including a path (/)"));

    raw.delete(&*one).await.expect(200);
    let again = raw.post(place("v1"), &json!({ "metadata": { "name": "x" } })).await;
    check(&again, 409, "object is being deleted: tells.told.example.com \"x\" already exists");
    let list = raw.delete(place("v1")).await.expect(200).json();
    assert_eq!(list["metadata"]["continue"], "");
}

/// Counts changes in the version of the request: a field that the stored version lacks is a change without a trace.
async fn generation_after(raw: &Raw, patch: &Value) -> Value {
    raw.patch(format!("{}/x", place("v2")), MERGE, patch).await.expect(200).json()["metadata"]["generation"].clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn generations_are_counted_in_the_version_of_the_request() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut v2 = version("v2", false);
    v2["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["new"] = json!({ "type": "string" });
    establish(&raw, &definition(GROUP, "tells", "Tell", json!([version("v1", true), v2]))).await;
    raw.post(place("v1"), &json!({ "metadata": { "name": "x" }, "spec": { "a": "1" } })).await.expect(201);
    assert_eq!(generation_after(&raw, &json!({ "spec": { "new": "n" } })).await, 2);
    assert_eq!(generation_after(&raw, &json!({ "metadata": { "labels": { "a": "b" } } })).await, 2);
    assert_eq!(generation_after(&raw, &json!({ "spec": { "a": "2" } })).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_keep_stored_versions_and_deletes_check_preconditions() {
    let server = start().await;
    let raw = server.raw();
    let path = format!("{DEFINITIONS}/tells.{GROUP}");
    let none = json!({ "status": { "storedVersions": [] } });
    let kept = raw.patch(format!("{path}/status?dryRun=All"), MERGE, &none).await.expect(200).json();
    assert_eq!(kept["status"]["storedVersions"], json!(["v1"]));
    let uid = raw.get(&*path).await.expect(200).json()["metadata"]["uid"].clone();
    let refused = raw.delete(&*path).json(&json!({ "preconditions": { "uid": "x" } })).await;
    let uid = uid.as_str().unwrap();
    let message = format!(
        "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \"tells.{GROUP}\": \
         Precondition failed: UID in precondition: x, UID in object meta: {uid}"
    );
    check(&refused, 409, &message);
    // The hash of a stored version that is not served is not published.
    let hash = |list: &Value| list["resources"][0]["storageVersionHash"].clone();
    assert!(hash(&raw.get(format!("/apis/{GROUP}/v2")).await.expect(200).json()).is_string());
    let mut stored = version("v1", true);
    stored["served"] = json!(false);
    let unserved = json!({ "spec": { "versions": [stored, version("v2", false)] } });
    raw.patch(&*path, MERGE, &unserved).await.expect(200);
    until(&raw, &format!("/apis/{GROUP}/v2"), |list| list["resources"].is_array() && hash(list).is_null()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_definitions_get_the_errors_of_apiextensions_apiserver() {
    let server = TestServer::start().await;
    let mut thing = definition("told.example.com", "things", "Thing", json!([version("v1", true)]));
    thing["kind"] = json!("Thing");
    let refused = server.raw().post(DEFINITIONS, &thing).await.expect(400).json();
    let scheme = "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55";
    let expected = format!(
        "Thing in version \"v1\" cannot be handled as a CustomResourceDefinition: no kind \"Thing\" is registered for \
         version \"apiextensions.k8s.io/v1\" in scheme \"{scheme}\""
    );
    assert_eq!(refused["message"], expected);
}
