//! The encodings of a collection's stored values, with the number of values in each. Each write updates the numbers, so
//! a scan is not necessary to see that no value has an outdated encoding.

use std::sync::Arc;

use keelson_codec::stored::{Encoding, StoredObject};
use keelson_storage::Seal;
use parking_lot::RwLock;

/// The maximum number of distinct encodings of a collection, more than any resource has versions. Values in further
/// encodings count as values in the last one.
const MOST: usize = 256;

/// The index of an encoding in its collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EncodingId(u8);

/// The encodings that the collection has had so far. None is removed.
#[derive(Default)]
pub(crate) struct Encodings(RwLock<Vec<Arc<Encoding>>>);

/// The number of objects in each encoding.
#[derive(Clone, Default)]
pub(crate) struct EncodingCounts(Vec<usize>);

/// Stored objects with an outdated encoding.
#[derive(Debug, Default)]
pub struct StalePage {
    /// Their keys, relative to the collection.
    pub keys: Vec<Arc<str>>,
    /// The key to continue from. `None` at the end.
    pub next: Option<String>,
}

impl Encodings {
    /// The encoding of a stored value. `object` is the decoded value, and `seal` its encryption.
    pub(crate) fn encoding(&self, value: &[u8], object: &StoredObject, seal: Seal) -> EncodingId {
        let seal = seal.number();
        let find = |known: &[Arc<Encoding>]| known.iter().position(|known| known.is_of(value, object, seal));
        if let Some(place) = find(&self.0.read()) {
            return EncodingId::at(place);
        }
        let mut known = self.0.write();
        let place = find(&known).unwrap_or_else(|| {
            if known.len() < MOST {
                known.push(Arc::new(Encoding::new(value, object, seal)));
            }
            known.len() - 1
        });
        EncodingId::at(place)
    }

    /// All encodings, by index.
    pub(crate) fn all(&self) -> Vec<Arc<Encoding>> {
        self.0.read().clone()
    }
}

impl EncodingId {
    fn at(place: usize) -> Self {
        Self(u8::try_from(place).unwrap_or(u8::MAX))
    }

    /// Returns the element of this encoding in a list with one element for each encoding of the collection.
    pub(crate) fn among<T>(self, all: &[T]) -> Option<&T> {
        all.get(usize::from(self.0))
    }
}

impl EncodingCounts {
    /// Counts the encodings of some objects.
    pub(crate) fn new(encodings: impl Iterator<Item = EncodingId>) -> Self {
        let mut counts = Self::default();
        encodings.for_each(|encoding| counts.add(encoding));
        counts
    }

    /// Updates the counts after the replacement of an object.
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

    /// The number of objects by index.
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
