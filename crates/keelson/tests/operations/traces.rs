//! Tests of traces: the spans of a request with their parents, the influence of clients, and collectors that fail.
//!
//! A double of a collector gets the spans of the real binary.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use keelson_testkit::{
    Answer, CollectedSpan, CollectorAnswer, CollectorDouble, HookReply, HookServer, ProcessServer, Raw,
};
use serde_json::json;
use tempfile::TempDir;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";
const MILLION: u32 = 1_000_000;
/// A client's token, whose user may read the version and nothing else.
const TOKEN: &str = "token-of-ann";

/// A server that sends spans to a collector.
struct Traced {
    server: ProcessServer,
    directory: TempDir,
}

fn configuration(directory: &TempDir, endpoint: &str, rate: u32) -> PathBuf {
    let file = directory.path().join("tracing.yaml");
    let content = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: {endpoint}\n\
         samplingRatePerMillion: {rate}\n"
    );
    std::fs::write(&file, content).unwrap();
    file
}

impl Traced {
    async fn start(endpoint: &str, rate: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let file = configuration(&directory, endpoint, rate);
        let tokens = directory.path().join("tokens");
        std::fs::write(&tokens, format!("{TOKEN},ann,1,developers\n")).unwrap();
        let server = ProcessServer::builder(KEELSON).arg("--tracing-config-file").arg(file);
        let server = server.arg("--token-auth-file").arg(tokens).start().await;
        Self { server, directory }
    }

    /// A client that sends the token of a user without rights.
    fn get_as_ann(&self, path: &str) -> keelson_testkit::Call {
        self.server.anonymous().get(path).header("authorization", format!("Bearer {TOKEN}"))
    }
}

fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{SPAN}-{flags}")
}

/// The span of a request with this response.
fn request<'s>(spans: &'s [CollectedSpan], answer: &Answer) -> Option<&'s CollectedSpan> {
    spans.iter().find(|span| span.kind == 2 && span.attributes["audit-id"] == answer.header("audit-id"))
}

/// The only span of this name below another one.
fn below<'s>(spans: &'s [CollectedSpan], parent: &CollectedSpan, name: &str) -> &'s CollectedSpan {
    let found: Vec<_> = spans.iter().filter(|span| span.parent == parent.id && span.name == name).collect();
    let of_trace: Vec<_> = spans.iter().filter(|span| span.trace == parent.trace).collect();
    assert_eq!(found.len(), 1, "{name} below {}: {of_trace:#?}", parent.name);
    assert_eq!(found[0].trace, parent.trace);
    found[0]
}

fn attributes<'s>(span: &'s CollectedSpan, names: &[&str]) -> Vec<&'s str> {
    names.iter().map(|name| span.attributes.get(*name).map_or("", String::as_str)).collect()
}

