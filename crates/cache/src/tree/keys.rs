//! Sorted byte strings in one piece of memory.
//!
//! The memory has the common prefix once, followed by the suffixes. So a search reads a few cache lines instead of one
//! allocation for each compared string, and a copy is one operation. Keys are immutable: every change creates new ones.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use bytes::BufMut;

/// The size of an end offset in bytes.
const END: usize = size_of::<u32>();

/// Byte strings in strictly ascending order. A clone shares them.
#[derive(Clone, Default)]
pub struct Keys {
    /// The number of strings.
    len: u32,
    /// The length of the common prefix.
    common: u32,
    /// The end of each suffix, in [`END`] bytes, then the common prefix, then the suffixes.
    memory: Arc<[u8]>,
}

/// The sections of the memory.
struct Sections<'a> {
    ends: &'a [[u8; END]],
    prefix: &'a [u8],
    rests: &'a [u8],
}

impl Keys {
    /// Builds the memory of strictly ascending keys.
    pub(super) fn new<K: AsRef<[u8]>>(keys: &[K]) -> Self {
        let (first, last) = match keys {
            [] => return Self::default(),
            [first, .., last] => (first.as_ref(), last.as_ref()),
            [only] => (only.as_ref(), only.as_ref()),
        };
        let prefix = &first[..common(first, last)];
        let lengths = keys.iter().map(|key| key.as_ref().len() - prefix.len());
        let bytes = lengths.clone().sum();
        Self::written(keys.len(), prefix, bytes, |out| {
            let mut at = 0;
            for length in lengths {
                at += length;
                out.put_u32_le(end(at));
            }
            out.put_slice(prefix);
            keys.iter().for_each(|key| out.put_slice(&key.as_ref()[prefix.len()..]));
        })
    }

    /// The number of strings.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there are no strings.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one string to `out`.
    pub fn write(&self, at: usize, out: &mut Vec<u8>) {
        let parts = self.parts();
        out.extend_from_slice(parts.prefix);
        out.extend_from_slice(parts.rest(at));
    }

    pub(super) fn get(&self, at: usize) -> Vec<u8> {
        let parts = self.parts();
        [parts.prefix, parts.rest(at)].concat()
    }

    /// The index of a key. If it is absent, the error is the index at which to insert it.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let parts = self.parts();
        let Some(rest) = key.strip_prefix(parts.prefix) else {
            return Err(if *key < *parts.prefix { 0 } else { self.len() });
        };
        let wanted = beginning(rest);
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match parts.beginning(middle).cmp(&wanted).then_with(|| parts.rest(middle).cmp(rest)) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Returns the keys with a key inserted at an index.
    pub(super) fn with(&self, at: usize, key: &[u8]) -> Self {
        let parts = self.parts();
        let Some(rest) = key.strip_prefix(parts.prefix).filter(|_| !self.is_empty()) else {
            let mut all: Vec<Vec<u8>> = self.all().collect();
            all.insert(at, key.to_vec());
            return Self::new(&all);
        };
        let cut = parts.start(at);
        Self::written(self.len() + 1, parts.prefix, parts.rests.len() + rest.len(), |out| {
            out.put_slice(parts.ends[..at].as_flattened());
            out.put_u32_le(end(cut + rest.len()));
            (at..self.len()).for_each(|at| out.put_u32_le(end(parts.end(at) + rest.len())));
            for piece in [parts.prefix, &parts.rests[..cut], rest, &parts.rests[cut..]] {
                out.put_slice(piece);
            }
        })
    }

    /// Returns the keys without the key at an index.
    pub(super) fn without(&self, at: usize) -> Self {
        let parts = self.parts();
        let (from, to) = (parts.start(at), parts.end(at));
        Self::written(self.len() - 1, parts.prefix, parts.rests.len() - (to - from), |out| {
            out.put_slice(parts.ends[..at].as_flattened());
            (at + 1..self.len()).for_each(|at| out.put_u32_le(end(parts.end(at) - (to - from))));
            for piece in [parts.prefix, &parts.rests[..from], &parts.rests[to..]] {
                out.put_slice(piece);
            }
        })
    }

