//! Tests of `exec`, `attach` and `portforward` at the level of protocol bytes.
//!
//! The kubelet supports SPDY and websockets. The status of its node declares whether websockets may be used.

use keelson_testkit::{BINARY_FRAME, CLOSE_FRAME, HANDSHAKE, KubeletDouble, Websocket};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Lab, MERGE, NAMESPACE, PATIENCE, check};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;

impl Lab {
    /// Opens a session over a websocket with this protocol and these further fields.
    async fn session(&self, path: &str, protocol: &str, more: &[(&str, &str)]) -> Websocket {
        let fields = [&HANDSHAKE[..], &[("Sec-WebSocket-Protocol", protocol)], more].concat();
        self.raw.websocket(&format!("{NAMESPACE}/pods/{path}"), &fields).await
    }

    /// Opens a session with the newest protocol.
    async fn v5(&self, path: &str) -> Websocket {
        self.session(path, "v5.channel.k8s.io", &[]).await
    }

    /// Declares in the node's status that its kubelet supports websockets.
    async fn declares_websockets(&self) {
        let status = json!({"status": {"declaredFeatures": ["ExtendWebSocketsToKubelet"]}});
        self.raw.patch("/api/v1/nodes/n/status", MERGE, &status).await.expect(200);
    }
}

/// The output of a session until it is closed: standard output, standard error, and the status.
async fn outcome(session: &mut Websocket) -> (String, String, Value) {
    let (mut out, mut errors, mut status) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        match session.next().await {
            Some((BINARY_FRAME, message)) => match message.split_first().expect("a channel") {
                (&STDOUT, data) => out.extend_from_slice(data),
                (&STDERR, data) => errors.extend_from_slice(data),
                (&ERROR, data) => status.extend_from_slice(data),
                (other, _) => panic!("channel {other}"),
            },
            Some((CLOSE_FRAME, payload)) => {
                session.send(CLOSE_FRAME, &payload).await;
                break;
            }
            Some((opcode, _)) => panic!("opcode {opcode}"),
            None => break,
        }
    }
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(out), text(errors), serde_json::from_slice(&status).unwrap_or_default())
}

/// The numbers of sessions in a metric, by code.
async fn counted(lab: &Lab, metric: &str) -> Vec<(String, f64)> {
    let text = lab.raw.get("/metrics").await.expect(200).text();
    let begin = format!("{metric}{{code=\"");
    let lines = text.lines().filter_map(|line| line.strip_prefix(&begin)?.split_once("\"} "));
    lines.map(|(code, count)| (code.to_owned(), count.parse().unwrap())).collect()
}

const TRANSLATED: &str = "apiserver_stream_translator_requests_total";
const TUNNELLED: &str = "apiserver_stream_tunnel_requests_total";

fn exec(command: &[&str], options: &str) -> String {
    let command: Vec<String> = command.iter().map(|word| format!("command={word}")).collect();
    format!("p/exec?{}&{options}", command.join("&"))
}

#[tokio::test]
async fn a_websocket_is_translated_for_a_kubelet_that_speaks_spdy() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["echo", "hello"], "stdout=true&stderr=true")).await;
    assert_eq!((session.status, session.header("sec-websocket-protocol")), (101, "v5.channel.k8s.io"));
    assert_eq!(session.header("sec-websocket-accept"), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let (out, errors, status) = outcome(&mut session).await;
    assert_eq!((out.as_str(), errors.as_str(), status["status"].as_str()), ("hello\n", "", Some("Success")));
    let requests = lab.kubelet.requests();
    let target = "/exec/lab/p/main?command=echo&command=hello&error=1&output=1";
    assert_eq!((requests[0].method.as_str(), requests[0].target.as_str()), ("POST", target));
    assert_eq!(requests[0].header("x-stream-protocol-version"), ["v4.channel.k8s.io"]);
    assert_eq!(requests[0].header("upgrade"), ["SPDY/3.1"]);
    assert!(requests[0].header("sec-websocket-key").is_empty());
    lab.without_connections().await;
}

#[tokio::test]
async fn input_its_end_and_the_exit_code_pass_the_translation() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session =
        lab.v5(&exec(&["sh", "-c", "cat;echo+done+%3E%262;exit+7"], "stdin=true&stdout=true&stderr=true")).await;
    session.send(BINARY_FRAME, &[&[STDIN], &b"some "[..]].concat()).await;
    session.send(BINARY_FRAME, &[&[STDIN], &b"input"[..]].concat()).await;
    session.send(BINARY_FRAME, &[255, STDIN]).await;
    let (out, errors, status) = outcome(&mut session).await;
    assert_eq!((out.as_str(), errors.as_str()), ("some input", "done\n"));
    assert_eq!(
        (&status["reason"], &status["details"]["causes"][0]["message"]),
        (&json!("NonZeroExitCode"), &json!("7"))
    );
    assert_eq!(counted(&lab, TRANSLATED).await, [("200".to_owned(), 1.)]);
}

