//! Events of audit, and the forms in which they are written: JSON as upstream's `audit.k8s.io/v1` has it, member for member, and the line
//! of its older format.
//!
//! What is written of a request in all its stages is shared by its events. Objects are kept as they came over the wire until somebody
//! writes the event, so that a request does not wait for that.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use keelson_codec::json::write_string;
use keelson_meta::Status;
use keelson_meta::clock::rfc3339_micro;
use keelson_meta::go_format::quote;
use keelson_meta::status::Outcome;
use serde::Serialize;

use super::policy::{Audited, Stage};
use crate::user::User;

/// What is to be known of a request besides its members, by names that end in the domain of whoever says it.
pub type Annotations = BTreeMap<Cow<'static, str>, String>;

/// The annotation of an event whose objects were left out for their size.
const TRUNCATED: &str = "audit.k8s.io/truncated";

/// What is known of a request before anything comes of it.
#[derive(Clone, Debug, Default)]
pub struct AuditRequest {
    /// How much of it is written down.
    pub audited: Audited,
    /// The id of the request.
    pub id: String,
    /// Path and query, as they were sent.
    pub uri: String,
    /// The verb.
    pub verb: String,
    /// Who asks; nobody where that could not be found out.
    pub user: Option<Arc<User>>,
    /// The addresses that it came by, the client's own first.
    pub source_ips: Vec<String>,
    /// The client's program.
    pub user_agent: String,
    /// What it is for; nothing for paths that name no resource.
    pub object: Option<Arc<ObjectNames>>,
    /// When it came.
    pub received: Option<SystemTime>,
}

/// What a request is for. Whatever is empty is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectNames {
    /// The plural of the resource.
    pub resource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The uid that was sent.
    pub uid: String,
    /// The group.
    pub api_group: String,
    /// The version.
    pub api_version: String,
    /// The resourceVersion that was sent.
    pub resource_version: String,
    /// The subresource.
    pub subresource: String,
}

/// What was answered.
#[derive(Clone, Debug)]
pub struct AuditStatus {
    /// The code of the answer.
    pub code: u16,
    /// The `Status` that it was, if it was one.
    pub status: Option<Arc<Status>>,
}

/// An object as it was sent.
#[derive(Clone)]
pub struct Body {
    bytes: Bytes,
    to_json: fn(&[u8], bool) -> Option<Vec<u8>>,
}

impl Body {
    /// Bytes, and what makes compact JSON of them, with or (where the second argument says so) without managed fields: `None` of what
    /// can't be read.
    pub fn new(bytes: Bytes, to_json: fn(&[u8], bool) -> Option<Vec<u8>>) -> Self {
        Self { bytes, to_json }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Body").field(&self.bytes.len()).finish()
    }
}

/// One event.
#[derive(Clone, Debug)]
pub struct AuditEvent {
    /// The request that it is about.
    pub request: Arc<AuditRequest>,
    /// The stage that the request has come to.
    pub stage: Stage,
    /// When it did.
    pub at: SystemTime,
    /// In whose name the request is made, where that is not who makes it.
    pub impersonated: Option<Arc<User>>,
    /// What the request is for, with what its body says of that.
    pub object: Option<Arc<ObjectNames>>,
    /// What was answered, if anything was.
    pub status: Option<AuditStatus>,
    /// What was sent.
    pub request_object: Option<Body>,
    /// What was answered, whole.
    pub response_object: Option<Body>,
    /// What else is to be known of it.
    pub annotations: Arc<Annotations>,
}

/// A `Status` as an event has it: without its type.
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

impl AuditEvent {
    /// About how many bytes it holds.
    pub fn weight(&self) -> usize {
        const BARE: usize = 1024;
        let body = |body: &Option<Body>| body.as_ref().map_or(0, |body| body.bytes.len());
        let noted: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        BARE + noted + self.request.uri.len() + body(&self.request_object) + body(&self.response_object)
    }

    /// Whether it has an object that takes time to write.
    pub fn is_heavy(&self) -> bool {
        self.request_object.is_some() || self.response_object.is_some()
    }

    /// The same without its objects, which says so.
    #[must_use]
    pub fn truncated(&self) -> Self {
        let mut bare = Self { request_object: None, response_object: None, ..self.clone() };
        Arc::make_mut(&mut bare.annotations).insert(TRUNCATED.into(), "true".to_owned());
        bare
    }

