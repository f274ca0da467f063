//! The frame around the items of a list in YAML.
//!
//! The keys of a document are sorted, so the metadata comes after the items: `apiVersion`, `items`, `kind`, `metadata`.
//! Items are written one by one, so that a list never has to be a value tree as a whole.

use serde_json::{Value, json};

use super::emit::Emitter;
use crate::list::ListHead;

/// Writes a list item by item. What it appends, taken together, is the document `sigs.k8s.io/yaml` would print.
#[derive(Clone, Debug)]
pub struct ListWriter {
    /// What stands after the items.
    tail: Vec<u8>,
    empty: bool,
}

impl ListWriter {
    /// Appends what stands before the items.
    pub fn start(head: &ListHead<'_>, out: &mut Vec<u8>) -> Self {
        out.extend_from_slice(&super::to_vec(&json!({ "apiVersion": head.api_version })));
        let mut metadata = json!({ "resourceVersion": head.revision.to_string() });
        if let Some(token) = head.continue_token {
            metadata["continue"] = token.into();
        }
        if let Some(remaining) = head.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        let tail = super::to_vec(&json!({ "kind": head.kind, "metadata": metadata }));
        Self { tail, empty: true }
    }

    /// Appends an item.
    pub fn item(&mut self, item: &Value, out: &mut Vec<u8>) {
        if self.empty {
            out.extend_from_slice(b"items:\n");
            self.empty = false;
        }
        let mut emitter = Emitter::new();
        emitter.item(item);
        out.extend_from_slice(&emitter.into_bytes());
    }

    /// Appends what stands after the items.
    pub fn finish(self, out: &mut Vec<u8>) {
        if self.empty {
            out.extend_from_slice(b"items: []\n");
        }
        out.extend_from_slice(&self.tail);
    }
}
