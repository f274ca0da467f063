//! A server whose connections break at a chosen point of a request, and that counts the requests.
//!
//! The server writes HTTP/1.1 and HTTP/2 by hand, since no library sends a GOAWAY that excludes a stream it has read. A
//! connection breaks on its second request, when the client already reuses it. Later connections answer all their
//! requests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rcgen::CertificateParams;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::hook::HookIdentity;

/// The point of a connection's break.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakPoint {
    /// HTTP/1.1: the connection ends after the request.
    Request,
    /// HTTP/1.1: the connection ends within the response header.
    ResponseHead,
    /// HTTP/1.1: the connection ends within the response body.
    ResponseBody,
    /// HTTP/2: the connection ends after the request.
    Stream,
    /// HTTP/2: a GOAWAY names an earlier stream than the request's as the last one, and the connection ends.
    GoAwayBefore,
    /// HTTP/2: a GOAWAY names the request's stream as the last one, and the connection ends.
    GoAwayBehind,
    /// HTTP/2: the stream is refused; the connection stays.
    Refused,
    /// HTTP/2: the stream is reset with an internal error; the connection stays.
    Reset,
    /// HTTP/2: the connection ends after the response header.
    StreamHead,
}

impl BreakPoint {
    /// All points.
    pub const ALL: [Self; 9] = [
        Self::Request,
        Self::ResponseHead,
        Self::ResponseBody,
        Self::Stream,
        Self::GoAwayBefore,
        Self::GoAwayBehind,
        Self::Refused,
        Self::Reset,
        Self::StreamHead,
    ];

    const fn is_http2(self) -> bool {
        !matches!(self, Self::Request | Self::ResponseHead | Self::ResponseBody)
    }
}

/// A server whose connections break. Stops when dropped.
#[derive(Debug)]
pub struct BreakingServer {
    addr: SocketAddr,
    ca: String,
    state: Arc<State>,
    serving: tokio::task::JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    point: BreakPoint,
    has_broken: AtomicBool,
    requests: AtomicUsize,
}

impl State {
    /// Counts a request that follows `earlier` requests on its connection. Returns true if the connection must break on
    /// it.
    fn breaks(&self, earlier: usize) -> bool {
        self.requests.fetch_add(1, Ordering::SeqCst);
        earlier > 0 && !self.has_broken.swap(true, Ordering::SeqCst)
    }
}

impl BreakingServer {
    /// Starts a server on a free port of the loopback address, with that address in its certificate.
    pub async fn start(point: BreakPoint) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name that a certificate can have");
        let identity = HookIdentity::fresh(params);
        let (addr, ca) = (listener.local_addr().expect("a bound socket has an address"), identity.ca().to_owned());
        let acceptor = TlsAcceptor::from(identity.settings(if point.is_http2() { b"h2" } else { b"http/1.1" }));
        let (has_broken, requests) = (AtomicBool::new(false), AtomicUsize::new(0));
        let state = Arc::new(State { point, has_broken, requests });
        let serving = tokio::spawn({
            let state = state.clone();
            async move {
                let mut open = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, state) = (acceptor.clone(), state.clone());
                    open.spawn(async move {
                        let mut stream = acceptor.accept(stream).await?;
                        if point.is_http2() {
                            serve_http2(&mut stream, &state).await?;
                        } else {
                            serve_http1(&mut stream, &state).await?;
                        }
                        stream.shutdown().await
                    });
                    while open.try_join_next().is_some() {}
                }
            }
        });
        Self { addr, ca, state, serving }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.addr)
    }

    /// The authority of its certificate (PEM).
    pub fn ca(&self) -> &str {
        &self.ca
    }

    /// The number of requests that it has read.
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Returns true once a connection has broken.
    pub fn has_broken(&self) -> bool {
        self.state.has_broken.load(Ordering::SeqCst)
    }
}

impl Drop for BreakingServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve_http1<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, state: &State) -> io::Result<()> {
    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    for earlier in 0.. {
        read_http1_request(stream).await?;
        if !state.breaks(earlier) {
            stream.write_all(WHOLE).await?;
            continue;
        }
        let sent = match state.point {
            BreakPoint::ResponseHead => &WHOLE[..20],
            BreakPoint::ResponseBody => &WHOLE[..WHOLE.len() - 1],
            _ => &[],
        };
        stream.write_all(sent).await?;
        return stream.flush().await;
    }
    Ok(())
}

