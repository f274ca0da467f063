//! Egress proxies: the way to each network of the cluster, as upstream's `EgressSelectorConfiguration` selects it.
//!
//! A proxy opens a tunnel by HTTP CONNECT or by the gRPC protocol of konnectivity. It sees the addresses and the
//! encrypted content, and it decides which server answers: TLS through the tunnel verifies that server as without a
//! proxy. A proxy may hang, lie or end. Each connection therefore has a time limit, and all that is read before the
//! tunnel is open has a size limit.

mod http_connect;
mod konnectivity;
mod packet;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keelson_meta::metering::{AtomicHistogram, Buckets};
use keelson_meta::{Random, host_port};
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;

use crate::dialer::{
    CONNECT_TIME, HANDSHAKE_TIME, HANDSHAKE_TIMEOUT, HTTP2, Trust, certificate_name, connected, keep_alive,
};
use crate::fault::DialError;
use crate::network_stream::NetworkStream;
use crate::presented::{ClientCertificate, ClientCertificateState};
use crate::tls;

/// The time limit for a tunnel: the connection to the proxy and its answer, for all addresses together.
const TUNNEL_TIME: Duration = Duration::from_secs(30);
/// The upper bounds of the buckets of durations, in microseconds, as upstream.
static DURATION_BUCKETS: Buckets = Buckets::of_durations(&[5_000, 25_000, 100_000, 500_000, 2_500_000, 12_500_000]);

/// A network that the server connects to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EgressNetwork {
    /// Webhooks with a URL, and webhooks that authenticate, authorize or receive audit events.
    ControlPlane,
    /// Kubelets, pods, services, aggregated servers, and webhooks that are services.
    Cluster,
    /// The members of etcd.
    Etcd,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressProtocol {
    /// HTTP CONNECT.
    HttpConnect,
    /// The gRPC protocol of konnectivity.
    Grpc,
}

/// The transport to a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EgressTransport {
    /// TCP, with or without TLS.
    Tcp {
        /// The host of the proxy.
        host: String,
        /// The port of the proxy.
        port: u16,
        /// The TLS settings; `None` for none.
        tls: Option<EgressTls>,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// The TLS settings for a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressTls {
    /// The authorities of the proxy's certificate (PEM); empty for the system's.
    pub ca_bundle: Vec<u8>,
    /// The client certificate for the proxy.
    pub certificate: ClientCertificate,
}

/// The settings of a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EgressProxy {
    /// The protocol.
    pub protocol: EgressProtocol,
    /// The transport.
    pub transport: EgressTransport,
}

/// The counts of connections through proxies of one protocol and transport.
#[derive(Debug)]
pub struct EgressStats {
    /// The protocol, as a label.
    pub protocol: &'static str,
    /// The transport, as a label.
    pub transport: &'static str,
    /// The number of attempts.
    pub starts: AtomicU64,
    /// The number of failed connections to a proxy.
    pub failed_connects: AtomicU64,
    /// The number of tunnels that a proxy did not open.
    pub failed_tunnels: AtomicU64,
    /// The durations of successful attempts.
    pub durations: AtomicHistogram,
}

/// The proxies of all networks. A network without a proxy is reached directly.
#[derive(Debug, Default)]
pub struct Egress {
    control_plane: Option<Arc<EgressDialer>>,
    cluster: Option<Arc<EgressDialer>>,
    etcd: Option<Arc<EgressDialer>>,
    stats: Vec<Arc<EgressStats>>,
}

/// Opens tunnels through one proxy.
pub(crate) struct EgressDialer {
    proxy: EgressProxy,
    tls: Option<TlsConnector>,
    random: Arc<dyn Random>,
    stats: Arc<EgressStats>,
}

impl EgressProtocol {
    fn label(self) -> &'static str {
        match self {
            Self::HttpConnect => "http_connect",
            Self::Grpc => "grpc",
        }
    }
}

impl EgressTransport {
    fn label(&self) -> &'static str {
        match self {
            Self::Tcp { .. } => "tcp",
            Self::Unix(_) => "uds",
        }
    }

    /// The address of the proxy, for errors.
    fn address(&self) -> String {
        match self {
            Self::Tcp { host, port, .. } => host_port(host, *port),
            Self::Unix(path) => path.display().to_string(),
        }
    }
}