    /// Appends it as JSON, with or without its type.
    pub fn write_json(&self, with_type: bool, out: &mut Vec<u8>) {
        let Self { request, .. } = self;
        let mut event = Members::begin(out);
        if with_type {
            event.text("kind", "Event");
            event.text("apiVersion", "audit.k8s.io/v1");
        }
        event.text("level", request.audited.level.as_str());
        event.text("auditID", &request.id);
        event.text("stage", self.stage.as_str());
        event.text("requestURI", &request.uri);
        event.text("verb", &request.verb);
        match &request.user {
            Some(user) => event.user("user", user),
            None => event.member("user").extend_from_slice(b"{}"),
        }
        if let Some(user) = &self.impersonated {
            event.user("impersonatedUser", user);
        }
        event.texts("sourceIPs", &request.source_ips);
        event.text_if_any("userAgent", &request.user_agent);
        if let Some(object) = &self.object {
            object.write_json(event.member("objectRef"));
        }
        if let Some(status) = &self.status {
            status.write_json(event.member("responseStatus"));
        }
        for (name, body) in [("requestObject", &self.request_object), ("responseObject", &self.response_object)] {
            let json = body.as_ref().and_then(|body| (body.to_json)(&body.bytes, request.audited.omit_managed_fields));
            if let Some(json) = json {
                event.member(name).extend_from_slice(json.trim_ascii_end());
            }
        }
        event.text("requestReceivedTimestamp", &rfc3339_micro(request.received.unwrap_or(self.at)));
        event.text("stageTimestamp", &rfc3339_micro(self.at));
        if !self.annotations.is_empty() {
            let mut annotations = Members::begin(event.member("annotations"));
            for (key, value) in &*self.annotations {
                annotations.foreign(key, value);
            }
            annotations.end();
        }
        event.end();
    }

    /// Appends it as a line of upstream's older format, without its end.
    pub fn write_legacy(&self, out: &mut Vec<u8>) {
        let Self { request, .. } = self;
        let list = |texts: &[String]| texts.iter().map(|text| quote(text)).collect::<Vec<_>>().join(",");
        let user = request.user.as_deref().filter(|user| !user.name.is_empty());
        let (name, groups) = user.map_or(("<none>", None), |user| (&*user.name, Some(&user.groups)));
        let groups = groups.filter(|groups| !groups.is_empty()).map_or("<none>".to_owned(), |groups| list(groups));
        let (other, other_groups) = match &self.impersonated {
            Some(user) => (&*user.name, list(&user.groups)),
            None => ("<self>", "<lookup>".to_owned()),
        };
        let namespace = self.object.as_ref().map(|object| &*object.namespace).filter(|namespace| !namespace.is_empty());
        let code = self.status.as_ref().map_or("<deferred>".to_owned(), |status| status.code.to_string());
        let line = format!(
            "{} AUDIT: id={} stage={} ip={} method={} user={} groups={groups} as={} asgroups={other_groups} user-agent={} \
             namespace={} uri={} response=\"{code}\"",
            rfc3339_micro(request.received.unwrap_or(self.at)),
            quote(&request.id),
            quote(self.stage.as_str()),
            quote(request.source_ips.first().map_or("<unknown>", |ip| ip)),
            quote(&request.verb),
            quote(name),
            quote(other),
            quote(&request.user_agent),
            quote(namespace.unwrap_or("<none>")),
            quote(&request.uri),
        );
        out.extend_from_slice(line.as_bytes());
    }
}

impl AuditStatus {
    /// Appends it as JSON.
    fn write_json(&self, out: &mut Vec<u8>) {
        let Some(status) = self.status.as_deref() else {
            out.extend_from_slice(b"{\"metadata\":{},\"code\":");
            out.extend_from_slice(self.code.to_string().as_bytes());
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

impl ObjectNames {
    /// Appends them as JSON.
    fn write_json(&self, out: &mut Vec<u8>) {
        let mut names = Members::begin(out);
        names.text_if_any("resource", &self.resource);
        names.text_if_any("namespace", &self.namespace);
        names.text_if_any("name", &self.name);
        names.text_if_any("uid", &self.uid);
        names.text_if_any("apiGroup", &self.api_group);
        names.text_if_any("apiVersion", &self.api_version);
        names.text_if_any("resourceVersion", &self.resource_version);
        names.text_if_any("subresource", &self.subresource);
        names.end();
    }
}

/// The members of an object that is being written, in the order in which they are told. There are two events of nearly every request, so
/// nothing but text is told here, without going by way of a serializer.
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

    /// Begins a member, whose name needs no escapes, and gives where its value goes.
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

    fn text_if_any(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.text(name, value);
        }
    }

    /// A member whose name comes from somebody else.
    fn foreign(&mut self, name: &str, value: &str) {
        self.foreign_name(name);
        write_string(value, self.out);
    }

    fn foreign_name(&mut self, name: &str) {
        self.part();
        write_string(name, self.out);
        self.out.push(b':');
    }

    /// A member that is left out where there are none.
    fn texts(&mut self, name: &str, values: &[String]) {
        if !values.is_empty() {
            write_texts(values, self.member(name));
        }
    }

    fn user(&mut self, name: &str, user: &User) {
        let mut members = Members::begin(self.member(name));
        members.text_if_any("username", &user.name);
        if let Some(uid) = &user.uid {
            members.text("uid", uid);
        }
        members.texts("groups", &user.groups);
        if !user.extra.is_empty() {
            let mut extra = Members::begin(members.member("extra"));
            for (key, values) in &user.extra {
                extra.foreign_name(key);
                write_texts(values, extra.out);
            }
            extra.end();
        }
        members.end();
    }
}

fn write_texts(values: &[String], out: &mut Vec<u8>) {
    for (number, value) in values.iter().enumerate() {
        out.push(if number == 0 { b'[' } else { b',' });
        write_string(value, out);
    }
    out.extend_from_slice(if values.is_empty() { b"[]" } else { b"]" });
}

#[cfg(test)]
pub(in crate::audit) mod tests {
    use std::time::Duration;

