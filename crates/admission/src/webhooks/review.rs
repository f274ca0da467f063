//! Admission reviews: the request body for a webhook, and the checks of its response.
//!
//! The order of members and the error messages are upstream's.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_codec::json as text;
use keelson_meta::go_format::{self, quote};
use keelson_meta::json::{Map, Value, ValueKind};
use keelson_meta::{Object, Status};
use keelson_outbound::{ReviewKind, value_of};

use super::hook::ReviewVersion;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";
/// The most warnings and audit annotations that are read of a response, and the most bytes of all its annotations.
const WARNINGS: usize = 1000;
const ANNOTATIONS: usize = 128;
const ANNOTATION_BYTES: usize = 32 << 10;
/// The most bytes of a decoded patch: as many as a client may send.
const PATCH_BYTES: usize = 3 << 20;

/// The response of a webhook.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) allowed: bool,
    /// The reason of a refusal.
    pub(crate) result: Option<Status>,
    /// A patch and its type, if there is one.
    pub(crate) patch: Option<(Vec<u8>, String)>,
    pub(crate) warnings: Vec<String>,
    /// The audit annotations.
    pub(crate) annotations: Vec<(String, String)>,
}

/// The fault of a response.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The response cannot be parsed.
    Unreadable(String),
    /// The response violates the protocol.
    Wrong(String),
}

