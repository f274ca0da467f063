//! Sessions between clients that use `v5.channel.k8s.io` over a websocket and kubelets that support only SPDY.
//!
//! A websocket message begins with the number of its channel. Each channel is an SPDY stream. The client closes its
//! input with a message of its own. The kubelet ends a session with a `Status` on its error stream, which the client
//! gets last. If the connection to the kubelet breaks, the client gets an error.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt as _, StreamExt as _};
use http::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use keelson_meta::{ApiError, Object, json};
use keelson_outbound::NodeAddress;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::codes::{self, Codes};
use super::sessions::is_set;
use super::spdy::{self, ControlKind, FrameHead};
use super::{NodeAccess, unwritable, websocket};
use crate::body::ResponseBody;
use crate::proxy::{HeldValue, begun_tunnel, counted, idle, list, spawn_session};

/// The clients' protocol.
const CLIENT_PROTOCOL: &str = "v5.channel.k8s.io";
/// The kubelets' protocol inside SPDY.
const KUBELET_PROTOCOL: &str = "v4.channel.k8s.io";
/// The channels of the clients' protocol.
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
/// The channel for the message that closes another channel.
const CLOSE: u8 = 255;
/// The maximum number of output bytes in one message.
const MESSAGE_BYTES: usize = 32 << 10;
/// The maximum size of a control frame in bytes.
const CONTROL_BYTES: usize = 64 << 10;
/// The maximum size of the kubelet's status in bytes.
const STATUS_BYTES: usize = 64 << 10;
/// The longest time for the kubelet to accept all streams.
const OPEN_TIME: Duration = Duration::from_secs(30);
/// The longest time for the client to read the status and to close the websocket.
const END_TIME: Duration = Duration::from_secs(5);

type Client = WebSocketStream<TokioIo<Upgraded>>;
type ToKubelet = Mutex<WriteHalf<TokioIo<Upgraded>>>;

/// The streams of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Streams {
    /// The streams in the options of a session.
    pub(super) fn from_object(said: &Object) -> Self {
        let tty = is_set(said, "tty");
        // A terminal has one output.
        let stderr = is_set(said, "stderr") && !tty;
        Self { stdin: is_set(said, "stdin"), stdout: is_set(said, "stdout"), stderr, tty }
    }
}

/// Returns true for a websocket request with this protocol.
pub(super) fn is_wanted(headers: &HeaderMap) -> bool {
    crate::websocket::is_wanted(headers) && list(headers, &SEC_WEBSOCKET_PROTOCOL).any(|item| item == CLIENT_PROTOCOL)
}

impl NodeAccess {
    /// Runs a session between a client's websocket and a kubelet's SPDY connection.
    pub(super) async fn translate(
        &self,
        (client, held): (OnUpgrade, Option<HeldValue>),
        parts: &Parts,
        address: &NodeAddress,
        target: &str,
        streams: Streams,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let key = websocket::accept_key(&parts.headers)?;
        let head = self.spdy_head(parts, address, target, &[KUBELET_PROTOCOL]).ok_or_else(unwritable)?;
        let (mut answer, permit) = self.upgrade(address, head, None).await?;
        if answer.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Ok(begun_tunnel(client, answer, (permit, held), &self.tasks));
        }
        let spoken = answer.headers().get(spdy::PROTOCOL_VERSION).map(HeaderValue::as_bytes);
        if !spdy::is_chosen(&answer) || spoken != Some(KUBELET_PROTOCOL.as_bytes()) {
            return Err(ApiError::Unclassified(
                "unable to upgrade: the kubelet does not speak v4.channel.k8s.io".to_owned(),
            ));
        }
        let server = hyper::upgrade::on(&mut answer);
        let ends = self.counts.translations.clone();
        let run = move |client, server| session(client, server, streams, ends);
        spawn_session(&self.tasks, (client, server), (permit, held), run);
        Ok(websocket::accepted(key, Some(HeaderValue::from_static(CLIENT_PROTOCOL))))
    }
}

