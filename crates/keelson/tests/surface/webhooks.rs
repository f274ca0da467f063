//! Tests of conversion webhooks that are real servers: the requests to them, valid and invalid responses, and the
//! requests that a slow, hanging or missing webhook delays. The texts are those of kube-apiserver.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keelson_meta::json::to_value;
use keelson_meta::random::SystemRandom;
use keelson_outbound::{ClusterServices, ConversionWebhook, Proxy, ServiceRoutes, Services as _};
use keelson_registry::ResourceRegistration;
use keelson_testkit::{HookReply, HookRequest, HookServer, Raw, TestServer};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{GROUP, resource};

const STORED: &str = "/apis/harbour.example.org/v1/namespaces/default/berths";
const OTHER: &str = "/apis/harbour.example.org/v2/namespaces/default/berths";
const DEFINITION: &str = "berths.harbour.example.org";

/// The behaviour of the webhook.
#[derive(Clone, Default)]
enum Mood {
    #[default]
    Willing,
    /// Sends this response to every request.
    Answers(HookReply),
    /// Changes the correct response before it sends it.
    Lies(ResponseChange),
}

/// A change of a correct response.
type ResponseChange = fn(&mut Value);

#[derive(Default)]
struct Pilot {
    mood: Mutex<Mood>,
    requests: Mutex<Vec<HookRequest>>,
}

impl Pilot {
    fn be(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    fn take_requests(&self) -> Vec<HookRequest> {
        std::mem::take(&mut *self.requests.lock().unwrap())
    }

    fn answer(&self, request: HookRequest) -> HookReply {
        let mut review = reviewed(&request.body);
        self.requests.lock().unwrap().push(request);
        match self.mood.lock().unwrap().clone() {
            Mood::Willing => HookReply::Json(review),
            Mood::Answers(reply) => reply,
            Mood::Lies(change) => {
                change(&mut review);
                HookReply::Json(review)
            }
        }
    }
}

/// A review with converted objects.
fn reviewed(review: &Value) -> Value {
    let request = &review["request"];
    let objects: Vec<Value> =
        request["objects"].as_array().unwrap().iter().map(|object| moored(object, request)).collect();
    let success = json!({ "status": "Success" });
    let response = json!({ "uid": request["uid"], "convertedObjects": objects, "result": success });
    json!({ "kind": review["kind"], "apiVersion": review["apiVersion"], "response": response })
}

fn moored(object: &Value, request: &Value) -> Value {
    let mut moored = object.clone();
    moored["apiVersion"] = request["desiredAPIVersion"].clone();
    let spec = &object["spec"];
    moored["spec"] = if moored["apiVersion"].as_str().unwrap().ends_with("v2") {
        json!({ "address": format!("{}:{}", spec["host"].as_str().unwrap_or_default(), spec["port"]) })
    } else {
        let (host, port) = spec["address"].as_str().unwrap_or_default().split_once(':').unwrap_or(("", "0"));
        json!({ "host": host, "port": port.parse::<u16>().unwrap() })
    };
    moored
}

struct Harbour {
    server: TestServer,
    raw: Raw,
    hook: HookServer,
    pilot: Arc<Pilot>,
}

impl Harbour {
    async fn open() -> Self {
        let server = TestServer::start().await;
        let pilot = Arc::new(Pilot::default());
        let hook = HookServer::start(&["127.0.0.1"], {
            let pilot = pilot.clone();
            move |request| std::future::ready(pilot.answer(request))
        })
        .await;
        let raw = server.raw().http2();
        let harbour = Self { server, raw, hook, pilot };
        harbour
            .convert_by(json!({ "url": harbour.hook.url("/convert"), "caBundle": harbour.hook.ca_bundle() }), "v1")
            .await;
        harbour
    }

    /// Sets another webhook as the converter.
    async fn convert_by(&self, client_config: Value, reviews: &str) {
        let conversion = json!({
            "strategy": "Webhook",
            "webhook": { "clientConfig": client_config, "conversionReviewVersions": [reviews] },
        });
        let conversion = to_value(&conversion).unwrap();
        let outbound = self.server.running().outbound();
        let webhook = ConversionWebhook::from_conversion(outbound, DEFINITION, &conversion).unwrap();
        let berths = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"])).converted_by(&webhook);
        self.server.running().registry().surfaces().put(vec![berths]).await.expect("it can be served");
    }

