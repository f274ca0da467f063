//! Paths to values in objects: as in field selectors (`spec.nodeName`) and in JSONPath (`.metadata.labels['a/b']`,
//! `.spec.containers[0].image`, `.spec.containers[*].image`).
//!
//! A leading dot, surrounding braces, and JSONPath's `$` for the object are optional. A field whose name begins with
//! `-` or `$` needs brackets and quotes. An absent field has no value. Evaluation never fails.

use std::fmt;

use keelson_codec::cursor::Cursor;
use keelson_codec::stored::Marks;

use crate::error::QueryError;
use crate::scan::Scanner;

/// The maximum number of segments.
const MAX_SEGMENTS: usize = 16;
/// The maximum length of a member's name, in bytes.
const MAX_NAME_BYTES: usize = 512;

/// A path to a value, or to several.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    segments: Box<[Segment]>,
}

/// A step of a path from a value to a part of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Segment {
    /// The member of an object with this name.
    Member(Box<str>),
    /// The item of a list at this index, from 0.
    Item(usize),
    /// Each item of a list, or each member of an object.
    Each,
}

impl Path {
    /// Parses a path that is a whole parameter.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let mut scanner = Scanner::new(parameter, text);
        let path = Self::read(&mut scanner)?;
        scanner.skip_spaces();
        if !scanner.is_at_end() {
            return Err(scanner.error("the path should end"));
        }
        Ok(path)
    }

    /// Parses a path that other text may follow.
    pub(crate) fn read(scanner: &mut Scanner<'_>) -> Result<Self, QueryError> {
        scanner.skip_spaces();
        let braced = scanner.take("{");
        let mut segments = Vec::new();
        if scanner.rest().starts_with("$.") || scanner.rest().starts_with("$[") {
            scanner.next();
        }
        let leading = scanner.take(".");
        if leading && scanner.peek() == Some('[') {
            return Err(scanner.error("a name is expected after a dot"));
        }
        if scanner.peek() != Some('[') {
            segments.push(member(scanner)?);
        }
        loop {
            let start = scanner.position();
            if scanner.take("[") {
                segments.push(bracketed(scanner)?);
            } else if scanner.take(".") {
                segments.push(member(scanner)?);
            } else {
                break;
            }
            if segments.len() > MAX_SEGMENTS {
                return Err(scanner.error_at(start, format!("a path has at most {MAX_SEGMENTS} steps")));
            }
        }
        if braced && !scanner.take("}") {
            return Err(scanner.error("the brace before the path should be closed"));
        }
        Ok(Self { segments: segments.into() })
    }

    /// The empty path.
    pub(crate) fn to_itself() -> Self {
        Self { segments: Box::default() }
    }

    /// The path to each item of a list.
    pub(crate) fn to_each() -> Self {
        Self::of_segments([Segment::Each])
    }

    /// This path followed by another one.
    pub(crate) fn then(&self, other: &Self) -> Self {
        Self::of_segments(self.segments.iter().chain(&other.segments).cloned())
    }

    /// The path of these segments.
    pub(crate) fn of_segments(segments: impl IntoIterator<Item = Segment>) -> Self {
        Self { segments: segments.into_iter().collect() }
    }

    /// The path of these segments.
    pub fn through(segments: &[Segment]) -> Self {
        Self::of_segments(segments.iter().cloned())
    }

    /// The path of these members.
    pub(crate) fn of_members(members: &[&str]) -> Self {
        Self { segments: members.iter().map(|name| Segment::Member((*name).into())).collect() }
    }

    /// The segments.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns true if the path has at most one value.
    pub fn is_single(&self) -> bool {
        !self.segments.contains(&Segment::Each)
    }

    /// Returns true if the path consists of these members.
    pub fn is(&self, members: &[&str]) -> bool {
        self.segments.len() == members.len()
            && self
                .segments
                .iter()
                .zip(members)
                .all(|(segment, name)| matches!(segment, Segment::Member(found) if **found == **name))
    }

    /// Returns true for the path of `resourceVersion`, which is not in the bytes of a stored object.
    pub(crate) fn is_revision(&self) -> bool {
        self.is(&["metadata", "resourceVersion"])
    }

    /// Calls `found` with the JSON text of each value at the path in a compact JSON value, until it returns false.
    ///
    /// Cost: a walk over the text up to the last value.
    pub fn visit<'a>(&self, json: &'a [u8], mut found: impl FnMut(&'a [u8]) -> bool) {
        walk(Cursor::new(json, 0), &self.segments, &mut found);
    }

    /// [`Self::visit`] for the bytes of an object with known offsets, which skips the parts before them.
    pub(crate) fn visit_marked<'a>(&self, json: &'a [u8], marks: Marks, mut found: impl FnMut(&'a [u8]) -> bool) {
        if let Some((Segment::Member(name), rest)) = self.segments.split_first()
            && let Some(at) = marks.before(name)
        {
            walk_members(Cursor::new(json, at), name, rest, &mut found);
            return;
        }
        self.visit(json, found);
    }

    /// The JSON text of the first value.
    pub fn first<'a>(&self, json: &'a [u8]) -> Option<&'a [u8]> {
        let mut first = None;
        self.visit(json, |value| {
            first = Some(value);
            false
        });
        first
    }
}

