//! The HTTP layer over a real port: TLS, HTTP/1.1 and HTTP/2, filters, and shutdown.
//!
//! Handlers are the test's own (`service.rs`). Tests of whole servers cover the real ones.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

mod audit;
mod bounds;
mod client;
mod service;
mod shares;

use std::time::{Duration, Instant};

use client::{Credentials, Protocol, Server};
use http_body_util::BodyExt;
use keelson_http::body::MAX_REQUEST_BYTES;

const BOTH: [Protocol; 2] = [Protocol::Http1, Protocol::Http2];
const STATUS_401: &str = r#""message":"Unauthorized","reason":"Unauthorized","code":401}"#;

#[tokio::test]
async fn an_administrator_is_served_over_both_versions_of_http() {
    let server = Server::start().await;
    for protocol in BOTH {
        let mut client = server.connect(protocol, Credentials::Admin).await;
        let answer = client.get("/api/v1/namespaces/a/configmaps/x").await;
        assert_eq!(answer.status, 200, "{protocol:?}");
        assert_eq!(answer.text, "keelson-admin get configmaps a/x\n");
        assert_eq!(answer.headers["cache-control"], "no-cache, private");
        assert_eq!(answer.headers["audit-id"].len(), 36);
    }
}

#[tokio::test]
async fn unauthenticated_clients_read_only_health() {
    let server = Server::start().await;
    for protocol in BOTH {
        let mut client = server.connect(protocol, Credentials::None).await;
        for path in ["/livez", "/readyz", "/healthz"] {
            let answer = client.get(path).await;
            assert_eq!((answer.status, answer.text.as_str()), (200, "ok"), "{path}");
        }
        for path in ["/version", "/metrics", "/api", "/api/v1/pods", "/livez/ping", "/nowhere"] {
            let answer = client.get(path).await;
            assert_eq!(answer.status, 403, "{path}");
            assert!(answer.text.contains(r#"User \"system:anonymous\" cannot"#), "{}", answer.text);
        }
        let answer = client.send("GET", "/livez", &[("authorization", "Bearer made-up")], "").await;
        assert_eq!(answer.status, 401);
        assert!(answer.text.contains(STATUS_401), "{}", answer.text);
    }
}

#[tokio::test]
async fn cross_site_pages_cannot_use_the_client_certificate() {
    let server = Server::start().await;
    for (site, code) in [("same-origin", 200), ("none", 200), ("same-site", 403), ("cross-site", 403)] {
        let mut client = server.connect(Protocol::Http2, Credentials::Admin).await;
        let answer = client.send("GET", "/api/v1/namespaces/a/configmaps/x", &[("sec-fetch-site", site)], "").await;
        assert_eq!(answer.status, code, "{site}");
    }
}

#[tokio::test]
async fn requests_are_counted() {
    let server = Server::start().await;
    let mut client = server.connect(Protocol::Http2, Credentials::Admin).await;
    client.get("/api/v1/namespaces/a/configmaps/x").await;
    client.get("/api/v1/nothings").await;
    let metrics = client.get("/metrics").await.text;
    let line = r#"apiserver_request_total{verb="GET",group="",version="v1",resource="configmaps",subresource="",scope="resource",component="apiserver",dry_run="",system_client="",code="200"} 1"#;
    assert!(metrics.contains(line), "{metrics}");
    let unknown =
        r#"resource="",subresource="",scope="cluster",component="apiserver",dry_run="",system_client="",code="404"} 1"#;
    assert!(metrics.contains(unknown), "{metrics}");
    assert!(!metrics.contains("nothings"));
}

#[tokio::test]
async fn bodies_are_read_up_to_the_limit() {
    let server = Server::start().await;
    for protocol in BOTH {
        let mut client = server.connect(protocol, Credentials::Admin).await;
        let most = "x".repeat(MAX_REQUEST_BYTES);
        let answer = client.send("POST", "/api/v1/namespaces/a/configmaps", &[], &most).await;
        assert_eq!((answer.status, answer.text.as_str()), (201, "3145728 bytes\n"), "{protocol:?}");
        // Chunked, so that the size is not declared.
        let answer = client.send_in_pieces("POST", "/api/v1/namespaces/a/configmaps", MAX_REQUEST_BYTES + 1).await;
        assert_eq!(answer.status, 413, "{protocol:?}");
        assert!(answer.text.contains("Request entity too large: limit is 3145728"), "{}", answer.text);
    }
}

/// A client that sends its whole body before it reads must still get the reason of a refusal.
#[tokio::test]
async fn a_refusal_before_the_body_was_read_reaches_the_client() {
    const BODY: usize = 2 * 1024 * 1024;
    let server = Server::start().await;
    for protocol in BOTH {
        let mut admin = server.connect(protocol, Credentials::Admin).await;
        for (method, path, status) in [
            ("POST", "/api/v1/namespaces/a/nonsense", 404),
            ("POST", "/nonsense", 404),
            ("PUT", "/api/v1/namespaces/panic/configmaps/x", 500),
            ("PUT", "/api/v1/namespaces/a/configmaps/x", 200),
        ] {
            let answer = admin.send_in_pieces(method, path, BODY).await;
            assert_eq!(answer.status, status, "{protocol:?} {method} {path}: {}", answer.text);
        }
        let mut nobody = server.connect(protocol, Credentials::None).await;
        let answer = nobody.send_in_pieces("POST", "/api/v1/namespaces/a/configmaps", BODY).await;
        assert!(matches!(answer.status, 401 | 403), "{protocol:?} {}", answer.status);
        assert_eq!(nobody.get("/livez").await.status, 200, "the connection goes on");
    }
}

#[tokio::test]
async fn an_answer_that_fails_halfway_never_looks_whole() {
    let server = Server::start().await;
    for protocol in BOTH {
        let mut client = server.connect(protocol, Credentials::Admin).await;
        // On HTTP/1.1 the head may not be sent yet when the body fails. The client then gets no response at all.
        assert!(client.try_get("/api/v1/namespaces/broken/configmaps").await.is_err(), "{protocol:?}");
        let next = client.try_get("/api/v1/namespaces/a/configmaps/x").await;
        assert_eq!(next.is_ok(), protocol == Protocol::Http2, "only the stream is reset where there are streams");
    }
}

#[tokio::test]
async fn a_panic_is_one_requests_own() {
    let server = Server::start().await;
    let mut client = server.connect(Protocol::Http2, Credentials::Admin).await;
    let answer = client.get("/api/v1/namespaces/panic/configmaps/x").await;
    assert_eq!(answer.status, 500);
    assert!(answer.text.contains("Internal error occurred"), "{}", answer.text);
    assert_eq!(client.get("/api/v1/namespaces/a/configmaps/x").await.status, 200);
}

#[tokio::test]
async fn a_slow_client_holds_little_of_a_large_answer() {
    let server = Server::start().await;
    let mut client = server.connect(Protocol::Http2, Credentials::Admin).await;
    let mut body = client.open("/api/v1/namespaces/large/configmaps").await.into_body();
    body.frame().await.unwrap().unwrap();
    let made = server.settled_count().await;
    assert!(made * service::FRAME_BYTES < 1024 * 1024, "{made} frames were made for a client that does not read");
    let rest = body.collect().await.unwrap().to_bytes().len();
    assert!(rest > (service::LARGE_FRAMES - 2) * service::FRAME_BYTES);
}

#[tokio::test]
async fn stopping_ends_watches_cleanly_and_lets_answers_finish() {
    for protocol in BOTH {
        let server = Server::start().await;
        let mut watcher = server.connect(protocol, Credentials::Admin).await;
        let mut lister = server.connect(protocol, Credentials::Admin).await;
        let mut watch = watcher.open("/api/v1/namespaces/a/configmaps?watch=1").await.into_body();
        assert_eq!(watch.frame().await.unwrap().unwrap().into_data().unwrap(), "{\"type\":\"ADDED\"}\n");
        let list = lister.open("/api/v1/namespaces/large/configmaps").await.into_body();
        let address = server.address;

        let stopped = server.stop();
        assert_eq!(watch.collect().await.unwrap().to_bytes(), "", "{protocol:?}");
        let listed = list.collect().await.unwrap().to_bytes().len();
        assert_eq!(listed, service::LARGE_FRAMES * service::FRAME_BYTES);
        tokio::time::timeout(Duration::from_secs(10), stopped).await.expect("the server ends").unwrap();
        assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the port is closed");
    }
}

/// At a shutdown the accepting thread ends too, often before the server notices the shutdown. The server must not treat
/// that as a panic of the thread, which would close all connections.
#[tokio::test]
async fn running_requests_finish_after_the_listener_closes() {
    for turn in 0..12 {
        let server = Server::start().await;
        let mut lister = server.connect(Protocol::Http1, Credentials::Admin).await;
        let list = lister.open("/api/v1/namespaces/large/configmaps").await.into_body();
        let stopped = server.stop();
        // This thread serves the server, so the server notices the shutdown only after the accepting thread has ended.
        std::thread::sleep(Duration::from_millis(30));
        let listed = list.collect().await.expect("the answer is whole").to_bytes().len();
        assert_eq!(listed, service::LARGE_FRAMES * service::FRAME_BYTES, "{turn}");
        stopped.await.unwrap();
    }
}

/// The longest time of a shutdown is for lists. A watch whose client reads nothing must not use it up.
#[tokio::test]
async fn a_stalled_watch_does_not_delay_shutdown() {
    let stop_beside_a_stalled_watch = async |protocol| {
        let server = Server::start().await;
        let mut watcher = server.connect(protocol, Credentials::Admin).await;
        let _unread = watcher.open("/api/v1/namespaces/large/configmaps?watch=1").await;
        server.settled_count().await;
        let started = Instant::now();
        server.stop().await.unwrap();
        let took = started.elapsed();
        assert!(took > Duration::from_secs(4) && took < Duration::from_secs(12), "{protocol:?} {took:?}");
    };
    tokio::join!(stop_beside_a_stalled_watch(Protocol::Http1), stop_beside_a_stalled_watch(Protocol::Http2));
}

/// A shutdown waits for requests, not for connections that may send one.
#[tokio::test]
async fn idle_connections_do_not_delay_shutdown() {
    let server = Server::start().await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(tokio::net::TcpStream::connect(server.address).await.unwrap());
    }
    let mut unasked = Vec::new();
    for protocol in BOTH {
        unasked.push(server.connect(protocol, Credentials::Admin).await);
    }
    // The server accepted all others before this one.
    assert_eq!(server.connect(Protocol::Http1, Credentials::Admin).await.get("/livez").await.status, 200);
    let started = Instant::now();
    server.stop().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_incomplete_body_does_not_delay_shutdown() {
    let stop = async |protocol| {
        let server = Server::start().await;
        let client = server.connect(protocol, Credentials::Admin).await;
        let half = client.begin("/api/v1/namespaces/a/configmaps");
        let writes = r#"apiserver_current_inflight_requests{request_kind="mutating"}"#;
        while server.metric(writes).await.starts_with('0') {}
        let started = Instant::now();
        server.stop().await.unwrap();
        assert!(started.elapsed() < Duration::from_secs(15), "{protocol:?} {:?}", started.elapsed());
        half.await.unwrap();
    };
    tokio::join!(stop(Protocol::Http1), stop(Protocol::Http2));
}

#[tokio::test]
async fn a_certificate_of_another_authority_is_a_wrong_credential() {
    let server = Server::start().await;
    for protocol in BOTH {
        let mut stranger = server.connect(protocol, Credentials::Stranger).await;
        let answer = stranger.get("/livez").await;
        assert_eq!(answer.status, 401, "{protocol:?}");
        assert!(answer.text.contains(STATUS_401), "{}", answer.text);
    }
}
