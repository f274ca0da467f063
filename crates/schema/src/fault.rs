//! A fault in a value of a built-in kind, as data: where it stands, what its schema expects, and what was found.
//!
//! The decoder of the built-in kinds reports one text for a whole object, which becomes a 400 and is not worded before somebody asks
//! for it. The faults of custom resources, which become the causes of a 422, are those of `structural`.

use std::fmt;

use keelson_meta::go_format;
use keelson_meta::json::ValueKind;

use crate::layout::Type;

/// A value that does not fit its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
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
}

/// As the decoder of the built-in kinds words it.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.decoder_text())
    }
}
