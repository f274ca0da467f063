//! Audit events and their two formats: JSON equal to upstream's `audit.k8s.io/v1`, with the same order of members, and
//! the text line of upstream's legacy format.
//!
//! An event borrows from its request and is copied only when it is written. Objects keep their wire bytes until then,
//! so that the request does not wait for the conversion.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use keelson_codec::json::write_string;
use keelson_meta::Status;
use keelson_meta::clock::{push_rfc3339_micro, rfc3339_micro};
use keelson_meta::go_format::quote;
use keelson_meta::status::Outcome;
use serde::Serialize;

use super::policy::{Level, Stage};
use super::request::AuditRequest;
use crate::authorize::{Attributes, ResourceAttributes};
use crate::shared_text::SharedText;
use crate::user::User;

/// Annotations sorted by name. Names start with a domain.
pub(super) type Annotations = Vec<(Cow<'static, str>, SharedText)>;

/// The annotations with the authorization decision and its reason.
pub(super) const DECISION: &str = "authorization.k8s.io/decision";
pub(super) const REASON: &str = "authorization.k8s.io/reason";
/// The annotation of an event whose objects were removed because of their size.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// The status of a response.
#[derive(Clone, Debug)]
pub struct AuditStatus {
    /// The status code.
    pub code: u16,
    /// The `Status` object of the response, if it was one.
    pub status: Option<Arc<Status>>,
}

/// An object in the bytes that were sent or received.
#[derive(Clone)]
pub struct Body {
    bytes: Bytes,
    to_json: fn(&[u8], bool) -> Option<Vec<u8>>,
}

impl Body {
    /// Creates a body from bytes and their conversion to compact JSON. If the second argument of the conversion is
    /// true, it omits managed fields. It returns `None` for invalid bytes.
    pub fn new(bytes: Bytes, to_json: fn(&[u8], bool) -> Option<Vec<u8>>) -> Self {
        Self { bytes, to_json }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.bytes.len()).finish()
    }
}

/// The details of a request that are recorded while it runs.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestDetails {
    /// The impersonated user, if any.
    pub(super) impersonated: Option<Arc<User>>,
    /// The verb that allowed a constrained impersonation.
    pub(super) constraint: Option<&'static str>,
    /// Names from the sent object that the path does not have.
    pub(super) named: Option<Box<SentNames>>,
    /// The sent object.
    pub(super) request_object: Option<Body>,
    /// The authorization decision with its reason. Most requests have no other annotations.
    pub(super) decided: Option<(&'static str, SharedText)>,
    /// Further annotations.
    pub(super) annotations: Annotations,
}

impl RequestDetails {
    /// The size of all annotations in bytes, including their names.
    pub(super) fn annotation_bytes(&self) -> usize {
        let decided = self.decided.as_ref();
        let decided =
            decided.map_or(0, |(decision, reason)| DECISION.len() + decision.len() + REASON.len() + reason.len());
        decided + self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
    }

    /// Appends all annotations in the order of their names.
    fn write_annotations(&self, event: &mut Members<'_>) {
        if self.decided.is_none() && self.annotations.is_empty() {
            return;
        }
        let mut members = Members::begin(event.member("annotations"));
        let (before, behind) =
            self.annotations.split_at(self.annotations.partition_point(|(key, _)| **key < *DECISION));
        before.iter().for_each(|(key, value)| members.foreign(key, value));
        if let Some((decision, reason)) = &self.decided {
            members.plain(DECISION, decision);
            members.text(REASON, reason);
        }
        behind.iter().for_each(|(key, value)| members.foreign(key, value));
        members.end();
    }
}

/// The names in a sent object. Empty ones are omitted.
#[derive(Clone, Debug, Default)]
pub(super) struct SentNames {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) resource_version: String,
}

/// A stage that a request has reached.
#[derive(Clone, Debug)]
pub struct Occurrence {
    /// The stage.
    pub stage: Stage,
    /// The time.
    pub at: SystemTime,
    /// The status of the response, if any.
    pub status: Option<AuditStatus>,
    /// The whole response.
    pub response_object: Option<Body>,
}

