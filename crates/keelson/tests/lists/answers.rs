//! Tests of response forms and paths: empty namespaces, tables and metadata of all resources, indentation, compression.
//!
//! Codes and texts are kube-apiserver's, except for keelson's own kinds.

use keelson_testkit::{DEFINITIONS, Raw, TestServer, definition, definition_version};
use serde_json::{Value, json};

use crate::names;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

async fn create_map(raw: &Raw, name: &str) {
    raw.post(MAPS, &json!({"metadata": {"name": name, "labels": {"of": "forms"}}})).await.expect(201);
}

async fn create_deployment(raw: &Raw) {
    let container = json!({"name": "c", "image": "i"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}});
    let spec = json!({"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": template});
    raw.post(DEPLOYMENTS, &json!({"metadata": {"name": "web"}, "spec": spec})).await.expect(201);
}

#[tokio::test]
async fn an_empty_namespace_in_a_path_is_all_namespaces() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    let select = "labelSelector=of%3Dforms";
    let listed = raw.get(format!("/api/v1/namespaces//configmaps?{select}")).await.expect(200).json();
    assert_eq!(names(&listed), ["a"]);
    for path in ["/api/v1/namespaces//configmaps?watch=1&", "/api/v1/watch/namespaces//configmaps?"] {
        let mut watch = raw.get(format!("{path}{select}")).stream().await;
        assert_eq!(watch.next_json().await.unwrap()["object"]["metadata"]["name"], "a");
    }
    raw.get("/apis/apps/v1/namespaces//deployments").await.expect(200);
    let message = |answer: keelson_testkit::Answer| answer.json()["message"].as_str().unwrap().to_owned();
    let refused = "Namespace parameter required.";
    assert_eq!(message(raw.get("/api/v1/namespaces//configmaps/a").await.expect(400)), refused);
    assert_eq!(message(raw.delete("/api/v1/namespaces//configmaps/a").await.expect(400)), refused);
    let posted = raw.post("/api/v1/namespaces//configmaps", &json!({"metadata": {"name": "b"}})).await.expect(422);
    assert_eq!(message(posted), "ConfigMap \"b\" is invalid: metadata.namespace: Required value");
    let binding = json!({"metadata": {"name": "p"}, "target": {"name": "n"}});
    assert_eq!(message(raw.post("/api/v1/namespaces//bindings", &binding).await.expect(400)), refused);
    let review = json!({"spec": {"user": "ann", "resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let reviews = "/apis/authorization.k8s.io/v1/namespaces//localsubjectaccessreviews";
    assert_eq!(message(raw.post(reviews, &review).await.expect(400)), refused);
    let none = raw.delete("/api/v1/namespaces//configmaps?labelSelector=of%3Dnothing").await.expect(200);
    assert_eq!(names(&none.json()), [""; 0]);
    assert_eq!(message(raw.delete(format!("/api/v1/namespaces//configmaps?{select}")).await.expect(400)), refused);
    raw.get(format!("{MAPS}/a")).await.expect(200);
    raw.get("/api/v1/namespaces//nodes").await.expect(404);

    let schema = json!({"type": "object"});
    let foos = definition("ex.io", "foos", "Foo", json!([definition_version("v1", true, schema)]));
    raw.post(DEFINITIONS, &foos).await.expect(201);
    raw.get("/apis/ex.io/v1/namespaces//foos").await.expect(200);
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "f"}});
    assert_eq!(raw.post("/apis/ex.io/v1/namespaces//foos", &foo).await.expect(404).text(), "404 page not found\n");
    raw.delete("/apis/ex.io/v1/namespaces//foos").await.expect(404);

    for slashes in ["//api/v1/pods", "//healthz", "/api//v1/pods", "/api/v1//pods", "/api/v1/namespaces/default//pods"]
    {
        assert_eq!(raw.get(slashes).await.expect(404).text(), "404 page not found\n", "{slashes}");
    }
}

