//! JSON forms of request and response objects for audit events: one line, from JSON, YAML or protobuf bodies.
//!
//! The writers of audit events run these conversions, so that no request waits for them.

use http::HeaderValue;
use keelson_access::audit::{AuditRecord, Body};
use keelson_codec::{json, yaml};
use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

/// Converts bytes to compact JSON, without `managedFields` if the flag is true. Returns `None` for bytes that cannot be
/// parsed.
pub(crate) type Form = fn(&[u8], bool) -> Option<Vec<u8>>;

/// The conversion from a body of this media type to JSON. `None` for a media type that contains no object.
pub(crate) fn form(content_type: Option<&HeaderValue>) -> Option<Form> {
    let media = content_type?.to_str().ok()?.split(';').next()?.trim();
    Some(match media {
        "application/yaml" | "application/apply-patch+yaml" => of_yaml,
        "application/vnd.kubernetes.protobuf" => of_protobuf,
        media if media == "application/json" || media.ends_with("+json") => of_json,
        _ => return None,
    })
}

/// Records the object of a request: its references, and the whole object where the audit level requires it. The
/// recorded object keeps its namespace only if `names_namespace` returns true.
pub(crate) fn note_object(audit: &AuditRecord, object: &Object, names_namespace: impl FnOnce() -> bool) {
    if !audit.is_read() {
        return;
    }
    audit.names(object.namespace(), object.name(), object.uid(), object.resource_version());
    audit.sent(|| {
        let mut shown = object.clone();
        if !names_namespace() {
            shown.remove_meta("namespace");
        }
        Body::new(json::to_vec(&shown.into_value()).into(), of_json)
    });
}

/// The options of a deletion, with the kind and version that upstream's audit events give them.
pub(crate) fn delete_options(options: &Object) -> Body {
    let mut shown = Map::new();
    shown.insert("kind", "DeleteOptions");
    shown.insert("apiVersion", "meta.k8s.io/__internal");
    for (key, value) in options.0.iter().filter(|(key, _)| !matches!(*key, "kind" | "apiVersion")) {
        shown.insert(key, value.clone());
    }
    Body::new(json::to_vec(&Value::Object(shown)).into(), of_json)
}

/// JSON on one line.
pub(crate) fn of_json(bytes: &[u8], omit_managed_fields: bool) -> Option<Vec<u8>> {
    // A client may send anything, and must not break the event that contains it.
    written(json::parse(bytes).ok()?.value, omit_managed_fields)
}

pub(crate) fn of_yaml(bytes: &[u8], omit_managed_fields: bool) -> Option<Vec<u8>> {
    written(yaml::parse(bytes).ok()?.value, omit_managed_fields)
}

fn of_protobuf(bytes: &[u8], omit_managed_fields: bool) -> Option<Vec<u8>> {
    written(keelson_protobuf::decode(bytes).ok()?.object.into_value(), omit_managed_fields)
}

fn written(mut value: Value, omit_managed_fields: bool) -> Option<Vec<u8>> {
    if omit_managed_fields {
        without_managed_fields(&mut value);
        let rows = value.get_mut("rows").and_then(Value::as_array_mut);
        let shown = rows.into_iter().flatten().filter_map(|row| row.get_mut("object"));
        shown.for_each(without_managed_fields);
        let items = value.get_mut("items").and_then(Value::as_array_mut);
        items.into_iter().flatten().for_each(without_managed_fields);
    }
    Some(json::to_vec(&value))
}

fn without_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(content_type: &str, body: &[u8], omit: bool, expect: Option<&str>) {
        let form = form(Some(&HeaderValue::try_from(content_type).unwrap()));
        let text = form.and_then(|form| form(body, omit)).map(|json| String::from_utf8(json).unwrap());
        assert_eq!(text.as_deref(), expect, "{content_type}");
    }

    #[test]
    fn audited_bodies_become_json_on_one_line() {
        check("application/json", b"{\"a\":1}\n", false, Some(r#"{"a":1}"#));
        check("application/json;stream=watch", b"{\n  \"a\": 1\n}", false, Some(r#"{"a":1}"#));
        check("application/merge-patch+json", b"{\"a\":1}", false, Some(r#"{"a":1}"#));
        check("application/apply-patch+yaml", b"a: 1\n", false, Some(r#"{"a":1}"#));
        check("text/plain", b"404 page not found", false, None);
        check("application/json", b"{\n", false, None);
        check("application/json", b"", false, None);
    }

    #[test]
    fn managed_fields_are_left_out_of_objects_items_and_rows() {
        let managed = r#"{"metadata":{"name":"a","managedFields":[{}]}}"#;
        let bare = r#"{"metadata":{"name":"a"}}"#;
        check("application/json", managed.as_bytes(), true, Some(bare));
        for list in ["items", "rows"] {
            let of = |object: &str| match list {
                "items" => format!(r#"{{"items":[{object}]}}"#),
                _ => format!(r#"{{"rows":[{{"object":{object}}}]}}"#),
            };
            check("application/json", of(managed).as_bytes(), true, Some(&of(bare)));
        }
    }
}
