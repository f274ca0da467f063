//! Decodes request bodies: from bytes to an object, in the encodings that clients send.
//!
//! JSON, YAML and protobuf become the same object tree, with a list of faults that only strict field validation
//! refuses. The size is checked before the body is parsed.

use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_TYPE;
use keelson_access::audit::AuditRecord;
use keelson_codec::json::Parsed;
use keelson_codec::{json, yaml};
use keelson_meta::json::{Map, Value, ValueKind};
use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, Object, go_format};
use keelson_registry::{Caller, Target, Warnings, accept, object_of};

use crate::audited::{self, note_object};
use crate::body::{MAX_REQUEST_BYTES, RequestBody};

/// Decodes the object of a create, or of a subresource in the target's URL.
///
/// # Errors
/// The errors of [`Document::read`] and [`Document::object`].
pub(super) async fn object(
    headers: &HeaderMap,
    body: RequestBody,
    target: &Target,
    validation: FieldValidation,
    caller: &Caller,
) -> Result<Object, ApiError> {
    let document = Document::read(headers, body).await?;
    let object = document.object(target, validation, caller.warnings())?;
    document.note(target, &object, caller.audit());
    Ok(object)
}

/// A body from which an object can be decoded repeatedly.
pub(super) struct Document {
    encoding: Encoding,
    bytes: Bytes,
}

impl Document {
    /// Reads the body to its end.
    ///
    /// # Errors
    /// 413 beyond the size limit, 415 for an unknown encoding.
    pub(super) async fn read(headers: &HeaderMap, body: RequestBody) -> Result<Self, ApiError> {
        let encoding = Encoding::from_content_type(headers)?;
        Ok(Self { encoding, bytes: body.read(MAX_REQUEST_BYTES).await? })
    }

    /// Decodes the object. Faults that do not cause an error become warnings.
    ///
    /// # Errors
    /// 400 for a body that cannot be parsed or does not fit the URL, and for duplicate fields with strict field validation.
    pub(super) fn object(
        &self,
        target: &Target,
        validation: FieldValidation,
        warnings: &Warnings,
    ) -> Result<Object, ApiError> {
        let Self { encoding, bytes } = self;
        let kind = target.taken_kind();
        let version = kind.group_version().to_string();
        let parsed = encoding.parse(bytes, (&version, &kind.kind));
        let parsed = parsed.map_err(|error| unrecognized(&kind.kind, &error, bytes))?;
        let faults = encoding.faults(parsed.duplicates, validation);
        let sent = typed(parsed.value)
            .and_then(|sent| if target.is_custom_kind() { names_are_texts(&sent) } else { Ok(()) }.map(|()| sent));
        let sent = sent.map_err(|error| unrecognized(&kind.kind, &error, bytes))?;
        accept(target, sent, &faults, validation, warnings)
    }

    /// Records the object for audit as the client sent it: without the path's namespace if the body has no namespace.
    pub(super) fn note(&self, target: &Target, object: &Object, audit: &AuditRecord) {
        note_object(audit, object, || self.names_namespace(target));
    }

    fn names_namespace(&self, target: &Target) -> bool {
        let kind = target.taken_kind();
        let parsed = self.encoding.parse(&self.bytes, (&kind.group_version().to_string(), &kind.kind));
        let namespace =
            parsed.as_ref().ok().and_then(|parsed| parsed.value.get("metadata")?.get("namespace")?.as_str());
        namespace.is_some_and(|namespace| !namespace.is_empty())
    }
}

/// The parsed value, which must have a version and kind. As upstream, an empty body is an empty object.
fn typed(value: Value) -> Result<Value, String> {
    const ASKED: &str =
        r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    match value {
        Value::Null => Ok(Value::Object(Map::new())),
        Value::Object(object) => {
            let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            if version.matches('/').count() > 1 {
                return Err(format!("unexpected GroupVersion string: {version}"));
            }
            Ok(Value::Object(object))
        }
        other => {
            let found = go_format::found(&ValueKind::from_value(&other), ASKED);
            Err(format!("{NO_VERSION}json parse error: json: cannot unmarshal {found} into Go value of type {ASKED}"))
        }
    }
}

