//! An aggregated API server for tests: HTTPS over HTTP/1.1 or HTTP/2. The test provides its responses, byte for byte if
//! needed.
//!
//! The server accepts only front proxies with a certificate of the given authority. A separate authority signs its own
//! certificate.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::Raw;
use crate::hook::certificate;

/// A received request.
pub type UpstreamRequest = Request<Incoming>;
/// The body of a response.
pub type UpstreamBody = BoxBody<Bytes, std::io::Error>;

type Handler = dyn Fn(Request<Incoming>) -> BoxFuture<'static, Response<UpstreamBody>> + Send + Sync;
type RawHandler = dyn Fn(String) -> Vec<u8> + Send + Sync;

/// The kind of its responses.
#[derive(Clone)]
enum Answers {
    Http(Arc<Handler>),
    Raw(Arc<RawHandler>),
}

/// A server for forwarded requests. Stops with all connections when dropped.
#[derive(Debug)]
pub struct UpstreamServer {
    addr: SocketAddr,
    ca: String,
    open: Arc<AtomicUsize>,
    serving: tokio::task::JoinHandle<()>,
}

/// The server name that a client requested in TLS, in the request's extensions.
#[derive(Clone, Debug)]
pub struct ServerName(pub Option<String>);

impl UpstreamServer {
    /// Starts a server on a free port of the loopback address. Its certificate has these names, and it accepts clients
    /// with a certificate of `front_proxies` (PEM).
    pub async fn start<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        names: &[&str],
        front_proxies: &str,
        answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self {
        let answers = Answers::Http(Arc::new(move |request| Box::pin(answer(request))));
        Self::serving(names, front_proxies, &["h2", "http/1.1"], answers).await
    }

    /// Starts a server with HTTP/1.1 only.
    pub async fn http1<F: Future<Output = Response<UpstreamBody>> + Send + 'static>(
        names: &[&str],
        front_proxies: &str,
        answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
    ) -> Self {
        let answers = Answers::Http(Arc::new(move |request| Box::pin(answer(request))));
        Self::serving(names, front_proxies, &["http/1.1"], answers).await
    }

    /// Starts a server that reads the header of a request, sends these bytes and closes the connection.
    pub async fn raw(
        names: &[&str],
        front_proxies: &str,
        answer: impl Fn(String) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(names, front_proxies, &["http/1.1"], Answers::Raw(Arc::new(answer))).await
    }

    async fn serving(names: &[&str], front_proxies: &str, protocols: &[&str], answers: Answers) -> Self {
        let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let params = rcgen::CertificateParams::new(names).expect("names that a certificate can have");
        let (chain, key, ca) = certificate(params);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for trusted in CertificateDer::pem_slice_iter(front_proxies.as_bytes()) {
            roots.add(trusted.expect("a certificate")).expect("an authority");
        }
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_client_cert_verifier(clients.build().expect("an authority"))
            .with_single_cert(chain, key)
            .expect("the key is that of the certificate");
        tls.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("a bound socket has an address");
        let open = Arc::new(AtomicUsize::new(0));
        let serving = tokio::spawn({
            let open = open.clone();
            async move {
                let acceptor = TlsAcceptor::from(Arc::new(tls));
                // The set is dropped with the task, which ends all connections.
                let mut connections = tokio::task::JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    let (acceptor, answers, open) = (acceptor.clone(), answers.clone(), open.clone());
                    connections.spawn(async move {
                        let Ok(secured) = acceptor.accept(stream).await else { return };
                        let _open = Open::new(&open);
                        match answers {
                            Answers::Http(answer) => serve(secured, answer).await,
                            Answers::Raw(answer) => answer_raw(secured, answer).await,
                        }
                    });
                    while connections.try_join_next().is_some() {}
                }
            }
        });
        Self { addr, ca, open, serving }
    }

    /// The address.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// A direct client with this front proxy certificate and key (PEM). The server's certificate must name `localhost`.
    pub fn client(&self, certificate_pem: &str, key_pem: &str) -> Raw {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.ca.as_bytes()).expect("a certificate");
        roots.add(ca).expect("an authority");
        let chain = CertificateDer::pem_slice_iter(certificate_pem.as_bytes()).map(|read| read.expect("a certificate"));
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes()).expect("a key");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has them")
            .with_root_certificates(roots)
            .with_client_auth_cert(chain.collect(), key)
            .expect("the key is that of the certificate");
        Raw::to("localhost", self.addr.port(), tls)
    }

    /// The authority of its certificate in base64, as in APIServices.
    pub fn ca_bundle(&self) -> String {
        base64::engine::general_purpose::STANDARD.encode(&self.ca)
    }

    /// The number of open connections.
    pub fn open_connections(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl Drop for UpstreamServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Counts a connection while it is open.
pub(crate) struct Open(Arc<AtomicUsize>);

impl Open {
    pub(crate) fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, Ordering::SeqCst);
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn serve(secured: TlsStream<TcpStream>, answer: Arc<Handler>) {
    let name = ServerName(secured.get_ref().1.server_name().map(str::to_owned));
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(name.clone());
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
    let _ = builder.serve_connection_with_upgrades(TokioIo::new(secured), service).await;
}

async fn answer_raw(mut secured: TlsStream<TcpStream>, answer: Arc<RawHandler>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match secured.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => return,
        }
    }
    let _ = secured.write_all(&answer(String::from_utf8_lossy(&head).into_owned())).await;
    let _ = secured.shutdown().await;
}

/// A complete response.
pub fn upstream_answer(code: u16, content_type: &str, body: impl Into<Bytes>) -> Response<UpstreamBody> {
    let response = Response::builder().status(code).header("content-type", content_type);
    response.body(Full::new(body.into()).map_err(|never| match never {}).boxed()).expect("fields that can be sent")
}

/// A response that describes the request: method, path with query, header fields, requested server name, protocol and
/// body.
pub async fn upstream_echo(request: Request<Incoming>) -> Response<UpstreamBody> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let headers: Vec<Value> = head
        .headers
        .iter()
        .map(|(name, value)| json!([name.as_str(), String::from_utf8_lossy(value.as_bytes())]))
        .collect();
    let told = json!({
        "method": head.method.as_str(),
        "path": head.uri.path_and_query().map(ToString::to_string),
        "authority": head.uri.authority().map(ToString::to_string),
        "headers": headers,
        "serverName": head.extensions.get::<ServerName>().and_then(|name| name.0.clone()),
        "protocol": format!("{:?}", head.version),
        "body": String::from_utf8_lossy(&body),
    });
    upstream_answer(200, "application/json", told.to_string())
}
