//! OpenAPI 2 as protobuf: the messages of gnostic's `openapi.v2` package. The tables below have their field numbers.
//!
//! The module converts the JSON of a path or definition, whatever its source. gnostic stores values of any type as YAML
//! text; JSON is valid YAML.

mod v3;

use std::collections::BTreeMap;

use keelson_meta::json::Value;

pub(crate) use v3::document as v3_document;

/// A path as a field of the message of all paths.
pub(crate) fn path(path: &str, item: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    named(&mut out, PATHS_PATH, path, &FieldForm::Message(&PATH_ITEM), item);
    out
}

/// A definition as a field of the message of all definitions.
pub(crate) fn definition(name: &str, schema: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    named(&mut out, FIRST, name, &FieldForm::Message(&SCHEMA), schema);
    out
}

/// The document from its pieces, in order.
pub(crate) fn document<'p>(
    swagger: &str,
    info: &Value,
    paths: &[u8],
    definitions: impl Iterator<Item = &'p [u8]>,
    parameters: &BTreeMap<String, Value>,
    (security_definitions, security): (&Value, &Value),
) -> Vec<u8> {
    let mut out = Vec::new();
    bytes(&mut out, 1, swagger.as_bytes());
    FieldForm::Message(&INFO).write(&mut out, 2, info);
    bytes(&mut out, 8, paths);
    bytes(&mut out, 9, &definitions.collect::<Vec<_>>().concat());
    let mut named_parameters = Vec::new();
    for (name, value) in parameters {
        named(&mut named_parameters, FIRST, name, &FieldForm::StatedParameter, value);
    }
    bytes(&mut out, 10, &named_parameters);
    FieldForm::Each(&REQUIREMENT).write(&mut out, 12, security);
    FieldForm::Members(&FieldForm::SecurityDefinition).write(&mut out, 13, security_definitions);
    out
}

/// The number of the only field of a wrapper message.
const FIRST: u32 = 1;
/// `Paths.path`.
const PATHS_PATH: u32 = 2;
/// `Any.yaml`.
const ANY_YAML: u32 = 2;

/// A message: its fields, and the number of the field for `x-` extensions.
struct Message {
    fields: &'static [(&'static str, u32, FieldForm)],
    extensions: u32,
}

