//! Opens connections to one host: resolves its addresses, connects and sets up TLS.
//!
//! A service is resolved for each new connection, so that a service whose address has changed is found again. The
//! certificate must name the service, whatever its address. As upstream, calls to a service use HTTP/1.1: a connection
//! carries one call at a time, so calls spread over the endpoints. Calls to any other host share one HTTP/2 connection
//! if the host supports it, and so do forwarded requests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use keelson_supervision::outcome;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{OnceCell, Semaphore};
use tokio_rustls::TlsConnector;
use tower_service::Service;

use crate::connection::SecureConnection;
use crate::egress::EgressDialer;
use crate::fault::DialError;
use crate::host_meter::CertificateFaults;
use crate::network_stream::NetworkStream;
use crate::opening::{FirstBytes, Opening};
use crate::presented::ClientCertificateState;
use crate::proxy::Proxy;
use crate::remote_service::service_host;
use crate::services::Services;
use crate::tls;

/// The time limit for connecting to one address, and for waiting for a permit to open a connection.
pub(crate) const CONNECT_TIME: Duration = Duration::from_secs(10);
/// The time limit of a TLS handshake, as upstream.
pub(crate) const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// The time without data after which the system probes a connection, and the time between probes.
const PROBE_TIME: Duration = Duration::from_secs(15);
/// The number of unanswered probes after which the connection counts as lost.
const PROBES: u32 = 9;

/// The text of Go's client for a handshake that takes longer.
pub(crate) const HANDSHAKE_TIMEOUT: &str = "net/http: TLS handshake timeout";
/// The text of Go's client for a name without an address.
pub(crate) const NO_SUCH_HOST: &str = "no such host";

/// The names of protocols in TLS (RFC 7301).
pub(crate) const HTTP1: &[u8] = b"http/1.1";
pub(crate) const HTTP2: &[u8] = b"h2";

/// Opens connections to one host.
#[derive(Clone)]
pub(crate) struct Dialer(Arc<DialerSettings>);

struct DialerSettings {
    endpoint: Endpoint,
    server_name: Result<ServerName<'static>, String>,
    trust: Trust,
    /// The offered protocols, preferred first.
    protocols: &'static [&'static [u8]],
    connector: OnceCell<TlsConnector>,
    services: Arc<dyn Services>,
    ways: Ways,
    /// A permit for each open connection, shared by all dialers of the same use.
    permits: Arc<Semaphore>,
}

/// The proxies of a dialer.
#[derive(Clone, Default)]
pub(crate) struct Ways {
    /// The proxy of the host's network. It takes precedence over the other.
    pub(crate) egress: Option<Arc<EgressDialer>>,
    /// The proxy of the environment.
    pub(crate) environment: Option<Proxy>,
}

/// The certificates that a dialer trusts and presents.
#[derive(Clone)]
pub(crate) struct Trust {
    /// The trusted authorities (PEM); empty for the system's.
    pub(crate) ca_bundle: Vec<u8>,
    /// True to trust any certificate.
    pub(crate) insecure_skip_tls_verify: bool,
    /// The number of certificates refused for faults that older clients accepted.
    pub(crate) faults: Arc<CertificateFaults>,
    /// The certificate of this server, if it presents one.
    pub(crate) certificate: Option<Arc<ClientCertificateState>>,
}

/// The destination of connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Endpoint {
    Host {
        host: String,
        port: u16,
    },
    Service {
        namespace: String,
        name: String,
        port: u16,
    },
    /// The address of a server whose certificate has the name `name`.
    Server {
        host: String,
        port: u16,
        name: String,
    },
}

impl Endpoint {
    /// The name that the certificate must have.
    fn server_name(&self) -> String {
        match self {
            Self::Host { host, .. } => host.clone(),
            Self::Service { namespace, name, .. } => service_host(namespace, name),
            Self::Server { name, .. } => name.clone(),
        }
    }
}

impl Dialer {
    pub(crate) fn new(
        endpoint: Endpoint,
        trust: Trust,
        services: Arc<dyn Services>,
        ways: Ways,
        permits: Arc<Semaphore>,
    ) -> Self {
        let server_name = certificate_name(&endpoint.server_name());
        Self(Arc::new(DialerSettings {
            endpoint,
            server_name,
            trust,
            protocols: &[HTTP1],
            connector: OnceCell::new(),
            services,
            ways,
            permits,
        }))
    }

