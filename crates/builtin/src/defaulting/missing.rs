//! Detects missing defaults in the bytes of an object, in one pass that only inspects fields with defaults.
//!
//! Caches use this: they read many objects, and few of them lack a default. No tree is built, except for the fields
//! that a function of a [`FollowUp`] reads. For compact and valid JSON the result is that of [`TypeDefaults::fill`].

use std::collections::HashSet;

use keelson_codec::cursor::{Cursor, RawText};
use keelson_codec::json;
use keelson_meta::json::{Map, Value};

use crate::defaulting::type_defaults::{FollowUp, Rule, TypeDefaults, rounded};

impl TypeDefaults {
    /// Returns true if defaults would change the object at the cursor.
    pub(crate) fn lacks_root(&self, mut cursor: Cursor<'_>) -> bool {
        // Fields after the last one with a default are not read, for example the status of most objects.
        self.lacks_until(&mut cursor, |found| {
            self.then.is_empty() && found.stated.count_ones() as usize == self.fields.len()
        })
    }

    /// Returns true if defaults would change the value at the cursor. Otherwise moves the cursor behind the value.
    fn lacks(&self, cursor: &mut Cursor<'_>) -> bool {
        self.lacks_until(cursor, |_| false)
    }

    fn lacks_until(&self, cursor: &mut Cursor<'_>, done: impl Fn(&PresentMembers) -> bool) -> bool {
        if cursor.peek() != b'{' {
            cursor.skip();
            return false;
        }
        let object = cursor.clone();
        let mut found = PresentMembers::default();
        cursor.step();
        while let Some(key) = cursor.key() {
            let mut end = None;
            if self.look(key, cursor, &object, &mut found, &mut end) {
                return true;
            }
            match end {
                Some(end) => *cursor = end,
                None => cursor.skip(),
            }
            if done(&found) {
                return false;
            }
            found.place = 0;
        }
        self.lacks_rest(&object, &mut found)
    }

    /// Checks one member of the object, with its value at the cursor. Sets `end` to the end of the value if it was
    /// found.
    fn look<'a>(
        &self,
        key: RawText<'a>,
        value: &Cursor<'a>,
        object: &Cursor<'a>,
        found: &mut PresentMembers,
        end: &mut Option<Cursor<'a>>,
    ) -> bool {
        if let Some(place) = self.fields.iter().position(|(name, _)| key.is(name)) {
            found.stated |= 1 << (found.place + place);
            let mut cursor = value.clone();
            if self.fields[place].1.lacks(object, &mut cursor) {
                return true;
            }
            *end = Some(cursor);
        }
        found.place += self.fields.len();
        for step in self.then {
            match step {
                FollowUp::Also(defaults) => {
                    if defaults.look(key, value, object, found, end) {
                        return true;
                    }
                }
                FollowUp::If { flag, .. } => found.flag |= key.is(flag) && value.clone().raw() == b"true",
                FollowUp::WithoutAll { fields, .. } => {
                    found.others |= value.peek() != b'n' && fields.iter().any(|field| key.is(field));
                }
                FollowUp::Where { field, .. } => found.whole |= value.peek() == b'{' && key.is(field),
                FollowUp::Run(paths, _) => pick(key, value, paths.iter().copied(), &mut found.picked),
            }
        }
        false
    }

    /// Returns true if absent fields or follow-ups would get a default.
    fn lacks_rest(&self, object: &Cursor<'_>, found: &mut PresentMembers) -> bool {
        let absent = |place: usize| found.stated & (1 << (found.place + place)) == 0;
        if self.fields.iter().enumerate().any(|(place, (_, rule))| absent(place) && rule.fills_absent(object)) {
            return true;
        }
        found.place += self.fields.len();
        self.then.iter().any(|step| match step {
            FollowUp::Also(defaults) => defaults.lacks_rest(object, found),
            FollowUp::If { then, .. } => found.flag && then.lacks(&mut object.clone()),
            FollowUp::WithoutAll { .. } => !found.others,
            FollowUp::Where { run, .. } => found.whole && changes(run, object),
            FollowUp::Run(_, function) => {
                let mut filled = found.picked.clone();
                function(&mut filled);
                filled != found.picked
            }
        })
    }
}

