//! Tests of watches over a websocket, as pages in browsers use: the handshake, the frames, and the end.
//!
//! Codes, texts and frames are kube-apiserver's.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use keelson_testkit::{
    BINARY_FRAME, CLOSE_FRAME, DEFINITIONS, HANDSHAKE, PING_FRAME, PONG_FRAME, Raw, TEXT_FRAME, TestServer, Websocket,
    definition, definition_version,
};
use serde_json::json;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=1&labelSelector=of%3Dwatched";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The payload of a close frame with the code 1000.
const NORMAL: [u8; 2] = 1000u16.to_be_bytes();

async fn create(raw: &Raw, name: &str) {
    raw.post(MAPS, &json!({"metadata": {"name": name, "labels": {"of": "watched"}}})).await.expect(201);
}

async fn opened(raw: &Raw, path: &str, fields: &[(&str, &str)]) -> Websocket {
    let socket = raw.websocket(path, &[&HANDSHAKE, fields].concat()).await;
    assert_eq!((socket.status, &*socket.refusal), (101, ""));
    socket
}

#[tokio::test]
async fn websocket_watches_send_one_event_per_frame() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, "a").await;
    create(&raw, "b").await;
    let mut watch = opened(&raw, &format!("{WATCH}&timeoutSeconds=2"), &[]).await;
    assert_eq!(watch.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_eq!((watch.header("upgrade"), watch.header("connection")), ("websocket", "Upgrade"));
    assert_eq!(watch.header("sec-websocket-protocol"), "");
    for name in ["a", "b"] {
        let (opcode, payload) = watch.next().await.unwrap();
        assert_eq!((opcode, payload.last()), (TEXT_FRAME, Some(&b'\n')));
        let event: serde_json::Value = serde_json::from_slice(&payload).unwrap();
        assert_eq!((&event["type"], &event["object"]["metadata"]["name"]), (&json!("ADDED"), &json!(name)));
    }
    raw.delete(format!("{MAPS}/a")).await.expect(200);
    assert_eq!(watch.next_json().await["type"], "DELETED");
    assert_eq!(watch.next().await, Some((CLOSE_FRAME, NORMAL.to_vec())));
    watch.send(CLOSE_FRAME, &NORMAL).await;
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn pings_and_closes_are_answered_and_other_messages_dropped() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut watch = opened(&raw, WATCH, &[]).await;
    watch.send(TEXT_FRAME, b"hello").await;
    watch.send(PONG_FRAME, b"").await;
    watch.send(PING_FRAME, b"are you there").await;
    assert_eq!(watch.next().await, Some((PONG_FRAME, b"are you there".to_vec())));
    create(&raw, "a").await;
    assert_eq!(watch.next_json().await["object"]["metadata"]["name"], "a");
    watch.send(CLOSE_FRAME, &NORMAL).await;
    assert_eq!(watch.next().await, Some((CLOSE_FRAME, NORMAL.to_vec())));
    assert_eq!(watch.next().await, None);
}

#[tokio::test]
async fn websockets_watch_tables_protobuf_and_custom_resources() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, "a").await;
    let mut rows = opened(&raw, WATCH, &[("Accept", TABLE)]).await;
    let row = rows.next_json().await;
    assert_eq!(row["object"]["kind"], "Table");
    assert_eq!(row["object"]["rows"][0]["cells"][0], "a");

    let mut messages = opened(&raw, WATCH, &[("Accept", "application/vnd.kubernetes.protobuf")]).await;
    create(&raw, "b").await;
    for _ in 0..2 {
        let (opcode, payload) = messages.next().await.unwrap();
        // The first field of the event is its type, without a length before it.
        assert_eq!((opcode, &payload[..7]), (BINARY_FRAME, b"\x0a\x05ADDED".as_slice()));
        assert!(payload.windows(4).any(|window| window == b"k8s\0"));
    }

    let path = "/api/v1/watch/namespaces/default/configmaps?labelSelector=of%3Dwatched";
    assert_eq!(opened(&raw, path, &[]).await.next_json().await["object"]["metadata"]["name"], "a");

    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let foos = definition("ex.io", "foos", "Foo", json!([definition_version("v1", true, schema)]));
    raw.post(DEFINITIONS, &foos).await.expect(201);
    let foo = json!({"apiVersion": "ex.io/v1", "kind": "Foo", "metadata": {"name": "f"}});
    raw.post("/apis/ex.io/v1/namespaces/default/foos", &foo).await.expect(201);
    let mut foos = opened(&raw, "/apis/ex.io/v1/foos?watch=true", &[]).await;
    assert_eq!(foos.next_json().await["object"]["metadata"]["name"], "f");
}

