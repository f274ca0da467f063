//! Limits for clients: no client keeps seats, memory, connections or threads that others need.
//!
//! Each test has one client that tries to, and another that must get an answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::{self, Either};
use http_body_util::BodyExt;
use hyper::body::Body as _;
use keelson_access::{Attributes, Authorizer, PendingVerdict, User};
use keelson_http::listener::Limits;

use crate::client::{Credentials, Protocol, Server, Setup, next_frame, soon};
use crate::service::{self, HELD};

const LARGE: &str = "/api/v1/namespaces/large/configmaps";
const SMALL: &str = "/api/v1/namespaces/a/configmaps/x";

/// A user without a level of its own.
const ANN: Credentials = Credentials::Token("ann");

/// A server with this many seats for users and this many waiting requests, which aborts unread responses early.
async fn narrow(seats: usize, queue: u32, unread: Duration) -> Server {
    let limits = Limits { unread, ..Limits::default() };
    Server::start_with(Setup { users: Some((seats, queue)), limits, ..Setup::default() }).await
}

const SOON: Duration = Duration::from_secs(1);
const NEVER: Duration = Duration::from_secs(600);

#[tokio::test]
async fn unauthenticated_requests_occupy_no_seats() {
    let server = narrow(1, 0, NEVER).await;
    let stranger = server.connect(Protocol::Shut, Credentials::None).await;
    let mut unread = Vec::new();
    for _ in 0..200 {
        unread.push(stranger.beside().open("/api/v1/pods").await);
    }
    assert!(unread.iter().all(|response| response.status() == 403));
    let mut admin = server.connect(Protocol::Http2, ANN).await;
    assert_eq!(admin.get(SMALL).await.status, 200);
}

#[tokio::test]
async fn unread_lists_hold_seats_and_small_responses_do_not() {
    let server = narrow(1, 0, NEVER).await;
    let shut = server.connect(Protocol::Shut, ANN).await;
    let mut unread = Vec::new();
    for _ in 0..10 {
        unread.push(shut.beside().open(SMALL).await);
    }
    assert!(unread.iter().all(|response| response.status() == 200));

    let list = shut.beside().open(LARGE).await;
    assert_eq!(list.status(), 200);
    let mut admin = server.connect(Protocol::Http2, ANN).await;
    let refused = admin.get(SMALL).await;
    assert_eq!((refused.status, refused.text.as_str()), (429, "Too many requests, please try again later.\n"));
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(refused.headers["content-type"], "text/plain; charset=utf-8");
    drop(list);
    soon("the place of the list", async { while admin.get(SMALL).await.status != 200 {} }).await;
}

#[tokio::test]
async fn unread_lists_are_aborted() {
    let server = narrow(1, 0, SOON).await;
    let mut shut = server.connect(Protocol::Shut, ANN).await;
    let list = shut.open(LARGE).await;
    let given_up = next_frame(&mut list.into_body()).await.unwrap();
    assert!(given_up.is_err(), "the stream is reset");
    let mut admin = server.connect(Protocol::Http2, ANN).await;
    soon("its place", async { while admin.get(SMALL).await.status != 200 {} }).await;
    let made = server.settled_count().await;
    assert!(made <= 2, "{made} frames were made for a client that takes none");
}

#[tokio::test]
async fn unread_watches_with_pending_events_are_aborted() {
    let server = narrow(1, 0, SOON).await;
    let mut shut = server.connect(Protocol::Shut, ANN).await;
    let watch = shut.open("/api/v1/namespaces/a/configmaps?watch=1").await;
    assert!(next_frame(&mut watch.into_body()).await.unwrap().is_err());
    // A renamed metric keeps its deprecated name for one release.
    for name in ["keelson_responses_aborted_total", "keelson_answers_unread_total"] {
        assert_eq!(server.metric(name).await, "1.0", "{name}");
    }

    // A watch that is read stays open, however long it has no events.
    let mut open = server.connect(Protocol::Http2, ANN).await;
    let mut watch = open.open("/api/v1/namespaces/a/configmaps?watch=1").await.into_body();
    next_frame(&mut watch).await.unwrap().unwrap();
    assert!(tokio::time::timeout(3 * SOON, watch.frame()).await.is_err());
}

