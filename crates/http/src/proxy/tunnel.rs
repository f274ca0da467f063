//! Upgraded connections between a client and an aggregated server, whose bytes this server copies.
//!
//! A tunnel ends when either side closes it, after the other side has received all bytes of the first. It also ends
//! after a long time without any bytes, and when this server stops. Until then it counts as a connection of this
//! server, and as one to the other server.

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

use super::answer::{Forwarded, pass_back};
use super::headers::{keep_of_upgrade, wants_upgrade};
use crate::body::{ResponseBody, empty};
use crate::filters::panics;
use crate::respond;

/// The number of bytes buffered in a tunnel, in each direction.
const BUFFER_BYTES: usize = 64 << 10;
/// The longest time for both upgrades to complete.
const BEGIN_TIME: Duration = Duration::from_secs(10);
/// A tunnel ends after this time without a byte. Kubelets have the same limit for sessions without input.
const IDLE_TIME: Duration = Duration::from_secs(4 * 60 * 60);
/// The longest time for the second side to end after the first.
const END_TIME: Duration = Duration::from_secs(5);

/// Request extension: a value that lives as long as the client's connection is used.
#[derive(Clone)]
pub(crate) struct HeldValue {
    _place: Arc<dyn Any + Send + Sync>,
}

impl HeldValue {
    pub(crate) fn new(place: Arc<dyn Any + Send + Sync>) -> Self {
        Self { _place: place }
    }
}

/// The client's side of a requested upgrade.
pub(crate) fn wanted(parts: &mut Parts) -> Option<OnUpgrade> {
    let is_asked_for = parts.version == Version::HTTP_11 && wants_upgrade(&parts.headers);
    parts.extensions.remove::<OnUpgrade>().filter(|_| is_asked_for)
}

/// Opens the tunnel if the server accepts the upgrade. Otherwise returns its refusal.
pub(crate) fn open(
    client: OnUpgrade,
    mut answer: Response<Incoming>,
    (permit, held): (ForwardPermit, Option<HeldValue>),
    tasks: &TaskGroup,
) -> Response<ResponseBody> {
    match answer.status() {
        StatusCode::SWITCHING_PROTOCOLS => {}
        code if code.is_client_error() || code.is_server_error() => {
            let mut refusal = pass_back(answer.map(ForwardedBody::from), permit, false, None);
            refusal.extensions_mut().insert(Forwarded { as_it_is: true });
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
    response.extensions_mut().insert(Forwarded { as_it_is: true });
    response
}

/// Runs a session over both upgraded connections. It ends, with its connections, when this server stops.
pub(crate) fn spawn_session<F: Future<Output = ()> + Send + 'static>(
    tasks: &TaskGroup,
    (client, server): (OnUpgrade, OnUpgrade),
    held: (ForwardPermit, Option<HeldValue>),
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
            // A panic in one client's tunnel must not end the server.
            () = panics::logged(passing) => {}
        }
        drop(held);
    });
}

/// Copies bytes in both directions until the tunnel ends.
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

/// Copies bytes in one direction to their end, then closes the destination.
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

/// Counts copied bytes.
pub(crate) fn counted(passed: &AtomicU64, bytes: usize) {
    passed.fetch_add(bytes as u64, Ordering::Relaxed);
}

/// Waits until no bytes were copied for a long time.
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
