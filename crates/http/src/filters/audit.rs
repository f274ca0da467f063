//! The audit filter: the events of a request, from the moment that it is known who asks to the end of the answer.
//!
//! Where nothing is audited there is no [`Trail`]. Bodies are only looked at where the level of the request wants them written down, and
//! are put into JSON by those who write the events. A short answer is written down before it is sent; of one that may still be made the
//! last event comes with its end, and nobody waits for that.

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::SystemTime;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::request::Parts;
use http::{Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Body as _, Frame, SizeHint};
use keelson_access::audit::{AuditRecord, AuditRequest, AuditStatus, Auditor, Body, Level, ObjectNames, Stage};
use keelson_access::{Attributes, ResourceAttributes, User};
use keelson_meta::status::Outcome;
use keelson_meta::{ApiError, Clock, Status};
use parking_lot::Mutex;

use super::authorization::verb_of;
use crate::audited;
use crate::body::{BodyError, ResponseBody, full, stream};
use crate::proxy::PassedOn;
use crate::request_info::RequestInfo;
use crate::respond::SentStatus;

/// How many bytes of a client's name are written down, as upstream has it.
const USER_AGENT_BYTES: usize = 1024;
/// How many bytes an answer may have that is there before it is sent. A longer one may still be made.
const WHOLE_BYTES: u64 = 64 << 10;
/// How many bytes of an answer are kept to be written down. A longer one is left out, which its event says.
const ANSWER_BYTES: usize = 10 << 20;
/// The annotation of an event whose objects were left out.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The events of one request. The last one is told when nobody holds this any more, if it was not told before.
pub(crate) struct Trail {
    auditor: Arc<Auditor>,
    clock: Arc<dyn Clock>,
    received: SystemTime,
    path: String,
    has_no_end: bool,
    /// What is known before it is known who asks.
    request: Mutex<Option<AuditRequest>>,
    record: OnceLock<AuditRecord>,
    end: Mutex<End>,
}

/// How a request ends.
enum End {
    /// Nobody has answered yet.
    Open,
    /// The head of this answer is on its way.
    Answering(AuditStatus, Option<Body>),
    /// All is told.
    Told,
}

impl Trail {
    /// A request that has come, under this id and from this address.
    pub(super) fn begin(
        auditor: &Arc<Auditor>,
        clock: &Arc<dyn Clock>,
        (id, address): (&HeaderValue, Option<IpAddr>),
        info: &RequestInfo,
        parts: &Parts,
    ) -> Arc<Self> {
        let received = clock.now();
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let names = || ObjectNames {
            resource: info.resource.clone(),
            namespace: text(&info.namespace),
            name: text(&info.name),
            api_group: info.group.clone(),
            api_version: info.version.clone(),
            subresource: text(&info.subresource),
            ..ObjectNames::default()
        };
        let request = AuditRequest {
            id: String::from_utf8_lossy(id.as_bytes()).into_owned(),
            uri: parts.uri.path_and_query().map_or("/", |uri| uri.as_str()).to_owned(),
            verb: verb_of(info).to_owned(),
            source_ips: source_ips(&parts.headers, address),
            user_agent: user_agent(&parts.headers),
            object: info.is_resource_request.then(|| Arc::new(names())),
            received: Some(received),
            ..AuditRequest::default()
        };
        Arc::new(Self {
            auditor: auditor.clone(),
            clock: clock.clone(),
            received,
            path: info.path.clone(),
            has_no_end: info.has_no_end(),
            request: Mutex::new(Some(request)),
            record: OnceLock::new(),
            end: Mutex::new(End::Open),
        })
    }

    /// Notes who asks, and tells of the first stage.
    ///
    /// # Errors
    /// [`ApiError::Internal`] where that has to be written before the request may go on, and could not be.
    pub(super) async fn known(&self, user: &Arc<User>) -> Result<&AuditRecord, ApiError> {
        let record = match self.request.lock().take() {
            Some(request) => self.decided(request, Some(user)),
            None => AuditRecord::default(),
        };
        if let Some(event) = record.event(Stage::RequestReceived, self.received, None, None)
            && !self.auditor.begin(event).await
        {
            *self.end.lock() = End::Told;
            return Err(ApiError::Internal("failed to store audit event".to_owned()));
        }
        Ok(self.record.get_or_init(|| record))
    }