#[tokio::test]
async fn requests_wait_in_the_queue_for_a_seat() {
    let server = narrow(1, 1, NEVER).await;
    let shut = server.connect(Protocol::Shut, ANN).await;
    let list = shut.beside().open(LARGE).await;
    let mut first = server.connect(Protocol::Http2, ANN).await;
    let waiting = tokio::spawn(async move { first.get(SMALL).await.status });
    let queued = r#"apiserver_flowcontrol_current_inqueue_requests{priority_level="global-default",flow_schema="global-default"}"#;
    // The code of a third request shows the state of the queue.
    let mut second = server.connect(Protocol::Http2, ANN).await;
    soon("a request that is refused", async { while second.get(SMALL).await.status != 429 {} }).await;
    drop(list);
    assert_eq!(waiting.await.unwrap(), 200);
    assert_eq!(server.metric(queued).await, "0.0");
}

/// Unauthenticated clients could otherwise choose the number of unread bytes.
#[tokio::test]
async fn unauthenticated_clients_with_unread_responses_get_only_the_code() {
    let server = Server::start().await;
    let mut unread = Vec::new();
    for _ in 0..5 {
        let stranger = server.connect(Protocol::Shut, Credentials::None).await;
        for _ in 0..220 {
            unread.push(stranger.beside().open("/api/v1/pods").await);
        }
    }
    assert!(unread.iter().all(|response| response.status() == 403));
    let whole = unread.iter().filter(|response| !response.body().is_end_stream()).count();
    assert_eq!(whole, 1000);
    let mut stranger = server.connect(Protocol::Http2, Credentials::None).await;
    assert_eq!(stranger.get("/livez").await.status, 200);
    drop(unread);
}

/// A shutdown waits for responses that make progress, not for unread ones.
#[tokio::test]
async fn an_unread_response_does_not_delay_shutdown() {
    let stop = async |path: &'static str, credentials| {
        let server = narrow(10, 10, NEVER).await;
        let mut shut = server.connect(Protocol::Shut, credentials).await;
        let _unread = shut.open(path).await;
        server.settled_count().await;
        let started = Instant::now();
        soon("the end", server.stop()).await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "{path} {:?}", started.elapsed());
    };
    tokio::join!(stop(LARGE, ANN), stop(SMALL, ANN), stop(SMALL, Credentials::None));
}

