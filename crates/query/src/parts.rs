//! Parts of an object: a tree of the members on some paths, without the rest of the object.
//!
//! This module must not know the reader. A reader that follows only these paths by field name finds the same values as
//! in the object. This also holds if a path ends early at a value that is not an object.

use keelson_codec::cursor::Cursor;
use keelson_codec::json;
use keelson_meta::json::{Map, Value};

use crate::value::Subject;

const METADATA: &str = "metadata";
const REVISION: &str = "resourceVersion";

/// The part of a value to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole value.
    Whole,
    /// These members of an object.
    Members(Vec<(Box<str>, Part)>),
}

impl Part {
    /// The parts at these paths.
    pub(crate) fn from_ways<'w>(ways: impl Iterator<Item = &'w [&'w str]>) -> Self {
        let mut part = Self::Members(Vec::new());
        ways.for_each(|way| part.add(way));
        part
    }

    fn add(&mut self, way: &[&str]) {
        let Self::Members(members) = self else { return };
        let Some((first, rest)) = way.split_first() else {
            *self = Self::Whole;
            return;
        };
        let place = members.iter().position(|(name, _)| **name == **first).unwrap_or_else(|| {
            members.push(((*first).into(), Self::Members(Vec::new())));
            members.len() - 1
        });
        members[place].1.add(rest);
    }

    /// The names of the members. Empty for a whole value.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let members = match self {
            Self::Whole => &[][..],
            Self::Members(members) => members,
        };
        members.iter().map(|(name, _)| &**name)
    }

    /// Builds the tree of these parts of an object, with its `resourceVersion`. `None` for the whole object.
    ///
    /// Cost: a walk over the parts of the object with these members, and their tree.
    pub(crate) fn read(&self, subject: &Subject<'_>) -> Option<Value> {
        let Self::Members(wanted) = self else { return None };
        // Bytes before the first requested member are skipped.
        let begins = wanted.iter().map(|(name, _)| subject.marks().before(name).unwrap_or(1));
        let cursor = Cursor::new(subject.json, begins.min().unwrap_or(1));
        let mut tree = read_members(cursor, wanted);
        if let Some((_, of_metadata)) = wanted.iter().find(|(name, _)| **name == *METADATA)
            && (*of_metadata == Self::Whole || of_metadata.names().any(|name| name == REVISION))
            && let Some(Value::Object(metadata)) = tree.get_mut(METADATA)
        {
            metadata.insert(REVISION, subject.revision.to_string());
        }
        Some(Value::Object(tree))
    }
}

/// Reads the requested members among the remaining ones at the cursor.
fn read_members(mut cursor: Cursor<'_>, wanted: &[(Box<str>, Part)]) -> Map {
    let mut members = Map::with_capacity(wanted.len());
    while members.len() < wanted.len()
        && let Some(key) = cursor.key()
    {
        if let Some((name, part)) = wanted.iter().find(|(name, _)| key.stands_for(name)) {
            members.insert(&**name, read_value(cursor.clone(), part));
        }
        if members.len() < wanted.len() {
            cursor.skip();
        }
    }
    members
}

fn read_value(mut cursor: Cursor<'_>, part: &Part) -> Value {
    match part {
        Part::Members(wanted) if cursor.peek() == b'{' => {
            cursor.step();
            Value::Object(read_members(cursor, wanted))
        }
        Part::Whole | Part::Members(_) => json::parse(cursor.raw()).map_or(Value::Null, |parsed| parsed.value),
    }
}
