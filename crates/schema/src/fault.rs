//! A fault in a value, as data: where it stands, what its schema expects, and what was found.
//!
//! A fault is worded in two ways. The decoder of the built-in kinds reports one text for a whole object, which becomes a 400;
//! custom resources are told of every fault as a field error, which become the causes of a 422. Neither is worded before
//! somebody asks for it.

use std::fmt;

use keelson_meta::field_error::FieldError;
use keelson_meta::go_format;
use keelson_meta::json::ValueKind;

use crate::layout::Type;

/// A value that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where the value stands: `spec.containers[0].image`.
    pub path: String,
    /// What is wrong with it.
    pub kind: FaultKind,
    /// The path as the decoder of the built-in kinds gives it: the type that declares the innermost field, then the names of
    /// all fields, without indexes and map keys.
    pub(crate) decoder_path: String,
}

/// What is wrong with a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It is of another JSON type than its schema allows, or a number out of the range of its type.
    Type {
        /// What the schema allows.
        expected: Type,
        /// The name that the decoder of the built-in kinds has for what it expects, such as `map[string]string`.
        go_type: String,
        /// What was found.
        found: ValueKind,
    },
    /// It is of the right JSON type but can't be read: a quantity, a time or bytes.
    Unreadable {
        /// What the schema allows.
        expected: Type,
        /// Why not, as the type's own reader words it.
        why: String,
    },
}

impl Fault {
    /// The fault as the decoder of the built-in kinds words it, such as
    /// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
    pub fn decoder_text(&self) -> String {
        match &self.kind {
            FaultKind::Type { go_type, found, .. } => go_format::type_error(&self.decoder_path, found, go_type),
            FaultKind::Unreadable { why, .. } => why.clone(),
        }
    }

    /// The fault as upstream words it where it makes an object out of a tree rather than of a text, as it does of what a
    /// strategic merge patch leaves.
    pub fn converter_text(&self) -> String {
        let FaultKind::Type { expected, go_type, found } = &self.kind else { return self.decoder_text() };
        let kind = match found {
            ValueKind::Null => "invalid",
            ValueKind::Boolean => "bool",
            ValueKind::Integer(_) => "int64",
            ValueKind::Number(_) => "float64",
            ValueKind::String => "string",
            ValueKind::Array => "slice",
            ValueKind::Object => "map",
        };
        match (expected, found) {
            (Type::Object | Type::Either | Type::Any, _) => format!("cannot restore struct from: {kind}"),
            (Type::Map, _) => format!("cannot restore map from {kind}"),
            (Type::Array | Type::Bytes, _) => format!("cannot restore slice from {kind}"),
            (Type::String, ValueKind::Integer(_)) | (Type::Int32 | Type::Int64, ValueKind::Number(_)) => {
                format!("cannot convert {kind} to {go_type}")
            }
            (Type::String, _) => "unrecognized type: string".to_owned(),
            (Type::Int32, _) => "unrecognized type: int32".to_owned(),
            (Type::Int64, _) => "unrecognized type: int64".to_owned(),
            (Type::Number, _) => "unrecognized type: float64".to_owned(),
            (Type::Boolean, _) => "unrecognized type: bool".to_owned(),
            // These read themselves.
            (Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime, _) => self.decoder_text(),
        }
    }

    /// The fault as one of the causes of a 422, as objects of custom resources are judged.
    pub fn field_error(&self) -> FieldError {
        match &self.kind {
            FaultKind::Type { expected, found, .. } => {
                let (path, wanted) = (&self.path, schema_type(*expected));
                let detail = format!("{path} in body must be of type {wanted}: {}", go_format::quote(found.name()));
                FieldError::type_invalid(&*self.path, found.name(), detail)
            }
            FaultKind::Unreadable { why, .. } => FieldError::invalid_unshown(&*self.path, &**why),
        }
    }
}

/// As the decoder of the built-in kinds words it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.decoder_text())
    }
}

/// The name that JSON schemas have for what a schema allows.
fn schema_type(of: Type) -> &'static str {
    match of {
        Type::Any => "any",
        Type::Object | Type::Map | Type::Either => "object",
        Type::Array => "array",
        Type::String | Type::Quantity | Type::Time | Type::MicroTime | Type::Bytes => "string",
        Type::Int32 | Type::Int64 => "integer",
        Type::Number => "number",
        Type::Boolean => "boolean",
        Type::IntOrString => "integer,string",
    }
}