/// One audit event: the details of a request at a stage.
#[derive(Clone, Debug)]
pub struct AuditEvent<'e> {
    pub(super) request: &'e AuditRequest,
    pub(super) noted: Cow<'e, RequestDetails>,
    pub(super) occurred: Cow<'e, Occurrence>,
    /// The serialized shared members, if prepared.
    pub(super) shown: Option<&'e SharedMembers>,
}

/// The `Status` in an event, without kind and apiVersion.
#[derive(Serialize)]
struct WireStatus<'a> {
    metadata: Empty,
    status: Outcome,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a keelson_meta::status::StatusDetails>,
    code: u16,
}

#[derive(Serialize)]
struct Empty {}

impl AuditEvent<'_> {
    /// The approximate size of the event in bytes.
    pub(super) fn weight(&self) -> usize {
        const BARE: usize = 1024;
        let body = |body: &Option<Body>| body.as_ref().map_or(0, |body| body.bytes.len());
        let noted = self.noted.annotation_bytes();
        let objects = body(&self.noted.request_object) + body(&self.occurred.response_object);
        BARE + noted + self.request.uri().len() + objects
    }

    /// The level of the request.
    pub(super) fn level(&self) -> Level {
        self.request.audited.level
    }

    /// The event without its objects, and with the annotation for truncated events.
    #[must_use]
    pub(super) fn truncated(&self) -> Self {
        let mut bare = self.clone();
        bare.occurred.to_mut().response_object = None;
        let noted = bare.noted.to_mut();
        noted.request_object = None;
        noted.annotations.retain(|(key, _)| key != TRUNCATED);
        put(&mut noted.annotations, TRUNCATED.into(), "true".into());
        bare
    }

    /// Appends the event as JSON, optionally with kind and apiVersion.
    pub fn write_json(&self, with_type: bool, out: &mut Vec<u8>) {
        let Self { request, noted, occurred, shown } = self;
        let put_together;
        let shown = match shown {
            Some(shown) => *shown,
            None => {
                put_together = SharedMembers::new(request);
                &put_together
            }
        };
        out.push(b'{');
        if with_type {
            out.extend_from_slice(br#""kind":"Event","apiVersion":"audit.k8s.io/v1","#);
        }
        out.extend_from_slice(&shown.text[..shown.head]);
        let mut event = Members { out, first: false };
        // Names of stages need no escaping.
        event.plain("stage", occurred.stage.as_str());
        event.out.extend_from_slice(&shown.text[shown.head..shown.user]);
        if let Some(user) = &noted.impersonated {
            event.user("impersonatedUser", user);
        }
        if let Some(verb) = noted.constraint {
            let mut metadata = Members::begin(event.member("authenticationMetadata"));
            metadata.plain("impersonationConstraint", verb);
            metadata.end();
        }
        event.out.extend_from_slice(&shown.text[shown.user..shown.client]);
        match (request.attributes(), &noted.named) {
            (Attributes::Resource(about), Some(named)) => {
                write_object(&about, named, request.is_plain, event.member("objectRef"));
            }
            (Attributes::Resource(_), None) | (Attributes::Path { .. }, _) => {
                event.out.extend_from_slice(&shown.text[shown.client..shown.object]);
            }
        }
        if let Some(status) = &occurred.status {
            status.write_json(event.member("responseStatus"));
        }
        for (name, body) in [("requestObject", &noted.request_object), ("responseObject", &occurred.response_object)] {
            let json = body.as_ref().and_then(|body| (body.to_json)(&body.bytes, request.audited.omit_managed_fields));
            if let Some(json) = json {
                event.member(name).extend_from_slice(json.trim_ascii_end());
            }
        }
        event.out.extend_from_slice(&shown.text[shown.object..]);
        event.time("stageTimestamp", occurred.at);
        noted.write_annotations(&mut event);
        event.end();
    }

    /// Appends the event as a line of the legacy format, without the line end.
    pub fn write_legacy(&self, out: &mut Vec<u8>) {
        let Self { request, noted, occurred, .. } = self;
        let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",");
        let user = request.user.as_deref().filter(|user| !user.name.is_empty());
        let (name, groups) = user.map_or(("<none>", None), |user| (&*user.name, Some(&user.groups)));
        let groups = groups.filter(|groups| !groups.is_empty()).map_or("<none>".to_owned(), |groups| list(groups));
        let (other, other_groups) = match &noted.impersonated {
            Some(user) => (&*user.name, list(&user.groups)),
            None => ("<self>", "<lookup>".to_owned()),
        };
        let about = match request.attributes() {
            Attributes::Resource(about) => about,
            Attributes::Path { .. } => ResourceAttributes::default(),
        };
        let sent = noted.named.as_ref().map(|named| &*named.namespace).filter(|namespace| !namespace.is_empty());
        let namespace = about.namespace.or(sent);
        let code = occurred.status.as_ref().map_or("<deferred>".to_owned(), |status| status.code.to_string());
        let line = format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={groups} as={} asgroups={other_groups} user-agent={} \
             namespace={} uri={} response=\"{code}\"",
            rfc3339_micro(request.received),
            quote(request.id()),
            quote(occurred.stage.as_str()),
            quote(request.addresses().next().unwrap_or("<unknown>")),
            quote(request.verb()),
            quote(name),
            quote(other),
            quote(request.user_agent()),
            quote(namespace.unwrap_or("<none>")),
            quote(request.uri()),
        );
        out.extend_from_slice(line.as_bytes());
    }
}