/// Runs a session until the kubelet ends it or the client disconnects.
async fn session(client: Upgraded, server: Upgraded, streams: Streams, ends: Arc<Codes>) {
    let (mut sink, mut messages) = websocket::socket(client).await.split();
    let (from_kubelet, to_kubelet) = tokio::io::split(TokioIo::new(server));
    let to_kubelet = Mutex::new(to_kubelet);
    let passed = AtomicU64::new(0);
    let ended = async {
        let mut kubelet = Kubelet::open(from_kubelet, &to_kubelet, streams).await?;
        // The first message shows the client that the session has begun.
        let first = if streams.stdout { Some(STDOUT) } else { streams.stderr.then_some(STDERR) };
        send(&mut sink, first.unwrap_or(ERROR), &[]).await?;
        let (stdin, resize) = (kubelet.stdin, kubelet.resize);
        tokio::select! {
            status = kubelet.output(&mut sink, &passed) => status.map(Some),
            () = input(&mut messages, &to_kubelet, (stdin, resize), &passed) => Ok(None),
            () = idle(&passed) => Ok(None),
        }
    };
    let status = match ended.await {
        Ok(Some(status)) => status,
        // The client disconnected.
        Ok(None) => return ends.count(StatusCode::OK.as_u16()),
        Err(error) => internal(&error),
    };
    ends.count(codes::of_status(&status));
    let told = async {
        if send(&mut sink, ERROR, &status).await.is_ok() && sink.send(websocket::end()).await.is_ok() {
            while let Some(Ok(_)) = messages.next().await {}
        }
    };
    let _ = timeout(END_TIME, told).await;
}

/// The status of a session whose connection broke.
fn internal(error: &io::Error) -> Vec<u8> {
    let status = ApiError::Internal(format!("the session with the kubelet failed: {error}")).status();
    json::to_value(&status).map(|status| keelson_codec::json::to_vec(&status)).unwrap_or_default()
}

async fn send(sink: &mut SplitSink<Client, Message>, channel: u8, data: &[u8]) -> io::Result<()> {
    let mut message = Vec::with_capacity(1 + data.len());
    message.push(channel);
    message.extend_from_slice(data);
    sink.send(Message::Binary(message.into())).await.map_err(io::Error::other)
}

/// Copies the client's input to the kubelet's streams until the client disconnects.
async fn input(
    messages: &mut SplitStream<Client>,
    to_kubelet: &ToKubelet,
    (stdin, resize): (Option<u32>, Option<u32>),
    passed: &AtomicU64,
) {
    let mut stdin = stdin;
    loop {
        let data: Bytes = match messages.next().await {
            Some(Ok(Message::Binary(data))) => data,
            Some(Ok(Message::Text(text))) => text.into(),
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
            Some(Ok(Message::Close(_)) | Err(_)) | None => return,
        };
        let Some((channel, data)) = data.split_first() else { continue };
        counted(passed, 1 + data.len());
        let (stream, is_last) = match *channel {
            STDIN => (stdin, false),
            RESIZE => (resize, false),
            CLOSE if data.first() == Some(&STDIN) => (stdin.take(), true),
            _ => continue,
        };
        let Some(stream) = stream else { continue };
        let data = if is_last { &[][..] } else { data };
        let mut to_kubelet = to_kubelet.lock().await;
        let written = async {
            to_kubelet.write_all(&spdy::data_head(stream, is_last, data.len())).await?;
            to_kubelet.write_all(data).await?;
            to_kubelet.flush().await
        };
        if written.await.is_err() {
            // The other direction reports the reason.
            return std::future::pending().await;
        }
    }
}

