//! Events of audit, and the forms in which they are written: JSON as upstream's `audit.k8s.io/v1` has it, member for member, and the line
//! of its older format.
//!
//! What is written of a request in all its stages is shared by its events. Objects are kept as they came over the wire until somebody
//! writes the event, so that a request does not wait for that.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use keelson_meta::Status;
use keelson_meta::clock::rfc3339_micro;
use keelson_meta::go_format::quote;
use keelson_meta::status::Outcome;
use serde::Serialize;

use super::policy::{Audited, Stage};
use crate::user::User;

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
    pub object: Option<ObjectNames>,
    /// When it came.
    pub received: Option<SystemTime>,
}

/// What a request is for. Whatever is empty is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectNames {
    /// The plural of the resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The uid that was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The resourceVersion that was sent.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
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
    pub object: Option<ObjectNames>,
    /// What was answered, if anything was.
    pub status: Option<AuditStatus>,
    /// What was sent.
    pub request_object: Option<Body>,
    /// What was answered, whole.
    pub response_object: Option<Body>,
    /// What else is to be known of it.
    pub annotations: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct WireUser<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    username: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    uid: &'a Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    groups: &'a [String],
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    extra: &'a BTreeMap<String, Vec<String>>,
}

impl<'a> WireUser<'a> {
    fn of(user: &'a User) -> Self {
        Self { username: &user.name, uid: &user.uid, groups: &user.groups, extra: &user.extra }
    }
}

/// The answer as an event has it: a `Status` without its type.
#[derive(Serialize)]
struct WireStatus<'a> {
    metadata: &'a keelson_meta::status::StatusMetadata,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Outcome>,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<&'a keelson_meta::status::StatusDetails>,
    code: u16,
}

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
        bare.annotations.insert(TRUNCATED.to_owned(), "true".to_owned());
        bare
    }

    /// Appends it as JSON, with or without its type.
    pub fn write_json(&self, with_type: bool, out: &mut Vec<u8>) {
        let Self { request, .. } = self;
        let mut writer = Members { out, first: true };
        writer.out.push(b'{');
        if with_type {
            writer.member("kind", "Event");
            writer.member("apiVersion", "audit.k8s.io/v1");
        }
        writer.member("level", request.audited.level.as_str());
        writer.member("auditID", &request.id);
        writer.member("stage", self.stage.as_str());
        writer.member("requestURI", &request.uri);
        writer.member("verb", &request.verb);
        let nobody = User::default();
        writer.member("user", &WireUser::of(request.user.as_deref().unwrap_or(&nobody)));
        if let Some(user) = &self.impersonated {
            writer.member("impersonatedUser", &WireUser::of(user));
        }
        if !request.source_ips.is_empty() {
            writer.member("sourceIPs", &request.source_ips);
        }
        if !request.user_agent.is_empty() {
            writer.member("userAgent", &request.user_agent);
        }
        if let Some(object) = &self.object {
            writer.member("objectRef", object);
        }
        if let Some(status) = &self.status {
            writer.member("responseStatus", &status.wire());
        }
        for (name, body) in [("requestObject", &self.request_object), ("responseObject", &self.response_object)] {
            let json = body.as_ref().and_then(|body| (body.to_json)(&body.bytes, request.audited.omit_managed_fields));
            if let Some(json) = json {
                writer.raw(name, &json);
            }
        }
        writer.member("requestReceivedTimestamp", &rfc3339_micro(request.received.unwrap_or(self.at)));
        writer.member("stageTimestamp", &rfc3339_micro(self.at));
        if !self.annotations.is_empty() {
            writer.member("annotations", &self.annotations);
        }
        writer.out.push(b'}');
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
    fn wire(&self) -> WireStatus<'_> {
        const NOTHING: &keelson_meta::status::StatusMetadata = &keelson_meta::status::StatusMetadata {
            resource_version: None,
            continue_token: None,
            remaining_item_count: None,
        };
        let bare =
            WireStatus { metadata: NOTHING, status: None, message: "", reason: None, details: None, code: self.code };
        let Some(status) = self.status.as_deref() else { return bare };
        WireStatus {
            status: Some(status.status),
            message: &status.message,
            reason: status.reason.as_deref(),
            details: status.details.as_ref(),
            ..bare
        }
    }
}

/// The members of an object that is being written.
struct Members<'o> {
    out: &'o mut Vec<u8>,
    first: bool,
}

impl Members<'_> {
    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.out.push(b'"');
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn member<T: Serialize + ?Sized>(&mut self, name: &str, value: &T) {
        self.name(name);
        serde_json::to_writer(&mut *self.out, value).expect("texts, numbers and maps by text can be written to memory");
    }

    fn raw(&mut self, name: &str, json: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(json.trim_ascii_end());
    }
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
        let object =
            ObjectNames { resource: "pods".to_owned(), api_version: "v1".to_owned(), ..ObjectNames::default() };
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
        let annotations = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
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
