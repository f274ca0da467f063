//! Masks: the fields of an object to show.
//!
//! A mask always shows the identity: kind, apiVersion, name, namespace, uid and resourceVersion. It cuts the bytes of
//! an object and builds no tree.

use keelson_codec::cursor::Cursor;

use crate::error::QueryError;
use crate::path::{Path, Segment};
use crate::scan::Scanner;

/// The most paths of a mask.
const MAX_PATHS: usize = 64;
/// The fields that are always shown.
const IDENTITY: [&[&str]; 7] = [
    &["kind"],
    &["apiVersion"],
    &["metadata", "name"],
    &["metadata", "generateName"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
];

/// The fields to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mask {
    /// The parts to show. `None` shows all.
    kept: Option<Kept>,
    /// The parsed paths.
    paths: Vec<Path>,
    omit_managed_fields: bool,
}

/// The parts of a value to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kept {
    /// The whole value.
    Whole,
    /// The selected members of an object, or the selected parts of each item.
    Parts { members: Vec<(Box<str>, Kept)>, each: Option<Box<Kept>> },
}

impl Kept {
    const NOTHING: Self = Self::Parts { members: Vec::new(), each: None };

    fn add(&mut self, segments: &[Segment]) {
        let Self::Parts { members, each } = self else { return };
        let Some((segment, rest)) = segments.split_first() else {
            *self = Self::Whole;
            return;
        };
        match segment {
            Segment::Member(name) => match members.iter_mut().find(|(known, _)| known == name) {
                Some((_, kept)) => kept.add(rest),
                None => {
                    let mut kept = Self::NOTHING;
                    kept.add(rest);
                    members.push((name.clone(), kept));
                }
            },
            Segment::Each | Segment::Item(_) => each.get_or_insert_with(|| Box::new(Self::NOTHING)).add(rest),
        }
    }

    /// The parts of a member to keep.
    fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Whole => Some(&Self::Whole),
            Self::Parts { members, each } => {
                let member = members.iter().find(|(known, _)| **known == *name).map(|(_, kept)| kept);
                member.or(each.as_deref())
            }
        }
    }
}

impl Mask {
    /// Parses comma-separated paths.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let mut scanner = Scanner::new(parameter, text);
        let (mut kept, mut paths) = (Kept::NOTHING, Vec::new());
        IDENTITY.iter().for_each(|members| kept.add(Path::of_members(members).segments()));
        for count in 1.. {
            scanner.skip_spaces();
            let at = scanner.position();
            let path = Path::read(&mut scanner)?;
            if path.segments().iter().any(|segment| matches!(segment, Segment::Item(_))) {
                return Err(scanner.error_at(at, "a mask has [*] for all items of a list, and none alone"));
            }
            if count > MAX_PATHS {
                return Err(scanner.error_at(at, format!("a mask has at most {MAX_PATHS} paths")));
            }
            kept.add(path.segments());
            paths.push(path);
            scanner.skip_spaces();
            if scanner.is_at_end() {
                break;
            }
            if !scanner.take(",") {
                return Err(scanner.error("a comma is expected before the next path"));
            }
        }
        Ok(Self { kept: Some(kept), paths, omit_managed_fields: false })
    }

    /// The shown paths in addition to the identity.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// Returns the mask without `metadata.managedFields`, even if the mask shows that field.
    #[must_use]
    pub fn without_managed_fields(self) -> Self {
        Self { omit_managed_fields: true, ..self }
    }

    /// Returns true if `managedFields` are hidden.
    pub const fn omits_managed_fields(&self) -> bool {
        self.omit_managed_fields
    }

    /// Returns true if the whole object is shown.
    pub const fn shows_all(&self) -> bool {
        self.kept.is_none() && !self.omit_managed_fields
    }

    /// Returns true if only selected fields are shown. Tables are then not available.
    pub const fn selects(&self) -> bool {
        self.kept.is_some()
    }

    /// Appends the shown parts of an object in compact JSON.
    pub fn write(&self, json: &[u8], out: &mut Vec<u8>) {
        let whole = Kept::Whole;
        let omitted: &[&str] = if self.omit_managed_fields { &["metadata", "managedFields"] } else { &[] };
        write(&mut Cursor::new(json, 0), self.kept.as_ref().unwrap_or(&whole), omitted, out);
    }
}

