//! Tests of upgraded connections between a client and an aggregated server, and of the bytes between them.
//!
//! Exec sessions and port forwarding use such connections.

use std::time::Duration;

use http::Response;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use keelson_testkit::{Raw, UpstreamBody, UpstreamRequest, upstream_answer, upstream_echo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::client::TlsStream;

use crate::lab::{Lab, PATIENCE, THINGS};

/// Starts a lab whose aggregated server greets upgraded connections, echoes lines, and ends at the word `bye`. The test
/// receives the headers of each request.
async fn greeting() -> (Lab, mpsc::Receiver<Vec<String>>) {
    let (seen, saw) = mpsc::channel(10);
    let lab = Lab::start(move |mut request: UpstreamRequest| {
        let seen = seen.clone();
        async move {
            let path = request.uri().path().to_owned();
            match path.rsplit('/').next().unwrap() {
                "403" => return upstream_answer(403, "text/plain", "no upgrades"),
                "503" => return upstream_answer(503, "text/plain", "later"),
                "200" => return upstream_answer(200, "text/plain", "fine"),
                "302" => return upstream_answer(302, "text/plain", ""),
                "ws" => {}
                _ => return upstream_echo(request).await,
            }
            let fields = request.headers().iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
            let mut fields: Vec<String> = fields.collect();
            fields.sort();
            fields.insert(0, format!("{} {:?}", request.method(), request.version()));
            let protocol = request.headers()["upgrade"].clone();
            let upgrade = hyper::upgrade::on(&mut request);
            let _ = seen.send(fields).await;
            tokio::spawn(async move {
                let mut wire = TokioIo::new(upgrade.await.unwrap());
                wire.write_all(b"first;").await.unwrap();
                let mut buffer = [0; 1024];
                loop {
                    match wire.read(&mut buffer).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) if buffer.starts_with(b"bye") => break,
                        Ok(bytes) => wire.write_all(&[b"you said ", &buffer[..bytes]].concat()).await.unwrap(),
                    }
                }
                let _ = wire.write_all(b"last").await;
                let _ = wire.shutdown().await;
                let _ = seen.send(vec!["ended".to_owned()]).await;
            });
            let body: UpstreamBody = Empty::new().map_err(|never| match never {}).boxed();
            Response::builder()
                .status(101)
                .header("connection", "Upgrade")
                .header("upgrade", protocol)
                .header("x-custom", "1")
                .header("set-cookie", "a=b")
                .body(body)
                .unwrap()
        }
    })
    .await;
    (lab, saw)
}

/// Sends an upgrade request, and returns the connection with the response header.
async fn ask(raw: &Raw, line: &str, fields: &str) -> (TlsStream<TcpStream>, String) {
    let mut wire = raw.connect().await;
    wire.write_all(format!("{line} HTTP/1.1\r\nhost: a\r\n{fields}\r\n").as_bytes()).await.unwrap();
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(char::from(tokio::time::timeout(PATIENCE, wire.read_u8()).await.unwrap().unwrap()));
    }
    (wire, head)
}

async fn hear(wire: &mut TlsStream<TcpStream>, expected: &str) {
    let mut heard = vec![0; expected.len()];
    tokio::time::timeout(PATIENCE, wire.read_exact(&mut heard)).await.unwrap().unwrap();
    assert_eq!(String::from_utf8_lossy(&heard), expected);
}

const WEBSOCKET: &str = "connection: keep-alive, Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n";