    use keelson_meta::json::json;

    use super::super::policy::Policy;
    use super::*;
    use crate::authorize::Attributes;

    pub(in crate::audit) fn event(level: &str) -> AuditEvent {
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": level }] });
        let audited = Policy::of(&policy).unwrap().decide(None, &Attributes::Path { verb: "get", path: "/" });
        let user = User { name: "ann".to_owned(), groups: vec!["devs".to_owned()], ..User::default() };
        let object = Arc::new(ObjectNames {
            resource: "pods".to_owned(),
            api_version: "v1".to_owned(),
            ..ObjectNames::default()
        });
        let received = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let request = AuditRequest {
            audited,
            id: "i".to_owned(),
            uri: "/api/v1/pods?a=\"b\"".to_owned(),
            verb: "list".to_owned(),
            user: Some(Arc::new(user)),
            source_ips: vec!["127.0.0.1".to_owned()],
            user_agent: "t/1".to_owned(),
            object: Some(object.clone()),
            received: Some(received),
        };
        let annotations = Arc::new(Annotations::from([("a".into(), "b".to_owned())]));
        AuditEvent {
            request: Arc::new(request),
            stage: Stage::ResponseComplete,
            at: received + Duration::from_micros(1500),
            impersonated: None,
            object: Some(object),
            status: Some(AuditStatus { code: 200, status: None }),
            request_object: None,
            response_object: Some(Body::new(Bytes::from_static(b"{\"x\":1}\n"), |bytes, _| Some(bytes.to_vec()))),
            annotations,
        }
    }

    fn json_of(event: &AuditEvent, with_type: bool) -> String {
        let mut out = Vec::new();
        event.write_json(with_type, &mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_event_has_upstreams_members_in_upstreams_order() {
        let event = event("RequestResponse");
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
    fn who_is_not_known_is_nobody_and_a_refusal_is_told_without_its_type() {
        let mut event = event("Metadata");
        event.request = Arc::new(AuditRequest { user: None, ..(*event.request).clone() });
        let status = Status::failure(401, Some("Unauthorized"), "Unauthorized".to_owned());
        event.status = Some(AuditStatus { code: 401, status: Some(Arc::new(status)) });
        let text = json_of(&event, false);
        let expect = r#""responseStatus":{"metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        assert!(text.contains(expect) && text.contains(r#""user":{},"#), "{text}");
    }

    #[test]
    fn what_comes_from_others_is_escaped() {
        let mut event = event("Metadata");
        let extra =
            BTreeMap::from([("a\"b".to_owned(), vec!["c\\".to_owned(), "d".to_owned()]), ("e".to_owned(), vec![])]);
        let user = User { name: "q\"".to_owned(), uid: Some(String::new()), extra, ..User::default() };
        event.impersonated = Some(Arc::new(user));
        event.annotations = Arc::new(Annotations::from([("x/\"y".to_owned().into(), "1\n2".to_owned())]));
        let text = json_of(&event, false);
        let found: serde_json::Value = serde_json::from_str(&text).unwrap();
        let expect = serde_json::json!({ "username": "q\"", "uid": "", "extra": { "a\"b": ["c\\", "d"], "e": [] } });
        assert_eq!(found["impersonatedUser"], expect);
        assert_eq!(found["annotations"], serde_json::json!({ "x/\"y": "1\n2" }));
    }

    #[test]
    fn the_older_format_is_a_line() {
        let mut out = Vec::new();
        event("Metadata").write_legacy(&mut out);
        let expect = concat!(
            r#"2027-01-15T08:00:00.000000Z AUDIT: id="i" stage="ResponseComplete" ip="127.0.0.1" method="list" user="ann" "#,
            r#"groups="devs" as="<self>" asgroups=<lookup> user-agent="t/1" namespace="<none>" "#,
            r#"uri="/api/v1/pods?a=\"b\"" response="200""#,
        );
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }
}