    /// Returns the dialer with other offered protocols.
    pub(crate) fn with_protocols(&self, protocols: &'static [&'static [u8]]) -> Self {
        let DialerSettings { endpoint, server_name, trust, services, ways, permits, .. } = &*self.0;
        Self(Arc::new(DialerSettings {
            endpoint: endpoint.clone(),
            server_name: server_name.clone(),
            trust: trust.clone(),
            protocols,
            connector: OnceCell::new(),
            services: services.clone(),
            ways: ways.clone(),
            permits: permits.clone(),
        }))
    }

    pub(crate) async fn dial(self) -> Result<SecureConnection, DialError> {
        let addresses = match &self.0.endpoint {
            Endpoint::Host { host, port } | Endpoint::Server { host, port, .. } => vec![(host.clone(), *port)],
            Endpoint::Service { namespace, name, port } => {
                self.0.services.addresses(namespace, name, *port).map_err(DialError::Service)?
            }
        };
        let new_connector = || connector(self.0.trust.clone(), self.0.protocols);
        let connector = self.0.connector.get_or_try_init(new_connector).await.map_err(DialError::Setup)?;
        let name = self.0.server_name.clone().map_err(DialError::Setup)?;
        let permit = tokio::time::timeout(CONNECT_TIME, self.0.permits.clone().acquire_owned()).await;
        let Ok(Ok(permit)) = permit else {
            return Err(DialError::Setup("too many connections to other servers are open".to_owned()));
        };
        let stream = self.stream(&addresses).await?;
        let handshake = connector.connect(name, Opening::new(stream, FirstBytes::default())).into_fallible();
        match tokio::time::timeout(HANDSHAKE_TIME, handshake).await {
            Ok(Ok(secured)) => Ok(SecureConnection::new(secured, permit)),
            Ok(Err((_, stream))) if stream.layer.are_plain_http() => Err(DialError::PlainHttp),
            Ok(Err((error, _))) => Err(DialError::Tls(error)),
            Err(_) => Err(DialError::Setup(HANDSHAKE_TIMEOUT.to_owned())),
        }
    }

    /// Opens a connection without TLS.
    async fn stream(&self, addresses: &[(String, u16)]) -> Result<NetworkStream, DialError> {
        if let Some(egress) = &self.0.ways.egress {
            return egress.dial(addresses).await;
        }
        let stream = match (&self.0.ways.environment, &self.0.endpoint) {
            (Some(proxy), Endpoint::Host { host, port }) if proxy.is_for(host, *port) => {
                let by_proxy = [(proxy.host.clone(), proxy.port)];
                let refused = |error: DialError| DialError::Proxy(format!("proxyconnect tcp: {error}"));
                let mut stream = connected(&by_proxy).await.map_err(refused)?;
                proxy.lead(&mut stream, host, *port).await.map_err(DialError::Proxy)?;
                stream
            }
            _ => connected(addresses).await?,
        };
        // Disables Nagle's algorithm: requests are small and should be sent at once.
        let _ = stream.set_nodelay(true);
        Ok(NetworkStream::Tcp(stream))
    }
}

/// Creates the TLS setup of connections with this trust, which offer these protocols.
pub(crate) async fn connector(trust: Trust, protocols: &[&[u8]]) -> Result<TlsConnector, String> {
    // Blocking: the system's certificates are read from disk.
    let mut config = outcome(keelson_supervision::spawn_blocking(move || tls::client_config(&trust))).await?;
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config).into())
}

/// The name that the certificate of a host must have.
pub(crate) fn certificate_name(host: &str) -> Result<ServerName<'static>, String> {
    ServerName::try_from(host.to_owned()).map_err(|_| format!("tls: {host:?} can't be a name in a certificate"))
}

/// Connects to the first address that accepts a connection.
pub(crate) async fn connected(addresses: &[(String, u16)]) -> Result<TcpStream, DialError> {
    let mut failed = DialError::Setup("there is no address".to_owned());
    for (host, port) in addresses {
        let found = match resolved(host, *port).await {
            Ok(found) => found,
            Err(error) => {
                failed = error;
                continue;
            }
        };
        for address in found {
            match connected_to(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => failed = error,
            }
        }
    }
    Err(failed)
}

/// Enables TCP keepalive, so that the system detects a lost peer: a session may be silent for a long time.
pub(crate) fn keep_alive(stream: &TcpStream) {
    use rustix::net::sockopt;
    // If the system refuses an option, its defaults apply.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, PROBE_TIME);
    let _ = sockopt::set_tcp_keepintvl(stream, PROBE_TIME);
    let _ = sockopt::set_tcp_keepcnt(stream, PROBES);
}

/// Resolves a host name.
pub(crate) async fn resolved(host: &str, port: u16) -> Result<Vec<SocketAddr>, DialError> {
    match tokio::net::lookup_host((host, port)).await {
        Ok(found) => Ok(found.collect()),
        Err(error) => {
            let error = error.to_string();
            let why = if error.contains("not known") { NO_SUCH_HOST.to_owned() } else { error };
            Err(DialError::Lookup { host: host.to_owned(), why })
        }
    }
}

/// Connects to one address.
pub(crate) async fn connected_to(address: SocketAddr) -> Result<TcpStream, DialError> {
    let why = match tokio::time::timeout(CONNECT_TIME, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => return Ok(stream),
        Ok(Err(error)) => error,
        Err(_) => std::io::ErrorKind::TimedOut.into(),
    };
    Err(DialError::Connect { address: address.to_string(), why })
}

impl Service<Uri> for Dialer {
    type Response = SecureConnection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<SecureConnection, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        Box::pin(self.clone().dial())
    }
}
