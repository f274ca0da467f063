//! Sorted byte strings in one piece of memory.
//!
//! What all of them begin with stands there once; the rests, in which neighbours differ by a few letters, follow each
//! other. So a search touches a few lines of memory rather than an allocation for each string it compares, and a copy is
//! made at one stroke. Not changed once made: every change makes new ones.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

/// Strictly ascending byte strings.
#[derive(Default)]
pub struct Keys {
    /// What all keys begin with.
    prefix: Arc<[u8]>,
    /// How the keys go on, one after the other.
    rests: Box<[u8]>,
    /// Where the rest of each ends.
    ends: Box<[u32]>,
}

impl Keys {
    /// These keys, which strictly ascend.
    pub(super) fn of<K: AsRef<[u8]>>(keys: &[K]) -> Self {
        let [first, .., last] = keys else {
            let only = keys.first().map_or(&[][..], AsRef::as_ref);
            return Self { prefix: only.into(), rests: Box::default(), ends: keys.iter().map(|_| 0).collect() };
        };
        let prefix = &first.as_ref()[..common(first.as_ref(), last.as_ref())];
        let rest = |key: &'_ K| key.as_ref().len() - prefix.len();
        let mut rests = Vec::with_capacity(keys.iter().map(rest).sum());
        let mut ends = Vec::with_capacity(keys.len());
        for key in keys {
            rests.extend_from_slice(&key.as_ref()[prefix.len()..]);
            ends.push(end(rests.len()));
        }
        Self { prefix: prefix.into(), rests: rests.into(), ends: ends.into() }
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Appends one of them.
    pub fn write(&self, at: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prefix);
        out.extend_from_slice(self.rest(at));
    }

    pub(super) fn get(&self, at: usize) -> Vec<u8> {
        [&self.prefix, self.rest(at)].concat()
    }

    /// Where a key is, or would be.
    pub(super) fn find(&self, key: &[u8]) -> Result<usize, usize> {
        let Some(rest) = key.strip_prefix(&*self.prefix) else {
            return Err(if *key < *self.prefix { 0 } else { self.len() });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.rest(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// The same and one more, at its place.
    pub(super) fn with(&self, at: usize, key: &[u8]) -> Self {
        let Some(rest) = key.strip_prefix(&*self.prefix).filter(|_| !self.is_empty()) else {
            let mut all: Vec<Vec<u8>> = self.all().collect();
            all.insert(at, key.to_vec());
            return Self::of(&all);
        };
        let cut = self.start(at);
        let mut ends = Vec::with_capacity(self.len() + 1);
        ends.extend_from_slice(&self.ends[..at]);
        ends.push(end(cut + rest.len()));
        ends.extend(self.ends[at..].iter().map(|before| before + end(rest.len())));
        let rests = [&self.rests[..cut], rest, &self.rests[cut..]].concat();
        Self { prefix: self.prefix.clone(), rests: rests.into(), ends: ends.into() }
    }

    /// The same without one.
    pub(super) fn without(&self, at: usize) -> Self {
        let (from, to) = (self.start(at), self.ends[at] as usize);
        let mut ends = Vec::with_capacity(self.len() - 1);
        ends.extend_from_slice(&self.ends[..at]);
        ends.extend(self.ends[at + 1..].iter().map(|before| before - end(to - from)));
        let rests = [&self.rests[..from], &self.rests[to..]].concat();
        Self { prefix: self.prefix.clone(), rests: rests.into(), ends: ends.into() }
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

    fn start(&self, at: usize) -> usize {
        at.checked_sub(1).map_or(0, |before| self.ends[before] as usize)
    }

    fn rest(&self, at: usize) -> &[u8] {
        &self.rests[self.start(at)..self.ends[at] as usize]
    }
}

/// How many bytes two strings have in common at their beginning.
pub(super) fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

fn end(at: usize) -> u32 {
    u32::try_from(at).expect("a node holds a few keys, each shorter than an object of a few MiB")
}
