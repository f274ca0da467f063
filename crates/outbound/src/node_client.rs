//! Connections to kubelets, pods and endpoints of services, each for a single request.
//!
//! The addresses come from objects that users may write. A host name is resolved once, and the connection uses an
//! address of that answer, so the name can't change between the check and the connection. Each host has a limit of its
//! own, so a node that hangs takes no connections from others. Connections are not reused: one that a user has brought
//! into an unexpected state could otherwise carry another user's request.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use keelson_registry::is_reachable;
use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument as _;

use crate::dialer::{
    self, CONNECT_TIME, HANDSHAKE_TIME, HANDSHAKE_TIMEOUT, HTTP1, NO_SUCH_HOST, Trust, certificate_name, connected_to,
    keep_alive,
};
use crate::egress::{Egress, EgressDialer, EgressNetwork};
use crate::fault::DialError;
use crate::network_stream::NetworkStream;
use crate::presented::{ClientCertificate, ClientCertificateState};
use crate::spans::{call_span, note_answer};
use crate::tls;
use crate::upstream::{ForwardBody, ForwardError, ForwardPermit, UseGuard, fault, nothing};

/// The most connections to all nodes, pods and services together.
pub const NODE_CONNECTIONS: usize = 1024;
/// The most connections to one host.
const HOST_CONNECTIONS: usize = 256;
/// The most bytes of a response that are buffered for the client. Also limits its header.
const BUFFER_BYTES: usize = 64 << 10;
/// The most header fields of a response.
const HEADER_FIELDS: usize = 128;

/// The security of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Security {
    /// No TLS.
    Plain,
    /// TLS that accepts any certificate, as upstream does for pods and services, which are reached by address.
    Unverified,
    /// TLS for a kubelet: its certificate is verified if an authority is configured, and this server presents a client
    /// certificate.
    Kubelet,
    /// TLS for a kubelet that accepts any certificate.
    UnverifiedKubelet,
}

/// An address to connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The host: an address or a name.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The security of the connection.
    pub security: Security,
    /// True to refuse the host unless all its addresses are global unicast addresses.
    pub is_confined: bool,
}

/// The authorities that kubelets' certificates must have, and the client certificate for kubelets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KubeletTrust {
    /// The authorities for kubelets' certificates (PEM). If empty, any certificate is accepted.
    pub ca_bundle: Vec<u8>,
    /// The client certificate that this server presents to kubelets.
    pub certificate: Option<ClientCertificate>,
}

impl fmt::Debug for KubeletTrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeletTrust").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

/// The reason why there is no response.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum NodeError {
    /// A limit of connections is reached.
    #[error("too many requests to {0} are under way")]
    Busy(String),
    /// The host has an address that must not be reached.
    #[error("address not allowed")]
    NotAllowed,
    /// The connection could not be opened, with the text of Go's client.
    #[error("{0}")]
    Dial(String),
    /// The request failed after that, with the text of Go's client.
    #[error("{0}")]
    Failed(String),
}

/// Connects to nodes, pods and services.
pub struct NodeClient {
    kubelets: RwLock<Arc<KubeletTrust>>,
    /// A connector for each kind of security, created at its first use and dropped when the trust changes.
    connectors: Mutex<HashMap<Security, TlsConnector>>,
    all: Arc<AtomicUsize>,
    most: usize,
    hosts: Mutex<HashMap<String, Weak<AtomicUsize>>>,
    egress: Arc<Egress>,
}

impl fmt::Debug for NodeClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeClient").field("all", &self.all).finish_non_exhaustive()
    }
}

impl NodeClient {
    /// Creates a client with this trust and at most this number of connections, through the egress proxy of the
    /// cluster if there is one.
    ///
    /// # Errors
    /// The authorities or the certificate can't be read.
    pub fn new(trust: KubeletTrust, most: usize, egress: Arc<Egress>) -> Result<Arc<Self>, String> {
        check(&trust)?;
        Ok(Arc::new(Self {
            kubelets: RwLock::new(Arc::new(trust)),
            connectors: Mutex::default(),
            all: Arc::default(),
            most: most.clamp(1, NODE_CONNECTIONS),
            hosts: Mutex::default(),
            egress,
        }))
    }