#[tokio::test]
async fn a_terminal_has_a_size() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["size"], "stdin=true&stdout=true&stderr=true&tty=true")).await;
    session.send(BINARY_FRAME, &[&[RESIZE], &br#"{"Width":120,"Height":40}"#[..]].concat()).await;
    let (out, _, status) = outcome(&mut session).await;
    assert_eq!((out.as_str(), status["status"].as_str()), ("120x40\n", Some("Success")));
}

#[tokio::test]
async fn much_output_passes_the_translation_whole() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["head", "-c", "3000000", "/dev/zero"], "stdout=true")).await;
    let (out, _, status) = outcome(&mut session).await;
    assert_eq!((out.len(), status["status"].as_str()), (3_000_000, Some("Success")));
}

#[tokio::test]
async fn a_kubelet_that_dies_in_a_session_is_no_success() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["die"], "stdout=true")).await;
    let (out, _, status) = outcome(&mut session).await;
    assert_eq!((out.as_str(), status["status"].as_str()), ("half", Some("Failure")));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("the session with the kubelet failed"), "{message}");
    assert_eq!(counted(&lab, TRANSLATED).await, [("500".to_owned(), 1.)]);
}

#[tokio::test]
async fn a_client_that_goes_ends_its_session() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let session = lab.v5(&exec(&["hang"], "stdout=true")).await;
    assert_eq!((session.status, lab.kubelet.open_connections()), (101, 1));
    drop(session);
    lab.without_connections().await;
    // The session also ends if the client sends a message above the limit.
    let mut session = lab.v5(&exec(&["hang"], "stdin=true&stdout=true")).await;
    session.send(CLOSE_FRAME, &[3, 232]).await;
    lab.without_connections().await;
}

#[tokio::test]
async fn a_stopped_server_ends_its_sessions() {
    let mut lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["hang"], "stdout=true")).await;
    session.next().await.expect("the session begins");
    let begun = std::time::Instant::now();
    lab.server.stop().await;
    assert!(begun.elapsed() < PATIENCE / 3, "{:?}", begun.elapsed());
    assert!(session.next().await.is_none());
}

#[tokio::test]
async fn a_kubelet_that_speaks_websockets_gets_them_as_they_are() {
    let lab = Lab::start().await;
    lab.declares_websockets().await;
    lab.pod("p", "n").await;
    let mut session = lab.v5(&exec(&["cat"], "stdin=true&stdout=true")).await;
    session.send(BINARY_FRAME, &[&[STDIN], &b"as it is"[..]].concat()).await;
    session.send(BINARY_FRAME, &[255, STDIN]).await;
    let (out, _, status) = outcome(&mut session).await;
    assert_eq!((out.as_str(), status["status"].as_str()), ("as it is", Some("Success")));
    let requests = lab.kubelet.requests();
    assert_eq!((requests[0].method.as_str(), requests[0].header("upgrade")), ("GET", vec!["websocket"]));
}

#[tokio::test]
async fn older_websocket_protocols_go_to_every_kubelet() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.session("p/attach?stdout=true&stdin=true", "v4.channel.k8s.io", &[]).await;
    assert_eq!((session.status, session.header("sec-websocket-protocol")), (101, "v4.channel.k8s.io"));
    let (opcode, message) = session.next().await.unwrap();
    assert_eq!((opcode, &message[..]), (BINARY_FRAME, &b"\x01attached\n"[..]));
    let requests = lab.kubelet.requests();
    assert_eq!(requests[0].target, "/attach/lab/p/main?input=1&output=1");
}

/// Sends a request header, and returns the connection with the response header.
async fn ask(lab: &Lab, head: &str) -> (TlsStream<TcpStream>, String) {
    let mut wire = lab.raw.connect().await;
    wire.write_all(format!("{head}\r\nhost: a\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        answer.push(char::from(tokio::time::timeout(PATIENCE, wire.read_u8()).await.unwrap().unwrap()));
    }
    (wire, answer)
}

fn spdy(path: &str) -> String {
    format!(
        "POST {NAMESPACE}/pods/{path} HTTP/1.1\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
         x-stream-protocol-version: v4.channel.k8s.io\r\nx-stream-protocol-version: portforward.k8s.io\r\n\
         authorization: Bearer x\r\ncookie: a=b\r\nx-remote-user: admin"
    )
}

#[tokio::test]
async fn spdy_is_passed_as_it_is() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let (mut wire, head) = ask(&lab, &spdy("p/exec?command=cat&stdin=true&stdout=true")).await;
    assert!(
        head.starts_with("HTTP/1.1 101 ") && head.contains("x-stream-protocol-version: v4.channel.k8s.io\r\n"),
        "{head}"
    );
    // The kubelet answers a ping of the client.
    wire.write_all(&[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]).await.unwrap();
    let mut pong = [0; 12];
    tokio::time::timeout(PATIENCE, wire.read_exact(&mut pong)).await.unwrap().unwrap();
    assert_eq!(pong, [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1]);
    let requests = lab.kubelet.requests();
    for kept_back in ["authorization", "cookie", "x-remote-user"] {
        assert!(requests[0].header(kept_back).is_empty(), "{kept_back}");
    }
    drop(wire);
    lab.without_connections().await;
}

