//! The summary of an object that a cache keeps: names, labels, owners and some fields, picked out of its bytes while the rest
//! is skipped.
//!
//! The bytes were checked before, so that nothing here can fail but the bounds of the summary itself.

use std::borrow::Cow;
use std::num::NonZeroU32;

use super::{DecodeError, StoredObject};
use crate::cursor::{Cursor, RawText};

/// Keys and values of labels.
type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// What a cache needs to know about an object: texts of its bytes, but where these hold escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary<'a> {
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.namespace`, empty when the object is cluster scoped.
    pub namespace: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.labels`, sorted by key.
    pub labels: Labels<'a>,
    /// The text of every field that was asked for, in the order it was asked for: strings as they are, numbers and
    /// booleans as JSON writes them, the empty string for fields that are absent, null, or not scalar.
    pub fields: Vec<Cow<'a, str>>,
    /// `metadata.deletionTimestamp`.
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// Where the value of `metadata.ownerReferences` begins in the bytes, unless it is null.
    pub owners: Option<NonZeroU32>,
    /// Where the parts of the object begin.
    pub marks: Marks,
}

/// Where parts of a stored object begin in its bytes, or nothing: who looks for a member of one part need not walk over the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Behind the metadata, which nearly always is before the spec; 0 where nothing is known.
    behind_metadata: u32,
    /// Before the key `status`, or at the end of an object that has none.
    status: u32,
}

impl Marks {
    /// Where to look for a member of the object: before the next key, as a cursor in an object stands. `None` where nothing is known.
    pub fn before(&self, member: &str) -> Option<usize> {
        match member {
            "kind" | "apiVersion" | "metadata" => None,
            "status" => (self.status > 0).then_some(self.status as usize),
            _ => (self.behind_metadata > 0).then_some(self.behind_metadata as usize),
        }
    }

    /// The same in the [skeleton](StoredObject::skeleton) of the object.
    #[must_use]
    pub fn in_skeleton_of(self, object: &StoredObject) -> Self {
        let Self { behind_metadata, status } = self;
        Self { behind_metadata: object.place_of(behind_metadata), status: object.place_of(status) }
    }

    /// The cursor stands behind the metadata.
    fn find(mut cursor: Cursor<'_>) -> Self {
        let mark = |at: usize| u32::try_from(at).unwrap_or_default();
        let behind_metadata = mark(cursor.position());
        loop {
            let status = mark(cursor.position());
            if cursor.key().is_none_or(|key| key.stands_for("status")) {
                return Self { behind_metadata, status };
            }
            cursor.skip();
        }
    }
}

/// The way to a field from the root of an object, such as `spec.nodeName`. Elements of arrays have no path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Reads a path whose steps are separated by dots. Keys that hold a dot cannot be named.
    pub fn parse(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }

    /// The keys from the root to the field; never empty.
    pub fn steps(&self) -> &[String] {
        &self.0
    }
}

/// How many paths one pass can follow: one bit each.
const PATHS_PER_PASS: usize = u64::BITS as usize;

/// Reads the summary. The cursor stands on the key `metadata`, which is the first one after kind and apiVersion.
pub(super) fn read<'a>(mut cursor: Cursor<'a>, paths: &[FieldPath]) -> Result<Summary<'a>, DecodeError> {
    let mut summary = Summary { fields: vec![Cow::default(); paths.len()], ..Summary::default() };
    cursor.take(b"\"metadata\":");
    let metadata = cursor.clone();
    cursor.take(b"{");
    read_metadata(&mut cursor, &mut summary)?;
    summary.marks = Marks::find(cursor.clone());
    for (paths, found) in paths.chunks(PATHS_PER_PASS).zip(summary.fields.chunks_mut(PATHS_PER_PASS)) {
        let mut follow = Follow { paths, found };
        let everything = u64::MAX >> (PATHS_PER_PASS - paths.len());
        let in_metadata = follow.matching(everything, 0, |step| step == "metadata");
        if in_metadata != 0 {
            follow.value(&mut metadata.clone(), 1, in_metadata);
        }
        follow.root(cursor.clone(), everything & !in_metadata);
    }
    Ok(summary)
}

