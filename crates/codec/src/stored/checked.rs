//! A stored object with the extents of its text.
//!
//! Stored bytes are read several times: for the offsets, for selected fields, for missing defaults. Validation reads
//! every byte and records the end of each array and object, so that later readers can skip them. Encoding an object
//! records the extents that its later readers need.

use std::sync::Arc;

use bytes::Bytes;
use keelson_meta::Object;
use keelson_meta::json::Value;

use super::{DecodeError, ENCRYPTED_START, FieldPath, StoredObject, Summary, find_marks, summary, written};
use crate::cursor::{Cursor, Extents};
use crate::{json, syntax};

/// A just parsed or encoded object, and the extents of its text.
#[derive(Clone, Debug)]
pub struct ParsedObject {
    object: StoredObject,
    extents: Extents,
}

impl ParsedObject {
    /// Decodes stored bytes, as [`StoredObject::parse`] does.
    ///
    /// # Errors
    /// Bytes that are neither a JSON object nor a built-in kind in protobuf.
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

    /// Encodes the object, as [`StoredObject::encode_with`] does.
    pub fn encode_with(object: &Object, managed_fields: Option<&str>) -> Self {
        let (object, extents) = written(object, managed_fields, Extents::clone);
        Self { object, extents }
    }

    /// The object.
    pub fn object(&self) -> &StoredObject {
        &self.object
    }

    /// The memory in bytes.
    pub fn memory(&self) -> usize {
        self.object.bytes.len() + self.extents.memory()
    }

    /// The object with its repeated parts shared: `keep` receives the text of each such part and returns the shared
    /// copy. The object's offsets then refer to the [skeleton](StoredObject::skeleton).
    pub fn shared(&self, keep: impl FnMut(&[u8]) -> Arc<[u8]>) -> StoredObject {
        self.object.cut(self.cursor(), keep).unwrap_or_else(|| self.object.clone())
    }

    /// The object without the extents.
    pub fn into_object(self) -> StoredObject {
        self.object
    }

    /// A cursor at the start of the object's text.
    pub fn cursor(&self) -> Cursor<'_> {
        Cursor::over(&self.object.bytes, 0, &self.extents)
    }

    /// As [`StoredObject::summary`].
    ///
    /// # Errors
    /// A field of the metadata has a type that no stored object has.
    pub fn summary(&self, fields: &[FieldPath]) -> Result<Summary<'_>, DecodeError> {
        summary::read(Cursor::over(&self.object.bytes, self.object.body as usize, &self.extents), fields)
    }
}

/// Computes the extents of an object encoded here, without validation.
impl From<StoredObject> for ParsedObject {
    fn from(object: StoredObject) -> Self {
        let extents = syntax::check(&object.bytes).map(|layout| layout.extents).unwrap_or_default();
        Self { object, extents }
    }
}
