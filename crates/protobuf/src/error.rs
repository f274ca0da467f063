//! Errors of decoding protobuf bodies and encoding objects.
//!
//! A fault in the bytes names its message and field. Callers choose the text for clients.

use thiserror::Error;

/// The reason why an object could not be decoded or encoded. A retry does not help.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The body does not begin with the prefix of objects.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// The body has no kind: the envelope lacks it, and so does the request.
    #[error("the protobuf message names no kind or no apiVersion")]
    NoKind,
    /// No built-in kind has this name.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind {
        /// The requested apiVersion.
        api_version: String,
        /// The requested kind.
        kind: String,
    },
    /// The object in the envelope is compressed, or is not protobuf.
    #[error("the protobuf message has unsupported content: {0:?}")]
    UnknownContent(String),
    /// The bytes are not a message of the expected shape.
    #[error("protobuf: {at}: {fault}")]
    Malformed {
        /// Message and field.
        at: String,
        /// The fault.
        fault: WireFault,
    },
    /// The JSON tree does not have the shape of the kind.
    #[error("{at}: cannot write {found} as {wanted}")]
    WrongType {
        /// Message and field.
        at: String,
        /// The type of the field.
        wanted: &'static str,
        /// The value in the JSON.
        found: String,
    },
    /// The input is not a JSON object.
    #[error("not a JSON object: {0}")]
    NotJson(String),
    /// Messages nest deeper than the server reads.
    #[error("protobuf: {at}: messages nest deeper than {limit}")]
    TooDeep {
        /// Message and field.
        at: String,
        /// The limit.
        limit: usize,
    },
    /// The object has more values than the server reads.
    #[error("protobuf: the object has more than {limit} values")]
    TooManyValues {
        /// The limit.
        limit: usize,
    },
}

/// The reason why bytes are not a valid protobuf message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireFault {
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A variable-length integer of more than 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A field number of 0 or above 2^29 - 1, or a wire type that does not exist. Groups are not supported.
    #[error("illegal tag")]
    IllegalTag,
    /// The field has another wire type.
    #[error("wrong wire type")]
    WrongWireType,
    /// A string that is not UTF-8.
    #[error("invalid UTF-8")]
    InvalidUtf8,
    /// A time outside the years 0 to 9999.
    #[error("time out of range")]
    TimeOutOfRange,
    /// An int-or-string that is neither an integer nor a string.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// A floating-point number that JSON cannot represent.
    #[error("unsupported value: not a finite number")]
    NotFinite,
    /// Embedded JSON that is not JSON, or nests too deep.
    #[error("invalid embedded JSON")]
    Json,
}