#[tokio::test]
async fn unauthenticated_connections_are_evicted_first() {
    let limits = Limits { connections: 16, ..Limits::default() };
    let server = Server::start_with(Setup { limits, ..Setup::default() }).await;
    let mut early = server.connect(Protocol::Http2, Credentials::Admin).await;
    assert_eq!(early.get(SMALL).await.status, 200);
    let mut strangers = Vec::new();
    for _ in 0..40 {
        strangers.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let mut late = server.connect(Protocol::Http1, Credentials::Admin).await;
    assert_eq!(late.get(SMALL).await.status, 200);
    assert_eq!(early.get(SMALL).await.status, 200);
    let open: f64 = server.metric(r#"keelson_connections{state="stranger"}"#).await.parse().unwrap();
    assert!(open <= 4.0, "{open} connections of strangers");

    // Connections of users are never evicted for unauthenticated ones. A quarter of all stays for new connections,
    // whatever one user has.
    let mut known = vec![early, late];
    while known.len() < 12 {
        let mut client = server.connect(Protocol::Http2, Credentials::Admin).await;
        assert_eq!(client.get(SMALL).await.status, 200);
        known.push(client);
    }
    for _ in 0..20 {
        strangers.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let mut probe = server.connect(Protocol::Http1, Credentials::None).await;
    assert_eq!(probe.get("/livez").await.status, 200);
    for client in &mut known {
        assert_eq!(client.get(SMALL).await.status, 200);
    }
}

/// Heads with a long selector are large, and users send such heads too.
#[tokio::test]
async fn unauthenticated_clients_with_large_headers_are_evicted() {
    let server = Server::start().await;
    let long = |path: &str| format!("{path}?{}", "q".repeat(40_000));
    let mut strangers = Vec::new();
    for _ in 0..140 {
        let mut stranger = server.connect(Protocol::Http1, Credentials::None).await;
        assert_eq!(stranger.get(&long("/livez")).await.status, 200);
        strangers.push(stranger);
    }
    assert!(strangers[0].try_get("/livez").await.is_err(), "the oldest has given way");
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut admin = server.connect(protocol, Credentials::Admin).await;
        assert_eq!(admin.get(&long(SMALL)).await.status, 200);
    }
    assert_eq!(strangers[139].get("/livez").await.status, 200, "who is known took nobody's place");
}

/// Clients retry a request whose stream was reset for its head, and show their user nothing if a response has no
/// reason.
#[tokio::test]
async fn a_head_that_is_too_large_is_answered_with_its_limit() {
    let server = Server::start().await;
    let long = "q".repeat(65_533 - "https://localhost".len() - SMALL.len());
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut admin = server.connect(protocol, Credentials::Admin).await;
        assert_eq!(admin.get(&format!("{SMALL}?{long}")).await.status, 200, "{protocol:?}");
        assert_eq!(admin.send("GET", SMALL, &[("x-long", &"q".repeat(200_000))], "").await.status, 200, "{protocol:?}");
        let refused = admin.send("GET", SMALL, &[("x-long", &"Z".repeat(270_000))], "").await;
        assert_eq!(refused.status, 431, "{protocol:?}");
        assert!(
            refused.text.contains("at most 262144 bytes") && refused.text.contains("\"Status\""),
            "{}",
            refused.text
        );
    }
    let mut admin = server.connect(Protocol::Http2, Credentials::Admin).await;
    assert_eq!(admin.send("POST", SMALL, &[("x-long", &"q".repeat(400_000))], "{}").await.status, 431);
    assert_eq!(admin.get(SMALL).await.status, 200);
}

/// The test writes the frames itself, since the HTTP clients in this process have the same limit for URLs.
#[tokio::test]
async fn a_url_that_is_too_long_is_answered_with_its_limit() {
    let server = Server::start().await;
    let refused = server
        .send_raw(format!("GET /?{} HTTP/1.1\r\nhost: a\r\n\r\n", "q".repeat(70_000)).as_bytes(), Protocol::Http1)
        .await;
    assert!(refused.starts_with("HTTP/1.1 414 ") && refused.contains("at most 65534 bytes"), "{refused}");
    // A client gets the answer also if it sends a much longer head before it reads.
    for (url, field) in [(3_000_000, 1), (1, 3_000_000)] {
        let (url, field) = ("q".repeat(url), "f".repeat(field));
        let head = format!("GET /?{url} HTTP/1.1\r\nhost: a\r\nx-long: {field}\r\n\r\n");
        let refused = server.send_raw(head.as_bytes(), Protocol::Http1).await;
        assert!(refused.starts_with("HTTP/1.1 431 ") && refused.contains("at most 262144 bytes"), "{refused}");
    }

    // On HTTP/2: the preface, empty settings, one header block in frames of 16 KiB, and a ping.
    let (path, length) = ("q".repeat(70_000), [0x7f, 0xf1, 0xa1, 0x04]);
    let block = [&[0x82, 0x87, 0x04][..], &length, path.as_bytes()].concat();
    let mut frames = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    let parts: Vec<&[u8]> = block.chunks(16_384).collect();
    for (number, part) in parts.iter().enumerate() {
        let (kind, end) = (if number == 0 { 1 } else { 9 }, if number + 1 == parts.len() { 4 } else { 0 });
        let end_stream = u8::from(number == 0);
        frames.extend(&(part.len() as u32).to_be_bytes()[1..]);
        frames.extend([kind, end | end_stream, 0, 0, 0, 1]);
        frames.extend(*part);
    }
    let refused = server.send_raw(&frames, Protocol::Http2).await;
    assert!(refused.contains("at most 65534 bytes") && refused.contains("\"code\":414"), "{refused:?}");
}

/// A connection carries all watches of a process. They must survive one request with a head that is far too large.
#[tokio::test]
async fn an_http2_connection_outlives_a_head_that_is_too_large() {
    let server = Server::start().await;
    let mut admin = server.connect(Protocol::Http2, Credentials::Admin).await;
    let mut watch = admin.beside().open("/api/v1/namespaces/a/configmaps?watch=1").await.into_body();
    next_frame(&mut watch).await.unwrap().unwrap();
    // Long values do not enter the connection's compression table, short ones do.
    for (fields, length) in [(10, 30_000), (26, 30_000), (150, 2_000)] {
        let names: Vec<_> = (0..fields).map(|number| format!("x-long-{number}")).collect();
        let value = "q".repeat(length);
        let headers: Vec<_> = names.iter().map(|name| (name.as_str(), value.as_str())).collect();
        let refused = admin.send("GET", SMALL, &headers, "").await;
        assert_eq!(refused.status, 431, "{fields} fields");
        assert!(refused.text.contains("at most 262144 bytes"), "{}", refused.text);
        // The table is still the same on both sides.
        let small = [("x-long-149", &value[..1_000]), ("x-small", "1")];
        assert_eq!(admin.send("GET", SMALL, &small, "").await.status, 200);
    }
    assert_eq!(admin.get(SMALL).await.status, 200);
    assert!(tokio::time::timeout(SOON, watch.frame()).await.is_err(), "the watch goes on");
}

/// A proxy in front of the server must parse the same request as the server.
#[tokio::test]
async fn heads_that_can_be_read_in_two_ways_are_refused() {
    let server = Server::start().await;
    let chunked = ("transfer-encoding", "gzip, chunked");
    for (method, target, headers, code) in [
        ("GET", SMALL, &[][..], 400),
        ("GET", SMALL, &[("host", "a"), ("host", "b")][..], 400),
        ("GET", SMALL, &[("host", "a b")][..], 400),
        ("POST", SMALL, &[("host", "localhost"), chunked][..], 501),
        ("CONNECT", "localhost:443", &[("host", "localhost:443")][..], 405),
    ] {
        let mut admin = server.connect(Protocol::Http1, Credentials::Admin).await;
        let answer = admin.send_bare(method, target, headers).await;
        assert_eq!((answer.status, answer.headers.get("connection").is_some()), (code, true), "{method} {headers:?}");
    }
    let mut admin = server.connect(Protocol::Http1, Credentials::Admin).await;
    assert_eq!(admin.send_bare("GET", SMALL, &[("host", "localhost")]).await.status, 200);
}

/// A health check over a new connection does not wait for blocked threads.
#[test]
fn health_is_reported_while_requests_hold_all_threads() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(async { tokio::spawn(Server::start()).await.unwrap() });
    let others = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    others.block_on(async {
        let mut admin = server.connect(Protocol::Http2, Credentials::Admin).await;
        assert_eq!(admin.get(SMALL).await.status, 200);
        let started = Instant::now();
        let held = tokio::spawn(async move { admin.get("/api/v1/namespaces/held/configmaps/x").await.text });
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut probe = server.connect(Protocol::Http1, Credentials::None).await;
        assert_eq!(probe.get("/livez").await.text, "ok");
        assert!(started.elapsed() < HELD, "{:?}", started.elapsed());

        // Requests over such a connection that need the runtime are answered once the runtime can.
        let mut late = server.connect(Protocol::Http2, Credentials::Admin).await;
        assert_eq!(late.get(SMALL).await.status, 200);
        assert_eq!(held.await.unwrap(), "held\n");
        let longest = server.metric(r#"keelson_request_poll_seconds_bucket{le="1"}"#).await;
        let all = server.metric("keelson_request_poll_seconds_count").await;
        assert_ne!(longest, all, "a thread that was held is seen");
    });
}

#[tokio::test]
async fn impersonation_has_the_rights_of_the_impersonated_user() {
    let server = Server::start().await;
    let mut admin = server.connect(Protocol::Http2, Credentials::Admin).await;
    let refused = admin.send("GET", SMALL, &[("impersonate-user", "nobody")], "").await;
    assert_eq!(refused.status, 403);
    assert!(refused.text.contains(r#"User \"nobody\" cannot"#), "{}", refused.text);
    for header in ["impersonate-group", "impersonate-uid", "impersonate-extra-scopes"] {
        for path in [SMALL, "/nowhere"] {
            assert_eq!(admin.send("GET", path, &[(header, "x")], "").await.status, 400, "{header} {path}");
        }
    }
    let mut stranger = server.connect(Protocol::Http2, Credentials::None).await;
    assert_eq!(stranger.send("GET", "/healthz", &[("impersonate-user", "x")], "").await.status, 403);
    let large = service::LARGE_FRAMES * service::FRAME_BYTES;
    assert_eq!(admin.get(LARGE).await.text.len(), large, "the connection goes on");
}

/// Never answers.
#[derive(Debug)]
struct Hanging;

impl Authorizer for Hanging {
    fn authorize<'a>(&'a self, _: &'a User, _: &'a Attributes<'a>) -> PendingVerdict<'a> {
        Either::Right(Box::pin(future::pending()))
    }
}

#[tokio::test]
async fn the_request_timeout_covers_a_hanging_authorizer() {
    let server = Server::start_with(Setup { authorizer: Some(Arc::new(Hanging)), ..Setup::default() }).await;
    let mut admin = server.connect(Protocol::Http2, Credentials::Admin).await;
    let answer = admin.get(&format!("{SMALL}?timeout=200ms")).await;
    assert_eq!(answer.status, 504, "{}", answer.text);
    let text = r#""message":"Timeout: request did not complete within the allotted timeout","reason":"Timeout""#;
    assert!(answer.text.contains(text), "{}", answer.text);
    let refused = admin.get(&format!("{SMALL}?timeout=soon")).await;
    assert_eq!(refused.status, 400, "what is no time is told without asking anybody");
}
