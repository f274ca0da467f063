//! The errors of reading a body in protobuf, and of writing an object as one.
//!
//! A fault in bytes says at which offset and in which message it is. What a client reads of it is decided above.

use thiserror::Error;

/// Why an object could not be read from protobuf, or written to it. Trying again does not help.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ProtobufError {
    /// The body does not begin with the four bytes that every object begins with.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// The envelope names no kind, and neither does the request.
    #[error("the protobuf message names no kind or no apiVersion")]
    NoKind,
    /// No built-in kind has this name.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownKind {
        /// The apiVersion asked for.
        api_version: String,
        /// The kind asked for.
        kind: String,
    },
    /// The object inside the envelope is compressed, or is not protobuf.
    #[error("the protobuf message carries content that is not understood: {0:?}")]
    UnknownContent(String),
    /// The bytes are not a message of this shape.
    #[error("protobuf: {at}: {fault}")]
    Malformed {
        /// Message and field.
        at: String,
        /// What is wrong.
        fault: WireFault,
    },
    /// The JSON tree does not have the shape of the kind.
    #[error("{at}: cannot write {found} as {wanted}")]
    WrongType {
        /// Message and field.
        at: String,
        /// What the message wants.
        wanted: &'static str,
        /// What the tree has.
        found: String,
    },
    /// What should be written is not a JSON object.
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

/// What can be wrong with bytes that should be a message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum WireFault {
    /// The bytes end within a field.
    #[error("unexpected EOF")]
    Truncated,
    /// A variable-length integer of more than 64 bits.
    #[error("integer overflow")]
    Overflow,
    /// A field number of 0 or beyond 2^29, or a wire type that does not exist (groups are not used).
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
    /// An int-or-string that is neither.
    #[error("impossible IntOrString.Type")]
    IntOrString,
    /// A floating-point number that JSON cannot write.
    #[error("unsupported value: not a finite number")]
    NotFinite,
    /// Embedded JSON that is not JSON, or nests too deep.
    #[error("invalid embedded JSON")]
    Json,
}
