//! The summary of an object for a cache: names, labels, owners and some fields, read from its bytes while the rest is
//! skipped.
//!
//! The bytes are already validated, so only the limits of the summary can fail.

use std::borrow::Cow;
use std::num::NonZeroU32;

use super::{DecodeError, StoredObject};
use crate::cursor::{Cursor, RawText};

/// Keys and values of labels.
type Labels<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// The summary of an object. Texts borrow from its bytes, unless they have escapes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary<'a> {
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.namespace`. Empty for a cluster-scoped object.
    pub namespace: Cow<'a, str>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.labels`, sorted by key.
    pub labels: Labels<'a>,
    /// The text of every requested field, in this order: strings unescaped, numbers and booleans as in JSON. Empty for
    /// fields that are absent, null, or not scalar.
    pub fields: Vec<Cow<'a, str>>,
    /// `metadata.deletionTimestamp`.
    pub deletion_timestamp: Option<Cow<'a, str>>,
    /// `metadata.generation`.
    pub generation: Option<i64>,
    /// The offset of the value of `metadata.ownerReferences`, unless it is null.
    pub owners: Option<NonZeroU32>,
    /// The offsets of parts of the object.
    pub marks: Marks,
}

/// The offsets of parts of a stored object, as far as known. A search for a member can start at them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The end of the metadata, which nearly always precedes the spec. 0 if unknown.
    behind_metadata: u32,
    /// The offset before the key `status`, or the end of an object without it.
    status: u32,
}

impl Marks {
    /// The offset from which a cursor finds this member of the object. `None` if unknown.
    pub fn before(&self, member: &str) -> Option<usize> {
        match member {
            "kind" | "apiVersion" | "metadata" => None,
            "status" => (self.status > 0).then_some(self.status as usize),
            _ => (self.behind_metadata > 0).then_some(self.behind_metadata as usize),
        }
    }

    /// Converts the offsets to those in the [skeleton](StoredObject::skeleton) of the object.
    #[must_use]
    pub fn in_skeleton_of(self, object: &StoredObject) -> Self {
        let Self { behind_metadata, status } = self;
        Self { behind_metadata: object.place_of(behind_metadata), status: object.place_of(status) }
    }

    /// Finds the offsets from a cursor at the end of the metadata.
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

/// The path of a field from the root of an object, such as `spec.nodeName`. Elements of arrays have no path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldPath(Vec<String>);

impl FieldPath {
    /// Parses a path with steps separated by dots. Keys with a dot are not supported.
    pub fn parse(path: &str) -> Self {
        Self(path.split('.').map(str::to_owned).collect())
    }

    /// The keys from the root to the field. Never empty.
    pub fn steps(&self) -> &[String] {
        &self.0
    }
}

/// The maximum number of paths in one pass: one bit each.
const PATHS_PER_PASS: usize = u64::BITS as usize;

/// Reads the summary. The cursor is on the key `metadata`, the first one after kind and apiVersion.
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

/// A string. Null counts as empty, as in Go.
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

/// Follows up to 64 paths at once. A set of paths is a bit mask of their indexes.
struct Follow<'p, 'f, 'a> {
    paths: &'p [FieldPath],
    found: &'f mut [Cow<'a, str>],
}

impl<'a> Follow<'_, '_, 'a> {
    /// Visits the members of the root object until every path is resolved.
    fn root(&mut self, mut cursor: Cursor<'a>, mut active: u64) {
        while active != 0
            && let Some(key) = cursor.key()
        {
            let met = self.member(&mut cursor, key, 0, active);
            active &= !met;
        }
    }

    /// Visits one member of an object at `depth`. Returns the paths whose next step is this member.
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

    /// Visits a value that `active` paths reach in `depth` steps.
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
