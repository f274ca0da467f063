//! A kubelet for tests: HTTPS with logs, commands, forwarded ports and metrics, over SPDY and websockets.
//!
//! The kubelet has no pods. The name of the requested pod selects the behaviour (`KubeletDouble::start`). Commands are
//! programs on the machine of the test.

mod logs;
mod sessions;
mod spdy;
mod websocket;

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, DnType, Issuer, KeyPair};
use rustls::RootCertStore;
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::UpstreamBody;
use crate::hook::certificate;
use crate::upstream::Open;

/// A request that the kubelet received.
#[derive(Clone, Debug)]
pub struct KubeletRequest {
    /// The method.
    pub method: String,
    /// The path with the query.
    pub target: String,
    /// The header fields.
    pub headers: Vec<(String, String)>,
    /// True if the client presented a certificate.
    pub has_certificate: bool,
}

impl KubeletRequest {
    /// The values of a header field.
    pub fn header(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).collect()
    }
}

/// A kubelet. Dropping it ends it and its connections.
#[derive(Debug)]
pub struct KubeletDouble {
    addr: SocketAddr,
    ca: String,
    client: (String, String),
    seen: Arc<KubeletRecord>,
    serving: tokio::task::JoinHandle<()>,
}

/// The requests and the open connections.
#[derive(Debug, Default)]
struct KubeletRecord {
    requests: Mutex<Vec<KubeletRequest>>,
    open: Arc<AtomicUsize>,
}

impl KubeletDouble {
    /// Starts a kubelet on the loopback address. The name of a pod selects its behaviour: `endless`, `silent`, `dying`,
    /// `huge`, `redirecting`, `broken` or `missing`. Any other pod has a log of three lines.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start() -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into()).await
    }

    /// Starts a kubelet at another address of this machine.
    ///
    /// # Panics
    /// It does not start.
    pub async fn at(address: IpAddr) -> Self {
        let params = CertificateParams::new(vec!["localhost".to_owned(), address.to_string()]).expect("names");
        let (chain, key, ca) = certificate(params);
        let client_ca_key = KeyPair::generate().expect("a key");
        let mut client_ca = CertificateParams::default();
        client_ca.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let client_ca_der = client_ca.self_signed(&client_ca_key).expect("an authority").der().clone();
        let client_key = KeyPair::generate().expect("a key");
        let mut client = CertificateParams::default();
        client.distinguished_name.push(DnType::CommonName, "kube-apiserver-kubelet-client");
        let client = client.signed_by(&client_key, &Issuer::new(client_ca, client_ca_key)).expect("a certificate");
        let client = (client.pem(), client_key.serialize_pem());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(client_ca_der).expect("an authority");
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let clients = clients.allow_unauthenticated().build().expect("an authority");
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, key)
            .expect("the key is that of the certificate");
        let listener = TcpListener::bind((address, 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let seen = Arc::<KubeletRecord>::default();
        let serving = tokio::spawn(accept(listener, TlsAcceptor::from(Arc::new(tls)), seen.clone()));
        Self { addr, ca, client, seen, serving }
    }

    /// An address of this machine outside of loopback, such as nodes and pods have.
    ///
    /// # Panics
    /// The machine has none.
    pub fn outer_address() -> IpAddr {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
        // Connecting sends no packet; the system only chooses the source address.
        socket.connect("192.0.2.1:9").expect("a route to other machines");
        let address = socket.local_addr().expect("an address").ip();
        assert!(!address.is_loopback(), "this machine has no address but the loopback address");
        address
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The authority that signed its certificate (PEM).
    pub fn ca_pem(&self) -> &str {
        &self.ca
    }

    /// A client certificate that it accepts, and its key (PEM).
    pub fn client(&self) -> (&str, &str) {
        (&self.client.0, &self.client.1)
    }

    /// The status of its node.
    pub fn node_status(&self) -> Value {
        json!({
            "addresses": [{"type": "InternalIP", "address": self.addr.ip().to_string()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.addr.port()}},
        })
    }

    /// The received requests.
    ///
    /// # Panics
    /// A request handler panicked.
    pub fn requests(&self) -> Vec<KubeletRequest> {
        self.seen.requests.lock().expect("no request panics").clone()
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.seen.open.load(Ordering::SeqCst)
    }
}

impl Drop for KubeletDouble {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, seen: Arc<KubeletRecord>) {
    // The set is dropped with the task, which ends all connections.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (acceptor, seen) = (acceptor.clone(), seen.clone());
        connections.spawn(async move { serve(stream, acceptor, seen).await });
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, seen: Arc<KubeletRecord>) {
    // A session on the connection keeps it counted.
    let open = Arc::new(Open::new(&seen.open));
    let Ok(secured) = acceptor.accept(stream).await else { return };
    let has_certificate = secured.get_ref().1.peer_certificates().is_some_and(|chain| !chain.is_empty());
    let service = service_fn(move |request: Request<Incoming>| {
        let headers = request.headers().iter();
        let headers =
            headers.map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()));
        let request_seen = KubeletRequest {
            method: request.method().to_string(),
            target: request.uri().to_string(),
            headers: headers.collect(),
            has_certificate,
        };
        seen.requests.lock().expect("no request panics").push(request_seen);
        let open = open.clone();
        async move { Ok::<_, Infallible>(answer(request, open).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(secured), service);
    let _ = connection.with_upgrades().await;
}

async fn answer(request: Request<Incoming>, open: Arc<Open>) -> Response<UpstreamBody> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let pod = parts.get(2).copied().unwrap_or_default();
    match (parts.first().copied().unwrap_or_default(), pod) {
        (_, "silent") => std::future::pending().await,
        (_, "redirecting") => {
            let response = Response::builder().status(302).header("location", "http://169.254.169.254/latest/");
            response.body(body("moved")).expect("a response")
        }
        (_, "broken") => text(500, "container runtime is down"),
        (_, "missing") => text(404, "pod does not exist"),
        (_, "huge") => {
            let response = Response::builder().header("x-huge", "x".repeat(200_000));
            response.body(body("")).expect("a response")
        }
        ("containerLogs", _) => logs::answer(&request, pod),
        ("exec" | "attach" | "portForward", _) => sessions::answer(request, open),
        _ => crate::upstream_echo(request).await,
    }
}

fn body(text: &str) -> UpstreamBody {
    Full::new(bytes::Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed()
}

fn text(code: u16, what: &str) -> Response<UpstreamBody> {
    let mut response = Response::new(body(what));
    *response.status_mut() = StatusCode::from_u16(code).expect("a code");
    response
}