/// Inserts an annotation in sorted order, unless the name exists. Returns true if it was inserted.
pub(super) fn put(annotations: &mut Annotations, key: Cow<'static, str>, value: SharedText) -> bool {
    let Err(place) = annotations.binary_search_by(|(known, _)| known.cmp(&key)) else { return false };
    annotations.insert(place, (key, value));
    true
}

/// The members that all events of a request share, as JSON. Members of single events are inserted between its sections.
#[derive(Clone, Debug, Default)]
pub(super) struct SharedMembers {
    text: Vec<u8>,
    /// The ends of the sections: level and id; path and user; addresses and user agent; the object reference. The last
    /// section is the time of arrival.
    head: usize,
    user: usize,
    client: usize,
    object: usize,
}

impl SharedMembers {
    /// The initial capacity, enough for most requests.
    const BYTES: usize = 1024;

    /// Serializes the shared members of the events of a request.
    fn new(request: &AuditRequest) -> Self {
        let mut shown = Self { text: Vec::with_capacity(Self::BYTES), ..Self::default() };
        shown.put_together(request);
        shown
    }

    /// Replaces the content with the shared members of another request.
    pub(super) fn put_together(&mut self, request: &AuditRequest) {
        self.text.clear();
        let mut event = Members { out: &mut self.text, first: true };
        let of_request = if request.is_plain { Members::plain } else { Members::text };
        event.plain("level", request.audited.level.as_str());
        of_request(&mut event, "auditID", request.id());
        self.head = event.out.len();
        of_request(&mut event, "requestURI", request.uri());
        of_request(&mut event, "verb", request.verb());
        match &request.user {
            Some(user) => event.user("user", user),
            None => event.member("user").extend_from_slice(b"{}"),
        }
        self.user = event.out.len();
        if request.addresses().next().is_some() {
            write_texts(request.addresses(), event.member("sourceIPs"));
        }
        if !request.user_agent().is_empty() {
            of_request(&mut event, "userAgent", request.user_agent());
        }
        self.client = event.out.len();
        if let Attributes::Resource(about) = request.attributes() {
            write_object(&about, &SentNames::default(), request.is_plain, event.member("objectRef"));
        }
        self.object = event.out.len();
        event.time("requestReceivedTimestamp", request.received);
    }

    /// Frees memory beyond this many bytes.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        self.text.shrink_to(bytes);
    }
}