/// Appends the kept parts of the value at the cursor, except for the member at the path `omitted`.
fn write(cursor: &mut Cursor<'_>, kept: &Kept, omitted: &[&str], out: &mut Vec<u8>) {
    if *kept == Kept::Whole && omitted.is_empty() {
        out.extend_from_slice(cursor.raw());
        return;
    }
    match cursor.peek() {
        b'{' => {
            cursor.step();
            out.push(b'{');
            let mut first = true;
            while let Some(key) = cursor.key() {
                let name = key.decode();
                let below = match omitted.split_first() {
                    Some((member, rest)) if *name == **member => Some(rest),
                    _ => None,
                };
                let Some(kept) = kept.member(&name).filter(|_| below != Some(&[])) else {
                    cursor.skip();
                    continue;
                };
                if !std::mem::replace(&mut first, false) {
                    out.push(b',');
                }
                out.push(b'"');
                out.extend_from_slice(key.bytes());
                out.extend_from_slice(b"\":");
                write(cursor, kept, below.unwrap_or_default(), out);
            }
            out.push(b'}');
        }
        b'[' => {
            let each = match kept {
                Kept::Whole => Some(kept),
                Kept::Parts { each, .. } => each.as_deref(),
            };
            cursor.step();
            out.push(b'[');
            let mut first = true;
            while !matches!(cursor.peek(), b']' | 0) {
                match each {
                    Some(each) => {
                        if !std::mem::replace(&mut first, false) {
                            out.push(b',');
                        }
                        write(cursor, each, &[], out);
                    }
                    None => cursor.skip(),
                }
                if cursor.peek() == b',' {
                    cursor.step();
                }
            }
            cursor.step();
            out.push(b']');
        }
        // A value whose type differs from the path's is shown whole.
        _ => out.extend_from_slice(cursor.raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = concat!(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"7","#,
        r#""labels":{"x.y/z":"1","w":"2"},"managedFields":[{"manager":"m"}]},"#,
        r#""spec":{"nodeName":"n","containers":[{"name":"c","image":"i"},{"name":"d"}]},"status":{"phase":"Running"}}"#
    );

    #[track_caller]
    fn check(mask: &Mask, expect: &str) {
        let mut out = Vec::new();
        mask.write(POD.as_bytes(), &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expect);
    }

    const IDENTITY: &str =
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"7""#;

    #[test]
    fn a_request_is_shown_with_its_subject() {
        let mask = |text: &str| Mask::parse("fields", text).unwrap();
        check(&mask("status.phase"), &format!(r#"{IDENTITY}}},"status":{{"phase":"Running"}}}}"#));
        check(
            &mask("metadata.labels['x.y/z'], .spec.containers[*].image"),
            &format!(r#"{IDENTITY},"labels":{{"x.y/z":"1"}}}},"spec":{{"containers":[{{"image":"i"}},{{}}]}}}}"#),
        );
        check(&mask("status.phase,status"), &format!(r#"{IDENTITY}}},"status":{{"phase":"Running"}}}}"#));
        check(
            &mask("spec.containers.x,spec.nodeName.x"),
            &format!(r#"{IDENTITY}}},"spec":{{"nodeName":"n","containers":[]}}}}"#),
        );
        check(&mask("missing"), &format!("{IDENTITY}}}}}"));
        let labels = r#","labels":{"x.y/z":"1","w":"2"}"#;
        check(&mask("metadata").without_managed_fields(), &format!("{IDENTITY}{labels}}}}}"));
    }

    #[test]
    fn owners_of_fields_are_left_out_alone() {
        let expected = POD.replace(r#","managedFields":[{"manager":"m"}]"#, "");
        check(&Mask::default().without_managed_fields(), &expected);
        check(&Mask::default(), POD);
    }

    #[test]
    fn masks_are_refused_where_they_are_wrong() {
        let check = |text: &str, expect: &str| {
            let error = Mask::parse("f", text).unwrap_err().to_string();
            assert!(error.contains(expect), "{text}: {error}");
        };
        check("", "the name of a field is expected at character 1");
        check("a[0].b", "a mask has [*] for all items of a list, and none alone at character 1");
        check("a;b", "a comma is expected before the next path at character 2");
        check(&["a"; 65].join(","), "at most 64 paths");
    }
}
