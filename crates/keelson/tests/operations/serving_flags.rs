//! Tests of kube-apiserver's flags for connections: the end of a server, times, TLS, and pages of other origins.
//!
//! They run the real binary.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelson_testkit::{ProcessServer, Raw};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion, version};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

const KEELSON: &str = env!("CARGO_BIN_EXE_keelson");
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(60);

async fn start(flags: &[&str]) -> ProcessServer {
    ProcessServer::builder(KEELSON).args(flags).start().await
}

async fn refused(flags: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let mut command = Command::new(KEELSON);
    command.args(["serve", "--bind", "127.0.0.1:0", "--data-dir"]).arg(directory.path().join("data")).args(flags);
    let done = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    assert!(!done.status.success(), "{flags:?}");
    String::from_utf8([done.stdout, done.stderr].concat()).unwrap()
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A request whose body is not complete, so that the server waits for its rest. It is in flight once the server has
/// asked for the body.
async fn begin_create(raw: &Raw, body: &str) -> TlsStream<TcpStream> {
    let mut stream = raw.connect().await;
    let (host, length) = ("localhost", body.len());
    let head = format!(
        "POST {MAPS} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut interim = [0; 25];
    stream.read_exact(&mut interim).await.unwrap();
    assert_eq!(&interim, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream
}

#[tokio::test]
async fn shutdown_serves_requests_during_the_delay_and_then_refuses() {
    let mut server = start(&["--shutdown-delay-duration=3s", "--shutdown-send-retry-after"]).await;
    let raw = server.raw();
    raw.get("/readyz").await.expect(200);
    let body = json!({"metadata": {"name": "late"}}).to_string();
    let mut in_flight = begin_create(&raw, &body).await;
    let begun = Instant::now();
    server.signal("-TERM").await;
    until("/readyz fails", async || raw.get("/readyz").await.status == 500).await;
    assert!(begun.elapsed() < Duration::from_secs(3), "at once");
    raw.get("/livez").await.expect(200);
    raw.post(MAPS, &json!({"metadata": {"name": "served"}})).await.expect(201);
    until("requests are refused", async || raw.get(MAPS).await.status == 429).await;
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    let refused = raw.get(MAPS).await.expect(429);
    assert_eq!((refused.header("retry-after"), refused.header("connection")), ("5", "close"));
    assert_eq!(refused.text(), "The apiserver is shutting down, please try again later.\n");
    let refused = raw.http2().get(MAPS).await.expect(429);
    assert_eq!((refused.header("retry-after"), refused.header("connection")), ("5", ""));
    raw.get("/livez").await.expect(200);
    raw.get("/metrics").await.expect(200);
    in_flight.write_all(body.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    in_flight.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 201");
    drop(in_flight);
    assert!(server.ended().await.success());
}

#[tokio::test]
async fn a_second_signal_ends_the_delay() {
    let mut server = start(&["--shutdown-delay-duration=10m"]).await;
    let raw = server.raw();
    server.signal("-TERM").await;
    until("/readyz fails", async || raw.get("/readyz").await.status == 500).await;
    raw.get("/livez").await.expect(200);
    assert!(server.terminate().await.success());
}

#[tokio::test]
async fn watches_end_cleanly_over_the_grace_period() {
    let mut server = start(&["--shutdown-watch-termination-grace-period=20s"]).await;
    let raw = server.raw();
    let mut watches = Vec::new();
    for raw in [raw.clone(), raw.http2(), raw.clone()] {
        watches.push(raw.get(format!("{MAPS}?watch=1&resourceVersion=0")).stream().await);
    }
    server.signal("-TERM").await;
    for watch in &mut watches {
        while watch.next_chunk().await.expect("a watch ends cleanly").is_some() {}
    }
    assert!(server.ended().await.success());
    assert!(server.log().contains("watches are ended watches=3"), "{}", server.log());
}

/// Sends requests on one connection of HTTP/2 until it closes. Returns their number.
async fn requests_until_goaway(raw: &Raw, tls: ClientConfig, most: u32) -> u32 {
    let stream = secured(raw, Arc::new(tls), "localhost").await.unwrap();
    let (mut sender, connection) =
        http2::handshake::<_, _, Empty<Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    for number in 0..most {
        if sender.ready().await.is_err() {
            return number;
        }
        let request = Request::get("https://localhost/livez").body(Empty::new()).unwrap();
        // A request after GOAWAY was never processed.
        let Ok(answer) = sender.send_request(request).await else { return number };
        assert_eq!(answer.status(), 200);
        answer.into_body().collect().await.unwrap();
    }
    most
}

fn client(server: &ProcessServer, versions: &[&'static SupportedProtocolVersion], alpn: &[u8]) -> ClientConfig {
    let ca = std::fs::read(server.data_dir().join("pki/ca.crt")).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&ca).unwrap()).unwrap();
    trusting(roots, versions, alpn)
}

fn trusting(roots: RootCertStore, versions: &[&'static SupportedProtocolVersion], alpn: &[u8]) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

async fn secured(raw: &Raw, tls: Arc<ClientConfig>, name: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(raw.address()).await?;
    TlsConnector::from(tls).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
}

#[tokio::test]
async fn connections_of_http2_close_by_chance() {
    let server = start(&["--goaway-chance=0.02"]).await;
    let tls = client(&server, rustls::ALL_VERSIONS, b"h2");
    let sent = requests_until_goaway(&server.raw(), tls, 5000).await;
    assert!(sent < 5000, "one in 50 requests closes its connection");
    let server = start(&[]).await;
    let tls = client(&server, rustls::ALL_VERSIONS, b"h2");
    assert_eq!(requests_until_goaway(&server.raw(), tls, 1000).await, 1000);
    let why = refused(&["--goaway-chance=0.03"]).await;
    assert!(why.contains("--goaway-chance can not be less than 0 or greater than 0.02"), "{why}");
}

#[tokio::test]
async fn a_response_begins_within_the_request_timeout() {
    let server = start(&["--request-timeout=2s"]).await;
    let raw = server.raw();
    let begun = Instant::now();
    let mut waiting = begin_create(&raw, "{\"metadata\": {\"name\": \"never\"}}").await;
    let mut answer = [0; 12];
    waiting.read_exact(&mut answer).await.unwrap();
    let taken = begun.elapsed();
    assert_eq!(&answer, b"HTTP/1.1 504");
    assert!(taken >= Duration::from_secs(2) && taken < Duration::from_secs(30), "{taken:?}");
    // A watch has no such limit.
    let mut watch = raw.get(format!("{MAPS}?watch=1&timeoutSeconds=4&resourceVersion=0")).stream().await;
    let begun = Instant::now();
    while watch.next_chunk().await.unwrap().is_some() {}
    assert!(begun.elapsed() >= Duration::from_secs(3), "{:?}", begun.elapsed());
    assert!(refused(&["--request-timeout=0"]).await.contains("is no time"));
}

#[tokio::test]
async fn only_pages_of_allowed_origins_may_read_responses() {
    let server = start(&["--cors-allowed-origins", "^https://console\\.example\\.org(:|$),//localhost:"]).await;
    let (raw, stranger) = (server.raw(), server.anonymous());
    let allow = "access-control-allow-origin";
    for origin in ["https://console.example.org", "https://console.example.org:8443", "http://localhost:5173"] {
        let preflight = stranger.call(Method::OPTIONS, "/api/v1/pods").header("origin", origin).await.expect(204);
        assert_eq!((preflight.header(allow), preflight.header("access-control-allow-credentials")), (origin, "true"));
        assert_eq!(preflight.header("access-control-allow-methods"), "POST, GET, OPTIONS, PUT, DELETE, PATCH");
        assert!(preflight.header("access-control-allow-headers").contains("Authorization"));
        let read = raw.get("/api/v1/pods").header("origin", origin).await.expect(200);
        assert_eq!((read.header(allow), read.header("access-control-expose-headers")), (origin, "Date"));
        // A preflight request gives no rights: the request itself is still authenticated and authorized.
        let denied = stranger.get("/api/v1/pods").header("origin", origin).await.expect(403);
        assert_eq!(denied.header(allow), origin);
    }
    for origin in ["https://console.example.org.evil.net", "https://consoleXexample.org", "https://evil.net", "null"] {
        let read = raw.get("/api/v1/pods").header("origin", origin).await.expect(200);
        assert_eq!(read.header(allow), "", "{origin}");
        let preflight = stranger.call(Method::OPTIONS, "/api/v1/pods").header("origin", origin).await;
        assert!(preflight.status != 204 && preflight.header(allow).is_empty(), "{origin}");
    }
    assert_eq!(raw.get("/api/v1/pods").await.expect(200).header(allow), "");
    let why = refused(&["--cors-allowed-origins", "example.org"]).await;
    assert!(why.contains("does not pin to start/end of host in the origin header"), "{why}");
}

/// A certificate for a name, with its key.
fn make_pair(directory: &Path, stem: &str, names: &[&str]) -> (PathBuf, PathBuf, CertificateDer<'static>) {
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let [certificate, key] = ["crt", "key"].map(|end| directory.join(format!("{stem}.{end}")));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (certificate, key, made.cert.der().clone())
}

/// The certificate that the server presents to a client that names it so, without verification of the name.
async fn presented(raw: &Raw, known: &[&CertificateDer<'static>], name: &str) -> Option<usize> {
    for (number, certificate) in known.iter().enumerate() {
        let mut roots = RootCertStore::empty();
        roots.add((*certificate).clone()).unwrap();
        let tls = trusting(roots, rustls::ALL_VERSIONS, b"http/1.1");
        if let Ok(stream) = secured(raw, Arc::new(tls), name).await {
            assert_eq!(stream.get_ref().1.peer_certificates().unwrap()[0], **certificate);
            return Some(number);
        }
    }
    None
}

#[tokio::test]
async fn clients_get_the_certificate_of_the_name_that_they_state() {
    let directory = TempDir::new().unwrap();
    let (first, first_key, one) = make_pair(directory.path(), "one", &["api.example.org", "*.apps.example.org"]);
    let (second, second_key, two) = make_pair(directory.path(), "two", &["api.example.org", "other.example.org"]);
    let flags = [
        format!("--tls-sni-cert-key={},{}", first.display(), first_key.display()),
        format!("--tls-sni-cert-key={},{}:api.example.org,other.example.org", second.display(), second_key.display()),
    ];
    let server = start(&flags.each_ref().map(String::as_str)).await;
    let raw = server.raw();
    raw.get("/api/v1/pods").await.expect(200);
    let known = [&one, &two];
    // Names of a flag count before those of a certificate.
    assert_eq!(presented(&raw, &known, "api.example.org").await, Some(1));
    assert_eq!(presented(&raw, &known, "other.example.org").await, Some(1));
    assert_eq!(presented(&raw, &known, "web.apps.example.org").await, Some(0));
    assert_eq!(presented(&raw, &known, "localhost").await, None, "others get the default");
    // New files are read while the server runs.
    let (.., three) = make_pair(directory.path(), "two", &["api.example.org"]);
    until("a new certificate", async || presented(&raw, &[&three], "api.example.org").await.is_some()).await;
    let missing = directory.path().join("none.crt").display().to_string();
    assert!(refused(&["--tls-sni-cert-key", &format!("{missing},{missing}")]).await.contains("none.crt"));
    let mixed = format!("{},{}", first.display(), second_key.display());
    assert!(refused(&["--tls-sni-cert-key", &mixed]).await.contains("are not a certificate and its key"));
    assert!(refused(&["--tls-sni-cert-key", "a"]).await.contains("expected comma separated certificate and key"));
}

#[tokio::test]
async fn versions_and_suites_of_tls_are_those_of_the_flags() {
    let shakes = async |server: &ProcessServer, versions: &[&'static SupportedProtocolVersion]| {
        let tls = Arc::new(client(server, versions, b"http/1.1"));
        let stream = secured(&server.raw(), tls, "localhost").await.ok()?;
        let suite = stream.get_ref().1.negotiated_cipher_suite().unwrap().suite();
        Some(format!("{suite:?}"))
    };
    let (old, new): ([_; 1], [_; 1]) = ([&version::TLS12], [&version::TLS13]);
    let plain = start(&[]).await;
    assert!(shakes(&plain, &old).await.is_some() && shakes(&plain, &new).await.is_some());
    let strict = start(&["--tls-min-version=VersionTLS13"]).await;
    assert!(shakes(&strict, &old).await.is_none() && shakes(&strict, &new).await.is_some());
    let one = start(&["--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_RSA_WITH_RC4_128_SHA"]).await;
    assert_eq!(shakes(&one, &old).await.as_deref(), Some("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"));
    assert!(shakes(&one, &new).await.is_some());
    assert!(one.log().contains("TLS_RSA_WITH_RC4_128_SHA"), "{}", one.log());
    let weak = start(&["--tls-cipher-suites=TLS_RSA_WITH_RC4_128_SHA"]).await;
    assert!(shakes(&weak, &old).await.is_none() && shakes(&weak, &new).await.is_some());
    let flags = ["--tls-curve-preferences=24", "--disable-http2-serving"];
    let groups = start(&flags).await;
    groups.raw().get("/livez").await.expect(200);
    let both = client(&groups, rustls::ALL_VERSIONS, b"h2");
    assert!(secured(&groups.raw(), Arc::new(both), "localhost").await.is_err(), "HTTP/2 is not served");
    assert!(refused(&["--tls-min-version=VersionTLS14"]).await.contains("unknown tls version \"VersionTLS14\""));
    assert!(refused(&["--tls-cipher-suites=NOPE"]).await.contains("Cipher suite NOPE not supported or doesn't exist"));
}