/// Appends the object reference of a request as JSON. Names come from the path and from the sent object. `is_plain` is
/// true if those of the path need no escapes.
fn write_object(about: &ResourceAttributes<'_>, sent: &SentNames, is_plain: bool, out: &mut Vec<u8>) {
    let mut names = Members::begin(out);
    let mut name = |member, in_path: &str, sent: &str| match (in_path, is_plain) {
        ("", _) => names.text_if_any(member, sent),
        (text, true) => names.plain(member, text),
        (text, false) => names.text(member, text),
    };
    name("resource", about.resource, "");
    name("namespace", about.namespace.unwrap_or_default(), &sent.namespace);
    name("name", about.name.unwrap_or_default(), &sent.name);
    name("uid", "", &sent.uid);
    name("apiGroup", about.group, "");
    name("apiVersion", about.version, "");
    name("resourceVersion", "", &sent.resource_version);
    name("subresource", about.subresource.unwrap_or_default(), "");
    names.end();
}

impl AuditStatus {
    /// Appends the status as JSON.
    fn write_json(&self, out: &mut Vec<u8>) {
        let Some(status) = self.status.as_deref() else {
            out.extend_from_slice(b"{\"metadata\":{},\"code\":");
            // HTTP codes have three digits.
            out.extend([100, 10, 1].map(|place| b'0' + u8::try_from(self.code / place % 10).unwrap_or_default()));
            return out.push(b'}');
        };
        let wire = WireStatus {
            metadata: Empty {},
            status: status.status,
            message: &status.message,
            reason: status.reason.as_deref(),
            details: status.details.as_ref(),
            code: self.code,
        };
        serde_json::to_writer(out, &wire).expect("texts and numbers can be written to memory");
    }
}

/// Writes the members of a JSON object in order. Nearly every request has two events, so this writes text directly,
/// without a serializer.
struct Members<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl<'o> Members<'o> {
    fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, first: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn part(&mut self) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
    }

    /// Starts a member whose name needs no escapes. Returns the buffer for its value.
    fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.part();
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }

    fn text(&mut self, name: &str, value: &str) {
        write_string(value, self.member(name));
    }

    /// Writes a member whose value needs no escapes.
    fn plain(&mut self, name: &str, value: &str) {
        let out = self.member(name);
        out.push(b'"');
        out.extend_from_slice(value.as_bytes());
        out.push(b'"');
    }

    fn text_if_any(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }

    /// Writes a member whose name may need escapes.
    fn foreign(&mut self, name: &str, value: &str) {
        self.foreign_name(name);
        write_string(value, self.out);
    }

    fn foreign_name(&mut self, name: &str) {
        self.part();
        write_string(name, self.out);
        self.out.push(b':');
    }

    /// Writes a time with microseconds.
    fn time(&mut self, name: &str, time: SystemTime) {
        let out = self.member(name);
        out.push(b'"');
        push_rfc3339_micro(time, out);
        out.push(b'"');
    }

    fn user(&mut self, name: &str, user: &User) {
        let mut members = Members::begin(self.member(name));
        members.text_if_any("username", &user.name);
        if let Some(uid) = &user.uid {
            members.text("uid", uid);
        }
        if !user.groups.is_empty() {
            write_texts(user.groups.iter().map(String::as_str), members.member("groups"));
        }
        if !user.extra.is_empty() {
            let mut extra = Members::begin(members.member("extra"));
            for (key, values) in &user.extra {
                extra.foreign_name(key);
                write_texts(values.iter().map(String::as_str), extra.out);
            }
            extra.end();
        }
        members.end();
    }
}

fn write_texts<'t>(values: impl Iterator<Item = &'t str>, out: &mut Vec<u8>) {
    out.push(b'[');
    for (number, value) in values.enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write_string(value, out);
    }
    out.push(b']');
}

