//! Tests of the pages of a server with the built-in resources.
//!
//! Other crates test pages that need a whole server.

use super::*;
use http::{Method, Request};
use http_body_util::BodyExt;

/// The response of a server with the built-in resources.
async fn get(target: &str, headers: &[(&str, &str)]) -> Response<ResponseBody> {
    answer(&ServedDocuments::builtin(), target, headers).await
}

async fn answer(documents: &Arc<ServedDocuments>, target: &str, headers: &[(&str, &str)]) -> Response<ResponseBody> {
    let mut request = Request::get(target);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let parts = request.body(()).unwrap().into_parts().0;
    Pages::for_tests().answer(documents, &RequestInfo::parse(&parts.method, &parts.uri), &parts).await
}

async fn text(response: Response<ResponseBody>) -> String {
    String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
}

const V2: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test]
async fn aggregated_discovery_is_sent_once_for_each_tag() {
    let first = get("/apis", &[("accept", V2)]).await;
    assert_eq!(first.headers()["content-type"], V2);
    assert_eq!(first.headers()["cache-control"], "public");
    assert_eq!(first.headers()["vary"], "Accept");
    let tag = first.headers()["etag"].to_str().unwrap().to_owned();
    let second = get("/apis", &[("accept", V2), ("if-none-match", &tag)]).await;
    assert_eq!(second.status(), 304);
    assert_eq!(second.headers()["etag"], tag.as_str());
    assert!(!second.headers().contains_key("content-type"));
    assert_eq!(text(second).await, "");
}

#[tokio::test]
async fn legacy_discovery() {
    assert!(text(get("/api", &[]).await).await.contains("\"serverAddress\":\"192.0.2.2:6443\""));
    assert!(text(get("/apis/", &[]).await).await.starts_with("{\"kind\":\"APIGroupList\""));
    assert!(text(get("/apis/apps", &[]).await).await.starts_with("{\"kind\":\"APIGroup\""));
    assert!(text(get("/api/v1", &[]).await).await.starts_with("{\"kind\":\"APIResourceList\""));
    assert!(text(get("/api", &[("accept", "application/yaml")]).await).await.starts_with("kind: APIVersions\n"));
}

#[tokio::test]
async fn paths_that_nothing_stands_for() {
    for target in ["/nowhere", "/apis/nope.example.org", "/apis/nope.example.org/v1", "/livezz"] {
        let response = get(target, &[]).await;
        assert_eq!(response.status(), 404, "{target}");
        assert_eq!(response.headers()["content-type"], "text/plain; charset=utf-8");
        assert_eq!(text(response).await, "404 page not found\n");
    }
    let response = get("/apis/apps/v9", &[]).await;
    assert_eq!(response.status(), 404);
    assert!(text(response).await.contains("the server could not find the requested resource"));
}

#[tokio::test]
async fn query_parameters_are_announced_in_an_unlisted_group() {
    let path = "/apis/keelson.io/v1alpha1";
    let announced = text(get(path, &[]).await).await;
    let announced = keelson_codec::json::parse(announced.trim().as_bytes()).unwrap().value;
    assert_eq!(
        (&announced["kind"], &announced["groupVersion"]),
        (&"APIResourceList".into(), &"keelson.io/v1alpha1".into())
    );
    assert!(announced["resources"].as_array().unwrap().is_empty());
    let names: Vec<&str> =
        announced["parameters"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"keelson.io/sortBy") && names.len() == keelson_query::PARAMETERS.len(), "{names:?}");
    assert!(text(get(path, &[("accept", "application/yaml")]).await).await.contains("kind: APIResourceList\n"));
    let documents = ServedDocuments::builtin();
    assert_eq!(ask(&documents, Method::POST, path, "*/*").await, 405);
    assert_eq!(ask(&documents, Method::GET, path, "application/vnd.kubernetes.protobuf").await, 406);
    // Discovery lists no group without resources.
    for listed in ["/apis", "/openapi/v3"] {
        assert!(!text(get(listed, &[]).await).await.contains("keelson.io"), "{listed}");
    }
    assert!(!text(get("/apis", &[("accept", V2)]).await).await.contains("keelson.io"));
    assert!(text(get("/", &[]).await).await.contains(path));
}

