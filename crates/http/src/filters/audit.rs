//! The audit filter: the events of a request, from its authentication to the end of the response.
//!
//! Without an audit policy there is no [`RequestEvents`]. Bodies are kept only where the audit level of the request includes
//! them, and the writers of events convert them to JSON. The event of a complete response is written before it is sent.
//! That of a streamed response is written at its end, and no request waits for it.
//!
//! The first event (`RequestReceived`) is written as soon as the request has to wait, so that a request that hangs is
//! recorded. For a request that needs no wait, both events are written together, which costs less.

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use keelson_access::User;
use keelson_access::audit::{AuditRecord, AuditRequest, AuditStatus, Auditor, Body, Level, Occurrence, Stage};
use keelson_meta::status::Outcome;
use keelson_meta::{ApiError, Status};
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::authorization::{self, Selectors};
use crate::audited;
use crate::body::{BodyError, ResponseBody, full, stream};
use crate::proxy::Forwarded;
use crate::request_info::RequestInfo;
use crate::respond::SentStatus;

/// The largest recorded `User-Agent`, as upstream, in bytes.
const USER_AGENT_BYTES: usize = 1024;
/// The largest response that is complete before it is sent, in bytes. A longer one may be streamed.
const WHOLE_BYTES: u64 = 64 << 10;
/// The largest recorded response, in bytes. The event of a larger one says that the body is omitted.
const ANSWER_BYTES: usize = 10 << 20;
/// The header with the client addresses that proxies add.
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
/// The annotation of an event from which objects were omitted.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The events of one request. Dropping it writes the last one, if it was not written before.
pub(crate) struct RequestEvents {
    auditor: Arc<Auditor>,
    received: SystemTime,
    has_no_end: bool,
    /// The facts of the request before authentication.
    request: Mutex<Option<AuditRequest>>,
    record: OnceLock<AuditRecord>,
    /// True once the first event was written.
    has_begun: AtomicBool,
    end: Mutex<End>,
}

/// The state of a request's last event.
enum End {
    /// There is no response yet.
    Open,
    /// The response is being sent. Holds its status, and its body if the level includes it.
    Answering(AuditStatus, Option<Body>),
    /// All events are written.
    Told,
}

impl RequestEvents {
    /// Begins the events of a request with this id, from this address.
    pub(super) fn begin(
        auditor: &Arc<Auditor>,
        (id, address): (&HeaderValue, Option<IpAddr>),
        info: &RequestInfo,
        parts: &Parts,
    ) -> Arc<Self> {
        let received = auditor.now();
        let id = String::from_utf8_lossy(id.as_bytes());
        let uri = parts.uri.path_and_query().map_or("/", |uri| uri.as_str());
        let (program, addresses) = (user_agent(&parts.headers), source_ips(&parts.headers, address));
        let nothing = Selectors::default();
        let attributes = authorization::attributes(info, &nothing);
        let request = AuditRequest::new((&id, uri), (&program, &addresses), &attributes, received);
        Arc::new(Self {
            auditor: auditor.clone(),
            received,
            has_no_end: info.has_no_end(),
            request: Mutex::new(Some(request)),
            record: OnceLock::new(),
            has_begun: AtomicBool::new(false),
            end: Mutex::new(End::Open),
        })
    }

    /// Records the user. Writes the first event if the request must wait for that write.
    ///
    /// # Errors
    /// [`ApiError::Internal`] if the event must be written before the request continues, and could not be.
    pub(super) async fn known(&self, user: &Arc<User>) -> Result<&AuditRecord, ApiError> {
        let record = match self.request.lock().take() {
            Some(request) => self.decided(request, Some(user)),
            None => AuditRecord::default(),
        };
        let record = self.record.get_or_init(|| record);
        if !self.auditor.waits() || !self.claims_first_event() {
            return Ok(record);
        }
        if self.auditor.begin(record, &self.begun()).await {
            return Ok(record);
        }
        *self.end.lock() = End::Told;
        Err(ApiError::Internal("failed to store audit event".to_owned()))
    }

    /// The first event.
    fn begun(&self) -> Occurrence {
        Occurrence { stage: Stage::RequestReceived, at: self.received, status: None, response_object: None }
    }

    /// Returns true if the caller must write the first event. Only one call returns true, and none before
    /// authentication.
    fn claims_first_event(&self) -> bool {
        self.record.get().is_some() && !self.has_begun.swap(true, Ordering::Relaxed)
    }

    /// Writes the first event, if it is not written yet.
    fn begin_now(&self) {
        if self.claims_first_event() {
            self.auditor.tell(self.record(), &self.begun());
        }
    }

    /// The audit record of the request. Empty before authentication.
    pub(super) fn record(&self) -> &AuditRecord {
        static NOTHING: OnceLock<AuditRecord> = OnceLock::new();
        self.record.get().unwrap_or_else(|| NOTHING.get_or_init(AuditRecord::default))
    }

