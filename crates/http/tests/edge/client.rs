//! A server on a free port of the loopback address, and a client without automatic behaviour.
//!
//! A client library would hide retries and connections, which these tests check.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, ready};
use futures::stream;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use keelson_access::audit::Auditor;
use keelson_access::pki::{self, PkiOptions};
use keelson_access::{
    Attributes, AuthenticationInfo, Authorizer, Decision, PendingVerdict, Pki, PrivilegedGroup, PublishedAuthorities,
    User, Verdict, pki::KeyAndCertificate,
};
use keelson_discovery::Documents;
use keelson_fairness::{LevelKind, Queuing, defaults};
use keelson_http::filters::{FlowLimits, TokenAuthenticator};
use keelson_http::health::Health;
use keelson_http::listener::{Limits, TlsSettings};
use keelson_http::metrics::Metrics;
use keelson_http::pages::{Pages, ServedDocuments};
use keelson_http::router::Router;
use keelson_http::{Pipeline, listener};
use keelson_meta::random::SystemRandom;
use keelson_meta::{ApiError, SystemClock};
use keelson_openapi::{Descriptions, Fragment, SharedDefinitions, VersionDescription};
use keelson_resources::Catalogue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::service::Service;

/// A group whose members may do anything that does not require `system:masters`. Users with tokens are members.
const MAY_ALL: &str = "test:all";

/// Permits everything to administrators and users with tokens. Permits health checks to everyone, as roles do in a
/// whole server.
#[derive(Debug)]
struct HealthToo;

/// Accepts any token as the name of its user.
#[derive(Debug)]
struct NamedByTokens;

impl TokenAuthenticator for NamedByTokens {
    fn user<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Result<(User, Option<&'static str>), ApiError>> {
        let user = User { name: token.to_owned(), groups: vec![MAY_ALL.to_owned()], ..User::default() };
        let known = (token != "made-up").then(|| (user.authenticated(), None)).ok_or(ApiError::Unauthorized);
        Box::pin(ready(known))
    }
}

impl Authorizer for HealthToo {
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        match attributes {
            Attributes::Path { verb: "get", path: "/livez" | "/readyz" | "/healthz" } => {
                PendingVerdict::Left(ready(Verdict::new(Decision::Allow, "")))
            }
            _ if user.is_in(MAY_ALL) => PendingVerdict::Left(ready(Verdict::new(Decision::Allow, ""))),
            _ => PrivilegedGroup.authorize(user, attributes),
        }
    }
}

/// The timeout of a test on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Outgoing = BoxBody<Bytes, Failure>;

