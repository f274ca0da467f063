//! Calls to a collector of spans, over TCP or a Unix socket, without TLS as upstream.
//!
//! The first use opens the connection. A broken connection is opened again.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use http::uri::{Authority, PathAndQuery};
use hyper_util::rt::TokioIo;
use keelson_access_config::CollectorEndpoint;
use keelson_outbound::{Egress, EgressNetwork, NetworkStream};
use keelson_supervision::warn_repeated;
use tokio::net::{TcpStream, UnixStream};
use tonic::Request;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;
use tower_service::Service;

use super::otlp::{EXPORT, ExportRequest, ExportResponse};

/// The time limit of a connection.
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// The largest response, in bytes.
const LARGEST_ANSWER: usize = 64 << 10;

/// A collector.
pub(super) struct Collector(Channel);

impl Collector {
    /// The collector at an address. Nothing is sent yet.
    pub(super) fn new(endpoint: CollectorEndpoint, egress: Arc<Egress>) -> Self {
        let connect = Connect { endpoint: Arc::new(endpoint), egress };
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIME);
        Self(endpoint.connect_with_connector_lazy(connect))
    }

    /// Sends spans. Returns the number of refused ones, which must not be sent again.
    ///
    /// # Errors
    /// The collector has taken none of them for certain.
    pub(super) async fn export(&self, request: ExportRequest) -> Result<u64, String> {
        let mut client = Grpc::new(self.0.clone()).max_decoding_message_size(LARGEST_ANSWER);
        client.ready().await.map_err(|error| cause(&error))?;
        let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
        let answer = client.unary(Request::new(request), PathAndQuery::from_static(EXPORT), codec).await;
        let answer = answer.map_err(|status| match std::error::Error::source(&status) {
            Some(_) => cause(&status),
            None => format!("{}: {}", status.code(), status.message()),
        })?;
        match answer.into_inner().partial_success {
            Some(partial) if partial.rejected_spans > 0 => {
                let (refused, error) = (partial.rejected_spans.unsigned_abs(), partial.error_message);
                warn_repeated!(""; refused, error, "the collector has refused spans");
                Ok(refused)
            }
            Some(_) | None => Ok(0),
        }
    }
}

/// The last cause of an error, which says most.
fn cause(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

/// Connects to a collector.
#[derive(Clone)]
struct Connect {
    endpoint: Arc<CollectorEndpoint>,
    egress: Arc<Egress>,
}

type Stream = TokioIo<NetworkStream>;

impl Service<Uri> for Connect {
    type Response = Stream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let Self { endpoint, egress } = self.clone();
        Box::pin(async move {
            let stream = match &*endpoint {
                CollectorEndpoint::Tcp(host) => tcp(host, &egress).await.map_err(|error| named(host, &error))?,
                CollectorEndpoint::Unix(path) => {
                    NetworkStream::Unix(unix(path).await.map_err(|error| named(path, &error))?)
                }
            };
            Ok(TokioIo::new(stream))
        })
    }
}

fn named(address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("connecting to {address}: {error}"))
}

/// Connects to a host and port. As upstream, the collector is in the network of the control plane.
async fn tcp(host: &str, egress: &Egress) -> io::Result<NetworkStream> {
    if !egress.has_proxy(EgressNetwork::ControlPlane) {
        return TcpStream::connect(host).await.map(NetworkStream::Tcp);
    }
    let authority: Authority = host.parse().map_err(io::Error::other)?;
    let name = authority.host().trim_matches(['[', ']']);
    let port = authority.port_u16().ok_or_else(|| io::Error::other("the address of the collector has no port"))?;
    egress.dial(EgressNetwork::ControlPlane, name, port).await.map_err(io::Error::other)
}

async fn unix(path: &str) -> io::Result<UnixStream> {
    #[cfg(target_os = "linux")]
    if let Some(name) = path.strip_prefix('@') {
        use std::os::linux::net::SocketAddrExt as _;
        let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
        let stream = std::os::unix::net::UnixStream::connect_addr(&address)?;
        stream.set_nonblocking(true)?;
        return UnixStream::from_std(stream);
    }
    UnixStream::connect(path).await
}