#[cfg(test)]
pub(in crate::audit) mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use keelson_meta::json::json;

    use super::super::policy::Policy;
    use super::*;

    pub(in crate::audit) fn request(level: &str) -> AuditRequest {
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": level }] });
        let about =
            ResourceAttributes { verb: "list", version: "v1", resource: "pods", ..ResourceAttributes::default() };
        let about = Attributes::Resource(about);
        let received = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let addresses = [[127, 0, 0, 1].into()];
        let request = AuditRequest::new(("i", "/api/v1/pods?a=\"b\""), ("t/1", &addresses), &about, received);
        let user = User { name: "ann".to_owned(), groups: vec!["devs".to_owned()], ..User::default() };
        request.decided(Policy::parse(&policy).unwrap().decide(None, &about), Some(Arc::new(user)))
    }

    pub(in crate::audit) fn occurrence() -> Occurrence {
        Occurrence {
            stage: Stage::ResponseComplete,
            at: SystemTime::UNIX_EPOCH + Duration::from_micros(1_800_000_000_001_500),
            status: Some(AuditStatus { code: 200, status: None }),
            response_object: Some(Body::new(Bytes::from_static(b"{\"x\":1}\n"), |bytes, _| Some(bytes.to_vec()))),
        }
    }

    pub(in crate::audit) fn event(request: &AuditRequest) -> AuditEvent<'_> {
        let noted = RequestDetails { annotations: vec![("a".into(), "b".into())], ..RequestDetails::default() };
        AuditEvent { request, noted: Cow::Owned(noted), occurred: Cow::Owned(occurrence()), shown: None }
    }

    pub(in crate::audit) fn json_of(event: &AuditEvent<'_>, with_type: bool) -> String {
        let mut out = Vec::new();
        event.write_json(with_type, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_has_upstreams_members_in_upstreams_order() {
        let request = request("RequestResponse");
        let event = event(&request);
        let expect = concat!(
            r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"i","#,
            r#""stage":"ResponseComplete","requestURI":"/api/v1/pods?a=\"b\"","verb":"list","#,
            r#""user":{"username":"ann","groups":["devs"]},"sourceIPs":["127.0.0.1"],"userAgent":"t/1","#,
            r#""objectRef":{"resource":"pods","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},"#,
            r#""responseObject":{"x":1},"requestReceivedTimestamp":"2027-01-15T08:00:00.000000Z","#,
            r#""stageTimestamp":"2027-01-15T08:00:00.001500Z","annotations":{"a":"b"}}"#,
        );
        assert_eq!(json_of(&event, true), expect);
        assert!(json_of(&event, false).starts_with(r#"{"level":"#));
        let bare = json_of(&event.truncated(), false);
        assert!(!bare.contains("responseObject") && bare.contains(r#""audit.k8s.io/truncated":"true""#), "{bare}");
    }

    #[test]
    fn unauthenticated_events_have_no_user_and_refusals_no_type() {
        let request = request("Metadata");
        let audited = request.audited;
        let request = request.decided(audited, None);
        let mut event = event(&request);
        let status = Status::failure(401, Some("Unauthorized"), "Unauthorized".to_owned());
        event.occurred.to_mut().status = Some(AuditStatus { code: 401, status: Some(Arc::new(status)) });
        let text = json_of(&event, false);
        let expect = r#""responseStatus":{"metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        assert!(text.contains(expect) && text.contains(r#""user":{},"#), "{text}");
    }

    #[test]
    fn foreign_text_is_escaped() {
        let request = request("Metadata");
        let mut event = event(&request);
        let extra =
            BTreeMap::from([("a\"b".to_owned(), vec!["c\\".to_owned(), "d".to_owned()]), ("e".to_owned(), vec![])]);
        let user = User { name: "q\"".to_owned(), uid: Some(String::new()), extra, ..User::default() };
        event.noted.to_mut().impersonated = Some(Arc::new(user));
        event.noted.to_mut().annotations = vec![("x/\"y".into(), "1\n2".into())];
        let text = json_of(&event, false);
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expect = serde_json::json!({ "username": "q\"", "uid": "", "extra": { "a\"b": ["c\\", "d"], "e": [] } });
        assert_eq!(found["impersonatedUser"], expect);
        assert_eq!(found["annotations"], serde_json::json!({ "x/\"y": "1\n2" }));
    }

    #[test]
    fn the_older_format_is_a_line() {
        let mut out = Vec::new();
        event(&request("Metadata")).write_legacy(&mut out);
        let expect = concat!(
            r#"2027-01-15T08:00:00.000000Z AUDIT: id="i" stage="ResponseComplete" ip="127.0.0.1" method="list" user="ann" "#,
            r#"groups="devs" as="<self>" asgroups=<lookup> user-agent="t/1" namespace="<none>" "#,
            r#"uri="/api/v1/pods?a=\"b\"" response="200""#,
        );
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}
