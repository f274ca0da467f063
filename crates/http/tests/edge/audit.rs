//! Audit of failed requests, and the id that finds a request in the events.
//!
//! Tests of whole servers cover successful requests.

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, pending, ready};
use keelson_access::audit::{AuditCounts, AuditEvent, AuditMode, Auditor, Backend, Batching, Policy, Sink};
use keelson_codec::json::parse;
use keelson_http::body::MAX_REQUEST_BYTES;
use keelson_http::listener::Limits;
use keelson_meta::SystemClock;
use keelson_meta::json::{Value, json};
use tokio::sync::mpsc;

use crate::BOTH;
use crate::client::{Credentials, Protocol, Server, Setup, soon};

const MAPS: &str = "/api/v1/namespaces/a/configmaps";
const PANICKING: &str = "/api/v1/namespaces/panic/configmaps/x";

/// A sink that sends each event over a channel.
struct Telling(mpsc::UnboundedSender<Value>);

impl Sink for Telling {
    fn name(&self) -> &'static str {
        "log"
    }

    fn frame(&self) -> [&'static [u8]; 3] {
        [b"", b"", b""]
    }

    fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>) {
        event.write_json(true, out);
    }

    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
        let told = self.0.send(parse(&batch).unwrap().value);
        Box::pin(ready(told.map_err(|error| error.to_string())))
    }
}

/// An auditor of all requests, and its events.
fn auditor() -> (Arc<Auditor>, mpsc::UnboundedReceiver<Value>) {
    let (sender, told) = mpsc::unbounded_channel();
    let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
    let counts = Arc::new(AuditCounts::default());
    let batching = Batching { buffer: 100, most: 1, wait: Duration::ZERO, throttle: None, at_once: 1 };
    let (backend, worker) = Backend::new(AuditMode::Batch, batching, None, Arc::new(Telling(sender)), counts.clone());
    tokio::spawn(worker.run(pending()));
    (Arc::new(Auditor::new(Policy::parse(&policy).unwrap(), vec![backend], counts, Arc::new(SystemClock))), told)
}

#[tokio::test]
async fn a_panic_is_a_stage_of_its_own_and_the_last_one() {
    let (auditor, mut told) = auditor();
    let server = Server::start_with(Setup { auditor: Some(auditor), ..Setup::default() }).await;
    for protocol in BOTH {
        let mut client = server.connect(protocol, Credentials::Admin).await;
        assert_eq!(client.send("GET", PANICKING, &[("audit-id", "fell")], "").await.status, 500);
        assert_eq!(client.send("GET", "/livez", &[("audit-id", "well")], "").await.status, 200);
        let mut events = Vec::new();
        while events.len() < 4 {
            events.push(soon("an event", told.recv()).await.unwrap());
        }
        let stages: Vec<_> = events.iter().map(|event| (event["auditID"].as_str(), event["stage"].as_str())).collect();
        let of = |id, stage| (Some(id), Some(stage));
        let expected = [
            of("fell", "RequestReceived"),
            of("fell", "Panic"),
            of("well", "RequestReceived"),
            of("well", "ResponseComplete"),
        ];
        assert_eq!(stages, expected, "{protocol:?}");
        let panic = &events[1];
        assert_eq!((&panic["user"]["username"], &panic["verb"]), (&json!("keelson-admin"), &json!("get")));
        let status = &panic["responseStatus"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(500), &json!("InternalError")));
        assert_eq!(status["message"], "APIServer panic'd: asked to");
        assert!(panic["stageTimestamp"].is_string() && panic["requestReceivedTimestamp"].is_string(), "{panic:?}");
    }
}

#[tokio::test]
async fn every_answer_names_the_id_of_its_request() {
    let limits = Limits { unread: Duration::from_secs(600), ..Limits::default() };
    let server = Server::start_with(Setup { users: Some((1, 0)), limits, ..Setup::default() }).await;
    for protocol in BOTH {
        let mut nobody = server.connect(protocol, Credentials::None).await;
        let mut admin = server.connect(protocol, Credentials::Admin).await;
        let refused = [
            (nobody.send("GET", "/livez", &[("authorization", "Bearer made-up")], "").await, 401),
            (nobody.get(MAPS).await, 403),
            (admin.get("/nowhere").await, 404),
            (admin.send("PUT", MAPS, &[], "{}").await, 405),
            (admin.send_in_pieces("POST", MAPS, MAX_REQUEST_BYTES + 1).await, 413),
            (admin.get(PANICKING).await, 500),
        ];
        for (answer, code) in refused {
            assert_eq!(answer.status, code, "{protocol:?} {}", answer.text);
            assert_eq!(answer.headers["audit-id"].len(), 36, "{protocol:?} {code}");
        }
        let named = [("audit-id", "mine"), ("authorization", "Bearer made-up")];
        assert_eq!(nobody.send("GET", "/livez", &named, "").await.headers["audit-id"], "mine");
    }
    // An unread list holds the only seat.
    let shut = server.connect(Protocol::Shut, Credentials::Token("ann")).await;
    let list = shut.beside().open("/api/v1/namespaces/large/configmaps").await;
    let mut admin = server.connect(Protocol::Http2, Credentials::Token("ann")).await;
    let refused = admin.send("GET", &format!("{MAPS}/x"), &[("audit-id", "mine")], "").await;
    assert_eq!((refused.status, &refused.headers["audit-id"]), (429, &"mine".parse().unwrap()));
    drop(list);
}