#[tokio::test]
async fn scales_are_shown_as_tables_and_reviews_as_metadata() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_deployment(&raw).await;
    let path = format!("{DEPLOYMENTS}/web/scale");
    let table = raw.get(&path).header("accept", TABLE).await.expect(200).json();
    let columns: Vec<_> = table["columnDefinitions"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(columns, ["Name", "Desired", "Available", "Age"]);
    assert_eq!(&table["rows"][0]["cells"].as_array().unwrap()[..3], [json!("web"), json!(3), json!(0)]);
    assert_eq!(table["rows"][0]["object"]["metadata"]["name"], "web");
    let stored = raw.get(format!("{DEPLOYMENTS}/web")).await.expect(200).json();
    assert_eq!(table["metadata"]["resourceVersion"], stored["metadata"]["resourceVersion"]);
    let bare = raw.get(&path).header("accept", METADATA).await.expect(200).json();
    assert_eq!((&bare["kind"], &bare["metadata"]["name"]), (&json!("PartialObjectMetadata"), &json!("web")));
    raw.get(&path).header("accept", "image/png").await.expect(406);

    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let bare = raw.post(reviews, &json!({})).header("accept", METADATA).await.expect(201).json();
    assert_eq!(bare["kind"], "PartialObjectMetadata");
    // As upstream, a review has no table.
    raw.post(reviews, &json!({})).header("accept", TABLE).await.expect(406);
    let whole = raw.post(reviews, &json!({})).header("accept", format!("{TABLE},application/json")).await.expect(201);
    assert_eq!(whole.json()["kind"], "SelfSubjectReview");
}

#[tokio::test]
async fn documents_of_own_kinds_are_json_or_yaml_and_nothing_else() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    let groups = format!("{MAPS}?keelson.io/groupBy=metadata.name");
    let matches = format!("{MAPS}?keelson.io/search=a&keelson.io/matches=true");
    for path in [&groups, &matches] {
        let get = async |accept: &str| raw.get(path.clone()).header("accept", accept).await;
        let json = get("application/vnd.kubernetes.protobuf,application/json").await.expect(200);
        assert_eq!(json.header("content-type"), "application/json");
        assert_eq!(get("application/yaml").await.expect(200).header("content-type"), "application/yaml");
        for accept in ["image/png", "application/vnd.kubernetes.protobuf"] {
            let refused = get(accept).await.expect(406);
            assert!(refused.text().contains("application/json, application/yaml"), "{}", refused.text());
        }
    }
}

#[tokio::test]
async fn media_types_of_bodies_are_compared_without_regard_to_case() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (name, media) in [("a", "Application/JSON"), ("b", "APPLICATION/json; charset=utf-8")] {
        let map = json!({"metadata": {"name": name}});
        raw.post(MAPS, &map).header("content-type", media).await.expect(201);
    }
    let yaml = raw.post(MAPS, &json!({})).header("content-type", "Application/Yaml").body("metadata: {name: c}\n");
    yaml.await.expect(201);
    // As upstream, the types of patches are compared exactly.
    let patch = raw.patch(format!("{MAPS}/a"), "Application/Merge-Patch+JSON", &json!({"data": {"k": "v"}}));
    patch.await.expect(415);
}

#[tokio::test]
async fn every_form_in_json_is_indented_for_people() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    for (path, accept) in [
        (MAPS.to_owned(), TABLE),
        (MAPS.to_owned(), METADATA_LIST),
        (format!("{MAPS}/a"), TABLE),
        (format!("{MAPS}/a"), METADATA),
    ] {
        let compact = raw.get(format!("{path}?pretty=false")).header("accept", accept).await.expect(200);
        let pretty = raw.get(format!("{path}?pretty=true")).header("accept", accept).await.expect(200);
        assert_eq!(compact.json(), pretty.json());
        assert!(pretty.text().starts_with("{\n  \"kind\""), "{}", pretty.text());
        assert!(compact.text().starts_with("{\"kind\""), "{}", compact.text());
    }
}

