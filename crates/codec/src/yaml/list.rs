//! The text of a YAML list around its items.
//!
//! The keys of a document are sorted, so the metadata comes after the items: `apiVersion`, `items`, `kind`, `metadata`.
//! In a table, the rows come last. Items are written one by one, so that no value tree of the whole list is built.

use keelson_meta::json::{Map, Value};

use super::emit::Emitter;
use super::tape::Tape;
use super::{Pieces, order};

/// Writes a list item by item. The concatenated output is the document of `sigs.k8s.io/yaml`. Writing does not change
/// the writer, so parts of a list can be written in parallel.
#[derive(Clone, Debug)]
pub struct ListWriter {
    /// The key of the items.
    key: String,
    /// The text after the items.
    tail: Vec<u8>,
}

impl ListWriter {
    /// Appends the text before the items. `head` is compact JSON up to and including the opening bracket of the items,
    /// its last member.
    pub fn start(head: &[u8], out: &mut Vec<u8>) -> Self {
        let mut members: Map = serde_json::from_slice(&[head, b"]}"].concat()).unwrap_or_default();
        let key = members.keys().next_back().unwrap_or_default().to_owned();
        members.remove(&key);
        let (before, after): (Map, Map) = members.into_iter().partition(|(name, _)| order::natural(name, &key).is_lt());
        out.extend_from_slice(&document(before));
        Self { key, tail: document(after) }
    }

    /// Appends an item, given as compact JSON, if it has at most about `most` bytes. Returns true if it does, and
    /// leaves `out` unchanged otherwise. `first` marks the first item.
    pub fn item_within(&self, compact: &[u8], first: bool, most: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        self.begin(first, out);
        let tape = Tape::read(std::str::from_utf8(compact).unwrap_or_default());
        let is_written = Emitter::item_within(tape, most, out);
        if !is_written {
            out.truncate(start);
        }
        is_written
    }

    /// The pieces of an item, given as compact JSON.
    pub fn pieces(&self, compact: &[u8], first: bool) -> Pieces {
        let mut out = Vec::new();
        self.begin(first, &mut out);
        let text = std::str::from_utf8(compact).unwrap_or_default();
        Pieces(Emitter::of_item(Tape::read(text.into()), out))
    }

    fn begin(&self, first: bool, out: &mut Vec<u8>) {
        if first {
            out.extend_from_slice(self.key.as_bytes());
            out.extend_from_slice(b":\n");
        }
    }

    /// Appends the end. `empty` marks a list without items.
    pub fn finish(&self, empty: bool, out: &mut Vec<u8>) {
        if empty {
            out.extend_from_slice(self.key.as_bytes());
            out.extend_from_slice(b": []\n");
        }
        out.extend_from_slice(&self.tail);
    }
}

/// Formats these members as a document. Empty without members.
fn document(members: Map) -> Vec<u8> {
    if members.is_empty() { Vec::new() } else { super::to_vec(&Value::Object(members)) }
}