    /// Changes the trust for new connections.
    ///
    /// # Errors
    /// The authorities or the certificate can't be read. The trust stays as it was.
    pub fn change(&self, trust: KubeletTrust) -> Result<(), String> {
        check(&trust)?;
        // ORDER: under the lock, the trust changes first and then the connectors are dropped. A connector is added only
        // under this lock and only if its trust is the current one.
        let mut connectors = self.connectors.lock();
        *self.kubelets.write() = Arc::new(trust);
        connectors.clear();
        Ok(())
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.all.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Sends a request whose URI is a path. Returns the response with its body, and a permit. Hold the permit until the
    /// body was read, or while an upgraded connection is used. Dropping the future or the permit closes the connection.
    ///
    /// # Errors
    /// There is no response header.
    pub async fn send(
        &self,
        address: &NodeAddress,
        mut parts: Parts,
        body: Option<ForwardBody>,
    ) -> Result<(Response<Incoming>, ForwardPermit), NodeError> {
        let span = call_span(&parts.method, &address.host, parts.uri.path());
        span.in_scope(|| keelson_telemetry::inject(&mut parts.headers));
        let answered = self.exchange(address, parts, body).instrument(span.clone()).await;
        note_answer(&span, answered.as_ref().map(|(answer, _)| answer.status()));
        answered
    }

    async fn exchange(
        &self,
        address: &NodeAddress,
        parts: Parts,
        body: Option<ForwardBody>,
    ) -> Result<(Response<Incoming>, ForwardPermit), NodeError> {
        let busy = || NodeError::Busy(address.host.clone());
        let of_host = self.host_count(&address.host);
        let of_host = UseGuard::take(&of_host, HOST_CONNECTIONS).ok_or_else(busy)?;
        let of_all = UseGuard::take(&self.all, self.most).ok_or_else(busy)?;
        let stream = self.dial(address).await?;
        let builder =
            http1::Builder::new().max_buf_size(BUFFER_BYTES).max_headers(HEADER_FIELDS).handshake(TokioIo::new(stream));
        let (mut sender, connection) = builder.await.map_err(|error| NodeError::Failed(error.to_string()))?;
        let driving = AbortOnDropHandle::new(tokio::spawn(async move {
            // The request and the body of the response report the connection's failures.
            let _ = connection.with_upgrades().await;
        }));
        let request = Request::from_parts(parts, body.unwrap_or_else(nothing));
        let response = sender.send_request(request).await.map_err(|error| match fault(&error, None) {
            ForwardError::Dial(why) => NodeError::Dial(why),
            error => NodeError::Failed(error.to_string()),
        })?;
        Ok((response, ForwardPermit::of_connection(of_host, of_all, driving)))
    }

    fn host_count(&self, host: &str) -> Arc<AtomicUsize> {
        let mut hosts = self.hosts.lock();
        if let Some(count) = hosts.get(host).and_then(Weak::upgrade) {
            return count;
        }
        hosts.retain(|_, count| count.strong_count() > 0);
        let count = Arc::default();
        hosts.insert(host.to_owned(), Arc::downgrade(&count));
        count
    }

    async fn dial(&self, address: &NodeAddress) -> Result<NodeStream, NodeError> {
        let dial = |error: DialError| NodeError::Dial(error.to_string());
        let stream = match self.egress.proxy(EgressNetwork::Cluster) {
            Some(proxy) => through_proxy(proxy, address).await?,
            None => NetworkStream::Tcp(connected(&allowed(address).await?).await.map_err(dial)?),
        };
        let Some(connector) = self.connector(address.security).await.map_err(NodeError::Dial)? else {
            return Ok(NodeStream::Plain(stream));
        };
        let name = certificate_name(&address.host).map_err(NodeError::Dial)?;
        match timeout(HANDSHAKE_TIME, connector.connect(name, stream)).await {
            Ok(Ok(secured)) => Ok(NodeStream::Tls(Box::new(secured))),
            Ok(Err(error)) => Err(dial(DialError::Tls(error))),
            Err(_) => Err(NodeError::Dial(HANDSHAKE_TIMEOUT.to_owned())),
        }
    }

    async fn connector(&self, security: Security) -> Result<Option<TlsConnector>, String> {
        if security == Security::Plain {
            return Ok(None);
        }
        if let Some(connector) = self.connectors.lock().get(&security) {
            return Ok(Some(connector.clone()));
        }
        let kubelets = self.kubelets.read().clone();
        let connector = dialer::connector(trust_for(security, &kubelets), &[HTTP1]).await?;
        let mut connectors = self.connectors.lock();
        // If the trust has changed meanwhile, the connector serves this connection only.
        if Arc::ptr_eq(&kubelets, &self.kubelets.read()) {
            connectors.insert(security, connector.clone());
        }
        Ok(Some(connector))
    }
}

fn trust_for(security: Security, kubelets: &KubeletTrust) -> Trust {
    let is_kubelet = matches!(security, Security::Kubelet | Security::UnverifiedKubelet);
    let ca_bundle = if security == Security::Kubelet { kubelets.ca_bundle.clone() } else { Vec::new() };
    Trust {
        insecure_skip_tls_verify: ca_bundle.is_empty(),
        ca_bundle,
        faults: Arc::default(),
        certificate: kubelets.certificate.as_ref().filter(|_| is_kubelet).map(ClientCertificateState::new),
    }
}

fn check(trust: &KubeletTrust) -> Result<(), String> {
    tls::client_config(&trust_for(Security::Kubelet, trust)).map(drop)
}

/// Connects through a proxy. It gets names unresolved, since they may be known in its network only. A confined name is
/// resolved and checked here, and the proxy gets its addresses: another resolver could return others.
async fn through_proxy(proxy: &EgressDialer, address: &NodeAddress) -> Result<NetworkStream, NodeError> {
    let addresses = if address.is_confined {
        allowed(address).await?.iter().map(|found| (found.ip().to_string(), found.port())).collect()
    } else {
        vec![(address.host.clone(), address.port)]
    };
    proxy.dial(&addresses).await.map_err(|error| NodeError::Dial(error.to_string()))
}

/// Resolves a host, and checks that its addresses may be reached.
async fn allowed(address: &NodeAddress) -> Result<Vec<SocketAddr>, NodeError> {
    let found = resolved(&address.host, address.port).await.map_err(|error| NodeError::Dial(error.to_string()))?;
    if address.is_confined && !found.iter().all(|found| is_reachable(found.ip())) {
        return Err(NodeError::NotAllowed);
    }
    Ok(found)
}

/// Resolves a host name to at least one address.
async fn resolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    let lookup = |why: &str| DialError::Lookup { host: host.to_owned(), why: why.to_owned() };
    let found = timeout(CONNECT_TIME, dialer::resolved(host, port)).await.map_err(|_| lookup("i/o timeout"))??;
    if found.is_empty() { Err(lookup(NO_SUCH_HOST)) } else { Ok(found) }
}

/// Connects to the first of these addresses that accepts a connection.
async fn connected(addresses: &[SocketAddr]) -> Result<TcpStream, DialError> {
    let mut failed = DialError::Setup("there is no address".to_owned());
    for address in addresses {
        match connected_to(*address).await {
            Ok(stream) => {
                keep_alive(&stream);
                return Ok(stream);
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

/// A connection with or without TLS.
enum NodeStream {
    Plain(NetworkStream),
    Tls(Box<TlsStream<NetworkStream>>),
}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(context),
            Self::Tls(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