impl Egress {
    /// Creates the proxies of networks. Connects to none yet.
    ///
    /// # Errors
    /// A certificate or authority can't be used.
    pub fn new(
        proxies: impl IntoIterator<Item = (EgressNetwork, EgressProxy)>,
        random: &Arc<dyn Random>,
    ) -> Result<Self, String> {
        let mut egress = Self::default();
        for (network, proxy) in proxies {
            let stats = egress.stats_of(&proxy);
            let dialer = Arc::new(EgressDialer::new(proxy, random.clone(), stats)?);
            match network {
                EgressNetwork::ControlPlane => egress.control_plane = Some(dialer),
                EgressNetwork::Cluster => egress.cluster = Some(dialer),
                EgressNetwork::Etcd => egress.etcd = Some(dialer),
            }
        }
        Ok(egress)
    }

    fn stats_of(&mut self, proxy: &EgressProxy) -> Arc<EgressStats> {
        let (protocol, transport) = (proxy.protocol.label(), proxy.transport.label());
        let known = self.stats.iter().find(|stats| (stats.protocol, stats.transport) == (protocol, transport));
        if let Some(known) = known {
            return known.clone();
        }
        let stats = Arc::new(EgressStats {
            protocol,
            transport,
            starts: AtomicU64::new(0),
            failed_connects: AtomicU64::new(0),
            failed_tunnels: AtomicU64::new(0),
            durations: AtomicHistogram::new(&DURATION_BUCKETS),
        });
        self.stats.push(stats.clone());
        stats
    }

    pub(crate) fn proxy(&self, network: EgressNetwork) -> Option<&Arc<EgressDialer>> {
        match network {
            EgressNetwork::ControlPlane => self.control_plane.as_ref(),
            EgressNetwork::Cluster => self.cluster.as_ref(),
            EgressNetwork::Etcd => self.etcd.as_ref(),
        }
    }

    /// Returns true if a network has a proxy.
    pub fn has_proxy(&self, network: EgressNetwork) -> bool {
        self.proxy(network).is_some()
    }

    /// Opens a tunnel to an address of a network.
    ///
    /// # Errors
    /// The network has no proxy, or the proxy opens no tunnel.
    pub async fn dial(&self, network: EgressNetwork, host: &str, port: u16) -> Result<NetworkStream, String> {
        let proxy = self.proxy(network).ok_or("the network has no egress proxy")?;
        proxy.dial(&[(host.to_owned(), port)]).await.map_err(|error| error.to_string())
    }

    /// The counts of each protocol and transport.
    pub fn stats(&self) -> &[Arc<EgressStats>] {
        &self.stats
    }
}

