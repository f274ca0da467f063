//! Sorted byte strings in one piece of memory.
//!
//! What all of them begin with stands there once; the rests, in which neighbours differ by a few letters, follow each
//! other. So a search touches a few lines of memory rather than an allocation for each string it compares, and a copy is
//! made at one stroke. Not changed once made: every change makes new ones.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// How many bytes an end takes.
const END: usize = size_of::<u32>();

/// Strictly ascending byte strings. A clone shares them.
#[derive(Clone, Default)]
pub struct Keys {
    /// How many there are.
    len: u32,
    /// How many bytes all of them begin with.
    common: u32,
    /// Where the rest of each ends among the rests, as a number of [`END`] bytes; what all begin with; the rests.
    memory: Arc<[u8]>,
}

/// The memory, taken apart.
struct Parts<'a> {
    ends: &'a [[u8; END]],
    prefix: &'a [u8],
    rests: &'a [u8],
}

impl Keys {
    /// These keys, which strictly ascend.
    pub(super) fn of<K: AsRef<[u8]>>(keys: &[K]) -> Self {
        let (first, last) = match keys {
            [] => return Self::default(),
            [first, .., last] => (first.as_ref(), last.as_ref()),
            [only] => (only.as_ref(), only.as_ref()),
        };
        let prefix = &first[..common(first, last)];
        let lengths = keys.iter().map(|key| key.as_ref().len() - prefix.len());
        let mut memory = Self::room(keys.len(), prefix.len() + lengths.clone().sum::<usize>());
        let mut at = 0;
        for length in lengths {
            at += length;
            memory.extend_from_slice(&end(at).to_le_bytes());
        }
        memory.extend_from_slice(prefix);
        keys.iter().for_each(|key| memory.extend_from_slice(&key.as_ref()[prefix.len()..]));
        Self::from_memory(keys.len(), prefix.len(), memory)
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends one of them.
    pub fn write(&self, at: usize, out: &mut Vec<u8>) {
        let parts = self.parts();
        out.extend_from_slice(parts.prefix);
        out.extend_from_slice(parts.rest(at));
    }

    pub(super) fn get(&self, at: usize) -> Vec<u8> {
        let parts = self.parts();
        [parts.prefix, parts.rest(at)].concat()
    }

    /// Where a key is, or would be.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let parts = self.parts();
        let Some(rest) = key.strip_prefix(parts.prefix) else {
            return Err(if *key < *parts.prefix { 0 } else { self.len() });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match parts.rest(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The same and one more, at its place.
    pub(super) fn with(&self, at: usize, key: &[u8]) -> Self {
        let parts = self.parts();
        let Some(rest) = key.strip_prefix(parts.prefix).filter(|_| !self.is_empty()) else {
            let mut all: Vec<Vec<u8>> = self.all().collect();
            all.insert(at, key.to_vec());
            return Self::of(&all);
        };
        let cut = parts.start(at);
        let mut memory = Self::room(self.len() + 1, parts.prefix.len() + parts.rests.len() + rest.len());
        memory.extend_from_slice(parts.ends[..at].as_flattened());
        memory.extend_from_slice(&end(cut + rest.len()).to_le_bytes());
        let behind = (at..self.len()).flat_map(|at| end(parts.end(at) + rest.len()).to_le_bytes());
        memory.extend(behind);
        for piece in [parts.prefix, &parts.rests[..cut], rest, &parts.rests[cut..]] {
            memory.extend_from_slice(piece);
        }
        Self::from_memory(self.len() + 1, parts.prefix.len(), memory)
    }

    /// The same without one.
    pub(super) fn without(&self, at: usize) -> Self {
        let parts = self.parts();
        let (from, to) = (parts.start(at), parts.end(at));
        let mut memory = Self::room(self.len() - 1, parts.prefix.len() + parts.rests.len() - (to - from));
        memory.extend_from_slice(parts.ends[..at].as_flattened());
        memory.extend((at + 1..self.len()).flat_map(|at| end(parts.end(at) - (to - from)).to_le_bytes()));
        for piece in [parts.prefix, &parts.rests[..from], &parts.rests[to..]] {
            memory.extend_from_slice(piece);
        }
        Self::from_memory(self.len() - 1, parts.prefix.len(), memory)
    }

    /// Some of them.
    pub(super) fn part(&self, range: Range<usize>) -> Self {
        Self::of(&range.map(|at| self.get(at)).collect::<Vec<_>>())
    }

    /// These and those behind them, perhaps with one between.
    pub(super) fn joined(&self, between: Option<&[u8]>, right: &Self) -> Self {
        Self::of(&self.all().chain(between.map(<[u8]>::to_vec)).chain(right.all()).collect::<Vec<_>>())
    }

    fn all(&self) -> impl Iterator<Item = Vec<u8>> {
        (0..self.len()).map(|at| self.get(at))
    }

    /// Memory for so many keys with so many bytes.
    fn room(keys: usize, bytes: usize) -> Vec<u8> {
        Vec::with_capacity(keys * END + bytes)
    }

    fn from_memory(keys: usize, common: usize, memory: Vec<u8>) -> Self {
        Self { len: end(keys), common: end(common), memory: memory.into() }
    }

    fn parts(&self) -> Parts<'_> {
        let (ends, texts) = self.memory.split_at(self.len() * END);
        let (prefix, rests) = texts.split_at(self.common as usize);
        Parts { ends: ends.as_chunks().0, prefix, rests }
    }
}

impl<'a> Parts<'a> {
    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.end(before))
    }

    fn end(&self, at: usize) -> usize {
        u32::from_le_bytes(self.ends[at]) as usize
    }

    fn rest(&self, at: usize) -> &'a [u8] {
        &self.rests[self.start(at)..self.end(at)]
    }
}

/// How many bytes two strings have in common at their beginning.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn end(at: usize) -> u32 {
    u32::try_from(at).expect("a node holds a few keys, each shorter than an object of a few MiB")
}
