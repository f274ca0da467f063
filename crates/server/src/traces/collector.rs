//! Calls to a collector of spans, over TCP or a Unix socket, without TLS as upstream.
//!
//! A connection is made when it is first used, and made anew when it has broken.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use keelson_access_config::CollectorEndpoint;
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
    pub(super) fn new(endpoint: CollectorEndpoint) -> Self {
        let connect = Connect(Arc::new(endpoint));
        let endpoint = Endpoint::from_static("http://localhost").connect_timeout(CONNECT_TIME);
        Self(endpoint.connect_with_connector_lazy(connect))
    }

    /// Sends spans.
    ///
    /// # Errors
    /// The collector has not taken all of them.
    pub(super) async fn export(&self, request: ExportRequest) -> Result<(), String> {
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
                Err(format!("{} spans were rejected: {}", partial.rejected_spans, partial.error_message))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// The last cause of an error, which says most.
fn cause(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}

/// Connects to a collector.
#[derive(Clone)]
struct Connect(Arc<CollectorEndpoint>);

/// A connection of either kind.
type Stream = TokioIo<tokio_util::either::Either<TcpStream, UnixStream>>;

impl Service<Uri> for Connect {
    type Response = Stream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Stream>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let endpoint = self.0.clone();
        Box::pin(async move {
            use tokio_util::either::Either;
            let stream = match &*endpoint {
                CollectorEndpoint::Tcp(host) => {
                    Either::Left(TcpStream::connect(host.as_str()).await.map_err(|error| named(host, &error))?)
                }
                CollectorEndpoint::Unix(path) => Either::Right(unix(path).await.map_err(|error| named(path, &error))?),
            };
            Ok(TokioIo::new(stream))
        })
    }
}

fn named(address: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("connecting to {address}: {error}"))
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
