//! OpenAPI 3 as protobuf: the messages of gnostic's `openapi.v3` package.
//!
//! A document, also one of another server, is parsed as JSON and written message by message. As in kube-apiserver,
//! members for which the package has no field are dropped.

use keelson_meta::json::Value;

use super::{FieldForm, Message, REQUIREMENT};

/// A whole document.
pub(crate) fn document(document: &Value) -> Vec<u8> {
    DOCUMENT.content(document)
}

static DOCUMENT: Message = Message {
    fields: &[
        ("openapi", 1, FieldForm::Text),
        ("info", 2, FieldForm::Message(&INFO)),
        ("servers", 3, FieldForm::Each(&FieldForm::Message(&SERVER))),
        ("paths", 4, FieldForm::MembersAt(1, &FieldForm::Message(&PATH_ITEM))),
        ("components", 5, FieldForm::Message(&COMPONENTS)),
        ("security", 6, FieldForm::Each(&REQUIREMENT)),
        ("tags", 7, FieldForm::Each(&FieldForm::Message(&TAG))),
        ("externalDocs", 8, FieldForm::Message(&EXTERNAL_DOCS)),
    ],
    extensions: 9,
};

static INFO: Message = Message {
    fields: &[
        ("title", 1, FieldForm::Text),
        ("description", 2, FieldForm::Text),
        ("termsOfService", 3, FieldForm::Text),
        ("version", 6, FieldForm::Text),
        ("summary", 8, FieldForm::Text),
    ],
    extensions: 7,
};

static SERVER: Message =
    Message { fields: &[("url", 1, FieldForm::Text), ("description", 2, FieldForm::Text)], extensions: 4 };

static TAG: Message =
    Message { fields: &[("name", 1, FieldForm::Text), ("description", 2, FieldForm::Text)], extensions: 4 };

static EXTERNAL_DOCS: Message =
    Message { fields: &[("description", 1, FieldForm::Text), ("url", 2, FieldForm::Text)], extensions: 3 };

static COMPONENTS: Message = Message {
    fields: &[
        ("schemas", 1, FieldForm::Members(&FieldForm::OrReference(&SCHEMA))),
        ("responses", 2, FieldForm::Members(&FieldForm::OrReference(&RESPONSE))),
        ("parameters", 3, FieldForm::Members(&FieldForm::OrReference(&PARAMETER))),
        ("requestBodies", 5, FieldForm::Members(&FieldForm::OrReference(&REQUEST_BODY))),
        ("securitySchemes", 7, FieldForm::Members(&FieldForm::OrReference(&SECURITY_SCHEME))),
    ],
    extensions: 10,
};

static SECURITY_SCHEME: Message = Message {
    fields: &[
        ("type", 1, FieldForm::Text),
        ("description", 2, FieldForm::Text),
        ("name", 3, FieldForm::Text),
        ("in", 4, FieldForm::Text),
        ("scheme", 5, FieldForm::Text),
        ("bearerFormat", 6, FieldForm::Text),
        ("openIdConnectUrl", 8, FieldForm::Text),
    ],
    extensions: 9,
};

static PATH_ITEM: Message = Message {
    fields: &[
        ("$ref", 1, FieldForm::Text),
        ("summary", 2, FieldForm::Text),
        ("description", 3, FieldForm::Text),
        ("get", 4, FieldForm::Message(&OPERATION)),
        ("put", 5, FieldForm::Message(&OPERATION)),
        ("post", 6, FieldForm::Message(&OPERATION)),
        ("delete", 7, FieldForm::Message(&OPERATION)),
        ("options", 8, FieldForm::Message(&OPERATION)),
        ("head", 9, FieldForm::Message(&OPERATION)),
        ("patch", 10, FieldForm::Message(&OPERATION)),
        ("trace", 11, FieldForm::Message(&OPERATION)),
        ("servers", 12, FieldForm::Each(&FieldForm::Message(&SERVER))),
        ("parameters", 13, FieldForm::Each(&FieldForm::OrReference(&PARAMETER))),
    ],
    extensions: 14,
};

static OPERATION: Message = Message {
    fields: &[
        ("tags", 1, FieldForm::Each(&FieldForm::Text)),
        ("summary", 2, FieldForm::Text),
        ("description", 3, FieldForm::Text),
        ("externalDocs", 4, FieldForm::Message(&EXTERNAL_DOCS)),
        ("operationId", 5, FieldForm::Text),
        ("parameters", 6, FieldForm::Each(&FieldForm::OrReference(&PARAMETER))),
        ("requestBody", 7, FieldForm::OrReference(&REQUEST_BODY)),
        ("responses", 8, FieldForm::MembersAt(2, &FieldForm::OrReference(&RESPONSE))),
        ("deprecated", 10, FieldForm::Flag),
        ("security", 11, FieldForm::Each(&REQUIREMENT)),
        ("servers", 12, FieldForm::Each(&FieldForm::Message(&SERVER))),
    ],
    extensions: 13,
};

static PARAMETER: Message = Message {
    fields: &[
        ("name", 1, FieldForm::Text),
        ("in", 2, FieldForm::Text),
        ("description", 3, FieldForm::Text),
        ("required", 4, FieldForm::Flag),
        ("deprecated", 5, FieldForm::Flag),
        ("allowEmptyValue", 6, FieldForm::Flag),
        ("style", 7, FieldForm::Text),
        ("explode", 8, FieldForm::Flag),
        ("allowReserved", 9, FieldForm::Flag),
        ("schema", 10, FieldForm::OrReference(&SCHEMA)),
        ("example", 11, FieldForm::Any),
        ("content", 13, FieldForm::Members(&FieldForm::Message(&MEDIA_TYPE))),
    ],
    extensions: 14,
};