/// Writes the canonical form, which is equal for equal paths.
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.segments.is_empty() {
            return f.write_str(".");
        }
        for segment in &self.segments {
            match segment {
                Segment::Member(name) if name.starts_with(begins_plain) && name.chars().all(is_plain) => {
                    write!(f, ".{name}")?;
                }
                Segment::Member(name) => {
                    write!(f, "['{}']", name.replace('\\', "\\\\").replace('\'', "\\'"))?;
                }
                Segment::Item(place) => write!(f, "[{place}]")?,
                Segment::Each => f.write_str("[*]")?,
            }
        }
        Ok(())
    }
}

/// Returns true for a character that needs no quotes in a name.
fn is_plain(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '-' | '$' | '/')
}

/// Returns true for a character that may begin an unquoted name. `--a` in an order and `$a` are mistakes, not names.
fn begins_plain(character: char) -> bool {
    is_plain(character) && !matches!(character, '-' | '$')
}

fn member(scanner: &mut Scanner<'_>) -> Result<Segment, QueryError> {
    let start = scanner.position();
    if let Some(first @ ('-' | '$')) = scanner.peek() {
        return Err(scanner.error(format!("a name that begins with {first} must be in brackets and quotes")));
    }
    let mut name = String::new();
    loop {
        name.push_str(scanner.take_while(is_plain));
        if !scanner.take("\\") {
            break;
        }
        name.push(scanner.next().ok_or_else(|| scanner.error("a character is expected after a backslash"))?);
    }
    if name.is_empty() {
        return Err(scanner.error("the name of a field is expected"));
    }
    named(scanner, start, name)
}

fn named(scanner: &Scanner<'_>, start: usize, name: String) -> Result<Segment, QueryError> {
    if name.len() > MAX_NAME_BYTES {
        return Err(scanner.error_at(start, format!("a name has at most {MAX_NAME_BYTES} bytes")));
    }
    Ok(Segment::Member(name.into()))
}

fn bracketed(scanner: &mut Scanner<'_>) -> Result<Segment, QueryError> {
    let start = scanner.position();
    let segment = match scanner.peek() {
        Some('\'' | '"') => {
            let name = scanner.quoted()?;
            named(scanner, start, name)?
        }
        Some('*') => {
            scanner.next();
            Segment::Each
        }
        Some(digit) if digit.is_ascii_digit() => {
            let digits = scanner.take_while(|next| next.is_ascii_digit());
            let place = digits.parse().map_err(|_| scanner.error_at(start, "no list is that long"))?;
            Segment::Item(place)
        }
        _ => return Err(scanner.error("a name in quotes, a number or * is expected in brackets")),
    };
    if !scanner.take("]") {
        return Err(scanner.error("the bracket should be closed"));
    }
    Ok(segment)
}

/// Walks the rest of the path from the value at the cursor. Returns false if `found` returned false.
fn walk<'a>(mut cursor: Cursor<'a>, segments: &[Segment], found: &mut impl FnMut(&'a [u8]) -> bool) -> bool {
    let Some((segment, rest)) = segments.split_first() else { return found(cursor.raw()) };
    match (segment, cursor.peek()) {
        (Segment::Member(name), b'{') => {
            cursor.step();
            walk_members(cursor, name, rest, found)
        }
        (Segment::Each, b'{') => {
            cursor.step();
            while cursor.key().is_some() {
                if !walk(cursor.clone(), rest, found) {
                    return false;
                }
                cursor.skip();
            }
            true
        }
        (Segment::Item(_) | Segment::Each, b'[') => {
            cursor.step();
            let mut place = 0;
            while !matches!(cursor.peek(), b']' | 0) {
                let wanted = matches!(segment, Segment::Each) || *segment == Segment::Item(place);
                if wanted && !walk(cursor.clone(), rest, found) {
                    return false;
                }
                if *segment == Segment::Item(place) {
                    return true;
                }
                cursor.skip();
                place += 1;
                if cursor.peek() == b',' {
                    cursor.step();
                }
            }
            true
        }
        _ => true,
    }
}

