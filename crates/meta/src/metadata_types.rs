//! The types of the fields of `metadata`, checked once where an object enters the server.
//!
//! Objects are JSON trees, so nothing stops a client from sending `labels: 5`. The messages are those of upstream's
//! decoder, which reports the first fault in the order of the document. `null` counts as absent everywhere.

use crate::json::{Map, Value};

use crate::clock::parse_rfc3339;
use crate::error::ApiError;
use crate::go_format::{quote, type_error};
use crate::gvk::GroupVersionKind;
use crate::object::Object;

/// Checks the types of `metadata` of an object of this kind.
///
/// # Errors
/// 400 with the message of upstream's decoder.
pub fn check_metadata_types(object: &Object, kind: &GroupVersionKind) -> Result<(), ApiError> {
    let fault = match object.0.get("metadata") {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Object(metadata)) => fields_fault(metadata, "ObjectMeta", "metadata", object_meta_type),
        Some(other) => Err(type_error(&format!("{}.metadata", kind.kind), other, "v1.ObjectMeta")),
    };
    let GroupVersionKind { version, kind, .. } = kind;
    fault.map_err(|fault| {
        ApiError::BadRequest(format!("{kind} in version {} cannot be handled as a {kind}: {fault}", quote(version)))
    })
}

/// The type of a field, by the names Go gives it.
#[derive(Clone, Copy)]
enum Type {
    Text(&'static str),
    Integer,
    Bool,
    Time,
    TextMap,
    TextList,
    List { item: &'static str, fields: fn(&str) -> Option<Type> },
    Anything,
}

fn object_meta_type(field: &str) -> Option<Type> {
    Some(match field {
        "name" | "generateName" | "namespace" | "selfLink" | "resourceVersion" => Type::Text("string"),
        "uid" => Type::Text("types.UID"),
        "generation" | "deletionGracePeriodSeconds" => Type::Integer,
        "creationTimestamp" | "deletionTimestamp" => Type::Time,
        "labels" | "annotations" => Type::TextMap,
        "finalizers" => Type::TextList,
        "ownerReferences" => Type::List { item: "OwnerReference", fields: owner_reference_type },
        "managedFields" => Type::List { item: "ManagedFieldsEntry", fields: managed_fields_type },
        _ => return None,
    })
}

fn owner_reference_type(field: &str) -> Option<Type> {
    Some(match field {
        "apiVersion" | "kind" | "name" => Type::Text("string"),
        "uid" => Type::Text("types.UID"),
        "controller" | "blockOwnerDeletion" => Type::Bool,
        _ => return None,
    })
}

fn managed_fields_type(field: &str) -> Option<Type> {
    Some(match field {
        "manager" | "apiVersion" | "fieldsType" | "subresource" => Type::Text("string"),
        "operation" => Type::Text("v1.ManagedFieldsOperationType"),
        "time" => Type::Time,
        "fieldsV1" => Type::Anything,
        _ => return None,
    })
}

fn fields_fault(map: &Map, owner: &str, path: &str, types: fn(&str) -> Option<Type>) -> Result<(), String> {
    map.iter().try_for_each(|(field, value)| match types(field) {
        Some(wanted) => value_fault(value, owner, &format!("{path}.{field}"), wanted),
        None => Ok(()),
    })
}

fn value_fault(value: &Value, owner: &str, path: &str, wanted: Type) -> Result<(), String> {
    let wrong = |value: &Value, go_type: &str| Err(type_error(&format!("{owner}.{path}"), value, go_type));
    let text = |value: &Value| match value {
        Value::String(_) | Value::Null => Ok(()),
        other => wrong(other, "string"),
    };
    match (wanted, value) {
        (_, Value::Null) | (Type::Anything, _) | (Type::Text(_), Value::String(_)) | (Type::Bool, Value::Bool(_)) => {
            Ok(())
        }
        (Type::Text(go_type), other) => wrong(other, go_type),
        (Type::Integer, Value::Number(number)) if number.is_i64() => Ok(()),
        (Type::Integer, other) => wrong(other, "int64"),
        (Type::Bool, other) => wrong(other, "bool"),
        (Type::Time, value) => time_fault(value),
        (Type::TextMap, Value::Object(map)) => map.values().try_for_each(text),
        (Type::TextMap, other) => wrong(other, "map[string]string"),
        (Type::TextList, Value::Array(items)) => items.iter().try_for_each(text),
        (Type::TextList, other) => wrong(other, "[]string"),
        (Type::List { item, fields }, Value::Array(items)) => items.iter().try_for_each(|entry| match entry {
            Value::Null => Ok(()),
            Value::Object(map) => fields_fault(map, item, path, fields),
            other => wrong(other, &format!("v1.{item}")),
        }),
        (Type::List { item, .. }, other) => wrong(other, &format!("[]v1.{item}")),
    }
}

/// Times have a decoder of their own upstream, which does not name the field.
fn time_fault(value: &Value) -> Result<(), String> {
    match value {
        Value::String(text) if parse_rfc3339(text).is_some() => Ok(()),
        Value::String(text) => Err(time_text_fault(text)),
        other => {
            let of_field = type_error("", other, "string");
            Err(of_field.replacen("struct field  of", "value of", 1))
        }
    }
}

/// The complaint about a text that is no time: the part from which on it does not fit the layout.
fn time_text_fault(text: &str) -> String {
    const LAYOUT: [(&str, usize); 12] = [
        ("2006", 4),
        ("-", 0),
        ("01", 2),
        ("-", 0),
        ("02", 2),
        ("T", 0),
        ("15", 2),
        (":", 0),
        ("04", 2),
        (":", 0),
        ("05", 2),
        ("Z07:00", 0),
    ];
    let mut rest = text;
    let mut element = "Z07:00";
    for (part, digits) in LAYOUT {
        element = part;
        let length = if digits == 0 { part.len() } else { digits };
        let fits = match (rest.get(..length), digits) {
            (Some(given), 0) => given == part,
            (Some(given), _) => given.bytes().all(|byte| byte.is_ascii_digit()),
            (None, _) => false,
        };
        if !fits {
            break;
        }
        rest = &rest[length..];
    }
    format!(
        "parsing time {} as \"2006-01-02T15:04:05Z07:00\": cannot parse {} as \"{element}\"",
        quote(text),
        quote(rest)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    fn check(metadata: &Value, expected: Result<(), &str>) {
        let object = Object::from_value(json!({ "metadata": metadata })).expect("an object");
        let kind = GroupVersionKind { group: String::new(), version: "v1".into(), kind: "ConfigMap".into() };
        let prefix = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: ";
        let checked = check_metadata_types(&object, &kind).map_err(|error| error.to_string());
        assert_eq!(checked, expected.map_err(|text| format!("{prefix}{text}")), "{object:?}");
    }

    #[test]
    fn right_types_and_nulls_pass() {
        check(&Value::Null, Ok(()));
        check(
            &json!({
                "name": "a", "namespace": null, "labels": {"a": "b", "c": null}, "annotations": null, "generation": 3,
                "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": null, "finalizers": ["x"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}],
                "managedFields": [{"manager": "m", "time": "2026-01-02T03:04:05Z", "fieldsV1": {"f:a": {}}}],
                "unknown": 5
            }),
            Ok(()),
        );
    }

    #[test]
    fn wrong_types_have_the_decoders_texts() {
        let unmarshal = "json: cannot unmarshal";
        for (metadata, text) in [
            (json!("x"), "string into Go struct field ConfigMap.metadata of type v1.ObjectMeta"),
            (json!({"name": 5}), "number into Go struct field ObjectMeta.metadata.name of type string"),
            (json!({"uid": {}}), "object into Go struct field ObjectMeta.metadata.uid of type types.UID"),
            (json!({"labels": {"a": 5}}), "number into Go struct field ObjectMeta.metadata.labels of type string"),
            (
                json!({"labels": ["a"]}),
                "array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
            (
                json!({"generation": 1.5}),
                "number 1.5 into Go struct field ObjectMeta.metadata.generation of type int64",
            ),
            (json!({"finalizers": "a"}), "string into Go struct field ObjectMeta.metadata.finalizers of type []string"),
            (
                json!({"ownerReferences": [{"controller": "yes"}]}),
                "string into Go struct field OwnerReference.metadata.ownerReferences.controller of type bool",
            ),
            (
                json!({"ownerReferences": ["x"]}),
                "string into Go struct field ObjectMeta.metadata.ownerReferences of type v1.OwnerReference",
            ),
            (json!({"creationTimestamp": 5}), "number into Go value of type string"),
        ] {
            check(&metadata, Err(&format!("{unmarshal} {text}")));
        }
    }

    #[test]
    fn times_are_quoted_from_the_fault_on() {
        for (text, rest, element) in [
            ("abc", "abc", "2006"),
            ("", "", "2006"),
            ("2026-1-02T03:04:05Z", "1-02T03:04:05Z", "01"),
            ("2026-01-02 03:04:05Z", " 03:04:05Z", "T"),
            ("2026-01-02T03:04:05", "", "Z07:00"),
        ] {
            let fault = format!(
                "parsing time \"{text}\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"{rest}\" as \"{element}\""
            );
            check(&json!({ "creationTimestamp": text }), Err(&fault));
        }
    }

    #[test]
    fn the_first_fault_in_the_document_counts() {
        let text = "json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.annotations of type string";
        check(&json!({"annotations": {"a": true}, "name": 5}), Err(text));
    }
}
