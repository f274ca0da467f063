//! A fault in a value of a built-in kind: its path, the type that the schema expects, and the type of the value.
//!
//! The first fault makes the whole request fail with a 400. Its text is formatted on demand. Faults in custom resources
//! become causes of a 422, and are in `structural`.

use std::fmt;

use keelson_meta::go_format;
use keelson_meta::json::ValueKind;

use crate::layout::Type;

/// A value that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The path as the decoder of the built-in kinds formats it: the type that declares the innermost field, then the
    /// names of all fields, without indexes and map keys.
    pub(crate) decoder_path: String,
}

/// The kinds of faults in a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// The value is of another JSON type than its schema allows, or is a number out of the range of its type.
    Type {
        /// The type in the schema.
        expected: Type,
        /// The Go type in the decoder's message, such as `map[string]string`.
        go_type: String,
        /// The JSON type of the value.
        found: ValueKind,
    },
    /// The value is of the right JSON type but can't be parsed: a quantity, a time or bytes.
    Unreadable {
        /// The type in the schema.
        expected: Type,
        /// The message of the type's parser.
        why: String,
    },
}

impl Fault {
    /// The message of the decoder of the built-in kinds, such as
    /// `json: cannot unmarshal number into Go struct field ConfigMap.data of type string`.
    pub fn decoder_text(&self) -> String {
        match &self.kind {
            FaultKind::Type { go_type, found, .. } => go_format::type_error(&self.decoder_path, found, go_type),
            FaultKind::Unreadable { why, .. } => why.clone(),
        }
    }

    /// The message of upstream's converter from trees to objects, which reads the result of a strategic merge patch.
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
            // These types have their own decoders.
            (Type::IntOrString | Type::Quantity | Type::Time | Type::MicroTime, _) => self.decoder_text(),
        }
    }
}

/// Formats the fault as [`Fault::decoder_text`] does.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.decoder_text())
    }
}
