//! A collector of traces for tests: OTLP over gRPC on a port of the loopback address. Tests set its responses.
//!
//! The collector decodes messages with own code, independent of the encoder of the server under test.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::server::SendResponse;
use http::{HeaderMap, HeaderValue, Request, Response};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The path of the method that takes spans.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// The longest wait for spans.
const PATIENCE: Duration = Duration::from_secs(30);

/// A received span. Ids are in hexadecimal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CollectedSpan {
    /// The trace.
    pub trace: String,
    /// The span.
    pub id: String,
    /// The span around it, or empty.
    pub parent: String,
    /// The name.
    pub name: String,
    /// The kind: 1 for internal, 2 for a server, 3 for a client.
    pub kind: u64,
    /// The attributes, in text.
    pub attributes: BTreeMap<String, String>,
    /// The traces of its links.
    pub links: Vec<String>,
    /// The error, if it has failed.
    pub error: Option<String>,
    /// The attributes of its server.
    pub resource: BTreeMap<String, String>,
}

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollectorAnswer {
    /// Takes the spans.
    Takes,
    /// Takes them after this time.
    TakesAfter(Duration),
    /// Refuses spans with gRPC's code for an unavailable service.
    Refuses,
    /// Never answers.
    Hangs,
}

/// A collector that runs until it is dropped.
pub struct CollectorDouble {
    addr: SocketAddr,
    state: Arc<State>,
    serving: tokio::task::JoinHandle<()>,
}

struct State {
    spans: Mutex<Vec<CollectedSpan>>,
    answer: Mutex<CollectorAnswer>,
    calls: Mutex<usize>,
}

impl Drop for CollectorDouble {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl CollectorDouble {
    /// Starts one on a free port.
    ///
    /// # Panics
    /// No port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let addr = listener.local_addr().expect("a bound port");
        let state =
            State { spans: Mutex::default(), answer: Mutex::new(CollectorAnswer::Takes), calls: Mutex::default() };
        let state = Arc::new(state);
        let serving = tokio::spawn(serve(listener, state.clone()));
        Self { addr, state, serving }
    }

    /// The endpoint in a configuration.
    pub fn endpoint(&self) -> String {
        self.addr.to_string()
    }

    /// Changes the answers.
    pub fn answer(&self, answer: CollectorAnswer) {
        *self.state.answer.lock() = answer;
    }

    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        *self.state.calls.lock()
    }

    /// The spans so far.
    pub fn spans(&self) -> Vec<CollectedSpan> {
        self.state.spans.lock().clone()
    }

    /// Waits until `find` returns something about the spans so far.
    ///
    /// # Panics
    /// When the span does not arrive within half a minute. The text has the names of the spans.
    pub async fn until<T>(&self, mut find: impl FnMut(&[CollectedSpan]) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let spans = self.spans();
            if let Some(found) = find(&spans) {
                return found;
            }
            let names: Vec<_> = spans.iter().map(|span| (&span.name, &span.attributes)).collect();
            assert!(Instant::now() < end, "the spans have not come; there are: {names:#?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(converse(stream, state.clone()));
    }
}

async fn converse(stream: TcpStream, state: Arc<State>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    let mut answers = JoinSet::new();
    while let Some(Ok((request, respond))) = connection.accept().await {
        answers.spawn(answer(request, respond, state.clone()));
    }
}

async fn answer(request: Request<h2::RecvStream>, mut respond: SendResponse<Bytes>, state: Arc<State>) {
    let path = request.uri().path().to_owned();
    let mut body = request.into_body();
    let mut message = BytesMut::new();
    while let Some(Ok(part)) = body.data().await {
        let _released = body.flow_control().release_capacity(part.len());
        message.extend_from_slice(&part);
    }
    *state.calls.lock() += 1;
    message.advance(5.min(message.len()));
    let answer = *state.answer.lock();
    let status = match answer {
        _ if path != EXPORT => "12",
        CollectorAnswer::Takes => "0",
        CollectorAnswer::TakesAfter(time) => {
            sleep(time).await;
            "0"
        }
        CollectorAnswer::Refuses => "14",
        CollectorAnswer::Hangs => std::future::pending().await,
    };
    if status == "0" {
        state.spans.lock().extend(spans_of(&message));
    }
    let head = Response::builder().header("content-type", "application/grpc").body(()).expect("a valid head");
    let Ok(mut stream) = respond.send_response(head, false) else { return };
    // An empty message. A disconnected client gets no response.
    let _sent = stream.send_data(Bytes::from_static(&[0; 5]), false);
    let _sent = stream.send_trailers(HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static(status),
    )]));
}

