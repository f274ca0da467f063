//! Encodes objects canonically.
//!
//! The encoder records the extents of the members of the object, of its metadata and of its other parts, so that later
//! readers can skip them. Deeper values get no extents.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value};

use super::{DETAILS, IDENTITY, MANAGED_FIELDS, METADATA_START, NEVER_STORED, write_header};
use crate::cursor::Extents;
use crate::json;

/// The number of levels below the object's own whose members are recorded: the members of `spec` are, those of
/// `spec.template` are not.
const LEVELS: usize = 1;

/// The text of an object and its extents. Reused for the next object.
#[derive(Default)]
pub(super) struct Canonical {
    pub(super) text: Vec<u8>,
    pub(super) extents: Extents,
    /// True before the first member of the current object.
    first: bool,
}

impl Canonical {
    /// Clears the text and extents.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.extents.clear();
    }

    /// Clears the text and extents, and frees memory beyond this number of bytes of each.
    pub(super) fn keep_at_most(&mut self, bytes: usize) {
        self.clear();
        self.text.shrink_to(bytes);
        self.extents.shrink_to(bytes);
    }

    /// Encodes an object into an empty text and returns the offsets of its metadata and resourceVersion.
    pub(super) fn write(&mut self, object: &Object, managed_fields: Option<&str>) -> (usize, usize) {
        write_header(&mut self.text, object.kind().unwrap_or_default(), object.api_version().unwrap_or_default());
        let body = self.text.len();
        self.text.extend_from_slice(METADATA_START);
        let nothing = Map::new();
        self.extents.open(self.text.len());
        self.text.push(b'{');
        self.first = true;
        let splice = self.metadata(object.metadata().unwrap_or(&nothing), managed_fields);
        self.text.push(b'}');
        self.extents.close(self.text.len());
        self.first = false;
        for (key, value) in &object.0 {
            if !matches!(key, "kind" | "apiVersion" | "metadata") {
                self.key(key);
                self.value(value, LEVELS);
            }
        }
        self.text.push(b'}');
        (body, splice)
    }

    /// Writes the fields of the metadata and returns the offset of the resourceVersion.
    fn metadata(&mut self, metadata: &Map, managed_fields: Option<&str>) -> usize {
        let managed_fields = managed_fields.filter(|_| !metadata.contains_key(MANAGED_FIELDS));
        self.known(&IDENTITY, metadata, managed_fields);
        let splice = self.text.len();
        self.known(&DETAILS, metadata, managed_fields);
        for (name, value) in metadata {
            if !IDENTITY.contains(&name) && !DETAILS.contains(&name) && !NEVER_STORED.contains(&name) {
                self.key(name);
                self.value(value, 0);
            }
        }
        splice
    }

    /// Writes those of these fields that are present.
    fn known(&mut self, names: &[&str], metadata: &Map, managed_fields: Option<&str>) {
        for name in names {
            if let Some(text) = managed_fields.filter(|_| *name == MANAGED_FIELDS) {
                self.key(name);
                self.extents.open(self.text.len());
                self.text.extend_from_slice(text.as_bytes());
                self.extents.close(self.text.len());
            } else if let Some(value) = metadata.get(name) {
                self.key(name);
                self.value(value, 0);
            }
        }
    }

    fn key(&mut self, key: &str) {
        if !self.first {
            self.text.push(b',');
        }
        self.first = false;
        json::write_string(key, &mut self.text);
        self.text.push(b':');
    }

    /// Writes a value, with extents for this number of levels of members.
    fn value(&mut self, value: &Value, levels: usize) {
        if !matches!(value, Value::Object(_) | Value::Array(_)) {
            return json::write(value, &mut self.text);
        }
        self.extents.open(self.text.len());
        match value {
            Value::Object(members) if levels > 0 => {
                self.text.push(b'{');
                self.first = true;
                for (key, value) in members {
                    self.key(key);
                    self.value(value, levels - 1);
                }
                self.text.push(b'}');
                self.first = false;
            }
            _ => json::write(value, &mut self.text),
        }
        self.extents.close(self.text.len());
    }
}