#[tokio::test]
async fn sessions_require_an_upgrade_and_follow_no_redirects() {
    let lab = Lab::start().await;
    for pod in ["p", "redirecting", "broken", "silent"] {
        lab.pod(pod, "n").await;
    }
    let plain = lab.raw.post(format!("{NAMESPACE}/pods/p/exec?command=ls"), &json!({})).await;
    check(&plain, 400, "BadRequest", "Upgrade request required");
    let (mut wire, head) = ask(&lab, &spdy("redirecting/exec?command=ls&stdout=true")).await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let mut body = vec![0; 1024];
    let read = wire.read(&mut body).await.unwrap();
    let body = String::from_utf8_lossy(&body[..read]).into_owned();
    assert!(body.contains("invalid upgrade response: status code 302") && !body.contains("169.254"), "{body}");
    let (_, head) = ask(&lab, &spdy("broken/exec?command=ls&stdout=true")).await;
    assert!(head.starts_with("HTTP/1.1 500 "), "{head}");
    let refused = lab.v5("broken/exec?command=ls&stdout=true").await;
    assert_eq!(refused.status, 500);
}

#[tokio::test]
async fn ports_are_forwarded_in_a_websocket_that_carries_spdy() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    let mut session = lab.session("p/portforward", "SPDY/3.1+portforward.k8s.io", &[]).await;
    assert_eq!((session.status, session.header("sec-websocket-protocol")), (101, "SPDY/3.1+portforward.k8s.io"));
    // Frames may be split over messages: this ping comes in two.
    session.send(BINARY_FRAME, &[0x80, 3, 0, 6, 0]).await;
    session.send(BINARY_FRAME, &[0, 0, 4, 0, 0, 0, 3]).await;
    let mut heard = Vec::new();
    while heard.len() < 12 {
        let (opcode, message) = session.next().await.expect("an answer");
        assert_eq!(opcode, BINARY_FRAME);
        heard.extend_from_slice(&message);
    }
    assert_eq!(heard, [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 3]);
    let requests = lab.kubelet.requests();
    assert_eq!((requests[0].method.as_str(), requests[0].target.as_str()), ("POST", "/portForward/lab/p"));
    assert_eq!(requests[0].header("x-stream-protocol-version"), ["portforward.k8s.io"]);
    assert_eq!(counted(&lab, TUNNELLED).await, [("101".to_owned(), 1.)]);
    assert_eq!(counted(&lab, TRANSLATED).await, []);
    drop(session);
    lab.without_connections().await;
}

#[tokio::test]
async fn a_session_requires_create_and_reaches_no_kubelet_without() {
    let lab = Lab::start().await;
    lab.pod("p", "n").await;
    lab.allow("eve", &["pods/exec", "pods/attach", "pods/portforward"], &["get"]).await;
    for (below, protocol) in
        [("exec?command=ls&stdout=true", "v5.channel.k8s.io"), ("portforward", "SPDY/3.1+portforward.k8s.io")]
    {
        let refused = lab.session(&format!("p/{below}"), protocol, &[("Impersonate-User", "eve")]).await;
        assert_eq!(refused.status, 403, "{}", refused.refusal);
    }
    assert!(lab.kubelet.requests().is_empty());
}

#[tokio::test]
async fn connections_to_nodes_are_bounded_apart_from_others() {
    let lab = Lab::with(KubeletDouble::start().await, |config, _| config.outbound_connections = 16).await;
    lab.pod("silent", "n").await;
    lab.pod("p", "n").await;
    let waiting = lab.hang(4).await;
    let refused = lab.raw.get(format!("{NAMESPACE}/pods/p/log")).await;
    check(&refused, 429, "TooManyRequests", "too many requests to 127.0.0.1 are under way");
    // Requests for other resources still work.
    lab.raw.get("/api/v1/nodes").await.expect(200);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