#[tokio::test]
async fn a_client_and_a_server_talk_in_another_protocol() {
    let (lab, mut saw) = greeting().await;
    let lines = [
        (format!("GET {THINGS}/ws?b=1&a=2"), WEBSOCKET.to_owned(), "upgrade: websocket", "GET"),
        (
            format!("POST {THINGS}/ws"),
            "connection: Upgrade\r\nupgrade: SPDY/3.1\r\ncontent-length: 0\r\n".to_owned(),
            "upgrade: SPDY/3.1",
            "POST",
        ),
    ];
    for (line, fields, protocol, method) in lines {
        let (mut wire, head) = ask(&lab.raw, &line, &fields).await;
        assert!(head.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{head}");
        assert!(!head.contains("x-custom") && head.contains(&format!("{protocol}\r\n")), "{head}");
        assert!(!head.contains("audit-id") && !head.contains("cache-control"), "{head}");
        assert!(!head.contains("set-cookie") && head.contains("content-security-policy"), "{head}");
        let seen = saw.recv().await.unwrap();
        assert_eq!(seen[0], format!("{method} HTTP/1.1"));
        for expected in ["connection: Upgrade", protocol, "x-remote-user: keelson-admin", "x-forwarded-for: 127.0.0.1"]
        {
            assert!(seen.iter().any(|field| field == expected), "{expected} in {seen:?}");
        }
        assert!(!seen.iter().any(|field| field.starts_with("x-forwarded-uri")), "{seen:?}");
        hear(&mut wire, "first;").await;
        for word in ["hello", "again"] {
            wire.write_all(word.as_bytes()).await.unwrap();
            hear(&mut wire, &format!("you said {word}")).await;
        }
        // The server closes the connection, and its last bytes arrive.
        wire.write_all(b"bye").await.unwrap();
        let mut rest = String::new();
        let _ = tokio::time::timeout(PATIENCE, wire.read_to_string(&mut rest)).await.unwrap();
        assert_eq!(rest, "last");
        assert_eq!(saw.recv().await.unwrap(), ["ended"]);
    }
}

#[tokio::test]
async fn a_tunnel_ends_with_the_client_and_with_the_server_in_front() {
    let (mut lab, mut saw) = greeting().await;
    let line = format!("GET {THINGS}/ws");
    let (mut wire, _) = ask(&lab.raw, &line, WEBSOCKET).await;
    hear(&mut wire, "first;").await;
    saw.recv().await.unwrap();
    drop(wire);
    assert_eq!(tokio::time::timeout(PATIENCE, saw.recv()).await.unwrap().unwrap(), ["ended"]);
    let (mut wire, _) = ask(&lab.raw, &line, WEBSOCKET).await;
    hear(&mut wire, "first;").await;
    saw.recv().await.unwrap();
    let stopped = tokio::time::timeout(Duration::from_secs(25), lab.server.stop()).await;
    assert!(stopped.is_ok(), "an open tunnel does not hold up the end");
    assert_eq!(tokio::time::timeout(PATIENCE, saw.recv()).await.unwrap().unwrap(), ["ended"]);
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, wire.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test]
async fn refused_upgrades_are_forwarded_and_invalid_ones_rejected() {
    let (lab, _saw) = greeting().await;
    let (mut wire, head) = ask(&lab.raw, &format!("GET {THINGS}/403"), WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 403 ") && !head.contains("audit-id"), "{head}");
    hear(&mut wire, "no upgrades").await;
    let (mut wire, head) = ask(&lab.raw, &format!("GET {THINGS}/503"), WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    hear(&mut wire, "later").await;
    for code in ["200", "302"] {
        let (mut wire, head) = ask(&lab.raw, &format!("GET {THINGS}/{code}"), WEBSOCKET).await;
        assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("audit-id"), "{head}");
        hear(&mut wire, &format!("invalid upgrade response: status code {code}\n")).await;
    }
    let (_, head) = ask(&lab.raw, &format!("GET {THINGS}/x"), "upgrade: websocket\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 "), "without Connection it is no upgrade: {head}");
    // In these protocols a client could name any user to a server that trusts this one.
    for protocol in ["h2c", "HTTP/2.0", "TLS/1.3"] {
        let fields = format!("connection: Upgrade\r\nupgrade: {protocol}\r\n");
        let (_, head) = ask(&lab.raw, &format!("GET {THINGS}/x"), &fields).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{protocol} is not asked for: {head}");
    }
    drop(lab.upstream);
    let (mut wire, head) = ask(&lab.raw, &format!("GET {THINGS}/ws"), WEBSOCKET).await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    hear(&mut wire, "error dialing backend: dial tcp ").await;
}
