//! A stored object with what the check of its text has told of it.
//!
//! Whoever takes bytes from a store looks into them several times: for the marks, for what is selected by, for what they
//! lack. The check, which reads every byte anyway, notes where each array and object ends, so that the others step over
//! what they don't look at. Who writes an object notes as much of it as is looked for in what one has written oneself.

use std::sync::Arc;

use bytes::Bytes;
use keelson_meta::Object;
use keelson_meta::json::Value;

use super::{DecodeError, ENCRYPTED_START, FieldPath, StoredObject, Summary, find_marks, summary, written};
use crate::cursor::{Cursor, Extents};
use crate::{json, syntax};

/// An object that was just read or written, and where things in its text end.
#[derive(Clone, Debug)]
pub struct Checked {
    object: StoredObject,
    extents: Extents,
}

impl Checked {
    /// Takes bytes that were stored, as [`StoredObject::parse`] does.
    ///
    /// # Errors
    /// When the bytes are neither a JSON object nor a built-in kind in protobuf.
    pub fn parse(bytes: Bytes) -> Result<Self, DecodeError> {
        if bytes.starts_with(&keelson_protobuf::PREFIX) {
            return Ok(StoredObject::encode(&keelson_protobuf::decode(&bytes)?.object).into());
        }
        if bytes.starts_with(ENCRYPTED_START) {
            return Err(DecodeError::Encrypted);
        }
        let layout = syntax::check(&bytes)?;
        if layout.compact
            && let Some((body, splice)) = find_marks(&bytes, &layout.extents)
        {
            return Ok(Self { object: StoredObject::with_marks(bytes, body, splice), extents: layout.extents });
        }
        match json::parse(&bytes)?.value {
            Value::Object(map) => Ok(StoredObject::encode(&Object(map)).into()),
            _ => Err(DecodeError::NotAnObject),
        }
    }

    /// Writes the object as [`StoredObject::encode_with`] does.
    pub fn encode_with(object: &Object, managed_fields: Option<&str>) -> Self {
        let (object, extents) = written(object, managed_fields, Extents::clone);
        Self { object, extents }
    }

    /// The object.
    pub fn object(&self) -> &StoredObject {
        &self.object
    }

    /// How many bytes this takes.
    pub fn memory(&self) -> usize {
        self.object.bytes.len() + self.extents.memory()
    }

    /// The object without its own copy of what others have, too: `keep` is shown each such text and gives the one that is kept of
    /// it. Places in the text are others in the [skeleton](StoredObject::skeleton).
    pub fn shared(&self, keep: impl FnMut(&[u8]) -> Arc<[u8]>) -> StoredObject {
        self.object.cut(self.cursor(), keep).unwrap_or_else(|| self.object.clone())
    }

    /// The object alone.
    pub fn into_object(self) -> StoredObject {
        self.object
    }

    /// At the beginning of the object's text.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::over(&self.object.bytes, 0, &self.extents)
    }

    /// As [`StoredObject::summary`].
    ///
    /// # Errors
    /// When a field of the metadata has a type that no stored object has.
    pub fn summary(&self, fields: &[FieldPath]) -> Result<Summary<'_>, DecodeError> {
        summary::read(Cursor::over(&self.object.bytes, self.object.body as usize, &self.extents), fields)
    }
}

/// Of an object that was written here: its text is valid and only looked through.
impl From<StoredObject> for Checked {
    fn from(object: StoredObject) -> Self {
        let extents = syntax::check(&object.bytes).map(|layout| layout.extents).unwrap_or_default();
        Self { object, extents }
    }
}