fn read_metadata<'a>(cursor: &mut Cursor<'a>, summary: &mut Summary<'a>) -> Result<(), DecodeError> {
    while let Some(key) = cursor.key() {
        match key.bytes() {
            b"name" => summary.name = text(cursor, "name")?,
            b"namespace" => summary.namespace = text(cursor, "namespace")?,
            b"uid" => summary.uid = text(cursor, "uid")?,
            b"labels" => summary.labels = labels(cursor)?,
            b"deletionTimestamp" => {
                let time = text(cursor, "deletionTimestamp")?;
                summary.deletion_timestamp = Some(time).filter(|time| !time.is_empty());
            }
            b"ownerReferences" => {
                let place = u32::try_from(cursor.position()).ok().and_then(NonZeroU32::new);
                summary.owners = place.filter(|_| cursor.peek() != b'n');
                cursor.skip();
            }
            b"generation" => summary.generation = cursor.scalar().and_then(|number| number.parse().ok()),
            _ => cursor.skip(),
        }
    }
    Ok(())
}

/// A string; null counts as the empty one, as it does for Go.
fn text<'a>(cursor: &mut Cursor<'a>, field: &'static str) -> Result<Cow<'a, str>, DecodeError> {
    match cursor.peek() {
        b'"' | b'n' => Ok(cursor.scalar().unwrap_or_default()),
        _ => Err(DecodeError::Metadata(field)),
    }
}

fn labels<'a>(cursor: &mut Cursor<'a>) -> Result<Labels<'a>, DecodeError> {
    let mut labels = Vec::new();
    if cursor.take(b"null") {
        return Ok(labels);
    }
    if !cursor.take(b"{") {
        return Err(DecodeError::Metadata("labels"));
    }
    while let Some(key) = cursor.key() {
        labels.push((key.decode(), text(cursor, "labels")?));
    }
    labels.sort_unstable();
    Ok(labels)
}

/// Follows up to 64 paths at once; a set of paths is a mask of their indexes.
struct Follow<'p, 'f, 'a> {
    paths: &'p [FieldPath],
    found: &'f mut [Cow<'a, str>],
}

impl<'a> Follow<'_, '_, 'a> {
    /// Visits the members of the root object and stops as soon as every path was met.
    fn root(&mut self, mut cursor: Cursor<'a>, mut active: u64) {
        while active != 0
            && let Some(key) = cursor.key()
        {
            let met = self.member(&mut cursor, key, 0, active);
            active &= !met;
        }
    }

    /// Visits one member of an object at `depth` and says which paths go through it.
    fn member(&mut self, cursor: &mut Cursor<'a>, key: RawText<'a>, depth: usize, active: u64) -> u64 {
        let through = match key.plain() {
            Some(name) => self.matching(active, depth, |step| step.as_bytes() == name),
            None => {
                let name = key.decode();
                self.matching(active, depth, |step| step == &*name)
            }
        };
        if through == 0 {
            cursor.skip();
        } else {
            self.value(cursor, depth + 1, through);
        }
        through
    }

    /// Visits a value that `active` paths lead to in `depth` steps.
    fn value(&mut self, cursor: &mut Cursor<'a>, depth: usize, active: u64) {
        if cursor.peek() != b'{' {
            let text = cursor.scalar().unwrap_or_default();
            for index in indexes(active) {
                if self.paths[index].0.len() == depth {
                    self.found[index].clone_from(&text);
                }
            }
            return;
        }
        cursor.step();
        while let Some(key) = cursor.key() {
            self.member(cursor, key, depth, active);
        }
    }

    /// The paths of `active` whose step at `depth` passes the test.
    fn matching(&self, active: u64, depth: usize, test: impl Fn(&str) -> bool) -> u64 {
        indexes(active)
            .filter(|index| self.paths[*index].0.get(depth).is_some_and(|step| test(step)))
            .fold(0, |mask, index| mask | 1 << index)
    }
}

/// The indexes in a mask, ascending.
fn indexes(mask: u64) -> impl Iterator<Item = usize> {
    let mut left = mask;
    std::iter::from_fn(move || {
        let index = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(index)
    })
}
