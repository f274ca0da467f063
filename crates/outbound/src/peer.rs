//! One call to one host: how many there may be, how long they take, and how much of an answer is read.
//!
//! Connections are kept and used again. One that its peer has ended meanwhile is noticed only when it is used: then the call is
//! made again, as long as nothing of an answer was seen. A call that nobody waits for any more is broken off.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::capture_connection;
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use keelson_meta::go_format::quote;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use crate::dial::Dialer;
use crate::fault::{CallError, NO_END, NO_HEAD, is_broken_connection, seconds, text};
use crate::wire::Uses;

/// How many calls to one host are under way at once. Together with those that wait they are fewer than the requests of any level of
/// flow control, so that whoever is called can call this server back though every caller waits for it.
const CALLS: usize = 64;
/// How many calls to one host wait for that.
const WAITING: usize = 128;
/// How many connections to one host are kept that nobody uses.
const IDLE_CONNECTIONS: usize = 16;
/// How long they are kept.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// How often a call is made again whose connection turned out to have ended.
const AGAIN: usize = 3;
/// How many bytes the head of an answer may have.
const HEAD_BYTES: usize = 64 << 10;
/// How many bytes of all answers together are held at once.
const READING_BYTES: usize = 256 << 20;

/// Somebody who can be called: a host, and a path there.
#[derive(Clone, Debug)]
pub struct Peer {
    host: Arc<Host>,
    path: String,
}

/// A call that shall be made.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// What is sent, which is JSON.
    pub body: Bytes,
    /// How long it may take altogether, which the peer is told.
    pub time: Duration,
    /// How many bytes the answer may have.
    pub answer_bytes: usize,
}

/// A question that shall be asked: a request with header fields of its own.
#[derive(Clone, Debug)]
pub struct Question {
    /// The method.
    pub method: Method,
    /// The path, and the query if there is one.
    pub path: String,
    /// The header fields, beside those that every request has.
    pub headers: HeaderMap,
    /// What is sent.
    pub body: Bytes,
    /// How long it may take altogether.
    pub time: Duration,
    /// How many bytes the answer may have.
    pub answer_bytes: usize,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    /// The code.
    pub status: u16,
    /// The header fields.
    pub headers: HeaderMap,
    /// The media type; that of what was sent where the peer does not say.
    pub content_type: String,
    /// How long the peer wants its caller to wait.
    pub retry_after: Option<Duration>,
    /// The body.
    pub body: Bytes,
    _room: Room,
}

/// A host with its connections, for all who call it.
pub(crate) struct Host {
    authority: String,
    client: Client<Dialer, Full<Bytes>>,
    places: Semaphore,
    waiting: AtomicUsize,
    reading: Arc<Reading>,
}

/// How many bytes of answers are held.
#[derive(Debug, Default)]
pub(crate) struct Reading(AtomicUsize);

/// The part of that which is one answer's.
#[derive(Debug)]
struct Room {
    bytes: usize,
    of: Arc<Reading>,
}

impl Room {
    fn grow(&mut self, by: usize) -> Result<(), String> {
        self.bytes += by;
        if self.of.0.fetch_add(by, Ordering::Relaxed) + by > READING_BYTES {
            return Err(format!("more than {READING_BYTES} bytes of answers are being read"));
        }
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.of.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Host {
    pub(crate) fn new(authority: String, dialer: Dialer, reading: Arc<Reading>) -> Self {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIME)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .http1_max_buf_size(HEAD_BYTES)
            .build(dialer);
        Self { authority, client, places: Semaphore::new(CALLS), waiting: AtomicUsize::new(0), reading }
    }

    /// A place among the calls that are under way, if it is to be had in time.
    async fn place(&self, until: Instant) -> Result<Option<SemaphorePermit<'_>>, CallError> {
        if let Ok(place) = self.places.try_acquire() {
            return Ok(Some(place));
        }
        struct Waits<'w>(&'w AtomicUsize);
        impl Drop for Waits<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        if before >= WAITING {
            return Err(CallError::Busy { host: self.authority.clone() });
        }
        Ok(timeout_at(until, self.places.acquire()).await.ok().and_then(Result::ok))
    }

    /// The head of the answer to a request, which is sent again where a connection that was kept turns out to have ended.
    async fn send(&self, request: &Request<Full<Bytes>>) -> Result<Response<Incoming>, Error> {
        let mut again = 0;
        loop {
            let mut request = request.clone();
            let connection = capture_connection(&mut request);
            let sent = self.client.request(request).await;
            let was_kept = connection.connection_metadata().as_ref().is_some_and(|connected| {
                let mut extras = http::Extensions::new();
                connected.get_extras(&mut extras);
                extras.get::<Uses>().is_some_and(Uses::again)
            });
            match sent {
                Err(error) if was_kept && again < AGAIN && is_broken_connection(&error) => again += 1,
                sent => return sent,
            }
        }
    }
}

