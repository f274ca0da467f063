//! Connections to the members of etcd: addresses, TLS, keep-alive, windows.
//!
//! A member that does not answer pings is given up, and calls use the next one. `member` decides this.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tonic::codegen::Service;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::config::{DialMember, EtcdConfig, MemberStream, Order, TlsFiles};
use crate::error::OpenError;
use crate::member::Member;

/// The time limit for opening a connection, for all addresses of a name together.
const CONNECT: Duration = Duration::from_secs(2);
/// The interval of pings while a call or watch is open. etcd closes connections with more than one ping in 5 seconds,
/// or with pings while no stream is open.
const PING: Duration = Duration::from_secs(10);
/// The time limit for the answer to a ping.
const PONG: Duration = Duration::from_secs(5);
/// The flow control windows of a stream and of a connection, in bytes.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// Creates connections to one member.
pub(crate) struct Connector {
    prepared: Endpoint,
    dial: Dial,
}

impl Connector {
    /// Returns a connection that opens at its first use, and again after it breaks.
    pub(crate) fn connect(&self) -> Channel {
        self.prepared.connect_with_connector_lazy(self.dial.clone())
    }
}

/// Prepares the connections to all members. `made` counts the opened connections.
pub(crate) fn members(config: &EtcdConfig, made: &Arc<AtomicU64>) -> Result<Vec<Member>, OpenError> {
    let tls = config.tls.as_ref().map(tls_config).transpose()?;
    config.endpoints.iter().map(|endpoint| member(config, endpoint, tls.clone(), made)).collect()
}

fn member(
    config: &EtcdConfig,
    endpoint: &str,
    tls: Option<ClientTlsConfig>,
    made: &Arc<AtomicU64>,
) -> Result<Member, OpenError> {
    let scheme = if tls.is_some() { "https" } else { "http" };
    let url = format!("{scheme}://{endpoint}");
    let refused = |error: tonic::transport::Error| {
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        OpenError::Unreachable { endpoints: url.clone(), cause: cause.to_string() }
    };
    let mut prepared = Endpoint::from_shared(url.clone())
        .map_err(&refused)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        .keep_alive_while_idle(false)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW);
    if let Some(tls) = tls {
        prepared = prepared.tls_config(tls).map_err(&refused)?;
    }
    let first = match config.order {
        Order::Given => 0,
        Order::Any => usize::try_from(config.random.u64() >> 33).unwrap_or(0),
    };
    let dial = Dial { turn: Arc::new(AtomicUsize::new(first)), made: made.clone(), dial: config.dial.clone() };
    Ok(Member::new(url, Connector { prepared, dial }))
}

/// Connects to an address of a name. A name may have the addresses of several members. Each connection looks up the
/// addresses again and starts with the next one, so a reconnect after a failure uses another member.
#[derive(Clone)]
struct Dial {
    turn: Arc<AtomicUsize>,
    /// Counts the opened connections.
    made: Arc<AtomicU64>,
    /// Opens the connections; `None` for direct ones.
    dial: Option<Arc<dyn DialMember>>,
}

impl Service<Uri> for Dial {
    type Response = TokioIo<Box<dyn MemberStream>>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<TokioIo<Box<dyn MemberStream>>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (made, dial) = (self.made.clone(), self.dial.clone());
        Box::pin(async move {
            // An IPv6 address is in brackets.
            let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
            let port = uri.port_u16().unwrap_or_default();
            let stream: Box<dyn MemberStream> = match dial {
                Some(dial) => dial.dial(host, port).await?,
                None => Box::new(connect_directly(host, port, turn).await?),
            };
            // ORDER: the connection is counted before anything is sent on it.
            made.fetch_add(1, Ordering::AcqRel);
            Ok(TokioIo::new(stream))
        })
    }
}

async fn connect_directly(host: &str, port: u16, turn: usize) -> io::Result<TcpStream> {
    let mut addresses: Vec<SocketAddr> = lookup_host((host, port))
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("the name {host} has no address: {error}")))?
        .collect();
    let first = turn % addresses.len().max(1);
    addresses.rotate_left(first);
    connect_to_one(&addresses).await
}

async fn connect_to_one(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failure = io::Error::other("the name has no address");
    let share = CONNECT / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    for address in addresses {
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return stream.set_nodelay(true).map(|()| stream),
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::Error::new(io::ErrorKind::TimedOut, format!("{address} takes no connection")),
        }
    }
    Err(failure)
}

fn tls_config(files: &TlsFiles) -> Result<ClientTlsConfig, OpenError> {
    let mut tls = ClientTlsConfig::new();
    tls = match &files.ca {
        Some(path) => tls.ca_certificate(Certificate::from_pem(authorities(path)?)),
        None => tls.with_native_roots(),
    };
    if let Some((certificate, key)) = &files.identity {
        let certificate = read("the client certificate", certificate)?;
        tls = tls.identity(Identity::from_pem(certificate, read("the client's key", key)?));
    }
    if let Some(name) = &files.server_name {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}

/// Reads the trusted authorities. With an empty file no server would be trusted, and the failure would look like an
/// etcd that does not answer.
fn authorities(path: &Path) -> Result<Vec<u8>, OpenError> {
    const WHAT: &str = "the CA certificate";
    let pem = read(WHAT, path)?;
    let unusable = |cause: String| OpenError::File { what: WHAT, path: path.display().to_string(), cause };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&pem) {
        let certificate = certificate.map_err(|error| unusable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    if roots.is_empty() { Err(unusable("it holds no certificate".to_owned())) } else { Ok(pem) }
}

fn read(what: &'static str, path: &Path) -> Result<Vec<u8>, OpenError> {
    std::fs::read(path).map_err(|cause| OpenError::File {
        what,
        path: path.display().to_string(),
        cause: cause.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn addresses_are_tried_one_after_the_other() {
        let (one, two) =
            (TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (one, two) = (one.local_addr().unwrap(), two.local_addr().unwrap());
        for (addresses, expected) in [(vec![one, two], one), (vec![dead, two, one], two)] {
            assert_eq!(connect_to_one(&addresses).await.unwrap().peer_addr().unwrap(), expected);
        }
        assert_eq!(connect_to_one(&[dead]).await.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        let none = Dial { turn: Arc::default(), made: Arc::default(), dial: None }
            .call(Uri::from_static("http://nowhere.invalid:1"))
            .await;
        assert!(none.err().unwrap().to_string().starts_with("the name nowhere.invalid has no address: "));
    }

    #[tokio::test]
    async fn addresses_of_ipv6_are_dialled_without_their_brackets() {
        let Ok(listener) = TcpListener::bind("[::1]:0").await else { return };
        let uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        assert!(Dial { turn: Arc::default(), made: Arc::default(), dial: None }.call(uri).await.is_ok());
    }
}
