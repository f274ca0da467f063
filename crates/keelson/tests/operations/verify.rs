//! Tests of `keelson verify`: a server that keeps its promises passes, and each planted fault is found by its rule.
//!
//! The faults are made by a proxy between the command and a server.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use keelson_testkit::{TestServer, check_verified};
use serde_json::{Value, json};
use tokio::net::TcpListener;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Runs the command. Returns its exit code and its output.
async fn verify(args: &[&str]) -> (Option<i32>, String) {
    keelson_testkit::verify(KEELSON, args).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_on_sqlite_keeps_every_rule() {
    let server = TestServer::builder().sqlite().start().await;
    check_verified(KEELSON, server.kubeconfig()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_keeps_every_rule_and_the_run_leaves_nothing() {
    let server = TestServer::start().await;
    let files = tempfile::tempdir().unwrap();
    let (html, junit) = (files.path().join("report.html"), files.path().join("report.xml"));
    let kubeconfig = server.kubeconfig().to_str().unwrap();
    let reports = ["--html", html.to_str().unwrap(), "--junit", junit.to_str().unwrap()];
    let args = [&["--kubeconfig", kubeconfig, "--rate", "2000", "--at-once", "16"][..], &reports[..]].concat();
    let (code, text) = verify(&args).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(!text.contains("BROKEN") && text.contains("kept       workload.linearizable"), "{text}");
    let namespaces = server.raw().get("/api/v1/namespaces").await.expect(200).text();
    assert!(!namespaces.contains("keelson-verify-"), "{namespaces}");
    let (html, junit) = (std::fs::read_to_string(html).unwrap(), std::fs::read_to_string(junit).unwrap());
    assert!(html.contains("lists.chunks.snapshot") && junit.contains("lists.chunks.snapshot"), "{html}{junit}");
    assert!(junit.contains("failures=\"0\""), "{junit}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_run_writes_nothing() {
    let server = TestServer::builder().configure(|config| config.controllers = Default::default()).start().await;
    let version = async || {
        let list = server.raw().get("/api/v1/namespaces?limit=1").await.expect(200).json();
        list["metadata"]["resourceVersion"].clone()
    };
    let before = version().await;
    let (code, text) = verify(&["--kubeconfig", server.kubeconfig().to_str().unwrap(), "--read-only"]).await;
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("kept       discovery.aggregated") && text.contains("skipped    objects.conflict"), "{text}");
    assert_eq!(version().await, before);
    assert_eq!(verify(&["--read-only", "--only", "no-such-rule"]).await.0, Some(1));
}

/// A request on its way to the server, and the answer on its way back.
struct Passing {
    method: Method,
    target: String,
    sent: Value,
    status: u16,
    answer: Value,
    etag: Option<String>,
}

impl Passing {
    fn is_list(&self) -> bool {
        self.answer["items"].is_array()
    }

    fn items(&mut self) -> &mut Vec<Value> {
        self.answer["items"].as_array_mut().unwrap()
    }
}

/// A fault of a server.
#[derive(Clone, Copy)]
enum Fault {
    /// Changes requests before the server sees them.
    Request(fn(&mut Passing)),
    /// Changes answers.
    Answer(fn(&mut Passing)),
    /// The events that the watcher gets in place of each one.
    Event(fn(Value) -> Vec<Value>),
    /// Answers reads of an object with its first state.
    StaleReads,
    /// Acknowledges every fifth create without storing anything.
    LostCreates,
}

/// Faults with the rules that they break.
const FAULTS: [(&str, Fault); 16] = [
    (
        "lists.chunks.whole",
        Fault::Answer(|passing| {
            if passing.is_list() && passing.target.contains("continue=") {
                passing.items().pop();
            }
        }),
    ),
    (
        "lists.chunks.whole",
        Fault::Answer(|passing| {
            if passing.is_list() && passing.target.contains("continue=") {
                let first = passing.items()[0].clone();
                passing.items().push(first);
            }
        }),
    ),
    (
        "lists.chunks.snapshot",
        Fault::Answer(|passing| {
            let is_later = passing.target.contains("continue=") && passing.status == 200;
            if is_later {
                passing.answer["metadata"]["resourceVersion"] = json!("999999");
            }
        }),
    ),
    (
        "lists.chunks.remaining",
        Fault::Answer(|passing| {
            if passing.answer["metadata"]["remainingItemCount"].is_u64() {
                passing.answer["metadata"]["remainingItemCount"] = json!(1);
            }
        }),
    ),
    (
        "lists.exact",
        Fault::Request(|passing| {
            if passing.target.ends_with("resourceVersionMatch=Exact") {
                passing.target = passing.target.split("&resourceVersion=").next().unwrap().to_owned();
            }
        }),
    ),
    ("objects.dry-run", Fault::Request(|passing| passing.target = passing.target.replace("dryRun=All", ""))),
    (
        "objects.conflict",
        Fault::Request(|passing| {
            if passing.method == Method::PUT {
                passing.sent["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            }
        }),
    ),
    (
        "objects.uid",
        Fault::Answer(|passing| {
            if passing.answer["metadata"]["uid"].is_string() {
                passing.answer["metadata"]["uid"] = json!("always");
            }
        }),
    ),
    ("selectors.labels", Fault::Request(|passing| passing.target = passing.target.replace("notin", "in"))),
    (
        "apply.conflict",
        Fault::Request(|passing| {
            passing.target = passing.target.replace("fieldManager=two", "fieldManager=two&force=true");
        }),
    ),
    ("discovery.etag", Fault::Answer(|passing| passing.etag = None)),
    (
        "discovery.aggregated",
        Fault::Answer(|passing| {
            if passing.answer["kind"] == "APIGroupDiscoveryList" {
                passing.answer["items"][0]["versions"][0]["resources"][0]["verbs"] = json!(["get"]);
            }
        }),
    ),
    ("watches.events", Fault::Event(|event| if event["type"] == "MODIFIED" { Vec::new() } else { vec![event] })),
    ("workload.watched", Fault::Event(|event| vec![event.clone(), event])),
    ("workload.watched", Fault::LostCreates),
    ("workload.linearizable", Fault::StaleReads),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_planted_fault_is_found_by_its_rule() {
    let server = Arc::new(TestServer::start().await);
    for (number, (rule, fault)) in FAULTS.into_iter().enumerate() {
        let url = proxy(server.clone(), fault).await;
        let args = [
            "--server",
            &url,
            "--only",
            rule,
            "--rate",
            "2000",
            "--at-once",
            "16",
            "--operations",
            "240",
            "--seed",
            "7",
        ];
        let (code, text) = verify(&args).await;
        let found = format!("BROKEN     {rule} ");
        assert!(code == Some(1) && text.contains(&found), "fault {number} of {rule}:\n{text}");
    }
}

/// Starts a proxy with a fault. Returns its URL.
async fn proxy(server: Arc<TestServer>, fault: Fault) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let seen: Arc<Mutex<HashMap<String, Value>>> = Arc::default();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (server, seen) = (server.clone(), seen.clone());
            let service = service_fn(move |request| {
                let (server, seen) = (server.clone(), seen.clone());
                async move { Ok::<_, Infallible>(pass(&server, fault, &seen, request).await) }
            });
            tokio::spawn(async move {
                // The command may close a connection at any time.
                let _closed =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    url
}

async fn pass(
    server: &TestServer,
    fault: Fault,
    seen: &Mutex<HashMap<String, Value>>,
    request: Request<Incoming>,
) -> Response<Body> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let field = |name| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let mut passing = Passing {
        target: head.uri.path_and_query().unwrap().to_string(),
        method: head.method,
        sent: serde_json::from_slice(&body).unwrap_or_default(),
        status: 0,
        answer: Value::Null,
        etag: None,
    };
    if let Fault::Request(change) = fault {
        change(&mut passing);
    }
    let mut call = server.raw().call(passing.method.clone(), passing.target.clone());
    for name in ["accept", "content-type", "if-none-match"] {
        if let Some(value) = field(name) {
            call = call.header(name, value);
        }
    }
    if !passing.sent.is_null() {
        call = call.body(passing.sent.to_string());
    }
    if passing.target.contains("watch=1") {
        return watched(call.stream().await, fault);
    }
    let is_create = passing.method == Method::POST && passing.target.ends_with("/configmaps");
    if matches!(fault, Fault::LostCreates) && is_create && passing.sent["metadata"]["annotations"].is_object() {
        let mut seen = seen.lock().unwrap();
        let count = seen.entry("creates".to_owned()).or_insert(json!(0));
        *count = json!(count.as_u64().unwrap() + 1);
        if count.as_u64().unwrap().is_multiple_of(5) {
            return answered(201, &passing.sent, None);
        }
    }
    let answer = call.await;
    passing.status = answer.status;
    passing.answer = serde_json::from_slice(&answer.body).unwrap_or_default();
    passing.etag = answer.headers.get(header::ETAG).map(|tag| tag.to_str().unwrap().to_owned());
    if let Fault::Answer(change) = fault {
        change(&mut passing);
    }
    if matches!(fault, Fault::StaleReads) && passing.method == Method::GET && passing.target.contains("/workload-") {
        let mut seen = seen.lock().unwrap();
        if passing.status == 200 {
            passing.answer = seen.entry(passing.target.clone()).or_insert(passing.answer).clone();
        }
    }
    answered(passing.status, &passing.answer, passing.etag)
}

fn answered(status: u16, answer: &Value, etag: Option<String>) -> Response<Body> {
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    if let Some(tag) = etag {
        response = response.header(header::ETAG, tag);
    }
    let bytes = if answer.is_null() { String::new() } else { answer.to_string() };
    response
        .header(header::CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(bytes)).boxed_unsync())
        .unwrap()
}

fn watched(stream: keelson_testkit::Stream, fault: Fault) -> Response<Body> {
    let events = futures::stream::unfold(stream, |mut stream| async move {
        let event = stream.next_json().await?;
        Some((event, stream))
    });
    let changed = events.flat_map(move |event| {
        let events = match fault {
            Fault::Event(change) => change(event),
            _ => vec![event],
        };
        futures::stream::iter(events)
    });
    let frames = changed.map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    Response::new(StreamBody::new(frames).boxed_unsync())
}
