//! An egress proxy for tests: HTTP CONNECT or konnectivity's gRPC protocol, over TCP, TLS or a Unix socket.
//!
//! A test decides how it behaves and which server answers for an address. Its packets are written by hand, apart from
//! those of the server under test.

mod konnectivity;

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rcgen::{CertificateParams, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use crate::hook::certificate;
use crate::upstream::Open;

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressProtocol {
    /// HTTP CONNECT.
    HttpConnect,
    /// gRPC.
    Grpc,
}

/// The transport of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EgressTransport {
    /// TCP.
    Tcp,
    /// TCP with TLS, with client certificates.
    Tls,
    /// A Unix socket.
    Unix,
}

/// The behaviour of a proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EgressBehaviour {
    /// It opens tunnels.
    #[default]
    Willing,
    /// It refuses each tunnel.
    Refusing,
    /// It accepts connections and never answers.
    Silent,
    /// The proxy closes each connection after the request.
    Closing,
    /// It answers in another protocol.
    Garbled,
    /// The response header or packet of the proxy never ends.
    Endless,
    /// The proxy sends own bytes before those of the server, or answers another request.
    Lying,
}

/// A proxy. Dropping it ends it and its tunnels.
#[derive(Debug)]
pub struct EgressDouble {
    protocol: EgressProtocol,
    transport: EgressTransport,
    /// Its socket, certificates and keys.
    directory: TempDir,
    address: Option<SocketAddr>,
    state: Arc<State>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct State {
    behaviour: Mutex<EgressBehaviour>,
    routes: Mutex<HashMap<String, SocketAddr>>,
    dialled: Mutex<Vec<String>>,
    open: Arc<AtomicUsize>,
}

impl EgressDouble {
    /// Starts a proxy.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start(protocol: EgressProtocol, transport: EgressTransport) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let state = Arc::<State>::default();
        let (address, serving) = match transport {
            EgressTransport::Unix => {
                let listener = UnixListener::bind(socket(directory.path())).expect("a socket");
                (None, tokio::spawn(accept_unix(listener, protocol, state.clone())))
            }
            EgressTransport::Tcp | EgressTransport::Tls => {
                let tls = (transport == EgressTransport::Tls).then(|| acceptor(directory.path(), protocol));
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
                let address = listener.local_addr().expect("a bound socket has an address");
                (Some(address), tokio::spawn(accept(listener, tls, protocol, state.clone())))
            }
        };
        Self { protocol, transport, directory, address, state, serving }
    }

    /// The configuration of a server that uses it for these networks.
    pub fn configuration(&self, networks: &[&str]) -> String {
        let transport = match (self.transport, self.address) {
            (EgressTransport::Tls, Some(address)) => format!(
                "{{tcp: {{url: 'https://{address}', tlsConfig: {{caBundle: {0}/ca, clientKey: {0}/key, clientCert: {0}/cert}}}}}}",
                self.directory.path().display()
            ),
            (_, Some(address)) => format!("{{tcp: {{url: 'http://{address}'}}}}"),
            (_, None) => format!("{{uds: {{udsName: {}}}}}", socket(self.directory.path()).display()),
        };
        let protocol = match self.protocol {
            EgressProtocol::HttpConnect => "HTTPConnect",
            EgressProtocol::Grpc => "GRPC",
        };
        let mut text = String::from(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n",
        );
        for network in networks {
            let connection = format!("{{proxyProtocol: {protocol}, transport: {transport}}}");
            writeln!(text, "- {{name: {network}, connection: {connection}}}").expect("a string");
        }
        text
    }

    /// Changes the behaviour of later tunnels.
    ///
    /// # Panics
    /// A tunnel panicked.
    pub fn behave(&self, behaviour: EgressBehaviour) {
        *self.state.behaviour.lock().expect("no tunnel panics") = behaviour;
    }

    /// Lets a server answer for an address, which need not exist.
    ///
    /// # Panics
    /// A tunnel panicked.
    pub fn route(&self, address: &str, server: SocketAddr) {
        self.state.routes.lock().expect("no tunnel panics").insert(address.to_owned(), server);
    }

