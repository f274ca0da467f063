//! Parses YAML text into value trees, and formats trees as YAML, as `sigs.k8s.io/yaml` does.
//!
//! Kubernetes uses YAML 1.1 as understood by `go-yaml` v2: `yes` is a boolean, `0644` is octal, and keys have a natural
//! order. Clients' files depend on that, so the rules of [`scalar`] and the layout of the writer are the same here.
//! Three features are refused:
//!
//! - aliases, with which a short text can represent a huge one
//! - merge keys, which are of no use without aliases
//! - more than one document; upstream reads the first and drops the others

use std::fmt;

use keelson_meta::json::Value;

use crate::json::Parsed;

mod emit;
mod glance;
mod list;
mod order;
mod read;
mod scalar;
mod scan;
mod style;
mod tape;
mod text;

pub use list::ListWriter;

/// The reason why a text is not a YAML object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct YamlError {
    /// The line, counted from one. 0 if unknown.
    pub line: usize,
    /// The fault.
    pub problem: String,
}

impl fmt::Display for YamlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "yaml: {}", self.problem),
            line => write!(f, "yaml: line {line}: {}", self.problem),
        }
    }
}

impl std::error::Error for YamlError {}

/// Parses the only document of a text. An empty text is null. Keys that are not strings are converted to strings.
///
/// # Errors
/// Text that is not UTF-8 or not YAML, a second document, aliases, anchors and merge keys, numbers JSON cannot
/// represent, and nesting deeper than [`MAX_DEPTH`](crate::json::MAX_DEPTH).
pub fn parse(bytes: &[u8]) -> Result<Parsed, YamlError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = 1 + bytes[..error.valid_up_to()].iter().filter(|&&byte| byte == b'\n').count();
        YamlError { line, problem: "invalid UTF-8".to_owned() }
    })?;
    read::document(text)
}

/// Block-style YAML with sorted keys, ending in a line break.
pub fn to_vec(value: &Value) -> Vec<u8> {
    from_json(&crate::json::to_vec(value))
}

/// Block-style YAML for a terminal. Bidirectional controls, which `go-yaml` prints literally, are escaped. It parses to
/// the same value.
pub fn to_vec_for_terminals(value: &Value) -> Vec<u8> {
    let compact = crate::json::to_vec(value);
    emit::Emitter::document_for_terminals(tape::Tape::read(std::str::from_utf8(&compact).unwrap_or_default()))
}

/// Block-style YAML from compact JSON, without a value tree. The text must be valid.
pub fn from_json(compact: &[u8]) -> Vec<u8> {
    let tape = tape::Tape::read(std::str::from_utf8(compact).unwrap_or_default());
    emit::Emitter::document(tape, Vec::with_capacity(compact.len() * 3 / 2))
}

/// As [`from_json`]. `None` if the document has more than about `most` bytes: deep nesting makes it hundreds of times as
/// long as its JSON.
pub fn from_json_within(compact: &[u8], most: usize) -> Option<Vec<u8>> {
    let tape = tape::Tape::read(std::str::from_utf8(compact).unwrap_or_default());
    let mut out = Vec::with_capacity(compact.len() * 3 / 2);
    emit::Emitter::document_within(tape, most, &mut out).then_some(out)
}

/// Writes block-style YAML in pieces, for deeply nested documents that take hundreds of times the memory of their JSON.
#[derive(Debug)]
pub struct Pieces(emit::Emitter<Box<str>>);

impl Pieces {
    /// Begins a document.
    pub fn of_json(compact: &[u8]) -> Self {
        let text = std::str::from_utf8(compact).unwrap_or_default();
        Self(emit::Emitter::of_document(tape::Tape::read(text.into()), Vec::new()))
    }

    /// The next piece, of at least `length` bytes unless it is the last.
    pub fn next(&mut self, length: usize) -> Option<Vec<u8>> {
        self.0.piece(length)
    }

    /// The approximate memory of a document that is written in pieces, in bytes.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}