    /// The audit record of this user's request, empty if the policy's level is `None`.
    fn decided(&self, request: AuditRequest, user: Option<&Arc<User>>) -> AuditRecord {
        let audited = self.auditor.decide(user.map(|user| &**user), &request.attributes());
        if audited.level == Level::None {
            return AuditRecord::default();
        }
        AuditRecord::new(request.decided(audited, user.cloned()))
    }

    /// A stage of the request with the current time and this response.
    fn occurred(&self, stage: Stage, status: AuditStatus, response_object: Option<Body>) -> Occurrence {
        Occurrence { stage, at: self.auditor.now(), status: Some(status), response_object }
    }

    /// Records a panic of the server.
    pub(super) fn panicked(&self, text: &str) {
        self.begin_now();
        let message = format!("APIServer panic'd: {text}");
        let status = Arc::new(Status::failure(500, Some("InternalError"), message));
        let status = AuditStatus { code: 500, status: Some(status) };
        self.auditor.tell(self.record(), &self.occurred(Stage::Panic, status, None));
        *self.end.lock() = End::Told;
    }

    /// Writes the event of a complete response whose body is not recorded, if the write needs no wait, as for most
    /// responses. Returns true if all events are written.
    pub(super) fn has_told(&self, response: &Response<ResponseBody>) -> bool {
        let mut end = self.end.lock();
        if matches!(*end, End::Told) {
            return true;
        }
        let Some(record) = self.record.get() else { return false };
        if record.level() == Level::None {
            return true;
        }
        if record.level() == Level::RequestResponse || self.has_no_end || self.auditor.waits() || !is_whole(response) {
            return false;
        }
        *end = End::Told;
        drop(end);
        let complete = self.occurred(Stage::ResponseComplete, status_of(response), None);
        if self.claims_first_event() {
            self.auditor.tell_both(record, &self.begun(), &complete);
        } else {
            self.auditor.tell(record, &complete);
        }
        true
    }

    /// Writes the event of a response, now or at its end.
    pub(super) async fn answered(self: Arc<Self>, response: Response<ResponseBody>) -> Response<ResponseBody> {
        if matches!(*self.end.lock(), End::Told) {
            return response;
        }
        self.begin_now();
        let unknown = self.request.lock().take();
        let record = match unknown {
            // The request was never authenticated: it gets one event with a stage of its own.
            Some(request) => {
                *self.end.lock() = End::Told;
                self.decided(request, None)
            }
            None => self.record().clone(),
        };
        if record.level() == Level::None {
            return response;
        }
        let status = status_of(&response);
        let is_shown =
            record.level() == Level::RequestResponse && (status.status.is_some() || self.shows_objects(&response));
        let is_whole = is_whole(&response);
        let form = audited::form(response.headers().get(CONTENT_TYPE)).filter(|_| is_shown);
        let is_kept = is_short(&response) && form.is_some() && response.extensions().get::<Forwarded>().is_none();
        let (response, object) = match form {
            Some(form) if is_kept => kept(response, form).await,
            _ => (response, None),
        };
        let is_known = self.record.get().is_some();
        if self.has_no_end || !is_known {
            let started = self.occurred(Stage::ResponseStarted, status.clone(), object.clone());
            self.auditor.tell_and_wait(&record, &started).await;
        }
        if !is_known {
            return response;
        }
        if is_whole {
            *self.end.lock() = End::Told;
            let complete = self.occurred(Stage::ResponseComplete, status, object);
            self.auditor.tell_and_wait(&record, &complete).await;
            return response;
        }
        *self.end.lock() = End::Answering(status, None);
        let form = form.filter(|_| !self.has_no_end);
        response.map(|inner| {
            stream(AuditedBody { inner, kept: form.map(|form| (BytesMut::new(), form)), is_done: false, trail: self })
        })
    }

    /// Returns true if a response contains objects of this server.
    fn shows_objects(&self, response: &Response<ResponseBody>) -> bool {
        let is_of_objects = self.record().is_about_objects();
        is_of_objects && response.extensions().get::<Forwarded>().is_none()
    }
}

impl Drop for RequestEvents {
    fn drop(&mut self) {
        let (status, object) = match std::mem::replace(self.end.get_mut(), End::Told) {
            End::Told => return,
            End::Answering(status, object) => (status, object),
            // As upstream, the event says that the client disconnected before there was a response.
            End::Open => {
                let message = "Connection closed early".to_owned();
                let status = Status { status: Outcome::Success, message, ..Status::failure(200, None, String::new()) };
                (AuditStatus { code: 200, status: Some(Arc::new(status)) }, None)
            }
        };
        self.begin_now();
        self.auditor.tell(self.record(), &self.occurred(Stage::ResponseComplete, status, object));
    }
}

/// Waits for the response of a request. Writes the first event as soon as the response is not ready at once.
pub(super) async fn followed<T>(trail: Option<&RequestEvents>, mut answer: Pin<&mut impl Future<Output = T>>) -> T {
    poll_fn(|context| {
        let polled = answer.as_mut().poll(context);
        if polled.is_pending() {
            trail.into_iter().for_each(RequestEvents::begin_now);
        }
        polled
    })
    .await
}

