//! The values of a query: scalars of an object, read from its bytes without a tree.
//!
//! The bytes of a stored object lack `resourceVersion`, so its value comes from the revision.

use std::borrow::Cow;

use keelson_codec::stored::Marks;
use keelson_meta::Revision;

use crate::cells::Cells;
use crate::path::Path;

/// An object whose values are read.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The compact JSON of the object. `resourceVersion` may be missing.
    pub json: &'a [u8],
    /// Its `resourceVersion`.
    pub revision: Revision,
    /// The known offsets of its parts.
    marks: Marks,
    /// The cells of its row in a table.
    cells: Option<&'a dyn Cells>,
}

/// A scalar.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// `true` or `false`.
    Bool(bool),
    /// A number, as it is written in the JSON.
    Number(Cow<'a, str>),
    /// A text.
    Text(Cow<'a, str>),
}

impl<'a> Value<'a> {
    /// The scalar of a JSON text. `None` for null, lists and objects.
    pub fn from_json(json: &'a [u8]) -> Option<Self> {
        match json.first()? {
            b't' => Some(Self::Bool(true)),
            b'f' => Some(Self::Bool(false)),
            b'n' | b'{' | b'[' => None,
            b'"' => keelson_codec::cursor::Cursor::new(json, 0).scalar().map(Self::Text),
            _ => Some(Self::Number(String::from_utf8_lossy(json))),
        }
    }

    /// The text without quotes.
    pub fn text(&self) -> &str {
        match self {
            Self::Bool(true) => "true",
            Self::Bool(false) => "false",
            Self::Number(text) | Self::Text(text) => text,
        }
    }
}

impl<'a> Subject<'a> {
    /// An object without known offsets.
    pub fn new(json: &'a [u8], revision: Revision) -> Self {
        Self { json, revision, marks: Marks::default(), cells: None }
    }

    /// Returns the object with the cells of its row.
    #[must_use]
    pub fn with_cells(self, cells: &'a dyn Cells) -> Self {
        Self { cells: Some(cells), ..self }
    }

    /// The cell of a column.
    pub(crate) fn cell(&self, column: &str) -> Option<Value<'a>> {
        self.cells?.cell(column)
    }

    /// Returns the object with known offsets of its parts.
    #[must_use]
    pub fn marked(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    /// The known offsets of its parts.
    pub(crate) const fn marks(&self) -> Marks {
        self.marks
    }

    /// Calls `found` with the JSON text of each value at a path until it returns false.
    ///
    /// Cost: a walk over the object's part with the path, up to the last value.
    pub(crate) fn visit_json(&self, path: &Path, found: impl FnMut(&'a [u8]) -> bool) {
        path.visit_marked(self.json, self.marks, found);
    }

    /// Calls `found` with each scalar at a path until it returns false.
    pub fn visit(&self, path: &Path, mut found: impl FnMut(Value<'a>) -> bool) {
        if path.is_revision() {
            // The revision is not in the bytes. Clients must treat it as opaque, but sorting by it gives the order of
            // writes.
            found(Value::Number(self.revision.to_string().into()));
            return;
        }
        self.visit_json(path, |json| Value::from_json(json).is_none_or(&mut found));
    }
}

#[cfg(test)]
mod tests {
    use keelson_codec::StoredObject;

    use super::*;

    #[test]
    fn a_path_skips_the_parts_before_it() {
        let text = concat!(
            r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"spec":"x"}},"#,
            r#""spec":{"status":{"phase":"no"},"nodeName":"n"},"data":[1],"status":{"phase":"Running"}}"#
        );
        let stored = StoredObject::parse(text.to_owned().into()).unwrap();
        let marks = stored.summary(&[]).unwrap().marks;
        let check = |json: &str, path: &str, expect: &[&str]| {
            let path = Path::parse("path", path).unwrap();
            let mut found = Vec::new();
            Subject::new(json.as_bytes(), Revision::ZERO).marked(marks).visit(&path, |value| {
                found.push(value.text().to_owned());
                true
            });
            assert_eq!(found, expect, "{path} of {json}");
        };
        for (path, expect) in [
            ("status.phase", &["Running"][..]),
            ("spec.nodeName", &["n"]),
            ("metadata.labels.spec", &["x"]),
            ("kind", &["Pod"]),
            ("data[0]", &["1"]),
            ("none", &[]),
        ] {
            check(&stored.text(), path, expect);
        }
        // At this text, any walk would fail.
        check(&stored.text().replace("spec\":{", "spec!!!"), "status.phase", &["Running"]);
        check(&stored.text().replace("\"metadata\":{", "!!!!!!!!!!!!"), "spec.nodeName", &["n"]);
    }
}