#[tokio::test]
async fn rows_are_compressed_by_their_own_length() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let filling = "x".repeat(40 << 10);
    for number in 0..5 {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"filling": filling}});
        raw.post(MAPS, &map).await.expect(201);
    }
    let get = async |path: &str, accept: &str| {
        raw.get(path).header("accept", accept).header("accept-encoding", "gzip").await.expect(200)
    };
    assert_eq!(get(MAPS, "application/json").await.header("content-encoding"), "gzip");
    let rows = get(MAPS, TABLE).await;
    assert_eq!((rows.header("content-encoding"), rows.json()["rows"].as_array().unwrap().len()), ("", 5));
    assert_eq!(get(MAPS, METADATA_LIST).await.header("content-encoding"), "");
    let whole = get(&format!("{MAPS}?includeObject=Object"), TABLE).await;
    assert_eq!(whole.header("content-encoding"), "gzip");
    let mut text = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*whole.body), &mut text).unwrap();
    let whole: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(whole["rows"][4]["object"]["data"]["filling"], filling);
}

#[tokio::test]
async fn a_bookmark_of_a_deployment_has_no_replicas() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let begins = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = raw.get(format!("{DEPLOYMENTS}?{begins}")).header("accept", TABLE).stream().await;
    let bookmark = watch.next_json().await.unwrap();
    assert_eq!((&bookmark["type"], &bookmark["object"]["rows"][0]["cells"][1]), (&json!("BOOKMARK"), &json!("0/0")));
}

#[tokio::test]
async fn pages_that_are_no_resource_refuse_queries() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for path in ["/version", "/apis/apps/v1", "/api/v1", "/apis", "/openapi/v2"] {
        let refused = raw.get(format!("{path}?keelson.io/at=5")).await.expect(400);
        assert!(refused.text().contains("for reads of objects alone"), "{}", refused.text());
    }
    for nothing in ["/apis/nothing.example/v1", "/nothing", "/api/v1/../pods"] {
        raw.get(format!("{nothing}?keelson.io/at=5")).await.expect(404);
    }
}

#[tokio::test]
async fn refusals_of_events_name_the_kind_that_is_stored() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let event = json!({"metadata": {"name": "e"}, "regarding": {"namespace": "other"}});
    let refused = raw.post("/apis/events.k8s.io/v1/namespaces/default/events", &event).await.expect(422).json();
    assert!(refused["message"].as_str().unwrap().starts_with("Event \"e\" is invalid"), "{refused}");
    assert_eq!(refused["details"].get("group"), None);
}

#[tokio::test]
async fn deprecated_requests_are_served_as_before() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    let refused = raw.get(format!("{MAPS}/a?export=true")).await.expect(400).json();
    assert_eq!(refused["message"], "the export parameter, deprecated since v1.14, is no longer supported");
    raw.get(format!("{MAPS}/a?export=false")).await.expect(200);

    let held = json!({"metadata": {"name": "held", "finalizers": ["a.b/c"]}});
    raw.post(MAPS, &held).await.expect(201);
    raw.delete(format!("{MAPS}/held?orphanDependents=false")).await.expect(202);
    raw.delete(format!("{MAPS}/held?orphanDependents=false")).await.expect(202);
    raw.delete(format!("{MAPS}/held")).await.expect(200);
    raw.delete(format!("{MAPS}/a?orphanDependents=false")).await.expect(200);
}

#[tokio::test]
async fn only_a_single_zero_is_any_version() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    create_map(&raw, "b").await;
    let list = async |version: &str| {
        let list = raw.get(format!("{MAPS}?limit=1&resourceVersion={version}")).await.expect(200).json();
        (list["items"].as_array().unwrap().len(), list["metadata"]["continue"].is_string())
    };
    assert_eq!(list("00").await, (1, true), "it is the newest version, in chunks");
    assert!(!list("0").await.1, "a list of any version has no chunks");
    raw.get(format!("{MAPS}/a?resourceVersion=000")).await.expect(200);
}

