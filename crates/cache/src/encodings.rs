//! The encodings in which the values of a collection lie in the store, and how many lie in each: counted as they change, so that nobody
//! has to walk through a collection to know that there is nothing to be written anew.

use std::sync::Arc;

use keelson_codec::stored::{Encoding, StoredObject};
use keelson_storage::Seal;
use parking_lot::RwLock;

/// How many encodings a collection tells apart: more than any has versions. What is in one more counts as the last of them.
const MOST: usize = 256;

/// The place of an encoding among those of its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncodingId(u8);

/// The encodings that a collection has seen. None is forgotten.
#[derive(Default)]
pub(crate) struct Encodings(RwLock<Vec<Arc<Encoding>>>);

/// How many objects are stored in each encoding.
#[derive(Clone, Default)]
pub(crate) struct EncodingCounts(Vec<usize>);

/// Objects that lie in the store in another encoding than they should.
#[derive(Debug, Default)]
pub struct StalePage {
    /// Their keys, relative to the collection.
    pub keys: Vec<Arc<str>>,
    /// Where to look on; `None` at the end.
    pub next: Option<String>,
}

impl Encodings {
    /// The encoding of a value, which is this object, under a seal.
    pub(crate) fn of(&self, value: &[u8], object: &StoredObject, seal: Seal) -> EncodingId {
        let seal = seal.number();
        let find = |known: &[Arc<Encoding>]| known.iter().position(|known| known.is_of(value, object, seal));
        if let Some(place) = find(&self.0.read()) {
            return EncodingId::at(place);
        }
        let mut known = self.0.write();
        let place = find(&known).unwrap_or_else(|| {
            if known.len() < MOST {
                known.push(Arc::new(Encoding::of(value, object, seal)));
            }
            known.len() - 1
        });
        EncodingId::at(place)
    }

    /// All of them, in the order of their places.
    pub(crate) fn all(&self) -> Vec<Arc<Encoding>> {
        self.0.read().clone()
    }
}

impl EncodingId {
    fn at(place: usize) -> Self {
        Self(u8::try_from(place).unwrap_or(u8::MAX))
    }

    /// The encoding, among all of its collection.
    pub(crate) fn among<T>(self, all: &[T]) -> Option<&T> {
        all.get(usize::from(self.0))
    }
}

impl EncodingCounts {
    /// Those of some objects.
    pub(crate) fn of(encodings: impl Iterator<Item = EncodingId>) -> Self {
        let mut counts = Self::default();
        encodings.for_each(|encoding| counts.add(encoding));
        counts
    }

    /// Notes that an object has taken the place of another.
    pub(crate) fn replace(&mut self, before: Option<EncodingId>, after: Option<EncodingId>) {
        if before == after {
            return;
        }
        if let Some(before) = before
            && let Some(count) = self.0.get_mut(usize::from(before.0))
        {
            *count = count.saturating_sub(1);
        }
        if let Some(after) = after {
            self.add(after);
        }
    }

    /// How many there are in each place.
    pub(crate) fn each(&self) -> &[usize] {
        &self.0
    }

    fn add(&mut self, encoding: EncodingId) {
        let place = usize::from(encoding.0);
        if self.0.len() <= place {
            self.0.resize(place + 1, 0);
        }
        self.0[place] += 1;
    }
}
