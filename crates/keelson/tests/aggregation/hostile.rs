//! Tests of aggregated servers that attack this one with their responses.
//!
//! The servers send headers that only this server sets, endless heads, interim responses, wrong lengths and trailers.
//! Their documents are large, deep or odd.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use http::Response;
use keelson_testkit::{UpstreamBody, UpstreamRequest, upstream_answer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::lab::{Lab, PATIENCE, THINGS};
use crate::{MERGE, SERVICES};

/// Sends a request over a connection of its own, and returns all bytes of the response.
async fn raw_answer(lab: &Lab, path: &str) -> String {
    let mut wire = lab.raw.connect().await;
    let asked = format!("GET {path} HTTP/1.1\r\nhost: a\r\nte: trailers\r\nconnection: close, te\r\n\r\n");
    wire.write_all(asked.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A response that breaks off ends with an error.
    let _ = timeout(PATIENCE, wire.read_to_end(&mut answer)).await.expect("the response ends");
    String::from_utf8_lossy(&answer).to_lowercase()
}

#[tokio::test]
async fn fields_of_this_server_are_not_those_of_another() {
    const FORGED: &str = "audit-id: theirs\r\nset-cookie: a=b\r\nx-kubernetes-pf-flowschema-uid: theirs\r\n\
        x-kubernetes-pf-prioritylevel-uid: theirs\r\nkeelson-cluster: theirs\r\n\
        content-security-policy: theirs\r\nx-content-type-options: theirs\r\ncache-control: theirs\r\n";
    let lab = Lab::raw(|head| {
        if head.contains("/trailers") {
            let warnings: String = (0..90).map(|number| format!("warning: 299 - \"{number} \u{9b}31m\"\r\n")).collect();
            let begun = "HTTP/1.1 200 OK\r\ntrailer: warning\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n";
            format!("{begun}{warnings}{FORGED}\r\n").into_bytes()
        } else {
            format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{FORGED}\r\nok").into_bytes()
        }
    })
    .await;
    for path in ["head", "trailers"] {
        let answer = raw_answer(&lab, &format!("{THINGS}/{path}")).await;
        assert!(!answer.contains("theirs") && !answer.contains("set-cookie"), "{answer}");
        for own in ["audit-id", "x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"] {
            assert_eq!(answer.matches(&format!("\r\n{own}: ")).count(), 1, "{own}: {answer}");
        }
        let warnings = answer.matches("\r\nwarning: ").count();
        assert_eq!(warnings, if path == "trailers" { 64 } else { 0 }, "{answer}");
        assert!(!answer.contains('\u{9b}'), "{answer}");
    }
    let mine = lab.raw.get(format!("{THINGS}/head")).header("audit-id", "mine").await.expect(200);
    assert_eq!(mine.header("audit-id"), "mine");
}

/// Responses that are refused, with the status for the client, and responses whose body breaks off or is cut.
#[tokio::test]
async fn malformed_heads_are_refused_and_bodies_end_where_they_are_said_to() {
    let lab = Lab::raw(|head| {
        let case = head.split_whitespace().nth(1).and_then(|path| path.rsplit('/').next()).unwrap_or_default();
        let fields = |count: usize| (0..count).map(|number| format!("x-{number}: y\r\n")).collect::<String>();
        let answer = match case {
            "two-lengths" => "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 7\r\n\r\n{\"a\":1}".to_owned(),
            "huge-length" => "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n{}".to_owned(),
            "negative-length" => "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}".to_owned(),
            "many-fields" => format!("HTTP/1.1 200 OK\r\n{}\r\n{{}}", fields(100_000)),
            "long-field" => format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n{{}}", "y".repeat(4 << 20)),
            "interim-fields" => format!("HTTP/1.1 103 Early\r\n{}\r\n", fields(100_000)),
            "surplus" => "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\nsmuggled".to_owned(),
            "both" => {
                "HTTP/1.1 200 OK\r\ncontent-length: 900\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
                    .to_owned()
            }
            "interim" => {
                "HTTP/1.1 103 Early\r\nset-cookie: a=b\r\n\r\n".repeat(10_000)
                    + "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
            }
            "trailers" => format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n{}\r\n",
                fields(100_000)
            ),
            "extensions" => format!(
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2;{}\r\n{{}}\r\n0\r\n\r\n",
                "e".repeat(1 << 20)
            ),
            _ => "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_owned(),
        };
        answer.into_bytes()
    })
    .await;
    for case in ["two-lengths", "huge-length", "negative-length", "many-fields", "long-field", "interim-fields"] {
        let answer = raw_answer(&lab, &format!("{THINGS}/{case}")).await;
        assert!(answer.starts_with("http/1.1 503 ") && answer.len() < 4096, "{case}: {answer}");
    }
    for case in ["surplus", "both", "interim"] {
        let answer = raw_answer(&lab, &format!("{THINGS}/{case}")).await;
        assert!(answer.starts_with("http/1.1 200 ") && answer.len() < 4096, "{case}: {answer}");
        assert!(answer.contains("{}") && !answer.contains("smuggled") && !answer.contains("set-cookie"), "{answer}");
    }
    for case in ["trailers", "extensions", "short"] {
        let answer = raw_answer(&lab, &format!("{THINGS}/{case}")).await;
        assert!(answer.len() < 4096 && !answer.ends_with("0\r\n\r\n"), "{case}: {answer}");
    }
    lab.raw.get("/readyz").await.expect(200);
}

/// A document of discovery with these resources.
fn discovered(resources: &Value) -> String {
    let versions = json!([{ "version": "v1", "resources": resources, "freshness": "Current" }]);
    let items = json!([{ "metadata": { "name": "px.example.org" }, "versions": versions }]);
    json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "items": items }).to_string()
}

