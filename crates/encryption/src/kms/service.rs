//! Calls to a key service over its Unix socket.
//!
//! The first use opens the connection. A broken connection is opened again. Every call ends within the time limit of
//! the configuration. Retries are for the callers.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;
use tracing::{Instrument as _, debug_span};

use crate::config::KmsEntry;
use crate::error::code_name;
use crate::metrics::EncryptionMetrics;

/// The largest answer that is taken, in bytes: a data key of 1 KiB with annotations of 32 KiB, and much more than that.
const LARGEST_ANSWER: usize = 1 << 20;

/// A key service.
pub(super) struct KeyService {
    channel: Channel,
    timeout: Duration,
    provider: String,
    metrics: Arc<EncryptionMetrics>,
}

impl KeyService {
    /// The service of a configuration. Nothing is sent yet.
    pub(super) fn new(entry: &KmsEntry, metrics: Arc<EncryptionMetrics>) -> Self {
        // Upstream names this host as well.
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(entry.timeout());
        let channel = endpoint.connect_with_connector_lazy(Dial { socket: socket_of(&entry.endpoint).into() });
        Self { channel, timeout: entry.timeout(), provider: entry.name.clone(), metrics }
    }

    /// Makes a call.
    pub(super) async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let begun = Instant::now();
        let span = debug_span!("kms call", method, provider = self.provider.as_str());
        let done = tokio::time::timeout(self.timeout, self.send(method, request)).instrument(span).await;
        let done = done.unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded")));
        let code = done.as_ref().map_or_else(|status| code_name(status.code()), |_| "OK");
        self.metrics.note_call(&self.provider, method, code, begun.elapsed());
        done
    }

    async fn send<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut client = Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST_ANSWER);
        client.ready().await.map_err(|error| Status::unavailable(causes(&error)))?;
        let path = PathAndQuery::from_static(method);
        let answer = client.unary(Request::new(request), path, ProstCodec::<Q, A>::default()).await;
        // A status of the service has no source. tonic's own words for a connection that could not be made have one.
        let is_lost = |status: &Status| std::error::Error::source(status).is_some();
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| if is_lost(&status) { Status::unavailable(causes(&status)) } else { status })
    }
}

/// The last cause of an error, which says most.
fn causes(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The path of a `unix:` endpoint. One that begins with `@` is in Linux's abstract namespace.
fn socket_of(endpoint: &str) -> String {
    let rest = endpoint.strip_prefix("unix:").unwrap_or(endpoint);
    let path = rest.strip_prefix("//").unwrap_or(rest);
    path.strip_prefix("/@").map_or_else(|| path.to_owned(), |name| format!("@{name}"))
}

/// Connects to a socket.
#[derive(Clone)]
struct Dial {
    socket: Arc<str>,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<UnixStream>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let socket = self.socket.clone();
        Box::pin(async move { connect(&socket).await.map(TokioIo::new) })
    }
}

async fn connect(socket: &str) -> io::Result<UnixStream> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("dial unix {socket}: {error}"));
    #[cfg(target_os = "linux")]
    if let Some(name) = socket.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name).map_err(named)?;
        let stream = std::os::unix::net::UnixStream::connect_addr(&address).map_err(named)?;
        stream.set_nonblocking(true)?;
        return UnixStream::from_std(stream);
    }
    UnixStream::connect(socket).await.map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_name_sockets() {
        for (endpoint, socket) in
            [("unix:///run/a.sock", "/run/a.sock"), ("unix:///@kms", "@kms"), ("unix:/run/a", "/run/a")]
        {
            assert_eq!(socket_of(endpoint), socket);
        }
    }
}