/// Refuses a custom resource whose `apiVersion` or `kind` is not a string.
fn names_are_texts(sent: &Value) -> Result<(), String> {
    let is_other = |value: &&Value| !value.is_string() && !value.is_null();
    let other = ["apiVersion", "kind"].into_iter().find_map(|field| Some((field, sent.get(field).filter(is_other)?)));
    let Some((field, value)) = other else { return Ok(()) };
    let found = go_format::found(&ValueKind::from_value(value), "string");
    Err(format!(
        "{NO_VERSION}json parse error: json: cannot unmarshal {found} into Go struct field .{field} of type string"
    ))
}

/// Decodes the options in the body of a DELETE. `None` for an empty body.
///
/// # Errors
/// 413, 415 and 400 as for objects.
pub(super) async fn optional(
    headers: &HeaderMap,
    body: RequestBody,
    audit: &AuditRecord,
) -> Result<Option<Object>, ApiError> {
    const KIND: (&str, &str) = ("v1", "DeleteOptions");
    let bytes = body.read(MAX_REQUEST_BYTES).await?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let parsed = Encoding::from_content_type(headers)?
        .parse(&bytes, KIND)
        .map_err(|error| unrecognized(KIND.1, &error, &bytes))?;
    let options = object_of(parsed.value, KIND.1)?;
    audit.sent(|| audited::delete_options(&options));
    Ok(Some(options))
}

/// The encodings listed in errors.
const MEDIA_TYPES: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

#[derive(Clone, Copy)]
enum Encoding {
    Json,
    Yaml,
    Protobuf,
}

impl Encoding {
    fn from_content_type(headers: &HeaderMap) -> Result<Self, ApiError> {
        let Some(value) = headers.get(CONTENT_TYPE) else {
            return Ok(Self::Json);
        };
        let media = value.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
        // Media types are case-insensitive (RFC 9110, section 8.3.1).
        let is = |name: &str| media.eq_ignore_ascii_case(name);
        if media.is_empty() || is("application/json") {
            Ok(Self::Json)
        } else if is("application/yaml") {
            Ok(Self::Yaml)
        } else if is("application/vnd.kubernetes.protobuf") {
            Ok(Self::Protobuf)
        } else {
            Err(ApiError::UnsupportedMediaType { accepted: MEDIA_TYPES })
        }
    }

    /// Returns the messages about duplicate fields.
    fn faults(self, messages: Vec<String>, validation: FieldValidation) -> Vec<String> {
        match self {
            Self::Json | Self::Protobuf => messages,
            Self::Yaml => yaml_faults(messages, validation),
        }
    }

    /// `default` is the apiVersion and kind of a protobuf body that does not name its own.
    fn parse(self, bytes: &[u8], default: (&str, &str)) -> Result<Parsed, String> {
        match self {
            Self::Json => json::parse(bytes).map_err(|error| format!("{NO_VERSION}json parse error: {error}")),
            Self::Yaml if bytes.is_empty() => Err("Object 'Kind' is missing in ''".to_owned()),
            // Upstream converts YAML to JSON first, with sorted keys, and finds faults in that order.
            Self::Yaml => yaml::parse(bytes)
                .map(|mut parsed| {
                    parsed.value.sort_all_keys();
                    parsed
                })
                .map_err(|error| error.to_string()),
            Self::Protobuf => keelson_protobuf::decode_with_default(bytes, default)
                .map(|decoded| Parsed { value: decoded.object.into_value(), duplicates: Vec::new() })
                .map_err(|error| format!("{NO_VERSION}{error}")),
        }
    }
}

/// The messages about duplicate keys in YAML: one warning for each, or one error for all with strict field validation.
pub(super) fn yaml_faults(lines: Vec<String>, validation: FieldValidation) -> Vec<String> {
    if lines.is_empty() || validation != FieldValidation::Strict {
        return lines;
    }
    vec![format!("yaml: unmarshal errors:\n  {}", lines.join("\n  "))]
}

/// The prefix of an error about a body without a readable version.
const NO_VERSION: &str = "couldn't get version/kind; ";

/// The number of bytes of an invalid body in its error, as upstream.
const SHOWN_BYTES: usize = 30;

fn unrecognized(kind: &str, error: &str, body: &[u8]) -> ApiError {
    let start = &body[..body.len().min(SHOWN_BYTES)];
    let shown = match body {
        [] => "<empty>".to_owned(),
        [b'{', ..] => String::from_utf8_lossy(start).into_owned(),
        // A body that does not look like JSON is shown in hexadecimal.
        _ => start.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let more = if body.len() > SHOWN_BYTES { " ..." } else { "" };
    ApiError::BadRequest(format!(
        "the object provided is unrecognized (must be of type {kind}): {error} ({shown}{more})"
    ))
}