fn resource(name: &str) -> Value {
    let kind = json!({ "group": "px.example.org", "version": "v1", "kind": "Thing" });
    let verbs = ["get", "list", "watch", "delete", "patch"];
    json!({ "resource": name, "responseKind": kind, "scope": "Namespaced", "singularResource": "", "verbs": verbs })
}

/// A deep JSON text.
fn nested(depth: usize) -> String {
    format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth))
}

/// A document, by path, for each attack.
fn document(case: &str, path: &str) -> Option<String> {
    let reference = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
    let operation = |schema: Value| json!({ "get": { "responses": { "200": { "schema": schema } } } });
    let index = |url: &str| json!({ "paths": { "apis/px.example.org/v1": { "serverRelativeURL": url } } }).to_string();
    let swagger = |schema: Value, definitions: Value| {
        let paths = json!({ "/apis/px.example.org/v1/things": operation(schema) });
        json!({ "swagger": "2.0", "paths": paths, "definitions": definitions }).to_string()
    };
    match (case, path) {
        ("many", "/apis") => Some(discovered(&(0..30_000).map(|number| resource(&format!("r{number}"))).collect())),
        ("odd", "/apis") => {
            let long = "x".repeat(1 << 20);
            let names = ["a/b", "", "..", "a/../../b", "\u{1b}[31m", "x?y=z", "%2e%2e", "\u{202e}", &long];
            Some(discovered(&names.iter().map(|name| resource(name)).collect()))
        }
        ("deepest", "/apis") => Some(nested(500)),
        ("empty", "/apis") => {
            let items = vec!["{}"; 1_000_000].join(",");
            Some(format!("{{\"kind\":\"APIGroupDiscoveryList\",\"items\":[{items}]}}"))
        }
        ("kind", "/apis") => Some(json!({ "kind": "k".repeat(4 << 20) }).to_string()),
        ("yaml", "/apis") => Some("- b: \"c\"\n".repeat(500_000)),
        ("url", "/openapi/v3") => Some(index(&format!("/openapi/v3/{}", "u".repeat(8 << 20)))),
        ("lines", "/openapi/v3") => Some(index("/openapi/v3/a\r\nx-remote-user: root\r\n")),
        ("loop", "/openapi/v2") => Some(swagger(reference("a"), json!({ "a": reference("b"), "b": reference("a") }))),
        ("chain", "/openapi/v2") => {
            let next = |number: usize| (format!("d{number}"), reference(&format!("d{}", number + 1)));
            Some(swagger(reference("d0"), Value::Object((0..50_000).map(next).collect())))
        }
        ("tree", "/openapi/v2") => Some(swagger(serde_json::from_str(&nested(100)).unwrap(), json!({}))),
        (_, "/apis") => Some(discovered(&json!([resource("things")]))),
        _ => None,
    }
}

const CASES: [&str; 11] = ["many", "odd", "deepest", "empty", "kind", "yaml", "url", "lines", "loop", "chain", "tree"];

/// The server requests documents after each change of an APIService. Others get answers meanwhile, and the documents of
/// this server stay usable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_of_any_size_depth_and_text_block_no_others() {
    let case = Arc::new(Mutex::new(""));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (current, noted) = (case.clone(), asked.clone());
    let lab = Lab::start(move |request: UpstreamRequest| {
        let case = *current.lock().unwrap();
        let path = request.uri().path().to_owned();
        noted.lock().unwrap().push((case, path.clone()));
        async move { answered(case, &path) }
    })
    .await;
    let mut worst = Duration::ZERO;
    for (number, attack) in CASES.into_iter().enumerate() {
        *case.lock().unwrap() = attack;
        asked.lock().unwrap().clear();
        let changed = json!({ "spec": { "versionPriority": 20 + number } });
        let service = format!("{SERVICES}/v1.px.example.org");
        lab.raw.patch(service, MERGE, &changed).await.expect(200);
        // The document of OpenAPI 2 is requested last.
        let until = Instant::now() + PATIENCE;
        while !asked.lock().unwrap().contains(&(attack, "/openapi/v2".to_owned())) {
            assert!(Instant::now() < until, "{attack}: no request of documents: {:?}", asked.lock().unwrap());
            let begun = Instant::now();
            lab.raw.get("/api/v1/namespaces/agg").await.expect(200);
            worst = worst.max(begun.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        let all = lab.raw.get("/apis").header("accept", accept).await.expect(200).json();
        assert!(all["items"].as_array().unwrap().iter().any(|group| group["metadata"]["name"] == "apps"), "{attack}");
        let openapi = lab.raw.get("/openapi/v2").await.expect(200).json();
        assert!(openapi["paths"]["/api/v1/pods"].is_object(), "{attack}");
        lab.raw.get("/openapi/v3/apis/apps/v1").await.expect(200);
        lab.raw.get("/livez").await.expect(200);
    }
    assert!(worst < Duration::from_secs(2), "another request took {worst:?}");
    // A request with forged fields would have had another path.
    assert!(asked.lock().unwrap().iter().all(|(_, path)| !path.contains("x-remote-user")));
}

fn answered(case: &str, path: &str) -> Response<UpstreamBody> {
    let kind = if path == "/apis" {
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    } else {
        "application/json"
    };
    match (document(case, path), path) {
        (Some(document), _) => upstream_answer(200, kind, document),
        (None, "/openapi/v3" | "/openapi/v2") => upstream_answer(404, "text/plain", "none"),
        (None, _) => upstream_answer(200, "application/json", "{}"),
    }
}
