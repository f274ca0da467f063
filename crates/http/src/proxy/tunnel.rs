//! Upgrades: a client and an aggregated server that go on in another protocol, of which this server only passes the bytes.
//!
//! A tunnel ends when either side does, after what that side sent has gone to the other; when nothing has gone either way for long;
//! and when this server stops. It holds its place among the connections of this server, and of those to the other, until then.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::request::Parts;
use http::{Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use keelson_outbound::{ForwardPermit, ForwardedBody};
use keelson_supervision::TaskGroup;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::time::timeout;

use super::answer::{PassedOn, pass_back};
use super::headers::{keep_of_upgrade, wants_upgrade};
use crate::body::{ResponseBody, empty};
use crate::filters::panics;
use crate::respond;

/// The number of bytes buffered in a tunnel, in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// The time that both sides may take to begin after they agreed.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// After how long without a byte a tunnel ends: as long as kubelets leave a session without input.
const IDLE_TIME: Duration = Duration::from_secs(4 * 60 * 60);
/// The time that one side may take to end after the other has.
const END_TIME: Duration = Duration::from_secs(5);

/// A value held as long as the client's connection is in use, in the extensions of its requests.
#[derive(Clone)]
pub(crate) struct Held {
    _place: Arc<dyn Any + Send + Sync>,
}

impl Held {
    pub(crate) fn new(place: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _place: place }
    }
}

/// The client's side of an upgrade that it asks for.
pub(crate) fn wanted(parts: &mut Parts) -> Option<OnUpgrade> {
    let is_asked_for = parts.version == Version::HTTP_11 && wants_upgrade(&parts.headers);
    parts.extensions.remove::<OnUpgrade>().filter(|_| is_asked_for)
}

/// Opens the tunnel that the server agreed to, or returns its refusal.
pub(crate) fn open(
    client: OnUpgrade,
    mut answer: Response<Incoming>,
    (permit, held): (ForwardPermit, Option<Held>),
    tasks: &TaskGroup,
) -> Response<ResponseBody> {
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        code if code.is_client_error() || code.is_server_error() => {
            let mut refusal = pass_back(answer.map(ForwardedBody::from), permit, false, None);
            refusal.extensions_mut().insert(PassedOn { as_it_is: true });
            return refusal;
        }
        code => {
            let why = format!("invalid upgrade response: status code {}\n", code.as_u16());
            return respond::plain_text(StatusCode::SERVICE_UNAVAILABLE, why);
        }
    }
    let server = hyper::upgrade::on(&mut answer);
    spawn_session(tasks, (client, server), (permit, held), pass);
    let mut response = Response::new(empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *response.headers_mut() = std::mem::take(answer.headers_mut());
    keep_of_upgrade(response.headers_mut());
    response.extensions_mut().insert(PassedOn { as_it_is: true });
    response
}

/// Runs what both sides agreed to over their upgraded connections. It ends with its connections when this server stops.
pub(crate) fn spawn_session<F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskGroup,
    (client, server): (OnUpgrade, OnUpgrade),
    held: (ForwardPermit, Option<Held>),
    run: impl FnOnce(Upgraded, Upgraded) -> F + Send + 'static,
) {
    let stopping = tasks.stopping().clone();
    tasks.spawn_finite("tunnels", async move {
        let passing = async {
            let began = timeout(BEGIN_TIME, async { tokio::try_join!(client, server) }).await;
            if let Ok(Ok((client, server))) = began {
                run(client, server).await;
            }
        };
        tokio::select! {
            () = stopping.cancelled() => {}
            // The tunnel of one client must not end the server.
            () = panics::logged(passing) => {}
        }
        drop(held);
    });
}

/// Passes bytes both ways until the tunnel ends.
async fn pass(client: Upgraded, server: Upgraded) {
    let (from_client, to_client) = tokio::io::split(TokioIo::new(client));
    let (from_server, to_server) = tokio::io::split(TokioIo::new(server));
    let passed = AtomicU64::new(0);
    let mut there = std::pin::pin!(copy(from_client, to_server, &passed));
    let mut back = std::pin::pin!(copy(from_server, to_client, &passed));
    let ended = tokio::select! {
        ended = &mut there => ended.map(|()| Side::Client),
        ended = &mut back => ended.map(|()| Side::Server),
        () = idle(&passed) => Err(io::ErrorKind::TimedOut.into()),
    };
    // The other side may still send its last bytes.
    let _ = match ended {
        Ok(Side::Client) => timeout(END_TIME, back).await,
        Ok(Side::Server) => timeout(END_TIME, there).await,
        Err(_) => return,
    };
}

/// The side that ended.
enum Side {
    Client,
    Server,
}

/// Copies bytes one way to their end, and closes that side.
async fn copy<R: AsyncRead, W: AsyncWrite>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..bytes]).await?;
        to.flush().await?;
        counted(passed, bytes);
    }
}

/// Notes bytes that were passed.
pub(crate) fn counted(passed: &AtomicU64, bytes: usize) {
    passed.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Waits until nothing was passed for long.
pub(crate) async fn idle(passed: &AtomicU64) {
    let mut before = 0;
    loop {
        tokio::time::sleep(IDLE_TIME).await;
        let now = passed.load(Ordering::Relaxed);
        if now == before {
            return;
        }
        before = now;
    }
}