/// The streams of a kubelet, by stream id.
struct Kubelet<'k> {
    from: ReadHalf<TokioIo<Upgraded>>,
    to: &'k ToKubelet,
    error: u32,
    stdin: Option<u32>,
    stdout: Option<u32>,
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl<'k> Kubelet<'k> {
    /// Opens all streams, and waits until the kubelet has accepted them.
    async fn open(from: ReadHalf<TokioIo<Upgraded>>, to: &'k ToKubelet, streams: Streams) -> io::Result<Self> {
        let mut writer = spdy::Writer::default();
        let mut frames = Vec::new();
        let mut opened = |name: &str, is_wanted: bool| {
            is_wanted.then(|| {
                let (stream, frame) = writer.open(name);
                frames.extend_from_slice(&frame);
                stream
            })
        };
        let error = opened("error", true).unwrap_or_default();
        let stdin = opened("stdin", streams.stdin);
        let stdout = opened("stdout", streams.stdout);
        let stderr = opened("stderr", streams.stderr);
        let resize = opened("resize", streams.tty);
        let wanted = 1 + [stdin, stdout, stderr, resize].iter().flatten().count();
        let mut kubelet = Self { from, to, error, stdin, stdout, stderr, resize };
        let accepted = async {
            {
                let mut to = to.lock().await;
                to.write_all(&frames).await?;
                to.flush().await?;
            }
            let mut replies = 0;
            while replies < wanted {
                match kubelet.head().await? {
                    FrameHead::Control { kind, bytes } => {
                        let content = kubelet.content(bytes).await?;
                        match kind {
                            ControlKind::Reply => replies += 1,
                            ControlKind::Reset => return Err(io::Error::other("it refused a stream")),
                            ControlKind::GoAway => return Err(io::ErrorKind::UnexpectedEof.into()),
                            ControlKind::Ping => kubelet.answer(&content).await,
                            ControlKind::Other => {}
                        }
                    }
                    FrameHead::Data { .. } => {
                        return Err(io::Error::other("it sent data before it accepted all streams"));
                    }
                }
            }
            Ok(())
        };
        timeout(OPEN_TIME, accepted).await.map_err(|_| io::Error::other("it accepted no streams in time"))??;
        Ok(kubelet)
    }

    /// Copies the output to the client until all streams have ended. Returns the status.
    async fn output(&mut self, sink: &mut SplitSink<Client, Message>, passed: &AtomicU64) -> io::Result<Vec<u8>> {
        let mut status = Vec::new();
        let mut open: Vec<u32> = [Some(self.error), self.stdout, self.stderr].into_iter().flatten().collect();
        let mut buffer = vec![0; MESSAGE_BYTES];
        while !open.is_empty() {
            let head = match self.head().await {
                Ok(head) => head,
                // Output after the status is output that the kubelet could not send earlier.
                Err(_) if !open.contains(&self.error) => break,
                Err(error) => return Err(error),
            };
            match head {
                FrameHead::Data { stream, is_last, bytes } => {
                    let mut left = bytes;
                    while left > 0 {
                        let piece = &mut buffer[..left.min(MESSAGE_BYTES)];
                        self.from.read_exact(piece).await?;
                        left -= piece.len();
                        counted(passed, piece.len());
                        match stream {
                            it if it == self.error && status.len() + piece.len() <= STATUS_BYTES => {
                                status.extend_from_slice(piece);
                            }
                            it if it == self.error => return Err(io::Error::other("its status is too long")),
                            it if Some(it) == self.stdout => send(sink, STDOUT, piece).await?,
                            it if Some(it) == self.stderr => send(sink, STDERR, piece).await?,
                            _ => {}
                        }
                    }
                    if is_last {
                        open.retain(|known| *known != stream);
                    }
                }
                FrameHead::Control { kind, bytes } => {
                    let content = self.content(bytes).await?;
                    match kind {
                        ControlKind::Reset => open.retain(|known| Some(*known) != spdy::subject(&content)),
                        ControlKind::GoAway if open.contains(&self.error) => {
                            return Err(io::ErrorKind::UnexpectedEof.into());
                        }
                        ControlKind::GoAway => break,
                        ControlKind::Ping => self.answer(&content).await,
                        ControlKind::Reply | ControlKind::Other => {}
                    }
                }
            }
        }
        Ok(if status.is_empty() { br#"{"metadata":{},"status":"Success"}"#.to_vec() } else { status })
    }

    async fn head(&mut self) -> io::Result<FrameHead> {
        let mut head = [0; spdy::HEAD_BYTES];
        self.from.read_exact(&mut head).await?;
        Ok(FrameHead::read(head))
    }

    async fn content(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        if bytes > CONTROL_BYTES {
            return Err(io::Error::other("it sent a control frame that is too long"));
        }
        let mut content = vec![0; bytes];
        self.from.read_exact(&mut content).await?;
        Ok(content)
    }

    /// Answers a ping, unless input is being written: a kubelet that reads no input must not block the reading of its
    /// output.
    async fn answer(&mut self, content: &[u8]) {
        let (Some(number), Ok(mut to)) = (spdy::subject(content), self.to.try_lock()) else { return };
        // Pings of the client's side have odd ids.
        if number % 2 == 0 && to.write_all(&spdy::ping(number)).await.is_ok() {
            let _ = to.flush().await;
        }
    }
}