/// The limits of a server.
#[derive(Clone, Default)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) flow: FlowLimits,
    /// The seats of users, and the number of their waiting requests, if not the defaults.
    pub(crate) users: Option<(usize, u32)>,
    /// The authorizer, if not the default one, which permits everything to administrators.
    pub(crate) authorizer: Option<Arc<dyn Authorizer>>,
    /// The auditor.
    pub(crate) auditor: Option<Arc<Auditor>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
    /// HTTP/2 with a closed flow control window, so that no byte of a body arrives.
    Shut,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Credentials {
    Admin,
    None,
    /// A certificate of an untrusted authority.
    Stranger,
    /// A token of this user in each request.
    Token(&'static str),
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pki: Pki,
    frames: Arc<AtomicUsize>,
    stopping: CancellationToken,
    task: JoinHandle<()>,
}

fn new_pki() -> Pki {
    pki::ephemeral(&PkiOptions::default(), &SystemClock, &SystemRandom).unwrap()
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(Setup::default()).await
    }

    pub(crate) async fn start_with(setup: Setup) -> Self {
        let pki = new_pki();
        let (catalogue, metrics) = (keelson_builtin::catalogue(), Arc::new(Metrics::new()));
        let health = Health::default();
        let documents = documents(catalogue);
        let pages = Pages::new(health, metrics.clone(), "127.0.0.1:6443".to_owned());
        let service = Service::default();
        let frames = service.frames.clone();
        let router = Router::new(
            keelson_builtin::surface,
            move |_| Box::pin(std::future::ready(documents.clone())),
            pages,
            Arc::new(service),
        );
        let stopping = CancellationToken::new();
        let clock = Arc::new(SystemClock);
        let random = Arc::new(SystemRandom);
        let authorizer = setup.authorizer.unwrap_or_else(|| Arc::new(HealthToo));
        let flow = match setup.users {
            // All seats belong to users.
            Some((seats, _)) => FlowLimits { requests: seats, mutating: 0, ..setup.flow },
            None => setup.flow,
        };
        let pipeline = Pipeline::new(router, metrics, clock, random, stopping.clone(), flow);
        if let Some((_, queue_length)) = setup.users {
            let mut levels = defaults::priority_levels();
            levels.retain(|level| ["exempt", "catch-all", "global-default"].contains(&level.name.as_str()));
            for level in &mut levels {
                level.shares = u32::from(level.name == "global-default");
                level.lendable_percent = 0;
                if level.name == "global-default" {
                    level.kind = LevelKind::Queue(Queuing { queues: 1, hand_size: 1, queue_length });
                }
            }
            pipeline.flow_control().configure(defaults::flow_schemas(), levels);
        }
        let certificates = Arc::new(PublishedAuthorities::default());
        certificates.publish(AuthenticationInfo::new(&pki).unwrap().of_clients());
        let tls = TlsSettings::new(certificates.server_config(&pki.serving).unwrap());
        let pipeline = pipeline.with_authorizer(authorizer).with_certificates(certificates).with_auditor(setup.auditor);
        let pipeline = pipeline.with_tokens(Arc::new(NamedByTokens));
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = port.local_addr().unwrap();
        let task = tokio::spawn(listener::serve(port, tls, Arc::new(pipeline), setup.limits));
        Self { address, pki, frames, stopping, task }
    }

    pub(crate) async fn connect(&self, protocol: Protocol, credentials: Credentials) -> Client {
        Client::try_connect(self, protocol, credentials).await.unwrap()
    }

    /// The value of a metric, by its name and labels.
    pub(crate) async fn metric(&self, series: &str) -> String {
        let text = self.connect(Protocol::Http2, Credentials::Admin).await.get("/metrics").await.text;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {series} in\n{text}")).to_owned()
    }

    /// The number of frames produced for large responses, once it no longer grows.
    pub(crate) async fn settled_count(&self) -> usize {
        let mut last = 0;
        loop {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let count = self.frames.load(Ordering::Relaxed);
            if count == last {
                return count;
            }
            last = count;
        }
    }

    /// Sends these bytes over a connection. Returns the received bytes up to the end of a `Status`.
    pub(crate) async fn send_raw(&self, bytes: &[u8], protocol: Protocol) -> String {
        let mut stream = connected(self, protocol, Credentials::Admin).await.unwrap();
        let exchange = async {
            stream.write_all(bytes).await.unwrap();
            let (mut came, mut more) = (Vec::new(), [0; 4096]);
            while !came.windows(2).any(|two| two == b"}\n") {
                match stream.read(&mut more).await {
                    Ok(0) | Err(_) => break,
                    Ok(count) => came.extend(&more[..count]),
                }
            }
            String::from_utf8_lossy(&came).into_owned()
        };
        tokio::time::timeout(PATIENCE, exchange).await.unwrap()
    }

    /// Begins the shutdown of the server. The result is available when the server has ended.
    pub(crate) fn stop(self) -> JoinHandle<()> {
        self.stopping.cancel();
        self.task
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

/// One connection.
pub(crate) struct Client {
    sender: Sender,
    token: Option<&'static str>,
}

enum Sender {
    Http1(http1::SendRequest<Outgoing>),
    Http2(http2::SendRequest<Outgoing>),
}

/// A connection without any request yet.
async fn connected(
    server: &Server,
    protocol: Protocol,
    credentials: Credentials,
) -> Result<TlsStream<TcpStream>, Failure> {
    let alpn: &[u8] = if protocol == Protocol::Http1 { b"http/1.1" } else { b"h2" };
    let config = tls_config(&server.pki, credentials, alpn);
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::try_from("localhost")?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(alpn));
    Ok(stream)
}

impl Client {
    pub(crate) async fn try_connect(
        server: &Server,
        protocol: Protocol,
        credentials: Credentials,
    ) -> Result<Self, Failure> {
        let stream = TokioIo::new(connected(server, protocol, credentials).await?);
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(stream).await?;
                tokio::spawn(connection);
                Sender::Http1(sender)
            }
            Protocol::Http2 | Protocol::Shut => {
                // Small windows, so that the server keeps a body that is not read.
                let window = if protocol == Protocol::Http2 { 64 * 1024 } else { 0 };
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(window).initial_connection_window_size(64 * 1024);
                let (sender, connection) = builder.handshake(stream).await?;
                tokio::spawn(connection);
                Sender::Http2(sender)
            }
        };
        let token = match credentials {
            Credentials::Token(user) => Some(user),
            Credentials::Admin | Credentials::None | Credentials::Stranger => None,
        };
        Ok(Self { sender, token })
    }

    /// A handle on this connection, for a concurrent request.
    pub(crate) fn beside(&self) -> Self {
        match &self.sender {
            Sender::Http2(sender) => Self { sender: Sender::Http2(sender.clone()), token: self.token },
            Sender::Http1(_) => panic!("one request at a time"),
        }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Answer {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn try_get(&mut self, path: &str) -> Result<Answer, Failure> {
        let request = Request::get(self.target(path)).header("host", "localhost").body(full(""))?;
        answer(self.raw(request).await?).await
    }

    pub(crate) async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = Request::builder().method(method).uri(self.target(path)).header("host", "localhost");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        answer(self.raw(request.body(full(body)).unwrap()).await.unwrap()).await.unwrap()
    }

    /// Sends a request with only these header fields: on HTTP/1.1 without `Host` unless it is among them.
    pub(crate) async fn send_bare(&mut self, method: &str, target: &str, headers: &[(&str, &str)]) -> Answer {
        let mut request = Request::builder().method(method).uri(target);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        // The HTTP client removes a transfer coding unless the length of the body is unknown.
        let piece = stream::iter([Ok(Frame::data(Bytes::from_static(b"{}")))]);
        let is_coded = headers.iter().any(|(name, _)| *name == "transfer-encoding");
        let body = if is_coded { StreamBody::new(piece).boxed() } else { full("") };
        answer(self.raw(request.body(body).unwrap()).await.unwrap()).await.unwrap()
    }

    /// Posts a chunked body of this many bytes, without its length.
    pub(crate) async fn send_in_pieces(&mut self, method: &str, path: &str, bytes: usize) -> Answer {
        const PIECE: usize = 16 * 1024;
        let piece = move |start| Ok(Frame::data(Bytes::from(vec![b'x'; PIECE.min(bytes - start)])));
        let body = StreamBody::new(stream::iter((0..bytes).step_by(PIECE).map(piece)));
        let request = Request::builder().method(method).uri(self.target(path)).header("host", "localhost");
        let request = request.body(body.boxed()).unwrap();
        answer(self.raw(request).await.unwrap()).await.unwrap()
    }

    /// Begins a request whose body never arrives completely. Dropping the result resets it.
    pub(crate) fn begin(mut self, path: &str) -> JoinHandle<()> {
        let first = stream::iter([Ok(Frame::data(Bytes::from_static(b"half of it")))]);
        let body = StreamBody::new(futures::StreamExt::chain(first, stream::pending()));
        let request = Request::post(self.target(path)).header("host", "localhost").header("content-length", "18");
        let request = request.body(body.boxed()).unwrap();
        tokio::spawn(async move {
            // The server decides how the request ends.
            let _ = self.raw(request).await;
        })
    }

    /// The head of a response, whose body is not read yet.
    pub(crate) async fn open(&mut self, path: &str) -> Response<Incoming> {
        let request = Request::get(self.target(path)).header("host", "localhost").body(full("")).unwrap();
        self.raw(request).await.unwrap()
    }

    fn target(&self, path: &str) -> String {
        match self.sender {
            Sender::Http1(_) => path.to_owned(),
            Sender::Http2(_) => format!("https://localhost{path}"),
        }
    }

    async fn raw(&mut self, mut request: Request<Outgoing>) -> Result<Response<Incoming>, Failure> {
        if let Some(user) = self.token {
            request.headers_mut().insert(AUTHORIZATION, format!("Bearer {user}").parse()?);
        }
        let what = format!("the head of an answer to {} {}", request.method(), request.uri());
        let head = async {
            Ok(match &mut self.sender {
                Sender::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
                Sender::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await?
                }
            })
        };
        soon(&what, head).await
    }
}