    /// What is written down of the request: nothing before it is known who asks.
    pub(super) fn record(&self) -> &AuditRecord {
        static NOTHING: OnceLock<AuditRecord> = OnceLock::new();
        self.record.get().unwrap_or_else(|| NOTHING.get_or_init(AuditRecord::default))
    }

    /// The note of a request of this user, if the policy has anything of it written down.
    fn decided(&self, request: AuditRequest, user: Option<&Arc<User>>) -> AuditRecord {
        let audited = self.auditor.decide(user.map(|user| &**user), &attributes(&request, &self.path));
        if audited.level == Level::None {
            return AuditRecord::default();
        }
        AuditRecord::of(AuditRequest { audited, user: user.cloned(), ..request })
    }

    /// Tells that the server had a fault.
    pub(super) fn panicked(&self, text: &str) {
        let message = format!("APIServer panic'd: {text}");
        let status = Arc::new(Status::failure(500, Some("InternalError"), message));
        let status = AuditStatus { code: 500, status: Some(status) };
        if let Some(event) = self.record().event(Stage::Panic, self.clock.now(), Some(status), None) {
            self.auditor.tell(event);
        }
        *self.end.lock() = End::Told;
    }

    /// Tells of an answer, now or with its end.
    pub(super) async fn answered(self: Arc<Self>, response: Response<ResponseBody>) -> Response<ResponseBody> {
        if matches!(*self.end.lock(), End::Told) {
            return response;
        }
        let unknown = self.request.lock().take();
        let record = match unknown {
            // Nobody found out who asks: that is one event, of a stage of its own.
            Some(request) => {
                *self.end.lock() = End::Told;
                self.decided(request, None)
            }
            None => self.record().clone(),
        };
        if record.level() == Level::None {
            return response;
        }
        let sent = response.extensions().get::<SentStatus>().map(|sent| sent.0.clone());
        let is_shown = record.level() == Level::RequestResponse && (sent.is_some() || self.shows_objects(&response));
        let status = AuditStatus { code: response.status().as_u16(), status: sent };
        let is_short = response.body().size_hint().exact().is_some_and(|bytes| bytes <= WHOLE_BYTES);
        let is_whole = is_short && response.extensions().get::<PassedOn>().is_none();
        let form = audited::form(response.headers().get(CONTENT_TYPE)).filter(|_| is_shown);
        let (response, object) = match form {
            Some(form) if is_whole => kept(response, form).await,
            _ => (response, None),
        };
        let is_known = self.record.get().is_some();
        if self.has_no_end || !is_known {
            let started = record.event(Stage::ResponseStarted, self.clock.now(), Some(status.clone()), object.clone());
            if let Some(event) = started {
                self.auditor.tell_and_wait(event).await;
            }
        }
        if !is_known {
            return response;
        }
        // What another server has agreed to goes on without a body.
        if is_whole && response.status() != StatusCode::SWITCHING_PROTOCOLS {
            *self.end.lock() = End::Told;
            let event = record.event(Stage::ResponseComplete, self.clock.now(), Some(status), object);
            if let Some(event) = event {
                self.auditor.tell_and_wait(event).await;
            }
            return response;
        }
        *self.end.lock() = End::Answering(status, None);
        let form = form.filter(|_| !self.has_no_end);
        response.map(|inner| {
            stream(Streamed { inner, kept: form.map(|form| (BytesMut::new(), form)), is_done: false, trail: self })
        })
    }

    /// Whether an answer shows objects of this server.
    fn shows_objects(&self, response: &Response<ResponseBody>) -> bool {
        let is_of_objects = self.record().is_about_objects();
        is_of_objects && response.extensions().get::<PassedOn>().is_none()
    }
}

