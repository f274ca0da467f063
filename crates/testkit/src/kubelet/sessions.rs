//! Sessions (exec, attach and port-forward) with the pods of the test kubelet.
//!
//! Commands are programs of this machine, and forwarded ports are ports of its loopback address.

use std::process::Stdio;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::sync::mpsc;

use super::spdy::{self, SpdyStream, Writer};
use super::{Open, text, websocket};
use crate::UpstreamBody;

/// The channels of a session, with their numbers in the websocket protocols.
pub(super) const STDIN: u8 = 0;
pub(super) const STDOUT: u8 = 1;
pub(super) const STDERR: u8 = 2;
pub(super) const ERROR: u8 = 3;
pub(super) const RESIZE: u8 = 4;

/// Output on one channel. The last piece of a channel ends it.
pub(super) struct OutputChunk {
    pub(super) channel: u8,
    pub(super) bytes: Bytes,
    pub(super) is_last: bool,
}

/// A requested session.
#[derive(Clone, Debug)]
pub(super) struct SessionRequest {
    pub(super) path: String,
    pub(super) command: Vec<String>,
    /// The port to forward over a websocket; 0 for other sessions.
    pub(super) port: u16,
    flags: Vec<String>,
}

impl SessionRequest {
    fn from_request(request: &Request<Incoming>) -> Self {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let pairs: Vec<(&str, String)> =
            pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name, decoded(value))).collect();
        let command = pairs.iter().filter(|(name, _)| *name == "command").map(|(_, value)| value.clone()).collect();
        let flags = pairs.iter().filter(|(_, value)| value == "1").map(|(name, _)| (*name).to_owned()).collect();
        let port = pairs.iter().find(|(name, _)| *name == "port").and_then(|(_, value)| value.parse().ok());
        Self { path: request.uri().path().to_owned(), command, port: port.unwrap_or_default(), flags }
    }

    /// Returns true if the request asks for the stream with this parameter name.
    pub(super) fn wants(&self, parameter: &str) -> bool {
        self.flags.iter().any(|flag| flag == parameter)
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

fn item<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Answers a request for a session: an upgrade to SPDY, or to a websocket.
pub(super) fn answer(mut request: Request<Incoming>, open: Arc<Open>) -> Response<UpstreamBody> {
    let requested = SessionRequest::from_request(&request);
    let upgrade = hyper::upgrade::on(&mut request);
    let headers = request.headers();
    let mut response = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let fields = response.headers_mut();
    fields.insert("connection", "Upgrade".parse().expect("a value"));
    match item(headers, "upgrade") {
        "SPDY/3.1" => {
            let offered = headers.get_all("x-stream-protocol-version").iter().filter_map(|value| value.to_str().ok());
            let offered: Vec<&str> = offered.flat_map(|value| value.split(',')).map(str::trim).collect();
            let wanted =
                if requested.path.starts_with("/portForward") { "portforward.k8s.io" } else { "v4.channel.k8s.io" };
            if !offered.contains(&wanted) {
                return text(403, "unable to upgrade: the protocol is not known");
            }
            fields.insert("upgrade", "SPDY/3.1".parse().expect("a value"));
            fields.insert("x-stream-protocol-version", wanted.parse().expect("a value"));
            tokio::spawn(async move {
                let Ok(connection) = upgrade.await else { return };
                over_spdy(requested, TokioIo::new(connection)).await;
                drop(open);
            });
        }
        "websocket" => {
            let Some(protocol) = websocket::accept(headers, fields) else {
                return text(400, "unable to upgrade: the subprotocol is not known");
            };
            tokio::spawn(async move {
                let Ok(connection) = upgrade.await else { return };
                websocket::session(requested, protocol, TokioIo::new(connection)).await;
                drop(open);
            });
        }
        _ => return text(400, "Upgrade request required"),
    }
    response
}

async fn over_spdy(request: SessionRequest, connection: TokioIo<hyper::upgrade::Upgraded>) {
    let (writer, mut streams) = spdy::serve(connection);
    if request.path.starts_with("/portForward") {
        forward_ports(writer, streams).await;
        return;
    }
    let wanted = [("error", true), ("stdin", request.wants("input")), ("stdout", request.wants("output"))];
    let further = [("stderr", request.wants("error") && !request.wants("tty")), ("resize", request.wants("tty"))];
    let count = wanted.iter().chain(&further).filter(|(_, wants)| *wants).count();
    let mut opened: Vec<SpdyStream> = Vec::new();
    while opened.len() < count {
        let Some(stream) = streams.recv().await else { return };
        opened.push(stream);
    }
    let mut take = |kind: &str| {
        let place = opened.iter().position(|stream| stream.field("streamtype") == kind)?;
        Some(opened.swap_remove(place))
    };
    let (error, stdin, stdout, stderr, resize) =
        (take("error"), take("stdin"), take("stdout"), take("stderr"), take("resize"));
    let numbers = move |channel: u8| match channel {
        STDOUT => stdout.as_ref().map(|stream| stream.id),
        STDERR => stderr.as_ref().map(|stream| stream.id),
        _ => error.as_ref().map(|stream| stream.id),
    };
    let (output, mut pieces) = mpsc::channel::<OutputChunk>(16);
    let running = run(request, stdin.map(|stream| stream.data), resize.map(|stream| stream.data), output);
    let sending = async {
        while let Some(OutputChunk { channel, bytes, is_last }) = pieces.recv().await {
            let Some(stream) = numbers(channel) else { continue };
            if writer.data(stream, &bytes, is_last).await.is_err() {
                return;
            }
        }
    };
    let gone = async { while streams.recv().await.is_some() {} };
    tokio::select! {
        _ = async { tokio::join!(running, sending) } => {}
        () = gone => {}
    }
    writer.close().await;
}

/// Runs the command of a session. `die` ends without a status, `hang` never ends, `size` prints the size of the
/// terminal.
pub(super) async fn run(
    request: SessionRequest,
    stdin: Option<mpsc::UnboundedReceiver<Bytes>>,
    resize: Option<mpsc::UnboundedReceiver<Bytes>>,
    output: mpsc::Sender<OutputChunk>,
) {
    let send = async |channel: u8, text: String, is_last: bool| {
        // A client that has disconnected reads nothing.
        let _ = output.send(OutputChunk { channel, bytes: text.into(), is_last }).await;
    };
    let command = match request.path.starts_with("/attach") {
        true => {
            send(STDOUT, "attached\n".to_owned(), false).await;
            vec!["cat".to_owned()]
        }
        false => request.command.clone(),
    };
    let status = match command.first().map(String::as_str) {
        Some("die") => {
            send(STDOUT, "half".to_owned(), false).await;
            return;
        }
        Some("hang") => std::future::pending().await,
        Some("size") => {
            let size = match resize {
                Some(mut resize) => resize.recv().await.unwrap_or_default(),
                None => Bytes::new(),
            };
            let size: Value = serde_json::from_slice(&size).unwrap_or_default();
            send(STDOUT, format!("{}x{}\n", size["Width"], size["Height"]), false).await;
            json!({"metadata": {}, "status": "Success"})
        }
        Some(_) => program(&command, stdin, (request.wants("tty"), &output)).await,
        None => json!({"metadata": {}, "status": "Failure", "message": "no command", "code": 400}),
    };
    send(STDOUT, String::new(), true).await;
    send(STDERR, String::new(), true).await;
    send(ERROR, status.to_string(), true).await;
}

async fn program(
    command: &[String],
    stdin: Option<mpsc::UnboundedReceiver<Bytes>>,
    (is_terminal, output): (bool, &mpsc::Sender<OutputChunk>),
) -> Value {
    let mut started = Command::new(&command[0]);
    started.args(&command[1..]).stdin(if stdin.is_some() { Stdio::piped() } else { Stdio::null() });
    started.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = match started.spawn() {
        Ok(child) => child,
        Err(error) => {
            let message = format!("starting container process caused: {error}");
            return json!({"metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500});
        }
    };
    if let (Some(mut stdin), Some(mut pipe)) = (stdin, child.stdin.take()) {
        tokio::spawn(async move {
            while let Some(bytes) = stdin.recv().await {
                // A terminal ends a line at the Return key.
                let end = |byte: &u8| if is_terminal && *byte == b'\r' { b'\n' } else { *byte };
                let bytes: Vec<u8> = bytes.iter().map(end).collect();
                if pipe.write_all(&bytes).await.is_err() || pipe.flush().await.is_err() {
                    return;
                }
            }
        });
    }
    let (out, errors) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    tokio::join!(pump(out, STDOUT, output), pump(errors, STDERR, output));
    let code = child.wait().await.ok().and_then(|status| status.code()).unwrap_or(-1);
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

async fn pump(mut from: impl tokio::io::AsyncRead + Unpin, channel: u8, output: &mpsc::Sender<OutputChunk>) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut buffer).await {
        let piece = OutputChunk { channel, bytes: Bytes::copy_from_slice(&buffer[..count]), is_last: false };
        if count == 0 || output.send(piece).await.is_err() {
            return;
        }
    }
}

/// Connects each pair of streams to a port of the loopback address.
async fn forward_ports(writer: Writer, mut streams: mpsc::UnboundedReceiver<SpdyStream>) {
    let mut errors = std::collections::HashMap::new();
    while let Some(stream) = streams.recv().await {
        let request = stream.field("requestid").to_owned();
        if stream.field("streamtype") == "error" {
            errors.insert(request, stream.id);
            continue;
        }
        let error = errors.remove(&request);
        tokio::spawn(forward(writer.clone(), stream, error));
    }
}

async fn forward(writer: Writer, mut stream: SpdyStream, error: Option<u32>) {
    let port: u16 = stream.field("port").parse().unwrap_or_default();
    let failure = match TcpStream::connect(("127.0.0.1", port)).await {
        Ok(connection) => {
            let (mut from, mut to) = connection.into_split();
            let there = async {
                while let Some(bytes) = stream.data.recv().await {
                    if to.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                let _ = to.shutdown().await;
            };
            let back = async {
                let mut buffer = vec![0; 16 << 10];
                while let Ok(count) = from.read(&mut buffer).await {
                    if writer.data(stream.id, &buffer[..count], count == 0).await.is_err() || count == 0 {
                        return;
                    }
                }
            };
            tokio::join!(there, back);
            String::new()
        }
        Err(error) => format!("error forwarding port {port}: {error}"),
    };
    if let Some(error) = error {
        let _ = writer.data(error, failure.as_bytes(), true).await;
    }
}