/// The members of an object that were found so far. A type has at most one follow-up of each kind, except for
/// functions.
#[derive(Default)]
struct PresentMembers {
    /// One bit for each field with defaults that is present, in this type and in included types.
    stated: u64,
    /// The number of fields in the types before this one.
    place: usize,
    /// True if the flag of an [`If`](FollowUp::If) is true.
    flag: bool,
    /// True if a field of [`WithoutAll`](FollowUp::WithoutAll) is present.
    others: bool,
    /// True if the field of [`Where`](FollowUp::Where) is an object.
    whole: bool,
    /// The members that functions read.
    picked: Map,
}

impl Rule {
    /// Returns true if an object without the field gets a default.
    fn fills_absent(&self, object: &Cursor<'_>) -> bool {
        match self {
            Self::In(_) | Self::Each(_) | Self::Amounts => false,
            Self::Copied(from) | Self::CopiedOverText(from) => {
                member(object, from).is_some_and(|value| value.peek() != b'n')
            }
            Self::EntriesOf(from) => !keys(member(object, from)).is_empty(),
            Self::By(from, function) => {
                let mut tree = Map::new();
                if let Some(value) = member(object, from) {
                    tree.insert((*from).to_owned(), read(value));
                }
                function(&tree).is_some()
            }
            Self::Text(_)
            | Self::TextIfAbsent(_)
            | Self::Number(_)
            | Self::Positive(_)
            | Self::Flag(_)
            | Self::Empty
            | Self::OneOf(_)
            | Self::Always(_) => true,
        }
    }

    /// Returns true if an object with this value at the cursor gets a default. Otherwise moves the cursor behind the
    /// value.
    fn lacks(&self, object: &Cursor<'_>, cursor: &mut Cursor<'_>) -> bool {
        let value = cursor.clone();
        match self {
            Self::In(defaults) => return defaults.lacks(cursor),
            Self::Always(defaults) => return value.clone().raw() == b"null" || defaults.lacks(cursor),
            Self::Each(defaults) => return each_lacks(defaults, cursor),
            Self::Amounts => return has_fine_amounts(cursor),
            _ => {}
        }
        let raw = cursor.raw();
        match self {
            Self::Text("") | Self::TextIfAbsent(_) | Self::Number(_) | Self::Flag(_) | Self::Empty => raw == b"null",
            Self::Text(_) => is_unset(raw),
            Self::By(..) => is_unset(raw) && self.fills_absent(object),
            Self::Positive(_) => is_zero(raw),
            Self::OneOf(_) => matches!(raw, b"null" | b"[]"),
            Self::Copied(from) => is_zero(raw) && is_other(raw, object, from),
            Self::CopiedOverText(from) => (is_zero(raw) || is_unset(raw)) && is_other(raw, object, from),
            Self::EntriesOf(from) if raw.starts_with(b"{") => !has_all(&keys(Some(value)), &keys(member(object, from))),
            Self::EntriesOf(from) => raw == b"null" && !keys(member(object, from)).is_empty(),
            Self::In(_) | Self::Always(_) | Self::Each(_) | Self::Amounts => false,
        }
    }
}

/// Returns true if a function would change the object at a cursor.
fn changes(run: &fn(&mut Map), object: &Cursor<'_>) -> bool {
    let Value::Object(before) = read(object.clone()) else { return false };
    let mut filled = before.clone();
    run(&mut filled);
    filled != before
}

/// Returns true if another field of the object has a different value.
fn is_other(raw: &[u8], object: &Cursor<'_>, from: &str) -> bool {
    member(object, from).map(|mut from| from.raw()).is_some_and(|from| from != b"null" && from != raw)
}

fn each_lacks(defaults: &TypeDefaults, cursor: &mut Cursor<'_>) -> bool {
    if cursor.peek() != b'[' {
        cursor.skip();
        return false;
    }
    cursor.step();
    loop {
        match cursor.peek() {
            b',' => cursor.step(),
            b']' | 0 => {
                cursor.step();
                return false;
            }
            // A null item counts as an empty object.
            b'n' => return true,
            _ if defaults.lacks(cursor) => return true,
            _ => {}
        }
    }
}

/// Returns true if the object at a cursor has a quantity that would be rounded. Otherwise moves the cursor behind it.
fn has_fine_amounts(cursor: &mut Cursor<'_>) -> bool {
    if cursor.peek() != b'{' {
        cursor.skip();
        return false;
    }
    cursor.step();
    while cursor.key().is_some() {
        let value = cursor.clone();
        // Quantities without these bytes need no rounding.
        let is_suspicious = |byte: &u8| matches!(byte, b'.' | b'n' | b'u' | b'e' | b'E' | b'\\');
        if cursor.raw().iter().any(is_suspicious) && rounded(&read(value)).is_some() {
            return true;
        }
    }
    false
}