/// The status of a response.
fn status_of(response: &Response<ResponseBody>) -> AuditStatus {
    let status = response.extensions().get::<SentStatus>().map(|sent| sent.0.clone());
    AuditStatus { code: response.status().as_u16(), status }
}

/// Returns true if the response is short enough to be complete before it is sent.
fn is_short(response: &Response<ResponseBody>) -> bool {
    response.body().size_hint().exact().is_some_and(|bytes| bytes <= WHOLE_BYTES)
}

/// Returns true if a response is complete. An upgraded connection continues without a body.
fn is_whole(response: &Response<ResponseBody>) -> bool {
    let is_passed_on = response.extensions().get::<Forwarded>().is_some();
    is_short(response) && !is_passed_on && response.status() != StatusCode::SWITCHING_PROTOCOLS
}

/// Removes `Accept-Encoding` from a request whose response is recorded, so that the response is not compressed.
pub(super) fn prepare(audit: &AuditRecord, headers: &mut HeaderMap) {
    if audit.level() == Level::RequestResponse {
        headers.remove(ACCEPT_ENCODING);
    }
}

/// The body of a complete response.
async fn kept(response: Response<ResponseBody>, form: audited::Form) -> (Response<ResponseBody>, Option<Body>) {
    let (head, body) = response.into_parts();
    match body.collect().await {
        Ok(collected) => {
            let bytes = collected.to_bytes();
            (Response::from_parts(head, full(bytes.clone())), Some(Body::new(bytes, form)))
        }
        // A complete body does not fail. If it does, the client gets a broken body too.
        Err(error) => {
            let broken = futures::stream::iter([Err::<Frame<Bytes>, _>(error)]);
            (Response::from_parts(head, stream(http_body_util::StreamBody::new(broken))), None)
        }
    }
}

/// The body of a streamed response. Keeps the part that the event records.
struct AuditedBody {
    inner: ResponseBody,
    kept: Option<(BytesMut, audited::Form)>,
    is_done: bool,
    trail: Arc<RequestEvents>,
}

impl hyper::body::Body for AuditedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                let (Some((kept, _)), Some(data)) = (&mut this.kept, frame.data_ref()) else { return polled };
                if kept.len() + data.len() > ANSWER_BYTES {
                    this.kept = None;
                    this.trail.record().annotate(TRUNCATED, "true");
                } else {
                    kept.extend_from_slice(data);
                }
                this.is_done = this.inner.is_end_stream();
            }
            Poll::Ready(None) => this.is_done = true,
            // A body that broke off contains no whole object.
            Poll::Ready(Some(Err(_))) => this.kept = None,
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Drop for AuditedBody {
    fn drop(&mut self) {
        if let (Some((bytes, form)), true) = (self.kept.take(), self.is_done)
            && let End::Answering(_, object) = &mut *self.trail.end.lock()
        {
            *object = Some(Body::new(bytes.freeze(), form));
        }
    }
}

/// The addresses of a request: first those in proxy headers, last that of the connection, which a client cannot forge.
fn source_ips(headers: &HeaderMap, address: Option<IpAddr>) -> SmallVec<[IpAddr; 2]> {
    let said = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let mut ips: SmallVec<[IpAddr; 2]> = said(FORWARDED_FOR).split(',').filter_map(parse).collect();
    ips.extend(parse(said(REAL_IP)).filter(|ip| !ips.contains(ip)));
    let address = address.map(|address| address.to_canonical());
    ips.extend(address.filter(|address| ips.last() != Some(address)));
    ips
}

fn user_agent(headers: &HeaderMap) -> Cow<'_, str> {
    let value = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    let shown = String::from_utf8_lossy(&value[..value.len().min(USER_AGENT_BYTES)]);
    if value.len() > USER_AGENT_BYTES { (shown + "...TRUNCATED").into_owned().into() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_include_proxy_headers_and_the_peer() {
        let check = |forwarded: &str, real: &str, expect: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            headers.insert("x-real-ip", real.parse().unwrap());
            let ips = source_ips(&headers, Some([127, 0, 0, 1].into()));
            assert_eq!(ips.iter().map(ToString::to_string).collect::<Vec<_>>(), expect, "{forwarded} {real}");
        };
        check("", "", &["127.0.0.1"]);
        check(
            "203.0.113.7, no address,203.0.113.8",
            "203.0.113.9",
            &["203.0.113.7", "203.0.113.8", "203.0.113.9", "127.0.0.1"],
        );
        check("203.0.113.7", "203.0.113.7", &["203.0.113.7", "127.0.0.1"]);
        check("203.0.113.7,127.0.0.1", "", &["203.0.113.7", "127.0.0.1"]);
        check("2001:db8::1", "", &["2001:db8::1", "127.0.0.1"]);
    }

    #[test]
    fn a_long_name_of_a_program_is_cut() {
        let headers = HeaderMap::from_iter([(USER_AGENT, "x".repeat(2000).parse().unwrap())]);
        assert_eq!(user_agent(&headers), "x".repeat(1024) + "...TRUNCATED");
    }
}