    async fn store(&self, name: &str, port: usize) -> Value {
        let object = json!({ "metadata": { "name": name }, "spec": { "host": "h", "port": port } });
        self.raw.post(STORED, &object).await.expect(201).json()
    }

    /// The error for an object that can't be read in the other version.
    async fn refusal(&self, name: &str) -> String {
        let status = self.raw.get(format!("{OTHER}/{name}")).await.expect(500).json();
        assert_eq!(status["reason"], Value::Null, "{status}");
        let message = status["message"].as_str().unwrap();
        let head = format!("conversion webhook for {GROUP}/v1, Kind=Berth ");
        message.strip_prefix(&head).unwrap_or_else(|| panic!("{message}")).to_owned()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_is_sent_reviews_as_upstream_sends_them() {
    let harbour = Harbour::open().await;
    let Harbour { raw, pilot, .. } = &harbour;
    let stored = harbour.store("a", 80).await;
    assert!(pilot.take_requests().is_empty(), "nobody is asked for the version that is stored");
    let shown = raw.get(format!("{OTHER}/a")).await.expect(200).json();
    assert_eq!(shown["spec"], json!({ "address": "h:80" }));
    let requests = pilot.take_requests();
    let [request] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(request.path, "/convert?timeout=30s");
    let header = |name: &str| request.headers[name].to_str().unwrap();
    assert_eq!((header("accept"), header("content-type")), ("application/json, */*", "application/json"));
    let uid = request.body["request"]["uid"].as_str().unwrap();
    let mut object = stored.clone();
    object["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let expected = json!({
        "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
        "request": { "uid": uid, "desiredAPIVersion": format!("{GROUP}/v2"), "objects": [object] },
        "response": { "uid": "", "convertedObjects": null, "result": { "metadata": {} } },
    });
    assert_eq!(request.body, expected);
    assert_eq!(uid.len(), 36);

    let made = json!({ "metadata": { "name": "b" }, "spec": { "address": "h2:90" } });
    raw.post(OTHER, &made).await.expect(201);
    assert_eq!(raw.get(format!("{STORED}/b")).await.expect(200).json()["spec"], json!({ "host": "h2", "port": 90 }));
    for number in 0..20 {
        harbour.store(&format!("c{number}"), number).await;
    }
    pilot.take_requests();
    let list = raw.get(OTHER).await.expect(200).json();
    assert_eq!(list["items"].as_array().unwrap().len(), 22);
    assert_eq!(list["items"][1]["spec"]["address"], "h2:90");
    assert_eq!(pilot.take_requests().len(), 1, "one review for a page");
    assert_eq!(harbour.hook.connections(), 1, "connections are kept");

    let older = json!({ "url": harbour.hook.url("/convert"), "caBundle": harbour.hook.ca_bundle() });
    harbour.convert_by(older, "v1beta1").await;
    pilot.be(Mood::Lies(|review| review["response"]["uid"] = json!("other")));
    assert_eq!(raw.get(format!("{OTHER}/a")).await.expect(200).json()["spec"]["address"], "h:80");
    assert_eq!(pilot.take_requests()[0].body["apiVersion"], "apiextensions.k8s.io/v1beta1");

    let metrics = raw.get("/metrics").await.expect(200).text();
    let count = format!(
        "apiserver_crd_conversion_webhook_duration_seconds_count{{crd_name=\"{DEFINITION}\",from_version=\"v1\""
    );
    assert!(metrics.lines().any(|line| line.starts_with(&count)), "{metrics}");
    assert!(metrics.contains("apiserver_conversion_webhook_request_total{result=\"success\",failure_type=\"\"}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_responses_get_upstream_errors() {
    let harbour = Harbour::open().await;
    harbour.store("f", 1).await;
    let with_type = |code, media: &str, body: &str| {
        Mood::Answers(HookReply::Other(code, vec![("content-type", media.to_owned())], body.to_owned()))
    };
    let text = |code, body: &str| with_type(code, "text/plain", body);
    let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"I am broken"}"#;
    let into = r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let not_json = format!(
        "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type {into}"
    );
    let kind = "no kind \"AdmissionReview\" is registered for version \"apiextensions.k8s.io/v1\" in scheme \
                \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"";
    let unnamed = "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=";
    let older = "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion";
    let empty = "0-length response with status code: 200 and content type: application/json";
    for (mood, expected) in [
        (with_type(500, "application/json", status), "I am broken"),
        (text(500, "broken"), "an error on the server (\"broken\") has prevented the request from succeeding"),
        (text(404, "gone"), "the server could not find the requested resource"),
        (text(403, "no"), "no"),
        (text(200, "hello there"), &not_json),
        (with_type(200, "application/json", "{}"), unnamed),
        (Mood::Answers(HookReply::Other(200, vec![], String::new())), empty),
        (Mood::Lies(|review| review["response"] = Value::Null), "no response provided"),
        (Mood::Lies(|review| review["kind"] = json!("AdmissionReview")), kind),
        (Mood::Lies(|review| review["apiVersion"] = json!("apiextensions.k8s.io/v1beta1")), older),
        (Mood::Lies(|review| review["response"]["result"] = json!({ "status": "Failure", "message": "odd" })), "odd"),
        (
            Mood::Lies(|review| review["response"]["result"] = json!({ "status": "Failure" })),
            "response.result.status was 'Failure', not 'Success'",
        ),
        (
            Mood::Lies(|review| review["response"]["result"] = Value::Null),
            "response.result.status was '', not 'Success'",
        ),
    ] {
        harbour.pilot.be(mood);
        assert_eq!(harbour.refusal("f").await, format!("failed: {expected}"));
    }
    for uid in ["other", ""] {
        harbour.pilot.be(match uid {
            "" => Mood::Lies(|review| review["response"]["uid"] = Value::Null),
            _ => Mood::Lies(|review| review["response"]["uid"] = json!("other")),
        });
        let told = harbour.refusal("f").await;
        let sent = harbour.pilot.take_requests().pop().unwrap().body["request"]["uid"].as_str().unwrap().to_owned();
        assert_eq!(told, format!("failed: expected response.uid={sent:?}, got {uid:?}"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_are_not_those_requested_are_reported_as_upstream_does() {
    let harbour = Harbour::open().await;
    let stored = harbour.store("f", 1).await;
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    let label = "invalid metadata: metadata.labels: Invalid value: \"a b\": name part must consist of alphanumeric \
                 characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or \
                 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let group = format!("invalid object at index 0: invalid groupVersion (expected {GROUP}/v2, received {GROUP}/v1)");
    let same_uid = format!("invalid object: must have the same UID: {uid} != other");
    let cases: [(ResponseChange, &str); 10] = [
        (|review| converted(review).clear(), "0 objects, expected 1"),
        (
            |review| {
                let first = converted(review)[0].clone();
                converted(review).push(first);
            },
            "2 objects, expected 1",
        ),
        (|review| converted(review)[0]["apiVersion"] = json!("harbour.example.org/v1"), &group),
        (
            |review| converted(review)[0]["kind"] = json!("Other"),
            "invalid object at index 0: invalid kind (expected Berth, received Other)",
        ),
        (
            |review| converted(review)[0]["metadata"]["name"] = json!("other"),
            "invalid object: must have the same name: f != other",
        ),
        (
            |review| converted(review)[0]["metadata"]["namespace"] = json!("other"),
            "invalid object: must have the same namespace: default != other",
        ),
        (|review| converted(review)[0]["metadata"]["uid"] = json!("other"), &same_uid),
        (|review| converted(review)[0]["metadata"] = Value::Null, "invalid object: must have the same name: f != "),
        (|review| converted(review)[0]["metadata"]["labels"] = json!({ "a b": "x" }), label),
        (
            |review| converted(review)[0]["metadata"]["labels"] = json!([]),
            "invalid metadata: invalid metadata.labels of type []interface {} in converted object",
        ),
    ];
    for (lie, expected) in cases {
        harbour.pilot.be(Mood::Lies(lie));
        assert_eq!(harbour.refusal("f").await, format!("returned {expected}"));
    }
    // A response that is far too large is not parsed, wherever its excess is.
    harbour.pilot.be(Mood::Lies(|review| converted(review).resize(100_000, json!({}))));
    assert_eq!(harbour.refusal("f").await, "returned 100000 objects, expected 1");
    harbour.pilot.be(Mood::Lies(|review| review["other"] = json!(vec![json!({}); 3_000_000])));
    let refusal = harbour.refusal("f").await;
    assert!(refusal.starts_with("returned 9000") && refusal.ends_with(" bytes, expected 8388608 at most"), "{refusal}");
    harbour.pilot.be(Mood::Lies(|review| {
        let metadata = &mut converted(review)[0]["metadata"];
        metadata["labels"] = json!({ "by": "hook" });
        metadata["generation"] = json!(99);
    }));
    let shown = harbour.raw.get(format!("{OTHER}/f")).await.expect(200).json();
    assert_eq!((&shown["metadata"]["labels"]["by"], &shown["metadata"]["generation"]), (&json!("hook"), &json!(1)));
}

fn converted(review: &mut Value) -> &mut Vec<Value> {
    review["response"]["convertedObjects"].as_array_mut().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_breaks_off_or_leads_away_is_reported() {
    let harbour = Harbour::open().await;
    harbour.store("f", 1).await;
    let url = format!("{}?timeout=30s", harbour.hook.url("/convert"));
    harbour.pilot.be(Mood::Answers(HookReply::Closes));
    assert_eq!(harbour.refusal("f").await, format!("failed: Post {url:?}: EOF"));
    harbour.pilot.be(Mood::Answers(HookReply::DiesInTheMiddle));
    let unread = "failed: unexpected error when reading response body. Please retry. Original error:";
    assert_eq!(harbour.refusal("f").await, format!("{unread} unexpected EOF"));
    harbour.pilot.be(Mood::Answers(HookReply::Endless));
    assert_eq!(harbour.refusal("f").await, format!("{unread} the answer is longer than 33554432 bytes"));

    let visited = Arc::new(AtomicBool::new(false));
    let elsewhere = HookServer::start(&["127.0.0.1"], {
        let visited = visited.clone();
        move |_| {
            visited.store(true, Ordering::SeqCst);
            std::future::ready(HookReply::Json(Value::Null))
        }
    })
    .await;
    harbour.pilot.be(Mood::Answers(HookReply::Other(307, vec![("location", elsewhere.url("/x"))], String::new())));
    let message = "failed: the server responded with the status code 307 but did not return more information";
    assert_eq!(harbour.refusal("f").await, message);
    assert!(!visited.load(Ordering::SeqCst), "nobody is sent objects whom the definition does not name");

    // A webhook whose response has Retry-After is called again.
    let asked = Arc::new(AtomicBool::new(false));
    let busy = HookServer::start(&["127.0.0.1"], move |request: HookRequest| {
        let first = !asked.swap(true, Ordering::SeqCst);
        let busy = HookReply::Other(429, vec![("retry-after", "0".to_owned())], String::new());
        std::future::ready(if first { busy } else { HookReply::Json(reviewed(&request.body)) })
    })
    .await;
    harbour.convert_by(json!({ "url": busy.url("/convert"), "caBundle": busy.ca_bundle() }), "v1").await;
    harbour.raw.get(format!("{OTHER}/f")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conversion_webhook_failures_have_upstream_errors() {
    let harbour = Harbour::open().await;
    harbour.store("f", 1).await;
    let willing = |request: HookRequest| std::future::ready(HookReply::Json(reviewed(&request.body)));
    let other = HookServer::start(&["other.example.org", "10.0.0.1"], willing).await;
    let nameless = HookServer::start(&["other.example.org"], willing).await;
    let mut old = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    old.not_before = rcgen::date_time_ymd(2020, 1, 1);
    old.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let old = HookServer::with_certificate(old, willing).await;
    // A self-signed certificate that may sign others, as `openssl req -x509` makes it.
    let mut own = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    own.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let own = HookServer::with_certificate(own, willing).await;
    let (url, ca) = (harbour.hook.url("/convert"), harbour.hook.ca_bundle());
    let post = |url: &str| format!("failed: Post \"{url}?timeout=30s\":");
    let x509 = "tls: failed to verify certificate: x509:";
    let closed = {
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.local_addr().unwrap()
    };
    for (config, expected) in [
        (
            json!({ "url": &url, "caBundle": other.ca_bundle() }),
            format!("{} {x509} certificate signed by unknown authority", post(&url)),
        ),
        (json!({ "url": &url }), format!("{} {x509} certificate signed by unknown authority", post(&url))),
        (
            json!({ "url": own.url("/convert"), "caBundle": &ca }),
            format!("{} {x509} certificate signed by unknown authority", post(&own.url("/convert"))),
        ),
        (
            json!({ "url": nameless.url("/convert"), "caBundle": nameless.ca_bundle() }),
            format!(
                "{} {x509} cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs",
                post(&nameless.url("/convert"))
            ),
        ),
        (
            json!({ "url": other.url("/convert"), "caBundle": other.ca_bundle() }),
            format!("{} {x509} certificate is valid for 10.0.0.1, not 127.0.0.1", post(&other.url("/convert"))),
        ),
        (
            json!({ "url": format!("https://{closed}/convert"), "caBundle": &ca }),
            format!("{} dial tcp {closed}: connect: connection refused", post(&format!("https://{closed}/convert"))),
        ),
        (
            json!({ "service": { "namespace": "default", "name": "nope", "path": "/c" }, "caBundle": &ca }),
            "failed: Post \"https://nope.default.svc:443/c?timeout=30s\": service \"nope\" not found".to_owned(),
        ),
        (
            json!({ "url": &url, "caBundle": "bm9wZQ==" }),
            format!("{} unable to load root certificates: unable to parse bytes as PEM block", post(&url)),
        ),
    ] {
        harbour.convert_by(config, "v1").await;
        assert_eq!(harbour.refusal("f").await, expected);
    }
    harbour.convert_by(json!({ "url": old.url("/convert"), "caBundle": old.ca_bundle() }), "v1").await;
    let told = harbour.refusal("f").await;
    assert!(told.contains("x509: certificate has expired or is not yet valid: current time "), "{told}");
    assert!(told.ends_with(" is after 2021-01-01T00:00:00Z"), "{told}");
    assert_eq!(harbour.raw.get(STORED).await.expect(200).json()["items"].as_array().unwrap().len(), 1);

    // A webhook that has recovered is called at once.
    harbour.convert_by(json!({ "url": &url, "caBundle": &ca }), "v1").await;
    harbour.raw.get(format!("{OTHER}/f")).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_conversion_webhook_delays_only_conversions() {
    let harbour = Harbour::open().await;
    let Harbour { raw, pilot, .. } = &harbour;
    for number in 0..3 {
        harbour.store(&format!("b{number}"), number).await;
    }
    pilot.be(Mood::Answers(HookReply::Hangs));
    let waits = tokio::spawn({
        let raw = raw.clone();
        async move { raw.get(format!("{OTHER}?timeout=20s")).await.status }
    });
    while pilot.requests.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(raw.get(STORED).await.expect(200).json()["items"].as_array().unwrap().len(), 3);
    let patch = json!({ "spec": { "port": 7 } });
    raw.patch(format!("{STORED}/b1"), "application/merge-patch+json", &patch).await.expect(200);
    raw.get("/readyz").await.expect(200);
    raw.get(format!("{OTHER}/b0?timeout=1s")).await.expect(504);
    pilot.be(Mood::Answers(HookReply::Drips(Duration::from_millis(1))));
    raw.get(format!("{OTHER}/b2?timeout=1s")).await.expect(504);
    raw.get("/api/v1/pods").await.expect(200);
    // The tail continues, and its events appear in the storage version.
    harbour.store("b3", 3).await;
    let mut watch = raw.get(format!("{STORED}?watch=1&resourceVersion=0")).stream().await;
    assert_eq!(watch.next_json().await.unwrap()["type"], "ADDED");
    assert!(!waits.is_finished(), "who asked is still waiting");
    waits.abort();
    pilot.be(Mood::Answers(HookReply::After(Duration::from_millis(50), Box::new(HookReply::Closes))));
    assert!(harbour.refusal("b0").await.ends_with(": EOF"));
    pilot.be(Mood::Willing);
    assert_eq!(raw.get(format!("{OTHER}/b1")).await.expect(200).json()["spec"]["address"], "h:7");
}

/// A proxy that forwards all connections to one address, and records them.
async fn proxy_to(addr: std::net::SocketAddr, asked: Arc<Mutex<Vec<String>>>) -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let line = String::from_utf8_lossy(&head).lines().next().unwrap().to_owned();
            let refused = line.contains("refused");
            asked.lock().unwrap().push(line);
            let answer = if refused { "403 Forbidden" } else { "200 OK" };
            client.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await.unwrap();
            if !refused {
                let mut server = tokio::net::TcpStream::connect(addr).await.unwrap();
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
            }
        }
    });
    proxy
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_is_used_where_that_is_requested() {
    let hook = HookServer::start(&["hook.example.org"], |request: HookRequest| {
        std::future::ready(HookReply::Json(reviewed(&request.body)))
    })
    .await;
    let asked = Arc::default();
    let proxy = proxy_to(hook.addr(), Arc::clone(&asked)).await;
    let proxy = Proxy::parse(&format!("http://{proxy}"), "direct.invalid").unwrap();
    let server = TestServer::builder().configure(|config| config.proxy = Some(proxy)).start().await;
    let (raw, pilot, ca) = (server.raw(), Arc::default(), hook.ca_bundle());
    let harbour = Harbour { server, raw, hook, pilot };
    harbour.convert_by(json!({ "url": "https://hook.example.org/convert", "caBundle": &ca }), "v1").await;
    harbour.store("f", 1).await;
    assert_eq!(harbour.raw.get(format!("{OTHER}/f")).await.expect(200).json()["spec"]["address"], "h:1");
    assert_eq!(*asked.lock().unwrap(), ["CONNECT hook.example.org:443 HTTP/1.1"]);
    for (host, why) in [("refused.example.org", "Forbidden"), ("direct.invalid", "dial tcp: lookup direct.invalid: ")] {
        harbour.convert_by(json!({ "url": format!("https://{host}/c"), "caBundle": &ca }), "v1").await;
        let told = harbour.refusal("f").await;
        assert!(told.starts_with(&format!("failed: Post \"https://{host}/c?timeout=30s\": {why}")), "{told}");
    }
    assert_eq!(asked.lock().unwrap().len(), 2, "who is excepted is called without the proxy");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn service_webhooks_are_resolved_by_endpoint_slices_or_routes() {
    let hook = HookServer::start(&["hook.default.svc"], |request: HookRequest| {
        std::future::ready(HookReply::Json(reviewed(&request.body)))
    })
    .await;
    let route = format!("default/hook={}", hook.url("")).parse().unwrap();
    let server = TestServer::builder().configure(|config| config.service_routes = [route].into_iter().collect());
    let (server, pilot) = (server.start().await, Arc::default());
    let raw = server.raw();
    let harbour = Harbour { server, raw, hook, pilot };
    let service = json!({ "namespace": "default", "name": "hook", "path": "/convert", "port": 8443 });
    harbour.convert_by(json!({ "service": service, "caBundle": harbour.hook.ca_bundle() }), "v1").await;
    harbour.store("f", 1).await;
    assert_eq!(harbour.raw.get(format!("{OTHER}/f")).await.expect(200).json()["spec"]["address"], "h:1");

    let registry = harbour.server.running().registry();
    let services = ClusterServices::new(registry, ServiceRoutes::default(), Arc::new(SystemRandom));
    let found = |name: &str, port| services.addresses("default", name, port);
    let make = async |kind: &str, object: Value| {
        harbour
            .raw
            .post(
                format!("{kind}/namespaces/default/{}", object["kind"].as_str().unwrap().to_lowercase() + "s"),
                &object,
            )
            .await
            .expect(201)
    };
    let ports = json!([{ "name": "https", "port": 443, "targetPort": 9443 }]);
    make("/api/v1", json!({ "kind": "Service", "metadata": { "name": "web" }, "spec": { "ports": ports } })).await;
    let external = json!({ "type": "ExternalName", "externalName": "example.org" });
    make("/api/v1", json!({ "kind": "Service", "metadata": { "name": "ext" }, "spec": external })).await;
    // The cache has the objects when a list shows them.
    harbour.raw.get("/api/v1/services").await.expect(200);
    assert_eq!(found("nope", 443), Err("service \"nope\" not found".to_owned()));
    assert_eq!(found("web", 99), Err("no service port 99 found for service \"web\"".to_owned()));
    assert_eq!(found("web", 443), Err("no endpoints available for service \"web\"".to_owned()));
    assert_eq!(found("ext", 443), Ok(vec![("example.org".to_owned(), 443)]));
    let slice = json!({
        "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "name": "web-1", "labels": { "kubernetes.io/service-name": "web" } },
        "ports": [{ "name": "other", "port": 1 }, { "name": "https", "port": 9443 }],
        "endpoints": [
            { "addresses": ["10.1.0.1"], "conditions": { "ready": false } },
            { "addresses": ["10.1.0.2"], "conditions": { "ready": true } },
            { "addresses": ["10.1.0.3"] },
        ],
    });
    make("/apis/discovery.k8s.io/v1", slice).await;
    harbour.raw.get("/apis/discovery.k8s.io/v1/endpointslices").await.expect(200);
    let mut both = found("web", 443).unwrap();
    both.sort();
    assert_eq!(both, [("10.1.0.2".to_owned(), 9443), ("10.1.0.3".to_owned(), 9443)]);
}