/// The request body for a webhook.
pub(crate) fn request(
    version: ReviewVersion,
    uid: &str,
    members: (&Map, &Map),
    object: Option<&Object>,
    old: Option<&Object>,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(4096);
    let head = format!(r#"{{"kind":"{KIND}","apiVersion":"{GROUP}/{}","request":{{"uid":"#, version.name());
    out.extend_from_slice(head.as_bytes());
    text::write_string(uid, &mut out);
    let (first, last) = members;
    write_members(first, &mut out);
    for (name, object) in [("object", object), ("oldObject", old)] {
        out.extend_from_slice(format!(r#","{name}":"#).as_bytes());
        match object {
            None => out.extend_from_slice(b"null"),
            Some(object) => write_object(object, &mut out),
        }
    }
    write_members(last, &mut out);
    out.extend_from_slice(b"}}");
    out
}

fn write_members(members: &Map, out: &mut Vec<u8>) {
    for (name, value) in members.iter() {
        out.push(b',');
        text::write_string(name, out);
        out.push(b':');
        text::write(value, out);
    }
}

fn write_object(object: &Object, out: &mut Vec<u8>) {
    out.push(b'{');
    for (place, (name, value)) in object.0.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        text::write_string(name, out);
        out.push(b':');
        text::write(value, out);
    }
    out.push(b'}');
}

/// Parses the response of a webhook.
///
/// # Errors
/// The body is not a review response, or answers another review.
pub(crate) fn answer(version: ReviewVersion, uid: &str, is_mutating: bool, body: &[u8]) -> Result<Answer, Fault> {
    let review = value_of(body).map_err(Fault::Unreadable)?;
    let kind = ReviewKind { group: GROUP, version: version.name(), kind: KIND };
    let is_stated = kind.check(&review).map_err(Fault::Unreadable)?;
    let response = match &review["response"] {
        Value::Null => return Err(Fault::Wrong("webhook response was absent".to_owned())),
        Value::Object(response) => response,
        other => return Err(unreadable(other, "AdmissionReview.response", "v1.AdmissionResponse", version)),
    };
    let Read { answered, answer, patch, patch_type } = read(response, version)?;
    let wrong = |why: String| Err(Fault::Wrong(why));
    if version == ReviewVersion::V1Beta1 {
        // Like upstream, the older version is not checked, and any patch is taken as a JSON patch.
        let patch = patch.filter(|patch| is_mutating && !patch.is_empty());
        return Ok(Answer { patch: patch.map(|patch| (patch, "JSONPatch".to_owned())), ..answer });
    }
    if answered != uid {
        return wrong(format!("expected response.uid={}, got {}", quote(uid), quote(&answered)));
    }
    if !is_stated {
        return wrong(kind.missing(&review));
    }
    let patch = patch.filter(|patch| !patch.is_empty());
    match (is_mutating, patch, patch_type) {
        (false, Some(_), _) => wrong("validating webhook may not return response.patch".to_owned()),
        (false, None, Some(_)) => wrong("validating webhook may not return response.patchType".to_owned()),
        (true, Some(_), None) => wrong("webhook returned response.patch but not response.patchType".to_owned()),
        (true, None, Some(_)) => wrong("webhook returned response.patchType but not response.patch".to_owned()),
        (true, Some(_), Some(empty)) if empty.is_empty() => {
            wrong(r#"webhook returned invalid response.patchType of """#.to_owned())
        }
        (true, Some(patch), Some(of)) => Ok(Answer { patch: Some((patch, of)), ..answer }),
        (_, None, None) => Ok(answer),
    }
}

struct Read {
    answered: String,
    answer: Answer,
    patch: Option<Vec<u8>>,
    patch_type: Option<String>,
}

fn read(response: &Map, version: ReviewVersion) -> Result<Read, Fault> {
    let member = |name: &str| response.get(name).unwrap_or(&Value::Null);
    let path = |name: &str| format!("AdmissionResponse.response.{name}");
    let string = |name: &str, kind: &str| match member(name) {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.to_string())),
        other => Err(unreadable(other, &path(name), kind, version)),
    };
    let allowed = match member("allowed") {
        Value::Null => false,
        Value::Bool(allowed) => *allowed,
        other => return Err(unreadable(other, &path("allowed"), "bool", version)),
    };
    let result = match member("status") {
        Value::Null => None,
        stated @ Value::Object(_) => {
            let read = serde_json::to_vec(stated).and_then(|bytes| serde_json::from_slice(&bytes));
            Some(read.map_err(|error| Fault::Unreadable(error.to_string()))?)
        }
        other => return Err(unreadable(other, &path("status"), "v1.Status", version)),
    };
    let patch = match member("patch") {
        Value::Null => None,
        Value::String(patch) => Some(decode(patch)?),
        other => match other.as_array().and_then(|array| bytes_of(array)) {
            Some(bytes) => Some(bytes),
            None => return Err(unreadable(other, &path("patch"), "[]uint8", version)),
        },
    };
    let warnings = match member("warnings") {
        Value::Null => Vec::new(),
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).take(WARNINGS).map(str::to_owned).collect(),
        other => return Err(unreadable(other, &path("warnings"), "[]string", version)),
    };
    let annotations = match member("auditAnnotations") {
        Value::Null => Vec::new(),
        Value::Object(said) => {
            let texts = said.iter().filter_map(|(key, value)| Some((key, value.as_str()?))).take(ANNOTATIONS);
            let mut left = ANNOTATION_BYTES;
            let kept = texts.filter(|(key, value)| match left.checked_sub(key.len() + value.len()) {
                Some(rest) => {
                    left = rest;
                    true
                }
                None => false,
            });
            kept.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        }
        other => return Err(unreadable(other, &path("auditAnnotations"), "map[string]string", version)),
    };
    if let Some(patch) = patch.as_ref().filter(|patch| patch.len() > PATCH_BYTES) {
        return Err(Fault::Wrong(format!("response.patch has {} bytes, over the limit of {PATCH_BYTES}", patch.len())));
    }
    Ok(Read {
        answered: string("uid", "types.UID")?.unwrap_or_default(),
        answer: Answer { allowed, result, patch: None, warnings, annotations },
        patch,
        patch_type: string("patchType", "v1.PatchType")?,
    })
}

/// The bytes of an array of numbers. Some clients encode bytes so (kube-rs for example), and Go's decoder accepts it.
fn bytes_of(array: &[Value]) -> Option<Vec<u8>> {
    let byte = |value: &Value| if value.is_null() { Some(0) } else { u8::try_from(value.as_i64()?).ok() };
    array.iter().map(byte).collect()
}

fn decode(patch: &str) -> Result<Vec<u8>, Fault> {
    BASE64.decode(patch).map_err(|_| {
        let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=');
        let place = patch.as_bytes().iter().position(|byte| !is_base64(byte));
        // Like upstream, the error for a truncated text gives the position of its last four bytes.
        let place = place.unwrap_or(patch.len() / 4 * 4);
        Fault::Unreadable(format!("illegal base64 data at input byte {place}"))
    })
}

fn unreadable(value: &Value, field: &str, kind: &str, version: ReviewVersion) -> Fault {
    let kind = kind.replacen("v1.", &format!("{}.", version.name()), usize::from(!kind.contains("Status")));
    Fault::Unreadable(go_format::type_error(field, &ValueKind::from_value(value), &kind))
}
