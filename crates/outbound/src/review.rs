//! ConversionReviews: the request to a conversion webhook, and the parsing of its response.
//!
//! A review is written object by object with yields in between, since writing a whole batch would hold a shared thread
//! for too long. Objects are sent without their resourceVersion, as upstream. The caller checks the returned objects.

use keelson_codec::json;
use keelson_meta::go_format::{self, quote};
use keelson_meta::json::{Map, Value, ValueKind};
use keelson_meta::{GroupVersionKind, Object};

use crate::response_status::value_of;

const GROUP: &str = "apiextensions.k8s.io";
const KIND: &str = "ConversionReview";
/// The number of bytes after which writing a review yields to other tasks.
const REST_FROM_BYTES: usize = 64 << 10;

/// The version of reviews for a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReviewVersion {
    V1,
    V1Beta1,
}

impl ReviewVersion {
    /// The first known version among those that the webhook supports.
    pub(crate) fn from_value(stated: &Value) -> Option<Self> {
        let stated = stated.as_array().into_iter().flatten();
        stated.filter_map(Value::as_str).find_map(|version| match version {
            "v1" => Some(Self::V1),
            "v1beta1" => Some(Self::V1Beta1),
            _ => None,
        })
    }

    fn name(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1Beta1 => "v1beta1",
        }
    }
}