/// A field of a message.
enum Field<'m> {
    Number(u64),
    Bytes(&'m [u8]),
}

impl Field<'_> {
    fn text(&self) -> String {
        match self {
            Self::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Number(number) => number.to_string(),
        }
    }

    fn hex(&self) -> String {
        match self {
            Self::Bytes(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
            Self::Number(_) => String::new(),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Number(_) => &[],
        }
    }
}

/// The fields of a message, in their order.
fn fields(message: &[u8]) -> Vec<(u64, Field<'_>)> {
    let (mut rest, mut found) = (message, Vec::new());
    while let Some(tag) = varint(&mut rest) {
        let field = match tag & 7 {
            0 => varint(&mut rest).map(Field::Number),
            1 => fixed(&mut rest, 8).map(Field::Bytes),
            2 => varint(&mut rest).and_then(|length| fixed(&mut rest, length)).map(Field::Bytes),
            5 => fixed(&mut rest, 4).map(Field::Bytes),
            _ => None,
        };
        let Some(field) = field else { break };
        found.push((tag >> 3, field));
    }
    found
}

fn fixed<'m>(rest: &mut &'m [u8], length: u64) -> Option<&'m [u8]> {
    let (value, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    Some(value)
}

fn varint(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 127) << (7 * place);
        if byte & 128 == 0 {
            return Some(number);
        }
    }
    None
}

fn spans_of(request: &[u8]) -> Vec<CollectedSpan> {
    let mut spans = Vec::new();
    for (_, of_resource) in fields(request) {
        let of_resource = fields(of_resource.bytes());
        let attributes = |number: u64, message: &[u8]| -> BTreeMap<String, String> {
            fields(message)
                .iter()
                .filter(|(known, _)| *known == number)
                .map(|(_, one)| attribute(one.bytes()))
                .collect()
        };
        let resource = of_resource.iter().find(|(number, _)| *number == 1);
        let resource: BTreeMap<_, _> =
            resource.map(|(_, resource)| attributes(1, resource.bytes())).unwrap_or_default();
        for (_, scope) in of_resource.iter().filter(|(number, _)| *number == 2) {
            for (_, span) in fields(scope.bytes()).iter().filter(|(number, _)| *number == 2) {
                spans.push(CollectedSpan {
                    attributes: attributes(9, span.bytes()),
                    resource: resource.clone(),
                    ..span_of(span.bytes())
                });
            }
        }
    }
    spans
}

fn span_of(message: &[u8]) -> CollectedSpan {
    let mut span = CollectedSpan::default();
    for (number, field) in fields(message) {
        match number {
            1 => span.trace = field.hex(),
            2 => span.id = field.hex(),
            4 => span.parent = field.hex(),
            5 => span.name = field.text(),
            6 => span.kind = field.text().parse().unwrap_or_default(),
            13 => span.links.extend(fields(field.bytes()).first().map(|(_, trace)| trace.hex())),
            15 => {
                let status = fields(field.bytes());
                span.error =
                    Some(status.iter().find(|(number, _)| *number == 2).map_or_else(String::new, |it| it.1.text()));
            }
            _ => {}
        }
    }
    span
}

fn attribute(message: &[u8]) -> (String, String) {
    let (mut key, mut value) = (String::new(), String::new());
    for (number, field) in fields(message) {
        match number {
            1 => key = field.text(),
            _ => value = fields(field.bytes()).first().map(|(_, value)| value.text()).unwrap_or_default(),
        }
    }
    (key, value)
}
