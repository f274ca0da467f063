//! Values as queries see them: scalars of an object, read from its bytes without a tree.
//!
//! The `resourceVersion` stands beside the bytes of a stored object and is read from there.

use std::borrow::Cow;

use keelson_codec::stored::Marks;
use keelson_meta::Revision;

use crate::path::Path;

/// An object whose values are read.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// Its bytes in compact JSON. The `resourceVersion` may be missing.
    pub json: &'a [u8],
    /// Its `resourceVersion`.
    pub revision: Revision,
    /// Where its parts begin, as far as that is known.
    marks: Marks,
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
    /// An object of which nothing is known but its bytes.
    pub fn new(json: &'a [u8], revision: Revision) -> Self {
        Self { json, revision, marks: Marks::default() }
    }

    /// The same where it is known where parts of these bytes begin.
    #[must_use]
    pub fn marked(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    /// Where its parts begin, as far as that is known.
    pub(crate) const fn marks(&self) -> Marks {
        self.marks
    }

    /// Hands the JSON text of each value that a path leads to to `found`, which says whether it wants more.
    ///
    /// Cost: a walk over the part of the object that the path leads into, up to the last of the values.
    pub(crate) fn visit_json(&self, path: &Path, found: impl FnMut(&'a [u8]) -> bool) {
        path.visit_marked(self.json, self.marks, found);
    }

    /// Hands each scalar that a path leads to to `found`, which says whether it wants more.
    pub fn visit(&self, path: &Path, mut found: impl FnMut(Value<'a>) -> bool) {
        if path.is_revision() {
            // It stands beside the bytes. Clients may not look into it, but an order by it is that of the writes.
            found(Value::Number(self.revision.to_string().into()));
            return;
        }
        self.visit_json(path, |json| Value::of(json).is_none_or(&mut found));
    }
}

#[cfg(test)]
mod tests {
    use keelson_codec::StoredObject;

    use super::*;

    #[test]
    fn what_stands_before_the_part_of_an_object_that_is_meant_is_not_looked_at() {
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
        // What is there would end a walk, if there was one.
        check(&stored.text().replace("spec\":{", "spec!!!"), "status.phase", &["Running"]);
        check(&stored.text().replace("\"metadata\":{", "!!!!!!!!!!!!"), "spec.nodeName", &["n"]);
    }
}