    /// The requested addresses.
    ///
    /// # Panics
    /// A tunnel panicked.
    pub fn dialled(&self) -> Vec<String> {
        self.state.dialled.lock().expect("no tunnel panics").clone()
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Ends it, with all tunnels. Nothing listens at its address then.
    pub fn die(&self) {
        self.serving.abort();
    }
}

impl Drop for EgressDouble {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl State {
    fn behaviour(&self) -> EgressBehaviour {
        *self.behaviour.lock().expect("no tunnel panics")
    }

    /// Notes an address, and connects to the server for it.
    async fn connect(&self, address: &str) -> Result<TcpStream, String> {
        self.dialled.lock().expect("no tunnel panics").push(address.to_owned());
        let route = self.routes.lock().expect("no tunnel panics").get(address).copied();
        let connected = match route {
            Some(server) => TcpStream::connect(server).await,
            None => TcpStream::connect(address).await,
        };
        connected.map_err(|error| format!("dial tcp {address}: {error}"))
    }
}

fn socket(directory: &Path) -> PathBuf {
    directory.join("proxy.sock")
}

/// Writes certificates for a server that uses the proxy, and returns the proxy's side.
fn acceptor(directory: &Path, protocol: EgressProtocol) -> TlsAcceptor {
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let (chain, key, ca) = certificate(params);
    let authority_key = KeyPair::generate().expect("a key");
    let mut authority = CertificateParams::default();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let mut roots = RootCertStore::empty();
    roots.add(authority.self_signed(&authority_key).expect("an authority").der().clone()).expect("an authority");
    let client_key = KeyPair::generate().expect("a key");
    let client = CertificateParams::default().signed_by(&client_key, &Issuer::new(authority, authority_key));
    let files = [("ca", ca), ("key", client_key.serialize_pem()), ("cert", client.expect("a certificate").pem())];
    for (name, content) in files {
        std::fs::write(directory.join(name), content).expect("a file");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_client_cert_verifier(clients.build().expect("an authority"))
        .with_single_cert(chain, key)
        .expect("the key is that of the certificate");
    if protocol == EgressProtocol::Grpc {
        config.alpn_protocols = vec![b"h2".to_vec()];
    }
    Arc::new(config).into()
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, protocol: EgressProtocol, state: Arc<State>) {
    // The set is dropped with the task, which ends all connections.
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, state) = (tls.clone(), state.clone());
        connections.spawn(async move {
            match tls {
                None => serve(stream, protocol, state).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, protocol, state).await;
                    }
                }
            }
        });
    }
}

async fn accept_unix(listener: UnixListener, protocol: EgressProtocol, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        connections.spawn(async move { serve(stream, protocol, state).await });
    }
}

async fn serve<S>(stream: S, protocol: EgressProtocol, state: Arc<State>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let _open = Open::new(&state.open);
    match protocol {
        EgressProtocol::HttpConnect => connect(stream, &state).await,
        EgressProtocol::Grpc => konnectivity::serve(stream, &state).await,
    }
}

/// Answers one CONNECT, and carries the bytes of its tunnel.
async fn connect(stream: impl AsyncRead + AsyncWrite + Unpin, state: &State) {
    let mut stream = BufReader::new(stream);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let address = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).expect("a CONNECT");
    let answer: &[u8] = match state.behaviour() {
        EgressBehaviour::Willing => b"HTTP/1.1 200 Connection established\r\n\r\n",
        EgressBehaviour::Refusing => b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n",
        EgressBehaviour::Silent => {
            // The connection waits for the end of its client.
            let _ = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await;
            return;
        }
        EgressBehaviour::Closing => return,
        EgressBehaviour::Garbled => b"SSH-2.0-proxy\r\n\r\n",
        EgressBehaviour::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n").await;
            while stream.write_all(b"x-more: 0123456789\r\n").await.is_ok() {}
            return;
        }
        EgressBehaviour::Lying => b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlies",
    };
    if state.behaviour() != EgressBehaviour::Willing {
        let _ = stream.write_all(answer).await;
        return;
    }
    match state.connect(address).await {
        Ok(mut server) => {
            if stream.write_all(answer).await.is_ok() {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
            }
        }
        Err(why) => {
            let answer = format!("HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\n\r\n{why}", why.len());
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    }
}