static REQUEST_BODY: Message = Message {
    fields: &[
        ("description", 1, FieldForm::Text),
        ("content", 2, FieldForm::Members(&FieldForm::Message(&MEDIA_TYPE))),
        ("required", 3, FieldForm::Flag),
    ],
    extensions: 4,
};

static RESPONSE: Message = Message {
    fields: &[
        ("description", 1, FieldForm::Text),
        ("content", 3, FieldForm::Members(&FieldForm::Message(&MEDIA_TYPE))),
    ],
    extensions: 5,
};

static MEDIA_TYPE: Message = Message {
    fields: &[("schema", 1, FieldForm::OrReference(&SCHEMA)), ("example", 2, FieldForm::Any)],
    extensions: 5,
};

static SCHEMA: Message = Message {
    fields: &[
        ("nullable", 1, FieldForm::Flag),
        ("readOnly", 3, FieldForm::Flag),
        ("writeOnly", 4, FieldForm::Flag),
        ("externalDocs", 6, FieldForm::Message(&EXTERNAL_DOCS)),
        ("example", 7, FieldForm::Any),
        ("deprecated", 8, FieldForm::Flag),
        ("title", 9, FieldForm::Text),
        ("multipleOf", 10, FieldForm::Number),
        ("maximum", 11, FieldForm::Number),
        ("exclusiveMaximum", 12, FieldForm::Flag),
        ("minimum", 13, FieldForm::Number),
        ("exclusiveMinimum", 14, FieldForm::Flag),
        ("maxLength", 15, FieldForm::Integer),
        ("minLength", 16, FieldForm::Integer),
        ("pattern", 17, FieldForm::Text),
        ("maxItems", 18, FieldForm::Integer),
        ("minItems", 19, FieldForm::Integer),
        ("uniqueItems", 20, FieldForm::Flag),
        ("maxProperties", 21, FieldForm::Integer),
        ("minProperties", 22, FieldForm::Integer),
        ("required", 23, FieldForm::Each(&FieldForm::Text)),
        ("enum", 24, FieldForm::Each(&FieldForm::Any)),
        ("type", 25, FieldForm::Text),
        ("allOf", 26, FieldForm::Each(&FieldForm::OrReference(&SCHEMA))),
        ("oneOf", 27, FieldForm::Each(&FieldForm::OrReference(&SCHEMA))),
        ("anyOf", 28, FieldForm::Each(&FieldForm::OrReference(&SCHEMA))),
        ("not", 29, FieldForm::Message(&SCHEMA)),
        ("items", 30, FieldForm::Wrapped(&FieldForm::OrReference(&SCHEMA))),
        ("properties", 31, FieldForm::Members(&FieldForm::OrReference(&SCHEMA))),
        ("additionalProperties", 32, FieldForm::SchemaOrReferenceOrFlag(&SCHEMA)),
        ("default", 33, FieldForm::Default),
        ("description", 34, FieldForm::Text),
        ("format", 35, FieldForm::Text),
    ],
    extensions: 36,
};

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[track_caller]
    fn check(message: &Message, value: &Value, expected: &[u8]) {
        assert_eq!(message.content(value), expected, "{value}");
    }

    #[test]
    fn a_schema_is_a_message_or_a_reference_wherever_it_stands() {
        check(&SCHEMA, &json!({ "items": { "$ref": "#/x" } }), b"\xf2\x01\x09\x0a\x07\x12\x05\x0a\x03#/x");
        check(&SCHEMA, &json!({ "additionalProperties": false }), b"\x82\x02\x02\x10\x00");
        check(
            &SCHEMA,
            &json!({ "additionalProperties": { "type": "a" } }),
            b"\x82\x02\x08\x0a\x06\x0a\x04\xca\x01\x01a",
        );
        check(&MEDIA_TYPE, &json!({ "schema": { "$ref": "#/x" } }), b"\x0a\x07\x12\x05\x0a\x03#/x");
    }

    #[test]
    fn defaults_are_scalars_and_zero_ones_are_written() {
        check(&SCHEMA, &json!({ "default": false }), b"\x8a\x02\x02\x10\x00");
        check(&SCHEMA, &json!({ "default": "a" }), b"\x8a\x02\x03\x1a\x01a");
        check(&SCHEMA, &json!({ "default": 0 }), b"\x8a\x02\x09\x09\x00\x00\x00\x00\x00\x00\x00\x00");
        check(&SCHEMA, &json!({ "default": {} }), b"\x8a\x02\x00");
    }

    #[test]
    fn answers_stand_by_their_codes() {
        let operation = json!({ "responses": { "200": { "description": "OK" } } });
        check(&OPERATION, &operation, b"\x42\x0f\x12\x0d\x0a\x03200\x12\x06\x0a\x04\x0a\x02OK");
    }

    #[test]
    fn a_member_without_a_field_is_left_out() {
        check(&SCHEMA, &json!({ "unheard": 1, "type": "a" }), b"\xca\x01\x01a");
    }
}