async fn ask(documents: &Arc<ServedDocuments>, method: Method, target: &str, accept: &str) -> u16 {
    let parts = Request::builder().method(method).uri(target).header("accept", accept);
    let parts = parts.body(()).unwrap().into_parts().0;
    let info = RequestInfo::parse(&parts.method, &parts.uri);
    Pages::for_tests().answer(documents, &info, &parts).await.status().as_u16()
}

#[tokio::test]
async fn some_pages_are_for_get_alone_and_others_look_at_no_method() {
    let documents = ServedDocuments::builtin();
    for target in ["/api", "/api/v1", "/apis/apps", "/apis/apps/v1", "/version"] {
        assert_eq!(ask(&documents, Method::GET, target, "*/*").await, 200, "{target}");
        assert_eq!(ask(&documents, Method::HEAD, target, "*/*").await, 405, "{target}");
        assert_eq!(ask(&documents, Method::POST, target, "text/html").await, 405, "{target}");
    }
    for target in ["/", "/apis", "/openapi/v3", "/metrics"] {
        assert_eq!(ask(&documents, Method::PUT, target, "*/*").await, 200, "{target}");
    }
    for target in ["/nowhere", "/apis/nope.example.org", "/apis/nope.example.org/v1"] {
        assert_eq!(ask(&documents, Method::POST, target, "*/*").await, 404, "{target}");
    }
}