impl Peer {
    pub(crate) fn new(host: Arc<Host>, path: String) -> Self {
        Self { host, path }
    }

    /// Where a call of so long goes, as errors name it.
    fn url(&self, time: Duration) -> String {
        format!("https://{}{}?timeout={}", self.host.authority, self.path, seconds(time))
    }

    /// Makes a call. Dropping the future breaks it off.
    ///
    /// # Errors
    /// When there is no whole answer in time.
    pub async fn call(&self, call: &Call) -> Result<Answer, CallError> {
        self.call_until(call, Instant::now() + call.time).await
    }

    /// The same with what is left of its time.
    pub(crate) async fn call_until(&self, call: &Call, until: Instant) -> Result<Answer, CallError> {
        let url = self.url(call.time);
        let told = |why: &str| format!("{} {}: {why}", title(&call.method), quote(&url));
        let late = || CallError::Late(told(NO_HEAD));
        let request = self
            .request(&call.method, &url)
            .header(ACCEPT, "application/json, */*")
            .header(CONTENT_TYPE, JSON)
            .body(Full::new(call.body.clone()))
            .map_err(|error| CallError::Failed(told(&error.to_string())))?;
        let _place = self.host.place(until).await?.ok_or_else(late)?;
        let answer = timeout_at(until, self.host.send(&request)).await.map_err(|_| late())?;
        let answer = answer.map_err(|error| CallError::Failed(told(&text(&error))))?;
        self.read(answer, call.answer_bytes, until).await
    }

    /// Where a path is there, as errors name it.
    pub fn at(&self, path: &str) -> String {
        format!("https://{}{path}", self.host.authority)
    }

    /// Asks a question. Dropping the future breaks it off.
    ///
    /// # Errors
    /// When there is no whole answer in time.
    pub async fn ask(&self, question: &Question) -> Result<Answer, CallError> {
        let until = Instant::now() + question.time;
        let url = self.at(&question.path);
        let told = |why: &str| format!("{} {}: {why}", title(&question.method), quote(&url));
        let late = || CallError::Late(told(NO_HEAD));
        let mut request = self
            .request(&question.method, &url)
            .body(Full::new(question.body.clone()))
            .map_err(|error| CallError::Failed(told(&error.to_string())))?;
        request.headers_mut().extend(question.headers.clone());
        let _place = self.host.place(until).await?.ok_or_else(late)?;
        let answer = timeout_at(until, self.host.send(&request)).await.map_err(|_| late())?;
        let answer = answer.map_err(|error| CallError::Failed(told(&text(&error))))?;
        self.read(answer, question.answer_bytes, until).await
    }

    /// A request with the fields that each has.
    fn request(&self, method: &Method, url: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(url)
            .header(HOST, &self.host.authority)
            .header(USER_AGENT, concat!("keelson/", env!("CARGO_PKG_VERSION")))
    }

    async fn read(&self, answer: Response<Incoming>, most: usize, until: Instant) -> Result<Answer, CallError> {
        let (head, body) = answer.into_parts();
        let unread =
            |why: &str| format!("unexpected error when reading response body. Please retry. Original error: {why}");
        let mut room = Room { bytes: 0, of: self.host.reading.clone() };
        let body = timeout_at(until, read(body, &head.headers, most, &mut room)).await;
        let body = body.map_err(|_| CallError::Late(unread(NO_END)))?;
        let body = body.map_err(|why| CallError::Failed(unread(&why)))?;
        let text = |name| head.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        Ok(Answer {
            status: head.status.as_u16(),
            content_type: text(CONTENT_TYPE).unwrap_or(JSON).to_owned(),
            retry_after: text(RETRY_AFTER).and_then(|value| value.parse().ok()).map(Duration::from_secs),
            body,
            headers: head.headers,
            _room: room,
        })
    }
}

const JSON: &str = "application/json";

/// All of a body, of so many bytes at the most.
async fn read(mut body: Incoming, headers: &HeaderMap, most: usize, room: &mut Room) -> Result<Bytes, String> {
    let too_long = || format!("the answer is longer than {most} bytes");
    let stated = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if stated.is_some_and(|stated| stated > most) {
        return Err(too_long());
    }
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| match text(&error) {
            ended if ended == "EOF" => "unexpected EOF".to_owned(),
            other => other,
        })?;
        let Ok(data) = frame.into_data() else { continue };
        room.grow(data.len())?;
        if bytes.len() + data.len() > most {
            return Err(too_long());
        }
        bytes.extend_from_slice(&data);
    }
    Ok(bytes.freeze())
}

/// A method as Go's client names it: `Post`.
fn title(method: &Method) -> String {
    let mut title = method.as_str().to_ascii_lowercase();
    title[..1].make_ascii_uppercase();
    title
}