impl Drop for Trail {
    fn drop(&mut self) {
        let (status, object) = match std::mem::replace(self.end.get_mut(), End::Told) {
            End::Told => return,
            End::Answering(status, object) => (status, object),
            // The client has gone away before there was an answer, which upstream tells so.
            End::Open => {
                let message = "Connection closed early".to_owned();
                let status = Status { status: Outcome::Success, message, ..Status::failure(200, None, String::new()) };
                (AuditStatus { code: 200, status: Some(Arc::new(status)) }, None)
            }
        };
        if let Some(event) = self.record().event(Stage::ResponseComplete, self.clock.now(), Some(status), object) {
            self.auditor.tell(event);
        }
    }
}

/// Has an answer sent as it is, where it is to be written down whole.
pub(super) fn prepare(audit: &AuditRecord, headers: &mut HeaderMap) {
    if audit.level() == Level::RequestResponse {
        headers.remove(ACCEPT_ENCODING);
    }
}

/// The body of an answer that is known whole.
async fn kept(response: Response<ResponseBody>, form: audited::Form) -> (Response<ResponseBody>, Option<Body>) {
    let (head, body) = response.into_parts();
    match body.collect().await {
        Ok(collected) => {
            let bytes = collected.to_bytes();
            (Response::from_parts(head, full(bytes.clone())), Some(Body::new(bytes, form)))
        }
        // What is known whole is there. A body that says so and is not is as broken for its client.
        Err(error) => {
            let broken = futures::stream::iter([Err::<Frame<Bytes>, _>(error)]);
            (Response::from_parts(head, stream(http_body_util::StreamBody::new(broken))), None)
        }
    }
}

/// An answer that is sent while it is made, with as much of it as is to be written down.
struct Streamed {
    inner: ResponseBody,
    kept: Option<(BytesMut, audited::Form)>,
    is_done: bool,
    trail: Arc<Trail>,
}

impl hyper::body::Body for Streamed {
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
            // What has broken off is no object.
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

impl Drop for Streamed {
    fn drop(&mut self) {
        if let (Some((bytes, form)), true) = (self.kept.take(), self.is_done)
            && let End::Answering(_, object) = &mut *self.trail.end.lock()
        {
            *object = Some(Body::new(bytes.freeze(), form));
        }
    }
}

/// A request as the policy sees it.
fn attributes<'r>(request: &'r AuditRequest, path: &'r str) -> Attributes<'r> {
    let verb = &*request.verb;
    let Some(object) = &request.object else { return Attributes::Path { verb, path } };
    let named = |text: &'r String| Some(&**text).filter(|text| !text.is_empty());
    Attributes::Resource(ResourceAttributes {
        verb,
        group: &object.api_group,
        version: &object.api_version,
        resource: &object.resource,
        subresource: named(&object.subresource),
        namespace: named(&object.namespace),
        name: named(&object.name),
        ..ResourceAttributes::default()
    })
}

/// The addresses that a request came by: what proxies say, and at the end the one that nobody can make up.
fn source_ips(headers: &HeaderMap, address: Option<IpAddr>) -> Vec<String> {
    let said = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let parse = |text: &str| text.trim().parse::<IpAddr>().ok();
    let mut ips: Vec<IpAddr> = said("x-forwarded-for").split(',').filter_map(parse).collect();
    ips.extend(parse(said("x-real-ip")).filter(|ip| !ips.contains(ip)));
    let address = address.map(|address| address.to_canonical());
    ips.extend(address.filter(|address| ips.last() != Some(address)));
    ips.iter().map(ToString::to_string).collect()
}

fn user_agent(headers: &HeaderMap) -> String {
    let value = headers.get(USER_AGENT).map(HeaderValue::as_bytes).unwrap_or_default();
    let shown = String::from_utf8_lossy(&value[..value.len().min(USER_AGENT_BYTES)]).into_owned();
    if value.len() > USER_AGENT_BYTES { shown + "...TRUNCATED" } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_that_proxies_say_and_the_clients_own() {
        let check = |forwarded: &str, real: &str, expect: &[&str]| {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            headers.insert("x-real-ip", real.parse().unwrap());
            assert_eq!(source_ips(&headers, Some([127, 0, 0, 1].into())), expect, "{forwarded} {real}");
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