/// The encoding of a JSON field.
enum FieldForm {
    Text,
    Flag,
    /// An integer.
    Integer,
    /// A number, in eight bytes.
    Number,
    /// Any value, as YAML text.
    Any,
    /// A schema, or a boolean.
    SchemaOrFlag,
    /// A schema or a reference to one, or a boolean.
    SchemaOrReferenceOrFlag(&'static Message),
    /// Each element of an array as a separate field.
    Each(&'static FieldForm),
    Message(&'static Message),
    /// Field 1 of a wrapper message.
    Wrapped(&'static FieldForm),
    /// The members of an object as names and values in field 1 of a message.
    Members(&'static FieldForm),
    /// A parameter, or a reference to one.
    Parameter,
    /// A parameter that is not a reference. Its place (`in`) determines the message.
    StatedParameter,
    /// `SecurityDefinitionsItem` with an API key, the only kind in use.
    SecurityDefinition,
    /// A message in field 1 of another, or a reference in field 2.
    OrReference(&'static Message),
    /// The members of an object as names and values in this field of a message.
    MembersAt(u32, &'static FieldForm),
    /// `DefaultType`: a number, a boolean or a text. Other values leave the message empty.
    Default,
}

/// `SecurityRequirement`: the scopes of each scheme, by its name.
static REQUIREMENT: FieldForm = FieldForm::Members(&FieldForm::Wrapped(&FieldForm::Each(&FieldForm::Text)));

static API_KEY: Message = Message {
    fields: &[
        ("type", 1, FieldForm::Text),
        ("name", 2, FieldForm::Text),
        ("in", 3, FieldForm::Text),
        ("description", 4, FieldForm::Text),
    ],
    extensions: 5,
};

static INFO: Message =
    Message { fields: &[("title", 1, FieldForm::Text), ("version", 2, FieldForm::Text)], extensions: 7 };

static PATH_ITEM: Message = Message {
    fields: &[
        ("get", 2, FieldForm::Message(&OPERATION)),
        ("put", 3, FieldForm::Message(&OPERATION)),
        ("post", 4, FieldForm::Message(&OPERATION)),
        ("delete", 5, FieldForm::Message(&OPERATION)),
        ("patch", 8, FieldForm::Message(&OPERATION)),
        ("parameters", 9, FieldForm::Each(&FieldForm::Parameter)),
    ],
    extensions: 10,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, FieldForm::Each(&FieldForm::Text)),
        ("description", 3, FieldForm::Text),
        ("operationId", 5, FieldForm::Text),
        ("produces", 6, FieldForm::Each(&FieldForm::Text)),
        ("consumes", 7, FieldForm::Each(&FieldForm::Text)),
        ("parameters", 8, FieldForm::Each(&FieldForm::Parameter)),
        ("responses", 9, FieldForm::Members(&FieldForm::Wrapped(&FieldForm::Message(&RESPONSE)))),
        ("schemes", 10, FieldForm::Each(&FieldForm::Text)),
    ],
    extensions: 13,
};

static RESPONSE: Message = Message {
    fields: &[("description", 1, FieldForm::Text), ("schema", 2, FieldForm::Wrapped(&FieldForm::Message(&SCHEMA)))],
    extensions: 5,
};

static BODY_PARAMETER: Message = Message {
    fields: &[
        ("name", 2, FieldForm::Text),
        ("in", 3, FieldForm::Text),
        ("required", 4, FieldForm::Flag),
        ("schema", 5, FieldForm::Message(&SCHEMA)),
    ],
    extensions: 6,
};

static QUERY_PARAMETER: Message = Message {
    fields: &[
        ("in", 2, FieldForm::Text),
        ("description", 3, FieldForm::Text),
        ("name", 4, FieldForm::Text),
        ("type", 6, FieldForm::Text),
        ("uniqueItems", 20, FieldForm::Flag),
    ],
    extensions: 23,
};

static PATH_PARAMETER: Message = Message {
    fields: &[
        ("required", 1, FieldForm::Flag),
        ("in", 2, FieldForm::Text),
        ("description", 3, FieldForm::Text),
        ("name", 4, FieldForm::Text),
        ("type", 5, FieldForm::Text),
        ("uniqueItems", 19, FieldForm::Flag),
    ],
    extensions: 22,
};

static SCHEMA: Message = Message {
    fields: &[
        ("$ref", 1, FieldForm::Text),
        ("format", 2, FieldForm::Text),
        ("title", 3, FieldForm::Text),
        ("description", 4, FieldForm::Text),
        ("multipleOf", 6, FieldForm::Number),
        ("maximum", 7, FieldForm::Number),
        ("exclusiveMaximum", 8, FieldForm::Flag),
        ("minimum", 9, FieldForm::Number),
        ("exclusiveMinimum", 10, FieldForm::Flag),
        ("maxLength", 11, FieldForm::Integer),
        ("minLength", 12, FieldForm::Integer),
        ("pattern", 13, FieldForm::Text),
        ("maxItems", 14, FieldForm::Integer),
        ("minItems", 15, FieldForm::Integer),
        ("uniqueItems", 16, FieldForm::Flag),
        ("maxProperties", 17, FieldForm::Integer),
        ("minProperties", 18, FieldForm::Integer),
        ("required", 19, FieldForm::Each(&FieldForm::Text)),
        ("enum", 20, FieldForm::Each(&FieldForm::Any)),
        ("additionalProperties", 21, FieldForm::SchemaOrFlag),
        ("type", 22, FieldForm::Wrapped(&FieldForm::Text)),
        ("items", 23, FieldForm::Wrapped(&FieldForm::Message(&SCHEMA))),
        ("properties", 25, FieldForm::Members(&FieldForm::Message(&SCHEMA))),
        ("externalDocs", 29, FieldForm::Message(&EXTERNAL_DOCS)),
        ("example", 30, FieldForm::Any),
    ],
    extensions: 31,
};

static EXTERNAL_DOCS: Message =
    Message { fields: &[("description", 1, FieldForm::Text), ("url", 2, FieldForm::Text)], extensions: 3 };

impl Message {
    fn content(&self, value: &Value) -> Vec<u8> {
        let mut out = Vec::new();
        let members = value.as_object().into_iter().flatten();
        for (name, value) in members {
            if let Some((_, number, shape)) = self.fields.iter().find(|(known, ..)| *known == name) {
                shape.write(&mut out, *number, value);
            } else if name.starts_with("x-") {
                named(&mut out, self.extensions, name, &FieldForm::Any, value);
            }
        }
        out
    }
}

impl FieldForm {
    /// Writes the value as the field of this number.
    fn write(&self, out: &mut Vec<u8>, number: u32, value: &Value) {
        match self {
            Self::Text => bytes(out, number, value.as_str().unwrap_or_default().as_bytes()),
            Self::Flag => {
                if value.as_bool() == Some(true) {
                    tag(out, number, VARINT);
                    varint(out, 1);
                }
            }
            Self::Integer => {
                tag(out, number, VARINT);
                // Lengths and counts, which are never negative.
                varint(out, value.as_u64().unwrap_or_default());
            }
            Self::Number => {
                tag(out, number, EIGHT_BYTES);
                out.extend_from_slice(&value.as_f64().unwrap_or_default().to_le_bytes());
            }
            Self::SchemaOrFlag => {
                let schema = |value: &Value| SCHEMA.content(value);
                bytes(out, number, &schema_or_flag(value, schema));
            }
            Self::SchemaOrReferenceOrFlag(message) => {
                let schema = |value: &Value| or_reference(value, |value| message.content(value));
                bytes(out, number, &schema_or_flag(value, schema));
            }
            Self::Any => {
                let mut any = Vec::new();
                bytes(&mut any, ANY_YAML, value.to_string().as_bytes());
                bytes(out, number, &any);
            }
            Self::Each(shape) => value.as_array().into_iter().flatten().for_each(|each| shape.write(out, number, each)),
            Self::Message(message) => bytes(out, number, &message.content(value)),
            Self::Wrapped(shape) => {
                let mut inner = Vec::new();
                shape.write(&mut inner, FIRST, value);
                bytes(out, number, &inner);
            }
            Self::Members(shape) => {
                let mut inner = Vec::new();
                for (name, value) in value.as_object().into_iter().flatten() {
                    named(&mut inner, FIRST, name, shape, value);
                }
                bytes(out, number, &inner);
            }
            Self::Parameter => bytes(out, number, &or_reference(value, stated_parameter)),
            Self::StatedParameter => bytes(out, number, &stated_parameter(value)),
            Self::SecurityDefinition => {
                const API_KEY_MEMBER: u32 = 2;
                let mut item = Vec::new();
                bytes(&mut item, API_KEY_MEMBER, &API_KEY.content(value));
                bytes(out, number, &item);
            }
            Self::OrReference(message) => bytes(out, number, &or_reference(value, |value| message.content(value))),
            Self::MembersAt(place, shape) => {
                let mut inner = Vec::new();
                for (name, value) in value.as_object().into_iter().flatten() {
                    named(&mut inner, *place, name, shape, value);
                }
                bytes(out, number, &inner);
            }
            Self::Default => bytes(out, number, &default_type(value)),
        }
    }
}

/// `AdditionalPropertiesItem`, a choice of two messages. Therefore false is written too.
fn schema_or_flag(value: &Value, schema: impl Fn(&Value) -> Vec<u8>) -> Vec<u8> {
    const SCHEMA_MEMBER: u32 = 1;
    const FLAG_MEMBER: u32 = 2;
    let mut either = Vec::new();
    if let Some(flag) = value.as_bool() {
        tag(&mut either, FLAG_MEMBER, VARINT);
        varint(&mut either, u64::from(flag));
    } else {
        bytes(&mut either, SCHEMA_MEMBER, &schema(value));
    }
    either
}

/// A message, or a reference to one: gnostic's choice for parts that can be referenced.
fn or_reference(value: &Value, content: impl FnOnce(&Value) -> Vec<u8>) -> Vec<u8> {
    const REFERENCE: u32 = 2;
    let mut choice = Vec::new();
    match value.get("$ref").and_then(Value::as_str) {
        Some(place) => {
            let mut reference = Vec::new();
            bytes(&mut reference, FIRST, place.as_bytes());
            bytes(&mut choice, REFERENCE, &reference);
        }
        None => bytes(&mut choice, FIRST, &content(value)),
    }
    choice
}

/// `DefaultType`, a choice of three scalars. Therefore zero values are written too.
fn default_type(value: &Value) -> Vec<u8> {
    const NUMBER: u32 = 1;
    const FLAG: u32 = 2;
    const TEXT: u32 = 3;
    let mut choice = Vec::new();
    if let Some(number) = value.as_f64() {
        tag(&mut choice, NUMBER, EIGHT_BYTES);
        choice.extend_from_slice(&number.to_le_bytes());
    } else if let Some(flag) = value.as_bool() {
        tag(&mut choice, FLAG, VARINT);
        varint(&mut choice, u64::from(flag));
    } else if let Some(text) = value.as_str() {
        bytes(&mut choice, TEXT, text.as_bytes());
    }
    choice
}

/// `Parameter`: a body parameter, or a parameter of another place. Each place has its own message.
fn stated_parameter(value: &Value) -> Vec<u8> {
    const BODY: u32 = 1;
    const NON_BODY: u32 = 2;
    const QUERY: u32 = 3;
    const PATH: u32 = 4;
    let mut parameter = Vec::new();
    let mut non_body = Vec::new();
    match value["in"].as_str() {
        Some("body") => bytes(&mut parameter, BODY, &BODY_PARAMETER.content(value)),
        Some("path") => bytes(&mut non_body, PATH, &PATH_PARAMETER.content(value)),
        _ => bytes(&mut non_body, QUERY, &QUERY_PARAMETER.content(value)),
    }
    if !non_body.is_empty() {
        bytes(&mut parameter, NON_BODY, &non_body);
    }
    parameter
}

/// A message with a name in field 1 and a value in field 2.
fn named(out: &mut Vec<u8>, number: u32, name: &str, shape: &FieldForm, value: &Value) {
    let mut inner = Vec::new();
    bytes(&mut inner, 1, name.as_bytes());
    shape.write(&mut inner, 2, value);
    bytes(out, number, &inner);
}

const VARINT: u32 = 0;
const EIGHT_BYTES: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

fn bytes(out: &mut Vec<u8>, number: u32, content: &[u8]) {
    tag(out, number, LENGTH_DELIMITED);
    varint(out, content.len() as u64);
    out.extend_from_slice(content);
}

fn tag(out: &mut Vec<u8>, number: u32, wire_type: u32) {
    varint(out, u64::from(number << 3 | wire_type));
}

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        // The low seven bits, with the continuation bit.
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[track_caller]
    fn check(message: &Message, value: &Value, expected: &[u8]) {
        assert_eq!(message.content(value), expected, "{value}");
    }

    #[test]
    fn texts_and_flags() {
        check(&INFO, &json!({ "title": "K", "version": "v1" }), b"\x0a\x01K\x12\x02v1");
        let path = json!({ "name": "n", "in": "path", "required": true });
        check(&PATH_PARAMETER, &path, b"\x22\x01n\x12\x04path\x08\x01");
    }

    #[test]
    fn a_schema_wraps_its_type_its_items_and_its_properties() {
        check(&SCHEMA, &json!({ "type": "string" }), b"\xb2\x01\x08\x0a\x06string");
        check(&SCHEMA, &json!({ "items": { "$ref": "#/x" } }), b"\xba\x01\x07\x0a\x05\x0a\x03#/x");
        check(&SCHEMA, &json!({ "properties": { "a": {} } }), b"\xca\x01\x07\x0a\x05\x0a\x01a\x12\x00");
    }

    #[test]
    fn numbers_and_flags_of_a_schema() {
        check(&SCHEMA, &json!({ "maxLength": 300 }), b"\x58\xac\x02");
        check(&SCHEMA, &json!({ "minimum": 1.5 }), b"\x49\x00\x00\x00\x00\x00\x00\xf8\x3f");
        check(&SCHEMA, &json!({ "exclusiveMinimum": true }), b"\x50\x01");
        check(&SCHEMA, &json!({ "additionalProperties": false }), b"\xaa\x01\x02\x10\x00");
        check(&SCHEMA, &json!({ "additionalProperties": { "$ref": "#/x" } }), b"\xaa\x01\x07\x0a\x05\x0a\x03#/x");
        check(&SCHEMA, &json!({ "externalDocs": { "url": "u" } }), b"\xea\x01\x03\x12\x01u");
        check(&SCHEMA, &json!({ "example": 1 }), b"\xf2\x01\x03\x12\x011");
    }

    #[test]
    fn extensions_are_json_in_a_text() {
        check(
            &SCHEMA,
            &json!({ "x-kubernetes-list-type": "set" }),
            b"\xfa\x01\x21\x0a\x16x-kubernetes-list-type\x12\x07\x12\x05\"set\"",
        );
    }

    #[test]
    fn a_query_parameter_lies_three_messages_deep() {
        let mut out = Vec::new();
        FieldForm::Parameter.write(&mut out, 8, &json!({ "in": "query", "name": "a" }));
        assert_eq!(out, b"\x42\x10\x0a\x0e\x12\x0c\x1a\x0a\x12\x05query\x22\x01a");
    }

    #[test]
    fn parameter_references_are_encoded_as_references() {
        let mut out = Vec::new();
        FieldForm::Parameter.write(&mut out, 8, &json!({ "$ref": "#/parameters/a" }));
        assert_eq!(out, b"\x42\x12\x12\x10\x0a\x0e#/parameters/a");
    }

    #[test]
    fn lengths_above_127_take_two_bytes() {
        let mut out = Vec::new();
        bytes(&mut out, 1, &[0; 300]);
        assert_eq!(out[..3], [0x0a, 0xac, 0x02]);
        assert_eq!(out.len(), 303);
    }
}