/// Waits for an event that must happen without further action, with a timeout so that the test fails otherwise.
///
/// # Panics
/// The event does not happen.
pub(crate) async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what} did not come within {PATIENCE:?}"))
}

/// The next frame of an opened response. `None` at its end.
pub(crate) async fn next_frame(body: &mut Incoming) -> Option<Result<Frame<Bytes>, hyper::Error>> {
    soon("a frame of an answer, or its end", body.frame()).await
}

async fn answer(response: Response<Incoming>) -> Result<Answer, Failure> {
    let (parts, body) = response.into_parts();
    let bytes = soon("the rest of an answer", body.collect()).await?.to_bytes();
    Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, text: String::from_utf8(bytes.to_vec())? })
}

fn full(body: &str) -> Outgoing {
    Full::new(Bytes::from(body.to_owned())).map_err(|never| match never {}).boxed()
}

fn tls_config(pki: &Pki, credentials: Credentials, alpn: &[u8]) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(pki.server_ca_pem.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let present = |pair: &KeyAndCertificate| {
        let chain = vec![CertificateDer::from_pem_slice(pair.certificate_pem.as_bytes()).unwrap()];
        (chain, PrivateKeyDer::from_pem_slice(pair.key_pem.as_bytes()).unwrap())
    };
    let mut config = match credentials {
        Credentials::None | Credentials::Token(_) => builder.with_no_client_auth(),
        Credentials::Admin => {
            let (chain, key) = present(&pki.admin);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
        Credentials::Stranger => {
            let (chain, key) = present(&new_pki().admin);
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = vec![alpn.to_vec()];
    config
}

/// The documents of a catalogue.
fn documents(catalogue: &Catalogue) -> Arc<ServedDocuments> {
    let versions = VersionDescription::all(catalogue);
    let shared = SharedDefinitions::new(keelson_schema::Schemas::builtin(), &versions, "v1");
    let fragments: Vec<_> = versions.into_iter().map(Fragment::new).collect();
    let openapi = Descriptions::assemble(&shared, &fragments);
    let discovery = Documents::assemble(&keelson_discovery::fragments(catalogue, |_, _| true));
    Arc::new(ServedDocuments { discovery, of_all_servers: None, openapi })
}