/// Writes the request.
pub(crate) async fn request(version: ReviewVersion, uid: &str, to: &GroupVersionKind, objects: &[Object]) -> Vec<u8> {
    let mut out = Vec::with_capacity(REST_FROM_BYTES);
    let head = format!(r#"{{"kind":"{KIND}","apiVersion":"{GROUP}/{}","request":{{"uid":"#, version.name());
    out.extend_from_slice(head.as_bytes());
    json::write_string(uid, &mut out);
    out.extend_from_slice(br#","desiredAPIVersion":"#);
    json::write_string(&to.group_version().to_string(), &mut out);
    out.extend_from_slice(br#","objects":["#);
    let mut rested = out.len();
    for (place, object) in objects.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        write_object(object, &mut out);
        if out.len() - rested > REST_FROM_BYTES {
            rested = out.len();
            tokio::task::yield_now().await;
        }
    }
    out.extend_from_slice(br#"]},"response":{"uid":"","convertedObjects":null,"result":{"metadata":{}}}}"#);
    out
}

fn write_object(object: &Object, out: &mut Vec<u8>) {
    write_members(&object.0, None, out, |name, value, out| match value {
        Value::Object(metadata) if name == "metadata" => {
            write_members(metadata, Some("resourceVersion"), out, |_, value, out| json::write(value, out));
        }
        value => json::write(value, out),
    });
}

/// Writes the members of a map except for one.
fn write_members(map: &Map, but: Option<&str>, out: &mut Vec<u8>, write: impl Fn(&str, &Value, &mut Vec<u8>)) {
    out.push(b'{');
    let mut first = true;
    for (name, value) in map.iter().filter(|(name, _)| Some(*name) != but) {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        json::write_string(name, out);
        out.push(b':');
        write(name, value, out);
    }
    out.push(b'}');
}

/// The objects in a response.
///
/// # Errors
/// The body is not a response, or reports a failed conversion, in upstream's words.
pub(crate) fn answer(version: ReviewVersion, uid: &str, body: &[u8]) -> Result<Vec<Object>, String> {
    let mut review = value_of(body)?;
    check_kind(version, &review)?;
    let response = match &mut review["response"] {
        Value::Null => return Err("no response provided".to_owned()),
        Value::Object(_) => review["response"].take(),
        other => return Err(wrong(other, "ConversionReview.response", "v1.ConversionResponse")),
    };
    let text = |value: &Value, field: &str, kind: &str| match value {
        Value::Null => Ok(String::new()),
        Value::String(text) => Ok(text.to_string()),
        other => Err(wrong(other, field, kind)),
    };
    let answered = text(&response["uid"], "ConversionResponse.response.uid", "types.UID")?;
    let result = &response["result"];
    if !matches!(result, Value::Null | Value::Object(_)) {
        return Err(wrong(result, "ConversionResponse.response.result", "v1.Status"));
    }
    let status = text(&result["status"], "Status.response.result.status", "string")?;
    let message = text(&result["message"], "Status.response.result.message", "string")?;
    // Upstream ignores the uid of the older version.
    if version == ReviewVersion::V1 && answered != uid {
        return Err(format!("expected response.uid={}, got {}", quote(uid), quote(&answered)));
    }
    if status != "Success" {
        let unsaid = || format!("response.result.status was '{status}', not 'Success'");
        return Err(if message.is_empty() { unsaid() } else { message });
    }
    let mut response = response;
    let objects = match response["convertedObjects"].take() {
        Value::Null => Vec::new(),
        Value::Array(objects) => objects,
        other => {
            return Err(wrong(&other, "ConversionResponse.response.convertedObjects", "[]runtime.RawExtension"));
        }
    };
    objects
        .into_iter()
        .map(|object| {
            let found = go_format::kind(&object);
            let told = || format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            Object::from_value(object).ok_or_else(told)
        })
        .collect()
}

/// The kind of a review, which request and response must state.
#[derive(Clone, Copy, Debug)]
pub struct ReviewKind<'k> {
    /// The group.
    pub group: &'k str,
    /// The version.
    pub version: &'k str,
    /// The kind.
    pub kind: &'k str,
}

impl ReviewKind<'_> {
    /// Returns true if a response states this kind, and false if it states none.
    ///
    /// # Errors
    /// The response states another kind, in upstream's words.
    pub fn check(&self, review: &Value) -> Result<bool, String> {
        let text = |field: &str| review[field].as_str().unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, stated) = api_version.split_once('/').unwrap_or(("", api_version));
        let (wanted, wanted_kind) = (self.version, self.kind);
        let is_review = group == self.group && kind == wanted_kind;
        if is_review && stated == wanted {
            return Ok(true);
        }
        if kind.is_empty() || api_version.is_empty() {
            return Ok(false);
        }
        if (is_review && matches!(stated, "v1" | "v1beta1")) || (api_version == "v1" && kind == "Status") {
            return Err(format!("converting ({stated}.{kind}) to ({wanted}.{wanted_kind}): unknown conversion"));
        }
        const SCHEME: &str = "k8s.io/apiserver/pkg/util/webhook/client.go:71";
        let (kind, api_version) = (quote(kind), quote(api_version));
        Err(format!("no kind {kind} is registered for version {api_version} in scheme {}", quote(SCHEME)))
    }

    /// The error for a response that states no kind.
    pub fn missing(&self, review: &Value) -> String {
        let text = |field: &str| review[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let (own, kind) = (format!("{}/{}", self.group, self.version), self.kind);
        format!("expected webhook response of {own}, Kind={kind}, got {group}/{version}, Kind={}", text("kind"))
    }
}

fn check_kind(version: ReviewVersion, review: &Value) -> Result<(), String> {
    let kind = ReviewKind { group: GROUP, version: version.name(), kind: KIND };
    // Upstream accepts a missing kind here, but later requires one in version `v1`.
    match kind.check(review)? || version == ReviewVersion::V1Beta1 {
        true => Ok(()),
        false => Err(kind.missing(review)),
    }
}

fn wrong(value: &Value, field: &str, kind: &str) -> String {
    go_format::type_error(field, &ValueKind::from_value(value), kind)
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[tokio::test]
    async fn a_review_holds_the_objects_without_their_resource_versions() {
        let metadata = json!({"name": "x", "resourceVersion": "7", "uid": "u"});
        let object = json!({"apiVersion": "a.example.com/v1", "kind": "Host", "metadata": metadata, "spec": {"n": 1}});
        let to = GroupVersionKind { group: "a.example.com".into(), version: "v2".into(), kind: "Host".into() };
        let objects = [Object::from_value(object).unwrap()];
        let sent = request(ReviewVersion::V1, "id", &to, &objects).await;
        let expected = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": "id", "desiredAPIVersion": "a.example.com/v2", "objects": [
                {"apiVersion": "a.example.com/v1", "kind": "Host", "metadata": {"name": "x", "uid": "u"}, "spec": {"n": 1}},
            ]},
            "response": {"uid": "", "convertedObjects": null, "result": {"metadata": {}}},
        });
        assert_eq!(json::parse(&sent).unwrap().value, expected);
    }

    #[test]
    fn the_first_known_form_is_used() {
        let of = |stated: Value| ReviewVersion::from_value(&stated);
        assert_eq!(of(json!(["v2", "v1", "v1beta1"])), Some(ReviewVersion::V1));
        assert_eq!(of(json!(["v1beta1", "v1"])), Some(ReviewVersion::V1Beta1));
        assert_eq!((of(json!(["v2"])), of(json!(null))), (None, None));
    }

    #[test]
    fn invalid_responses_have_upstream_errors() {
        let check = |body: &str, expected: &str| {
            assert_eq!(answer(ReviewVersion::V1, "id", body.as_bytes()).unwrap_err(), expected, "{body}");
        };
        const INTO: &str =
            r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
        let none = |found: &str| {
            format!(
                "couldn't get version/kind; json parse error: json: cannot unmarshal {found} into Go value of type {INTO}"
            )
        };
        check("hello", &none("string"));
        check("[]", &none("array"));
        check("{}", "expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview, got /, Kind=");
        let review = |version: &str, kind: &str, rest: &str| {
            format!(r#"{{"apiVersion":"apiextensions.k8s.io/{version}","kind":"{kind}"{rest}}}"#)
        };
        check(&review("v1", KIND, ""), "no response provided");
        let other = "no kind \"AdmissionReview\" is registered for version \"apiextensions.k8s.io/v1\" in scheme \
                     \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"";
        check(&review("v1", "AdmissionReview", ""), other);
        let older = "converting (v1beta1.ConversionReview) to (v1.ConversionReview): unknown conversion";
        check(&review("v1beta1", KIND, ""), older);
        let respond = |response: &str| review("v1", KIND, &format!(r#","response":{response}"#));
        check(&respond("{}"), r#"expected response.uid="id", got """#);
        check(&respond(r#"{"uid":"other"}"#), r#"expected response.uid="id", got "other""#);
        check(&respond(r#"{"uid":"id"}"#), "response.result.status was '', not 'Success'");
        let failed = r#"{"uid":"id","result":{"status":"Failure"}}"#;
        check(&respond(failed), "response.result.status was 'Failure', not 'Success'");
        check(&respond(r#"{"uid":"id","result":{"status":"Failure","message":"odd"}}"#), "odd");
        let list = r#"{"uid":"id","result":{"status":"Success"},"convertedObjects":{}}"#;
        let message = "json: cannot unmarshal object into Go struct field ConversionResponse.response.convertedObjects of \
                    type []runtime.RawExtension";
        check(&respond(list), message);
        let older = review("v1beta1", KIND, r#","response":{"uid":"other","result":{"status":"Success"}}"#);
        assert_eq!(answer(ReviewVersion::V1Beta1, "id", older.as_bytes()), Ok(Vec::new()));
    }
}