    /// Returns a range of the keys.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        Self::new(&range.map(|at| self.get(at)).collect::<Vec<_>>())
    }

    /// Returns these keys followed by the keys of `right`, with an optional key in between.
    pub(super) fn joined(&self, between: Option<&[u8]>, right: &Self) -> Self {
        Self::new(&self.all().chain(between.map(<[u8]>::to_vec)).chain(right.all()).collect::<Vec<_>>())
    }

    fn all(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Allocates the memory for `keys` keys with this prefix and `bytes` bytes of suffixes. `write` fills the memory.
    fn written(keys: usize, prefix: &[u8], bytes: usize, write: impl FnOnce(&mut &mut [u8])) -> Self {
        // The memory is allocated once in its exact size, since most writes of a tree do this.
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, keys * END + prefix.len() + bytes).collect();
        write(&mut Arc::get_mut(&mut memory).expect("it is not shared yet"));
        Self { len: end(keys), common: end(prefix.len()), memory }
    }

    fn parts(&self) -> Sections<'_> {
        let (ends, texts) = self.memory.split_at(self.len() * END);
        let (prefix, rests) = texts.split_at(self.common as usize);
        Sections { ends: ends.as_chunks().0, prefix, rests }
    }
}

impl<'a> Sections<'a> {
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.end(before))
    }

    fn end(&self, at: usize) -> usize {
        u32::from_le_bytes(self.ends[at]) as usize
    }

    /// The [`beginning`] of a suffix. Nearly all suffixes differ in it, so few comparisons need a call.
    fn beginning(&self, at: usize) -> u64 {
        let (start, end) = (self.start(at), self.end(at));
        match self.rests.get(start..).and_then(<[u8]>::first_chunk) {
            // The bytes after a short suffix belong to the next one.
            Some(bytes) if end - start < bytes.len() => u64::from_be_bytes(*bytes) & !(u64::MAX >> (8 * (end - start))),
            Some(bytes) => u64::from_be_bytes(*bytes),
            None => beginning(&self.rests[start..end]),
        }
    }

    fn rest(&self, at: usize) -> &'a [u8] {
        &self.rests[self.start(at)..self.end(at)]
    }
}

/// The first bytes of a text, padded with zeros. If two of them differ, they have the order of the texts.
fn beginning(text: &[u8]) -> u64 {
    match text.first_chunk() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => text.iter().rfold(0, |word, byte| (word >> 8) | u64::from(*byte) << 56),
    }
}

/// The length of the common prefix of two strings.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn end(at: usize) -> u32 {
    u32::try_from(at).expect("a node holds a few keys, each shorter than an object of a few MiB")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    /// Texts with common prefixes, around the length of an inline comparison, and with zeros.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(prop_oneof![Just(0), Just(1), Just(b'a'), Just(0xff)], 0..12)
    }

    fn check(keys: &Keys, model: &BTreeSet<Vec<u8>>) {
        assert!(keys.all().eq(model.iter().cloned()), "{model:?}");
    }

    proptest! {
        #[test]
        fn keys_are_found_where_they_stand_and_others_where_they_would(
            texts in btree_set(text(), 0..20), others in vec(text(), 20),
        ) {
            let sorted: Vec<&Vec<u8>> = texts.iter().collect();
            let keys = Keys::new(&sorted);
            check(&keys, &texts);
            for other in texts.iter().chain(&others) {
                let place = sorted.binary_search(&other);
                prop_assert_eq!(keys.find(other), place, "{:?} in {:?}", other, texts);
                let mut changed = texts.clone();
                match place {
                    Ok(at) => {
                        changed.remove(other);
                        check(&keys.without(at), &changed);
                    }
                    Err(at) => {
                        changed.insert(other.clone());
                        check(&keys.with(at, other), &changed);
                    }
                }
            }
        }
    }
}