/// Walks the rest of the path from the named member, among the remaining members at the cursor.
fn walk_members<'a>(
    mut cursor: Cursor<'a>,
    name: &str,
    rest: &[Segment],
    found: &mut impl FnMut(&'a [u8]) -> bool,
) -> bool {
    while let Some(key) = cursor.key() {
        if key.stands_for(name) {
            return walk(cursor, rest, found);
        }
        cursor.skip();
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OBJECT: &str = concat!(
        r#"{"kind":"Pod","metadata":{"labels":{"a.b/c":"1","q\"x":"2"},"name":"web"},"#,
        r#""spec":{"containers":[{"image":"a"},{"image":"b"},{}],"n":3},"none":null}"#
    );

    #[track_caller]
    fn check(text: &str, canonical: &str, values: &[&str]) {
        let path = Path::parse("test", text).unwrap();
        assert_eq!(path.to_string(), canonical);
        let mut found = Vec::new();
        path.visit(OBJECT.as_bytes(), |value| {
            found.push(std::str::from_utf8(value).unwrap());
            true
        });
        assert_eq!(found, values, "{text}");
    }

    #[test]
    fn paths_lead_to_values() {
        check("metadata.name", ".metadata.name", &["\"web\""]);
        check("{.metadata.name}", ".metadata.name", &["\"web\""]);
        check(".metadata.labels['a.b/c']", ".metadata.labels['a.b/c']", &["\"1\""]);
        check(r".metadata.labels.a\.b/c", ".metadata.labels['a.b/c']", &["\"1\""]);
        check(r#"['metadata'].labels["q\"x"]"#, ".metadata.labels['q\"x']", &["\"2\""]);
        check(".spec.containers[*].image", ".spec.containers[*].image", &["\"a\"", "\"b\""]);
        check(".spec.containers[1].image", ".spec.containers[1].image", &["\"b\""]);
        check(".spec.containers[7].image", ".spec.containers[7].image", &[]);
        check(".metadata.labels[*]", ".metadata.labels[*]", &["\"1\"", "\"2\""]);
        check(".spec.n.x", ".spec.n.x", &[]);
        check(".none", ".none", &["null"]);
        check("$.metadata.name", ".metadata.name", &["\"web\""]);
        check("{$['metadata'].name}", ".metadata.name", &["\"web\""]);
        check(".metadata['-x'].a-b", ".metadata['-x'].a-b", &[]);
    }

    #[test]
    fn faults_are_reported_with_their_position() {
        let check = |text: &str, expect: &str| {
            assert_eq!(Path::parse("p", text).unwrap_err().to_string(), expect, "{text}");
        };
        check("", "p: the name of a field is expected at character 1 of \"\"");
        check(".spec.", "p: the name of a field is expected at character 7 of \".spec.\"");
        check(".a[x]", "p: a name in quotes, a number or * is expected in brackets at character 4 of \".a[x]\"");
        check(".ä['b", "p: this quote is never closed at character 4 of \".ä['b\"");
        check(".a b", "p: the path should end at character 4 of \".a b\"");
        check("{.a", "p: the brace before the path should be closed at character 4 of \"{.a\"");
        check("-a", "p: a name that begins with - must be in brackets and quotes at character 1 of \"-a\"");
        check(".a.$b", "p: a name that begins with $ must be in brackets and quotes at character 4 of \".a.$b\"");
        check("$", "p: a name that begins with $ must be in brackets and quotes at character 1 of \"$\"");
        assert!(Path::parse("p", &".a".repeat(17)).unwrap_err().to_string().contains("at most 16 steps"));
    }

    proptest! {
        #[test]
        fn any_text_parses_to_a_round_tripping_path_or_fails(text in r#"[a\.\[\]'"*0-9{}\\é $-]{0,24}"#) {
            if let Ok(path) = Path::parse("p", &text) {
                prop_assert_eq!(&Path::parse("p", &path.to_string()).unwrap(), &path);
                path.visit(OBJECT.as_bytes(), |_| true);
            }
        }
    }
}
