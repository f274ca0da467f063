//! An aggregated API server for measurements: objects, lists and one long body from memory, and a mutating webhook.
//!
//! The aggregated server has its own thread and runtime, so that the measurement covers the path to it and not its
//! work. Its discovery responses contain only the served version.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::stream;
use http::header::CONTENT_TYPE;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::wire::{Client, Credentials};

/// The path of its objects.
pub(crate) const COLLECTION: &str = "/apis/aggregated.bench.example.com/v1/things";
/// Its group.
pub(crate) const GROUP: &str = "aggregated.bench.example.com";
/// The path of the mutating webhook, and the annotation that it adds to objects with annotations.
pub(crate) const WEBHOOK: &str = "/mutate";
pub(crate) const SEEN: &str = "bench.example.com/seen";
/// The size of the long body in bytes.
pub(crate) const STREAM_BYTES: usize = 1 << 30;
/// The size of an object in bytes.
const OBJECT_BYTES: usize = 2_000;
/// The number of objects in the list.
const OBJECTS: usize = 2_000;
/// The size of one write of the long body in bytes.
const PIECE_BYTES: usize = 256 << 10;
/// The host name in the certificate: the name of the service.
const NAME: &str = "aggregated.default.svc";

type Body = BoxBody<Bytes, Infallible>;

/// The server. Its thread ends with this process.
pub(crate) struct AggregatedServer {
    addr: SocketAddr,
    tls: TlsAcceptor,
    certificate: CertificateDer<'static>,
    certificate_pem: String,
}

impl AggregatedServer {
    /// Starts the server on a free port of the loopback address.
    pub(crate) fn start() -> Result<Self> {
        let names = vec![NAME.to_owned(), "127.0.0.1".to_owned()];
        let signed = rcgen::generate_simple_self_signed(names).context("no certificate")?;
        let certificate = signed.cert.der().clone();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(signed.signing_key.serialize_der()));
        let mut tls = ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let addr = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tls = TlsAcceptor::from(Arc::new(tls));
        let serving = serve(listener, tls.clone());
        std::thread::spawn(move || runtime.block_on(serving));
        Ok(Self { addr, tls, certificate, certificate_pem: signed.cert.pem() })
    }

    /// Its port.
    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    /// The certificate of the server in the form of an APIService's CA bundle.
    pub(crate) fn ca_bundle(&self) -> String {
        STANDARD.encode(&self.certificate_pem)
    }

    /// A client with a direct connection.
    pub(crate) fn client(&self) -> Result<Client> {
        Client::new(Credentials { authority: self.addr.to_string(), tls: self.trusting()? })
    }

    /// A client behind a proxy with its own thread. The proxy decrypts, copies and encrypts both directions, which is
    /// the minimum cost of any proxy.
    pub(crate) fn copied_client(&self) -> Result<Client> {
        let listener = StdListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let authority = listener.local_addr()?.to_string();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let copying = copy(listener, self.tls.clone(), TlsConnector::from(Arc::new(self.trusting()?)), self.addr);
        std::thread::spawn(move || runtime.block_on(copying));
        Client::new(Credentials { authority, tls: self.trusting()? })
    }

    fn trusting(&self) -> Result<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
    }
}

/// Copies bytes between each accepted connection and a connection to `to`.
async fn copy(listener: StdListener, tls: TlsAcceptor, to_tls: TlsConnector, to: SocketAddr) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let name = ServerName::from(to.ip());
    loop {
        let (from, _) = listener.accept().await?;
        let there = TcpStream::connect(to).await?;
        from.set_nodelay(true)?;
        there.set_nodelay(true)?;
        let (tls, to_tls, name) = (tls.clone(), to_tls.clone(), name.clone());
        tokio::spawn(async move {
            let (Ok(mut from), Ok(mut there)) = (tls.accept(from).await, to_tls.connect(name, there).await) else {
                return;
            };
            // The client has disconnected, so errors are dropped.
            drop(copy_bidirectional_with_sizes(&mut from, &mut there, PIECE_BYTES, PIECE_BYTES).await);
        });
    }
}

async fn serve(listener: StdListener, tls: TlsAcceptor) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let (object, list) = (object(), list());
    loop {
        let (tcp, _) = listener.accept().await?;
        tcp.set_nodelay(true)?;
        let (tls, object, list) = (tls.clone(), object.clone(), list.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(tcp).await else { return };
            let answer = service_fn(move |request: Request<Incoming>| {
                let (object, list) = (object.clone(), list.clone());
                async move {
                    match request.uri().path() {
                        WEBHOOK => review(request.into_body()).await,
                        path => Ok(answer(path, &object, &list)?),
                    }
                }
            });
            let mut server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            server.http2().max_send_buf_size(PIECE_BYTES);
            // The client has disconnected, so errors are dropped.
            drop(server.serve_connection(TokioIo::new(stream), answer).await);
        });
    }
}

fn answer(path: &str, object: &Bytes, list: &Bytes) -> Result<Response<Body>, http::Error> {
    let name = path.strip_prefix(COLLECTION);
    let version = COLLECTION.strip_suffix("/things");
    let body = match name {
        Some("") => Full::new(list.clone()).boxed(),
        Some("/stream") => long(),
        Some(_) => Full::new(object.clone()).boxed(),
        None if version == Some(path) => {
            Full::new(Bytes::from_static(br#"{"kind":"APIResourceList","resources":[]}"#)).boxed()
        }
        None => return Response::builder().status(StatusCode::NOT_FOUND).body(Full::default().boxed()),
    };
    Response::builder().header(CONTENT_TYPE, "application/json").body(body)
}

/// Reviews an object: the patch adds an annotation.
async fn review(asked: Incoming) -> Result<Response<Body>> {
    let asked: Value = serde_json::from_slice(&asked.collect().await?.to_bytes())?;
    let path = format!("/metadata/annotations/{}", SEEN.replace('/', "~1"));
    let patch = STANDARD.encode(json!([{ "op": "add", "path": path, "value": "yes" }]).to_string());
    let response = json!({ "uid": asked["request"]["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch });
    let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
    let body = Full::new(Bytes::from(review.to_string())).boxed();
    Ok(Response::builder().header(CONTENT_TYPE, "application/json").body(body)?)
}

fn long() -> Body {
    let piece = Bytes::from(vec![b' '; PIECE_BYTES]);
    let pieces = (0..STREAM_BYTES / PIECE_BYTES).map(move |_| Ok(Frame::data(piece.clone())));
    StreamBody::new(stream::iter(pieces)).boxed()
}

fn object() -> Bytes {
    let text = "x".repeat(OBJECT_BYTES);
    format!(r#"{{"kind":"Thing","apiVersion":"{GROUP}/v1","metadata":{{"name":"a"}},"spec":"{text}"}}"#).into()
}

fn list() -> Bytes {
    let items = vec![String::from_utf8_lossy(&object()).into_owned(); OBJECTS].join(",");
    format!(r#"{{"kind":"ThingList","apiVersion":"{GROUP}/v1","metadata":{{}},"items":[{items}]}}"#).into()
}