#[tokio::test]
async fn a_bearer_token_stands_among_the_subprotocols() {
    let server = TestServer::start().await;
    let raw = server.raw();
    create(&raw, "a").await;
    let account = json!({"metadata": {"name": "page"}});
    raw.post("/api/v1/namespaces/default/serviceaccounts", &account).await.expect(201);
    let subject = json!({"kind": "ServiceAccount", "namespace": "default", "name": "page"});
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let binding = json!({"metadata": {"name": "page"}, "roleRef": role, "subjects": [subject]});
    raw.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await.expect(201);
    let request = raw.post("/api/v1/namespaces/default/serviceaccounts/page/token", &json!({}));
    let token = request.await.expect(201).json()["status"]["token"].as_str().unwrap().to_owned();
    let protocol = |token: &str| format!("base64url.bearer.authorization.k8s.io.{}", URL_SAFE_NO_PAD.encode(token));

    let page = server.anonymous();
    let protocols = format!("base64.binary.k8s.io, {}", protocol(&token));
    let mut watch = opened(&page, WATCH, &[("Sec-WebSocket-Protocol", &protocols)]).await;
    assert_eq!(watch.header("sec-websocket-protocol"), "base64.binary.k8s.io", "the token is not repeated");
    assert_eq!(watch.next_json().await["object"]["metadata"]["name"], "a");

    for (protocols, status) in [
        (format!("a, {}", protocol("wrong")), 401),
        (protocol(&token), 401),
        ("a".to_owned(), 403),
        (format!("a, b, {}", protocol(&token)), 400),
    ] {
        let fields = [&HANDSHAKE[..], &[("Sec-WebSocket-Protocol", &protocols)]].concat();
        assert_eq!(page.websocket(WATCH, &fields).await.status, status, "{protocols}");
    }
}

#[tokio::test]
async fn incomplete_websocket_handshakes_are_refused() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let without = |field: &str, added: &[(&'static str, &'static str)]| {
        let kept = HANDSHAKE.into_iter().filter(|(name, _)| *name != field);
        kept.chain(added.iter().copied()).collect::<Vec<_>>()
    };
    let refused = raw.websocket(WATCH, &without("Sec-WebSocket-Version", &[("Sec-WebSocket-Version", "12")])).await;
    assert_eq!((refused.status, refused.header("sec-websocket-version")), (400, "13"));
    assert_eq!(refused.refusal, "missing or bad WebSocket Version");
    assert_eq!(raw.websocket(WATCH, &without("Sec-WebSocket-Version", &[])).await.status, 400);
    let refused = raw.websocket(WATCH, &without("Sec-WebSocket-Key", &[])).await;
    assert_eq!((refused.status, &*refused.refusal), (400, "mismatch challenge/response"));
    for origin in [&[][..], &[("Origin", "null")], &[("Origin", "page.example")]] {
        let refused = raw.websocket(WATCH, &without("Origin", origin)).await;
        assert_eq!((refused.status, &*refused.refusal), (403, ""), "{origin:?}");
    }
    // Other refusals stay as they are.
    assert_eq!(raw.websocket("/api/v1/nothings?watch=1", &HANDSHAKE).await.status, 404);
    assert_eq!(raw.websocket(MAPS, &HANDSHAKE).await.status, 200);
    let chunked = format!("{WATCH}&timeoutSeconds=1");
    assert_eq!(raw.websocket(&chunked, &without("Upgrade", &[("Upgrade", "other")])).await.status, 200);
    assert_eq!(raw.websocket(&chunked, &without("Connection", &[])).await.status, 200);
}

#[tokio::test]
async fn a_browsers_certificate_does_not_count_for_pages_of_other_sites() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let browser = [("User-Agent", "Mozilla/5.0 (X11; Linux x86_64)")];
    let refused = raw.websocket(WATCH, &[&HANDSHAKE[..], &browser].concat()).await;
    assert_eq!(refused.status, 403, "{}", refused.refusal);
    let fetched = [("Sec-Fetch-Site", "same-origin")];
    opened(&raw, WATCH, &[browser, fetched].concat()).await;
}

#[tokio::test]
async fn watches_over_websockets_end_with_the_server_and_give_back_their_shares() {
    let mut server = TestServer::start().await;
    let raw = server.raw();
    let taken = async || {
        let metrics = server.raw().get("/metrics").await.expect(200).text();
        let line = metrics.lines().find(|line| line.starts_with(r#"keelson_shares_taken{resource="watches"}"#));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).expect("shares are counted")
    };
    let before = taken().await;
    let mut watch = opened(&raw, WATCH, &[]).await;
    assert_eq!(taken().await, before + 1.0);
    watch.send(CLOSE_FRAME, &NORMAL).await;
    while watch.next().await.is_some() {}
    while taken().await > before {
        tokio::task::yield_now().await;
    }
    let mut watch = opened(&raw, WATCH, &[]).await;
    let stopped = tokio::spawn(async move { server.stop().await });
    assert_eq!(watch.next().await, Some((CLOSE_FRAME, NORMAL.to_vec())));
    drop(watch);
    stopped.await.unwrap();
}