/// Reads a header, and a body of the stated length.
async fn read_http1_request<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap_or(0)]).await?;
    Ok(())
}

/// Frame types, flags and error codes (RFC 9113, 6 and 7).
mod frame {
    pub(super) const DATA: u8 = 0;
    pub(super) const HEADERS: u8 = 1;
    pub(super) const RST_STREAM: u8 = 3;
    pub(super) const SETTINGS: u8 = 4;
    pub(super) const PING: u8 = 6;
    pub(super) const GOAWAY: u8 = 7;
    pub(super) const END_STREAM: u8 = 1;
    pub(super) const ACK: u8 = 1;
    pub(super) const END_HEADERS: u8 = 4;
    pub(super) const NO_ERROR: u32 = 0;
    pub(super) const INTERNAL_ERROR: u32 = 2;
    pub(super) const REFUSED_STREAM: u32 = 7;
    /// `:status: 200` from the static table of HPACK.
    pub(super) const STATUS_200: &[u8] = &[0x88];
}

async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, state: &State) -> io::Result<()> {
    const PREFACE_BYTES: usize = 24;
    stream.read_exact(&mut [0; PREFACE_BYTES]).await?;
    write_frame(stream, (frame::SETTINGS, 0), 0, &[]).await?;
    let mut earlier = 0;
    loop {
        let (kind, flags, id, payload) = read_frame(stream).await?;
        match kind {
            frame::SETTINGS if flags & frame::ACK == 0 => {
                write_frame(stream, (frame::SETTINGS, frame::ACK), 0, &[]).await?;
            }
            frame::PING if flags & frame::ACK == 0 => {
                write_frame(stream, (frame::PING, frame::ACK), 0, &payload).await?;
            }
            frame::HEADERS | frame::DATA if flags & frame::END_STREAM != 0 => {
                let breaks = state.breaks(earlier);
                earlier += 1;
                if breaks {
                    if break_http2(stream, state.point, id).await? {
                        return Ok(());
                    }
                    continue;
                }
                write_frame(stream, (frame::HEADERS, frame::END_HEADERS), id, frame::STATUS_200).await?;
                write_frame(stream, (frame::DATA, frame::END_STREAM), id, b"{}").await?;
            }
            _ => {}
        }
    }
}

/// Breaks the stream. Returns true if the connection must end.
async fn break_http2<S: AsyncWrite + Unpin>(stream: &mut S, point: BreakPoint, id: u32) -> io::Result<bool> {
    let go_away = |last: u32| [last.to_be_bytes(), frame::NO_ERROR.to_be_bytes()].concat();
    let (kind, of, payload) = match point {
        BreakPoint::GoAwayBefore => (frame::GOAWAY, 0, go_away(id - 2)),
        BreakPoint::GoAwayBehind => (frame::GOAWAY, 0, go_away(id)),
        BreakPoint::Refused => (frame::RST_STREAM, id, frame::REFUSED_STREAM.to_be_bytes().to_vec()),
        BreakPoint::Reset => (frame::RST_STREAM, id, frame::INTERNAL_ERROR.to_be_bytes().to_vec()),
        BreakPoint::StreamHead => (frame::HEADERS, id, frame::STATUS_200.to_vec()),
        _ => return Ok(true),
    };
    let flags = if kind == frame::HEADERS { frame::END_HEADERS } else { 0 };
    write_frame(stream, (kind, flags), of, &payload).await?;
    Ok(!matches!(point, BreakPoint::Refused | BreakPoint::Reset))
}

async fn read_frame<S: AsyncRead + Unpin>(stream: &mut S) -> io::Result<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, id @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    stream.read_exact(&mut payload).await?;
    Ok((kind, flags, u32::from_be_bytes(id) & (u32::MAX >> 1), payload))
}

async fn write_frame<S: AsyncWrite + Unpin>(
    stream: &mut S,
    (kind, flags): (u8, u8),
    id: u32,
    payload: &[u8],
) -> io::Result<()> {
    let length = u32::try_from(payload.len()).expect("a small payload").to_be_bytes();
    let head = [&length[1..], &[kind, flags], &id.to_be_bytes()].concat();
    stream.write_all(&[&head, payload].concat()).await?;
    stream.flush().await
}
