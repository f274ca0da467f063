//! Values as queries see them: scalars of an object, read from its bytes without a tree.
//!
//! The `resourceVersion` stands beside the bytes of a stored object and is read from there.

use std::borrow::Cow;

use keelson_meta::Revision;

use crate::path::Path;

/// An object whose values are read.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its bytes in compact JSON. The `resourceVersion` may be missing.
    pub json: &'a [u8],
    /// Its `resourceVersion`.
    pub revision: Revision,
}

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written.
    Number(Cow<'a, str>),
    /// A text.
    Text(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// The scalar of a JSON text; `None` for null, lists and objects.
    pub fn of(json: &'a [u8]) -> Option<Self> {
        match json.first()? {
            b't' => Some(Self::Bool(true)),
            b'f' => Some(Self::Bool(false)),
            b'n' | b'{' | b'[' => None,
            b'"' => keelson_codec::cursor::Cursor::new(json, 0).scalar().map(Self::Text),
            _ => Some(Self::Number(String::from_utf8_lossy(json))),
        }
    }

    /// How it is written without quotes.
    pub fn text(&self) -> &str {
        match self {
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

impl<'a> Subject<'a> {
    /// Hands each scalar that a path leads to to `found`, which says whether it wants more.
    pub fn visit(&self, path: &Path, mut found: impl FnMut(Value<'a>) -> bool) {
        if path.is_revision() {
            // It stands beside the bytes. Clients may not look into it, but an order by it is that of the writes.
            found(Value::Number(self.revision.to_string().into()));
            return;
        }
        path.visit(self.json, |json| Value::of(json).is_none_or(&mut found));
    }
}