#[tokio::test]
async fn unsupported_accept_headers_are_refused() {
    let documents = ServedDocuments::builtin();
    for target in ["/api", "/api/v1", "/apis/apps", "/version"] {
        assert_eq!(ask(&documents, Method::GET, target, "application/*").await, 406, "{target}");
    }
    for target in ["/apis", "/openapi/v2"] {
        assert_eq!(ask(&documents, Method::GET, target, "application/*").await, 200, "{target}");
        assert_eq!(ask(&documents, Method::GET, target, "application/json;q=0").await, 200, "{target}");
    }
    assert_eq!(
        ask(&documents, Method::OPTIONS, "/apis", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io").await,
        406
    );
}

#[tokio::test]
async fn version_and_root() {
    assert!(text(get("/version", &[]).await).await.contains("\"gitVersion\": \"v1.37.0+keelson\""));
    let root = text(get("/", &[]).await).await;
    assert!(root.contains("\"/apis/apps/v1\"") && root.contains("\"/readyz\""));
}

#[tokio::test]
async fn openapi_is_found_by_its_index() {
    let index = text(get("/openapi/v3", &[]).await).await;
    let index = keelson_codec::json::parse(index.as_bytes()).unwrap().value;
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(url, &[]).await;
    assert_eq!(document.status(), 200);
    assert!(document.headers()["cache-control"].to_str().unwrap().contains("immutable"));
    let tag = document.headers()["etag"].to_str().unwrap().to_owned();
    assert_eq!(get(url, &[("if-none-match", &tag)]).await.status(), 304);
    let moved = get("/openapi/v3/apis/apps/v1?hash=old", &[]).await;
    assert_eq!((moved.status().as_u16(), moved.headers()["location"].to_str().unwrap()), (301, url));
    assert_eq!(get("/openapi/v3/apis/nope/v1", &[]).await.status(), 404);
}

#[tokio::test]
async fn openapi_of_version_2_comes_in_two_forms() {
    let json = get("/openapi/v2", &[]).await;
    assert_eq!(json.headers()["content-type"], "application/json");
    assert!(text(json).await.starts_with("{\"swagger\":\"2.0\""));
    for separator in [".", "@"] {
        let accept = format!("application/com.github.proto-openapi.spec.v2{separator}v1.0+protobuf");
        let protobuf = get("/openapi/v2", &[("accept", &accept)]).await;
        assert_eq!(protobuf.headers()["content-type"], "application/com.github.proto-openapi.spec.v2.v1.0+protobuf");
        let tag = protobuf.headers()["etag"].to_str().unwrap().to_owned();
        assert_eq!(get("/openapi/v2", &[("accept", &accept), ("if-none-match", &tag)]).await.status(), 304);
        assert_eq!(get("/openapi/v2", &[("if-none-match", &tag)]).await.status(), 200);
    }
    assert_eq!(get("/openapi/v2", &[("accept", "text/html")]).await.status(), 406);
}

#[tokio::test]
async fn metrics_in_both_formats() {
    let classic = get("/metrics", &[]).await;
    assert_eq!(classic.headers()["content-type"], CLASSIC_CONTENT_TYPE);
    assert!(!text(classic).await.contains("# EOF"));
    let open = get("/metrics", &[("accept", "application/openmetrics-text;version=1.0.0,text/plain")]).await;
    assert_eq!(open.headers()["content-type"], OPEN_METRICS_CONTENT_TYPE);
    assert!(text(open).await.ends_with("# EOF\n"));
}

/// So many groups that the document is compressed.
fn many() -> Arc<ServedDocuments> {
    let fragment = |number: usize| {
        keelson_discovery::Fragment::new(keelson_discovery::VersionSource {
            group: format!("group-{number}.example.org").into(),
            version: "v1".into(),
            group_priority: 1000,
            version_priority: 100,
            order: keelson_discovery::SourceOrder::Custom,
            freshness: keelson_discovery::Freshness::Stale,
            resources: Vec::new(),
        })
    };
    let fragments: Vec<_> = (0..3000).map(fragment).collect();
    let shared = keelson_openapi::SharedDefinitions::new(keelson_schema::Schemas::builtin(), &[], "v1");
    let openapi = Descriptions::assemble(&shared, &[]);
    Arc::new(ServedDocuments { discovery: Documents::assemble(&fragments), of_all_servers: None, openapi })
}

#[tokio::test]
async fn large_documents_are_compressed_for_those_who_accept_it() {
    for target in ["/api", "/apis"] {
        let response = get(target, &[("accept", V2), ("accept-encoding", "gzip")]).await;
        assert_eq!(response.headers()["content-encoding"], "gzip", "{target}");
    }
    let documents = many();
    let plain = answer(&documents, "/apis", &[("accept", V2)]).await;
    let compressed = answer(&documents, "/apis", &[("accept", V2), ("accept-encoding", "gzip")]).await;
    assert!(!plain.headers().contains_key("content-encoding"));
    assert_eq!(compressed.headers()["content-encoding"], "gzip");
    assert_eq!(compressed.headers()["content-type"], V2);
    assert_eq!(compressed.headers()["etag"], plain.headers()["etag"]);
    let vary: Vec<_> = compressed.headers().get_all("vary").iter().collect();
    assert_eq!(vary, ["Accept-Encoding", "Accept"]);
    let body = compressed.into_body().collect().await.unwrap().to_bytes();
    let mut unpacked = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&body[..]), &mut unpacked).unwrap();
    assert_eq!(unpacked, text(plain).await);
}

/// Building a large document must not block a thread of the runtime.
#[tokio::test]
async fn others_are_answered_while_a_large_document_is_made() {
    let documents = ServedDocuments::builtin();
    let first = answer(&documents, "/openapi/v2", &[]);
    let meanwhile = async {
        let mut answered = 0;
        while !documents.openapi.is_ready(&keelson_openapi::DocumentId::V2(keelson_openapi::DocumentEncoding::Json)) {
            answered += usize::from(answer(&documents, "/version", &[]).await.status() == 200);
            tokio::task::yield_now().await;
        }
        answered
    };
    let (first, answered) = tokio::join!(first, meanwhile);
    assert_eq!(first.status(), 200);
    assert!(answered > 10, "{answered}");
}