/// The value of a member of the object at a cursor.
fn member<'a>(object: &Cursor<'a>, name: &str) -> Option<Cursor<'a>> {
    let mut cursor = object.clone();
    cursor.take(b"{").then_some(())?;
    while let Some(key) = cursor.key() {
        if key.is(name) {
            return Some(cursor);
        }
        cursor.skip();
    }
    None
}

/// The keys of the object at a cursor; empty if there is no object.
fn keys<'a>(object: Option<Cursor<'a>>) -> Vec<&'a [u8]> {
    let mut keys = Vec::new();
    if let Some(mut cursor) = object
        && cursor.take(b"{")
    {
        while let Some(key) = cursor.key() {
            keys.push(key.bytes());
            cursor.skip();
        }
    }
    keys
}

/// Returns true if all wanted keys are present. Usually they come first, in the same order.
///
/// Cost: one comparison for each key.
fn has_all(there: &[&[u8]], wanted: &[&[u8]]) -> bool {
    let rest = &wanted[there.iter().zip(wanted).take_while(|(there, wanted)| there == wanted).count()..];
    rest.is_empty() || {
        let there: HashSet<&[u8]> = there.iter().copied().collect();
        rest.iter().all(|key| there.contains(key))
    }
}

/// Copies the values at those paths that start with this member, including the objects on the way.
fn pick<'a>(key: RawText<'_>, value: &Cursor<'_>, paths: impl Iterator<Item = &'a str>, tree: &mut Map) {
    for path in paths {
        let Some(rest) = step(key, path) else { continue };
        let (name, rest) = (&path[..key.bytes().len()], Some(rest).filter(|rest| !rest.is_empty()));
        let Some(rest) = rest.filter(|_| value.peek() == b'{') else {
            tree.insert(name, read(value.clone()));
            continue;
        };
        let inner = tree.entry(name).or_insert_with(|| Value::Object(Map::new()));
        let Some(inner) = inner.as_object_mut() else { continue };
        let mut members = value.clone();
        members.step();
        while let Some(key) = members.key() {
            pick(key, &members, std::iter::once(rest), inner);
            members.skip();
        }
    }
}

/// The rest of a path after its first step, if that step is this key.
fn step<'a>(key: RawText<'_>, path: &'a str) -> Option<&'a str> {
    let (first, rest) = path.split_once('.').unwrap_or((path, ""));
    key.is(first).then_some(rest)
}

fn read(mut value: Cursor<'_>) -> Value {
    if value.peek() == b'"' {
        return value.string().decode().into();
    }
    json::parse(value.raw()).map_or(Value::Null, |parsed| parsed.value)
}

/// Returns true for null and for an empty string.
fn is_unset(raw: &[u8]) -> bool {
    matches!(raw, b"null" | b"\"\"")
}

/// Returns true for null and for zero.
fn is_zero(raw: &[u8]) -> bool {
    let number = |raw| std::str::from_utf8(raw).ok().and_then(|text| text.parse::<f64>().ok());
    raw == b"null" || raw.first().is_some_and(|first| matches!(first, b'0' | b'-')) && number(raw) == Some(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(there: &'static str, wanted: &'static str, all: bool) {
        let keys = |text: &'static str| text.split(' ').map(str::as_bytes).collect::<Vec<_>>();
        assert_eq!(has_all(&keys(there), &keys(wanted)), all, "{wanted} in {there}");
    }

    #[test]
    fn keys_are_found_in_any_order() {
        check("cpu memory", "cpu memory", true);
        check("memory cpu", "cpu memory", true);
        check("a cpu memory", "cpu memory", true);
        check("cpu", "cpu memory", false);
        check("cpu memory", "cpu a", false);
    }

    #[test]
    fn a_path_begins_with_a_whole_key() {
        let first = |object: &'static str, path| {
            let mut cursor = Cursor::new(object.as_bytes(), 0);
            cursor.step();
            step(cursor.key().expect("a member"), path)
        };
        assert_eq!(first(r#"{"a":1}"#, "a.b"), Some("b"));
        assert_eq!(first(r#"{"a":1}"#, "a"), Some(""));
        assert_eq!(first(r#"{"a":1}"#, "ab"), None);
        assert_eq!(first(r#"{"a.b":1}"#, "a.b"), None);
    }
}
