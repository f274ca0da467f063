//! Tests of OpenAPI documents of aggregated servers: their URL contains a hash of the content, they stay while the
//! server is away, and invalid ones are omitted.

use keelson_testkit::{HookReply, Raw, TestServer};
use serde_json::{Value, json};

use super::backend::{Backend, resource};
use super::{MERGE, SERVICES, until};

const INDEX: &str = "/openapi/v3";

/// The URL of a version's document in the index.
fn url<'i>(index: &'i Value, group: &str) -> Option<&'i str> {
    index["paths"][format!("apis/{group}/v1")]["serverRelativeURL"].as_str()
}

async fn publishes(raw: &Raw, name: &str, document: HookReply) -> Backend {
    let backend = Backend::start(raw, name).await;
    let group = format!("{name}.example.org");
    let mut paths = serde_json::Map::new();
    paths.insert(
        format!("apis/{group}/v1"),
        json!({ "serverRelativeURL": format!("/openapi/v3/apis/{group}/v1?hash=A") }),
    );
    backend.answer(INDEX, HookReply::Json(json!({ "paths": paths })));
    backend.answer(&format!("/openapi/v3/apis/{group}/v1"), document);
    backend.serve(&[(&group, "v1", json!([resource("things", "Thing")]))]);
    backend.register(raw, &group, "v1").await;
    backend
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn valid_openapi_documents_are_published_unchanged_and_others_omitted() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let garbage = publishes(&raw, "garbage", HookReply::Other(200, vec![], "garbage".to_owned())).await;
    let older = publishes(&raw, "older", HookReply::Json(json!({ "swagger": "2.0", "paths": {} }))).await;
    let document =
        json!({ "openapi": "3.0.0", "info": { "title": "T", "version": "1" }, "paths": {}, "components": {} });
    let fine = publishes(&raw, "fine", HookReply::Json(document.clone())).await;
    let index = until(&raw, INDEX, |index| url(index, "fine.example.org").is_some()).await;
    let at = url(&index, "fine.example.org").unwrap().to_owned();
    let answer = raw.get(&at).await.expect(200);
    assert_eq!(answer.json(), document);
    assert_eq!(at, format!("/openapi/v3/apis/fine.example.org/v1?hash={}", answer.header("etag").trim_matches('"')));
    let asked = &fine.asked("/openapi/v3/apis/fine.example.org/v1?hash=A")[0].headers;
    assert_eq!(asked["x-remote-user"], "system:aggregator");
    assert!(asked.get("x-remote-group").is_none());
    for (backend, name) in [(&garbage, "garbage"), (&older, "older")] {
        let path = format!("/openapi/v3/apis/{name}.example.org/v1?hash=A");
        // The server has fetched the document and does not publish it.
        while backend.asked(&path).is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        let index = raw.get(INDEX).await.expect(200).json();
        assert_eq!(url(&index, &format!("{name}.example.org")), None);
    }
    assert!(index["paths"]["apis/apps/v1"].is_object(), "everything else is there");

    // The aggregated server ends. Its document remains.
    let name = format!("{SERVICES}/v1.fine.example.org");
    raw.patch(&name, MERGE, &json!({ "metadata": { "annotations": { "a": "b" } } })).await.expect(200);
    drop(fine);
    raw.get(&at).await.expect(200);
    raw.delete(&name).await.expect(200);
    until(&raw, INDEX, |index| url(index, "fine.example.org").is_none()).await;
    raw.get(&at).await.expect(404);
}

/// The OpenAPI v2 document of a version of an aggregated server.
fn swagger(group: &str, description: &str) -> Value {
    let schema = json!({ "$ref": format!("#/definitions/{group}.Thing") });
    let get = json!({ "operationId": "listThing", "responses": { "200": { "description": "OK", "schema": schema } } });
    json!({
        "swagger": "2.0", "info": { "title": "T", "version": "1" },
        "paths": { (format!("/apis/{group}/v1/things")): { "get": get }, "/healthz": {}, "/apis/apps/v1/things": {} },
        "definitions": {
            (format!("{group}.Thing")): { "properties": { "metadata": { "$ref": format!("#/definitions/{META}") } } },
            (META): { "description": description },
        },
    })
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openapi_2_documents_are_merged_by_path_and_removed_with_their_servers() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut backends = Vec::new();
    for (name, document) in [
        ("first", HookReply::Json(swagger("first.example.org", "another"))),
        ("second", HookReply::Json(swagger("second.example.org", "another"))),
        ("garbage", HookReply::Other(200, vec![], "garbage".to_owned())),
        ("endless", HookReply::Endless),
    ] {
        let backend = Backend::start(&raw, name).await;
        let group = format!("{name}.example.org");
        backend.answer("/openapi/v2", document);
        backend.serve(&[(&group, "v1", json!([resource("things", "Thing")]))]);
        backend.register(&raw, &group, "v1").await;
        backends.push(backend);
    }
    let path = |group: &str| format!("/apis/{group}.example.org/v1/things");
    let has = |document: &Value, group: &str| document["paths"][path(group)].is_object();
    let merged = until(&raw, "/openapi/v2", |document| has(document, "first") && has(document, "second")).await;
    for group in ["first", "second"] {
        let thing = &merged["definitions"][format!("{group}.example.org.Thing")];
        assert_eq!(thing["properties"]["metadata"]["$ref"], format!("#/definitions/{META}_v2"));
    }
    assert_eq!(merged["definitions"][format!("{META}_v2")]["description"], "another");
    assert!(merged["definitions"][META]["properties"]["name"].is_object(), "the own one stays as it is");
    assert!(merged["paths"]["/healthz"].is_null() && merged["paths"]["/apis/apps/v1/things"].is_null());
    assert!(!has(&merged, "garbage") && !has(&merged, "endless"));
    let asked = &backends[0].asked("/openapi/v2")[0].headers;
    assert_eq!(asked["x-remote-user"], "system:aggregator");
    assert_eq!(asked["accept"], "application/json");

    // These servers have no OpenAPI v3, so their v2 document is published there.
    let index = until(&raw, INDEX, |index| url(index, "first.example.org").is_some()).await;
    assert_eq!(url(&index, "garbage.example.org"), None);
    let at = url(&index, "first.example.org").unwrap().to_owned();
    let converted = raw.get(&at).await.expect(200).json();
    assert_eq!((&converted["openapi"], &converted["info"]["title"]), (&json!("3.0.0"), &json!("T")));
    assert_eq!(converted["paths"][path("first")]["get"]["operationId"], "listThing");
    let thing = &converted["components"]["schemas"]["first.example.org.Thing"];
    assert_eq!(thing["properties"]["metadata"]["$ref"], format!("#/components/schemas/{META}"));

    // Older clients read the same document in protobuf.
    let protobuf =
        raw.get("/openapi/v2").header("accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf");
    let protobuf = protobuf.await.expect(200);
    assert!(protobuf.body.windows(30).any(|text| text == b"/apis/first.example.org/v1/thi"), "the path is there");

    raw.delete(format!("{SERVICES}/v1.first.example.org")).await.expect(200);
    let left = until(&raw, "/openapi/v2", |document| !has(document, "first")).await;
    assert!(has(&left, "second"));
}