impl std::fmt::Debug for EgressDialer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EgressDialer").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl EgressDialer {
    fn new(proxy: EgressProxy, random: Arc<dyn Random>, stats: Arc<EgressStats>) -> Result<Self, String> {
        let tls = match &proxy.transport {
            EgressTransport::Tcp { tls: Some(settings), .. } => {
                let mut config = tls::client_config(&Trust {
                    ca_bundle: settings.ca_bundle.clone(),
                    insecure_skip_tls_verify: false,
                    faults: Arc::default(),
                    certificate: Some(ClientCertificateState::new(&settings.certificate)),
                })?;
                if proxy.protocol == EgressProtocol::Grpc {
                    config.alpn_protocols = vec![HTTP2.to_vec()];
                }
                Some(Arc::new(config).into())
            }
            EgressTransport::Tcp { .. } | EgressTransport::Unix(_) => None,
        };
        Ok(Self { proxy, tls, random, stats })
    }

    /// Opens a tunnel to the first of these addresses that the proxy reaches.
    pub(crate) async fn dial(&self, addresses: &[(String, u16)]) -> Result<NetworkStream, DialError> {
        let all = async {
            let mut failed = DialError::Setup("there is no address".to_owned());
            for (host, port) in addresses {
                match self.tunnel(&host_port(host, *port)).await {
                    Ok(stream) => return Ok(stream),
                    Err(error) => failed = error,
                }
            }
            Err(failed)
        };
        match tokio::time::timeout(TUNNEL_TIME, all).await {
            Ok(outcome) => outcome,
            Err(_) => {
                self.stats.failed_tunnels.fetch_add(1, Ordering::Relaxed);
                Err(DialError::Proxy("dial timeout, backstop".to_owned()))
            }
        }
    }

    async fn tunnel(&self, address: &str) -> Result<NetworkStream, DialError> {
        let begun = Instant::now();
        self.stats.starts.fetch_add(1, Ordering::Relaxed);
        let mut stream = self.connect().await.inspect_err(|_| {
            self.stats.failed_connects.fetch_add(1, Ordering::Relaxed);
        })?;
        let opened = match self.proxy.protocol {
            EgressProtocol::HttpConnect => {
                let proxy = self.proxy.transport.address();
                http_connect::open(&mut stream, &proxy, address).await.map(|()| stream)
            }
            EgressProtocol::Grpc => {
                // Connection ids are positive in upstream's client.
                let id = i64::try_from(self.random.u64() >> 1).unwrap_or_default();
                konnectivity::open(stream, address, id).await.map(NetworkStream::Packets)
            }
        };
        let opened = opened.map_err(|why| {
            self.stats.failed_tunnels.fetch_add(1, Ordering::Relaxed);
            DialError::Proxy(why)
        })?;
        self.stats.durations.observe_duration(begun.elapsed());
        Ok(opened)
    }

    /// Connects to the proxy.
    async fn connect(&self) -> Result<NetworkStream, DialError> {
        let connected = match &self.proxy.transport {
            EgressTransport::Unix(path) => {
                let unix = |why| DialError::Unix { path: path.display().to_string(), why };
                match tokio::time::timeout(CONNECT_TIME, UnixStream::connect(path)).await {
                    Ok(stream) => stream.map(NetworkStream::Unix).map_err(unix),
                    Err(_) => Err(unix(std::io::ErrorKind::TimedOut.into())),
                }
            }
            EgressTransport::Tcp { host, port, .. } => self.connect_tcp(host, *port).await,
        };
        // The text of upstream's gRPC client.
        connected.map_err(|error| match self.proxy.protocol {
            EgressProtocol::HttpConnect => error,
            EgressProtocol::Grpc => {
                DialError::Proxy(format!("connection error: desc = \"transport: Error while dialing: {error}\""))
            }
        })
    }

    async fn connect_tcp(&self, host: &str, port: u16) -> Result<NetworkStream, DialError> {
        let stream = connected(&[(host.to_owned(), port)]).await?;
        keep_alive(&stream);
        let Some(tls) = &self.tls else { return Ok(NetworkStream::Tcp(stream)) };
        let name = certificate_name(host).map_err(DialError::Setup)?;
        match tokio::time::timeout(HANDSHAKE_TIME, tls.connect(name, stream)).await {
            Ok(Ok(secured)) => Ok(NetworkStream::Tls(Box::new(secured))),
            Ok(Err(error)) => Err(DialError::Tls(error)),
            Err(_) => Err(DialError::Setup(HANDSHAKE_TIMEOUT.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::random::SystemRandom;
    use tokio::net::UnixListener;

    use super::*;

    /// The clock of the test jumps to the end of each wait.
    #[tokio::test(start_paused = true)]
    async fn a_silent_proxy_has_a_time_limit() {
        let path = std::env::temp_dir().join(format!("keelson-egress-{}", SystemRandom.u64()));
        let listener = UnixListener::bind(&path).unwrap();
        for protocol in [EgressProtocol::HttpConnect, EgressProtocol::Grpc] {
            let proxy = EgressProxy { protocol, transport: EgressTransport::Unix(path.clone()) };
            let random: Arc<dyn Random> = Arc::new(SystemRandom);
            let egress = Egress::new([(EgressNetwork::Cluster, proxy)], &random).unwrap();
            let begun = tokio::time::Instant::now();
            let failed = egress.dial(EgressNetwork::Cluster, "a", 1).await.unwrap_err();
            assert_eq!(failed, "dial timeout, backstop");
            assert!(begun.elapsed() >= TUNNEL_TIME && begun.elapsed() < 2 * TUNNEL_TIME, "{:?}", begun.elapsed());
            assert_eq!(egress.stats()[0].failed_tunnels.load(Ordering::Relaxed), 1);
            assert!(egress.dial(EgressNetwork::Etcd, "a", 1).await.is_err());
        }
        drop(listener);
        let proxy = EgressProxy { protocol: EgressProtocol::Grpc, transport: EgressTransport::Unix(path.clone()) };
        let random: Arc<dyn Random> = Arc::new(SystemRandom);
        let egress = Egress::new([(EgressNetwork::Etcd, proxy)], &random).unwrap();
        let failed = egress.dial(EgressNetwork::Etcd, "a", 1).await.unwrap_err();
        let expected = format!("dial unix {}: connect: connection refused", path.display());
        assert_eq!(failed, format!("connection error: desc = \"transport: Error while dialing: {expected}\""));
        std::fs::remove_file(path).unwrap();
    }
}