#[tokio::test]
async fn deleting_all_priority_classes_keeps_those_of_the_system() {
    const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(CLASSES, &json!({"metadata": {"name": "low"}, "value": 5})).await.expect(201);
    for query in ["?dryRun=All", ""] {
        let deleted = raw.delete(format!("{CLASSES}{query}")).await.expect(200).json();
        assert_eq!(names(&deleted), ["low"]);
    }
    raw.get(format!("{CLASSES}/system-node-critical")).await.expect(200);
    raw.get(format!("{CLASSES}/low")).await.expect(404);
}

#[tokio::test]
async fn managed_fields_are_dropped_on_demand() {
    const DROP: &str = "application/json;drop=metadata.managedFields";
    let server = TestServer::start().await;
    let raw = server.raw();
    create_map(&raw, "a").await;
    let check = async |accept: &str, is_dropped: bool| {
        let owned = |object: &Value| object["metadata"]["managedFields"].is_array();
        let found = |what: &str, object: &Value| {
            assert_eq!(
                object["metadata"]["name"].as_str().map(str::is_empty),
                Some(false),
                "{what} {accept}: {object}"
            );
            assert_eq!(owned(object), !is_dropped, "{what} {accept}");
        };
        let path = format!("{MAPS}/a");
        found("get", &raw.get(&path).header("accept", accept).await.expect(200).json());
        let list =
            raw.get(format!("{MAPS}?labelSelector=of%3Dforms")).header("accept", accept).await.expect(200).json();
        found("list", &list["items"][0]);
        let watch = format!("{MAPS}?watch=true&resourceVersion=0&labelSelector=of%3Dforms");
        let mut watch = raw.get(watch).header("accept", accept).stream().await;
        found("initial event", &watch.next_json().await.unwrap()["object"]);
        let change = json!({"metadata": {"annotations": {"accept": accept, "dropped": is_dropped.to_string()}}});
        let patch = raw.patch(&path, "application/merge-patch+json", &change);
        found("patch", &patch.header("accept", accept).await.expect(200).json());
        found("event", &watch.next_json().await.unwrap()["object"]);
        let dry = format!("{MAPS}?dryRun=All");
        let made = raw
            .post(dry, &json!({"metadata": {"name": "dry"}, "data": {"k": "v"}}))
            .header("accept", accept)
            .await
            .expect(201)
            .json();
        found("dry run", &made);
    };
    check(DROP, true).await;
    check("application/json; drop=metadata.annotations+metadata.managedFields, */*", true).await;
    check("application/json;drop=metadata.labels", false).await;
    check("application/json", false).await;
    let metadata = raw.get(format!("{MAPS}/a")).header("accept", format!("{METADATA};drop=metadata.managedFields"));
    let metadata = metadata.await.expect(200).json();
    assert!(
        metadata["metadata"]["managedFields"].is_null() && metadata["kind"] == "PartialObjectMetadata",
        "{metadata}"
    );
    // A client that writes an object back without them leaves the owners as they are.
    let mut read = raw.get(format!("{MAPS}/a")).header("accept", DROP).await.expect(200).json();
    read["data"] = json!({"k": "v"});
    raw.put(format!("{MAPS}/a"), &read).await.expect(200);
    let owners = raw.get(format!("{MAPS}/a")).await.expect(200).json()["metadata"]["managedFields"].clone();
    assert!(owners.as_array().is_some_and(|owners| !owners.is_empty()), "{owners}");
    let protobuf = "application/vnd.kubernetes.protobuf;drop=metadata.managedFields";
    let body = raw.get(format!("{MAPS}/a")).header("accept", protobuf).await.expect(200).body;
    let object = serde_json::to_value(keelson_protobuf::decode(&body).unwrap().object).unwrap();
    assert!(object["metadata"]["managedFields"].is_array(), "{object}");
}