/// A webhook for config maps, which records the trace contexts of its calls.
async fn webhook(raw: &Raw) -> (HookServer, Arc<Mutex<Vec<String>>>) {
    let contexts = Arc::<Mutex<Vec<String>>>::default();
    let seen = contexts.clone();
    let hook = HookServer::start(&["127.0.0.1"], move |request| {
        let context = request.headers.get("traceparent").map(|value| value.to_str().unwrap().to_owned());
        seen.lock().unwrap().extend(context);
        let response = json!({ "uid": request.body["request"]["uid"], "allowed": true });
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        async move { HookReply::Json(review) }
    })
    .await;
    let configuration = json!({ "metadata": { "name": "traced" }, "webhooks": [{
        "name": "traced.example.org", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": { "url": hook.url("/w"), "caBundle": hook.ca_bundle() },
        "rules": [{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }],
    }] });
    raw.post(format!("{ADMISSION}/validatingwebhookconfigurations"), &configuration).await.expect(201);
    let rules =
        json!([{ "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"] }]);
    let policy = json!({ "metadata": { "name": "checked" }, "spec": {
        "matchConstraints": { "resourceRules": rules }, "validations": [{ "expression": "true" }],
    } });
    let binding =
        json!({ "metadata": { "name": "b" }, "spec": { "policyName": "checked", "validationActions": ["Deny"] } });
    raw.post(format!("{ADMISSION}/validatingadmissionpolicies"), &policy).await.expect(201);
    raw.post(format!("{ADMISSION}/validatingadmissionpolicybindings"), &binding).await.expect(201);
    (hook, contexts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_create_has_the_spans_of_its_way_with_their_parents() {
    let collector = CollectorDouble::start().await;
    let traced = Traced::start(&collector.endpoint(), MILLION).await;
    let raw = traced.server.raw();
    let (_hook, contexts) = webhook(&raw).await;
    // The policy and the webhook count for one of the first writes.
    let mut number = 0;
    let (spans, created) = loop {
        number += 1;
        let map = json!({ "metadata": { "name": format!("m{number}") } });
        let created = raw.post(MAPS, &map).header("traceparent", traceparent("01")).await.expect(201);
        let spans = collector.until(|spans| request(spans, &created).map(|_| spans.to_vec())).await;
        let of_request = request(&spans, &created).unwrap();
        let has = |name: &str| spans.iter().any(|span| span.trace == of_request.trace && span.name == name);
        if has("policy") && has("webhook") {
            break (spans, created);
        }
        assert!(number < 200, "the policy and the webhook do not count");
    };
    // Only the spans of the last write matter.
    let request = request(&spans, &created).unwrap();
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, SPAN));
    assert_eq!(request.name, "POST /api/v1/namespaces/{:namespace}/configmaps");
    assert_eq!(
        attributes(request, &["verb", "resource", "namespace", "user", "http.response.status_code", "http.target"]),
        ["create", "configmaps", "default", "keelson-admin", "201", MAPS]
    );
    assert_eq!((request.resource["service.name"].as_str(), &request.error), ("apiserver", &None));
    for name in ["authentication", "authorization", "flow control", "encoding"] {
        below(&spans, request, name);
    }
    let stored = below(&spans, request, "store transaction");
    assert_eq!(attributes(stored, &["key"]), [format!("/registry/configmaps/default/m{number}")]);
    assert_eq!(attributes(stored, &["revision"]), [created.json()["metadata"]["resourceVersion"].as_str().unwrap()]);
    let plugin = |name: &str, stage: &str| {
        let found = spans
            .iter()
            .find(|span| span.parent == request.id && attributes(span, &["plugin", "stage"]) == [name, stage]);
        found.unwrap_or_else(|| panic!("{name}: {spans:#?}"))
    };
    below(&spans, plugin("ValidatingAdmissionPolicy", "validate"), "policy");
    let webhook = below(&spans, plugin("ValidatingAdmissionWebhook", "validate"), "webhook");
    assert_eq!(
        attributes(webhook, &["configuration", "webhook", "operation", "resource"]),
        ["traced", "traced.example.org", "CREATE", "configmaps"]
    );
    let call = below(&spans, webhook, "outbound call");
    assert_eq!(attributes(call, &["http.request.method", "path", "http.response.status_code"]), ["POST", "/w", "200"]);
    assert_eq!(call.kind, 3);
    let sent = contexts.lock().unwrap().last().cloned();
    assert_eq!(sent, Some(format!("00-{TRACE}-{}-01", call.id)));
    // Steps of controllers are traces of their own.
    collector.until(|spans| spans.iter().find(|span| span.name == "controller step").cloned()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_rate_0_only_an_administrator_has_a_request_recorded() {
    let collector = CollectorDouble::start().await;
    let traced = Traced::start(&collector.endpoint(), 0).await;
    let raw = traced.server.raw();
    raw.get("/api/v1/nodes").await.expect(200);
    raw.get("/api/v1/nodes").header("traceparent", traceparent("00")).await.expect(200);
    traced.get_as_ann("/version").header("traceparent", traceparent("01")).await.expect(200);
    traced.get_as_ann("/api/v1/nodes").header("traceparent", traceparent("01")).await.expect(403);
    traced.server.anonymous().get("/version").header("traceparent", traceparent("01")).await.expect(200);
    let recorded = raw.get("/api/v1/nodes").header("traceparent", traceparent("01")).await.expect(200);
    collector.until(|spans| request(spans, &recorded).cloned()).await;
    let requests: Vec<_> = collector.spans().into_iter().filter(|span| span.kind == 2).collect();
    assert_eq!(requests.len(), 1, "{requests:#?}");
    let traces: BTreeSet<_> = collector.spans().into_iter().map(|span| span.trace).collect();
    assert_eq!(traces, BTreeSet::from([TRACE.to_owned()]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_the_full_rate_clients_without_rights_extend_no_trace() {
    let collector = CollectorDouble::start().await;
    let traced = Traced::start(&collector.endpoint(), MILLION).await;
    for flags in ["00", "01"] {
        let read = traced.get_as_ann("/version").header("traceparent", traceparent(flags)).await.expect(200);
        let span = collector.until(|spans| request(spans, &read).cloned()).await;
        assert_ne!(span.trace, TRACE);
        assert_eq!((span.parent.as_str(), &span.links[..]), ("", &[TRACE.to_owned()][..]));
        assert_eq!(attributes(&span, &["user", "path"]), ["ann", "/version"]);
    }
    let refused = traced.server.anonymous().get("/version").header("authorization", "Bearer wrong").await.expect(401);
    let span = collector.until(|spans| request(spans, &refused).cloned()).await;
    assert_eq!(attributes(&span, &["user", "http.response.status_code"]), ["", "401"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_and_long_trace_contexts_count_as_absent() {
    let collector = CollectorDouble::start().await;
    let traced = Traced::start(&collector.endpoint(), MILLION).await;
    let raw = traced.server.raw();
    let valid = traceparent("01");
    let broken = [
        String::new(),
        "x".repeat(20_000),
        valid.to_uppercase(),
        format!("{valid}-{}", "y".repeat(9_000)),
        valid.replace(SPAN, "0000000000000000"),
        valid.replacen("00", "ff", 1),
        valid[..54].to_owned(),
    ];
    for text in broken {
        let read = raw.get("/version").header("traceparent", text.clone()).await.expect(200);
        let span = collector.until(|spans| request(spans, &read).cloned()).await;
        assert!(span.trace != TRACE && span.parent.is_empty() && span.links.is_empty(), "{text:.60}");
    }
    let twice = raw.get("/version").also_header("traceparent", valid.clone()).also_header("traceparent", valid);
    let read = twice.await.expect(200);
    assert_ne!(collector.until(|spans| request(spans, &read).cloned()).await.trace, TRACE);
    let long =
        raw.get(format!("/version?{}", "q".repeat(5_000))).header("audit-id", "a".repeat(5_000)).await.expect(200);
    let long = long.header("audit-id")[..64].to_owned();
    let span =
        collector.until(|spans| spans.iter().find(|span| attributes(span, &["audit-id"]) == [long.as_str()]).cloned());
    assert_eq!(span.await.attributes["http.target"].len(), 1024);
}

/// The value of a metric.
async fn metric(raw: &Raw, name: &str) -> f64 {
    let page = raw.get("/metrics").await.expect(200);
    let page = String::from_utf8(page.body.to_vec()).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap_or_else(|| panic!("there is no {name}")).trim().parse().unwrap()
}

/// Sends more requests than spans fit into the queue, and checks that they are as fast as ever.
async fn stays_quick(server: &ProcessServer) {
    let raw = server.raw();
    let begun = Instant::now();
    for _ in 0..1_000 {
        raw.get("/api/v1/namespaces/default").await.expect(200);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_collector_affects_no_request() {
    let mut traced = Traced::start("127.0.0.1:1", MILLION).await;
    stays_quick(&traced.server).await;
    let raw = traced.server.raw();
    assert!(metric(&raw, "keelson_trace_spans_dropped_total{reason=\"queue_full\"}").await > 0.0);
    let end = Instant::now() + Duration::from_secs(30);
    while metric(&raw, "keelson_trace_spans_dropped_total{reason=\"export_failed\"}").await == 0.0 {
        assert!(Instant::now() < end);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let lines = traced.server.log().lines().filter(|line| line.contains("spans can't be exported")).count();
    assert_eq!(lines, 1, "{}", traced.server.log());
    assert!(traced.server.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_or_is_slow_hurts_no_request() {
    let collector = CollectorDouble::start().await;
    collector.answer(CollectorAnswer::Hangs);
    let mut traced = Traced::start(&collector.endpoint(), MILLION).await;
    stays_quick(&traced.server).await;
    collector.until(|_| (collector.calls() > 0).then_some(())).await;
    let begun = Instant::now();
    assert!(traced.server.terminate().await.success());
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    collector.answer(CollectorAnswer::TakesAfter(Duration::from_secs(2)));
    traced.server.restart().await;
    stays_quick(&traced.server).await;
    collector.until(|spans| (!spans.is_empty()).then_some(())).await;
    // The last spans are sent at the end of the process.
    collector.answer(CollectorAnswer::Takes);
    let last = traced.server.raw().get("/version").await.expect(200);
    assert!(traced.server.terminate().await.success());
    assert!(request(&collector.spans(), &last).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_refuses_gets_spans_again() {
    let collector = CollectorDouble::start().await;
    collector.answer(CollectorAnswer::Refuses);
    let traced = Traced::start(&collector.endpoint(), MILLION).await;
    collector.until(|_| (collector.calls() > 0).then_some(())).await;
    collector.answer(CollectorAnswer::Takes);
    let read = traced.server.raw().get("/version").await.expect(200);
    collector.until(|spans| request(spans, &read).cloned()).await;
    assert!(traced.directory.path().exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_configuration_is_refused_at_the_start() {
    let directory = TempDir::new().unwrap();
    let refused = async |file: PathBuf, text: &str| {
        let mut started = tokio::process::Command::new(KEELSON);
        started.args(["serve", "--ephemeral", "--bind", "127.0.0.1:0", "--tracing-config-file"]).arg(file);
        let ended = started.stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).output().await.unwrap();
        let error = String::from_utf8(ended.stderr).unwrap();
        assert!(!ended.status.success() && error.contains(text), "{error}");
    };
    refused("/nowhere/x".into(), "tracing-config-file /nowhere/x does not exist").await;
    let file = configuration(&directory, "https://a:1", 1_000_001);
    refused(file.clone(), "samplingRatePerMillion: Invalid value: 1000001").await;
    std::fs::write(&file, "kind: TracingConfiguration\napiVersion: apiserver.config.k8s.io/v1\nrate: 1\n").unwrap();
    refused(file, "strict decoding error: unknown field \"rate\"").await;
}
