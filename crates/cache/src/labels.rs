//! Labels of entries. All entries of a collection with the same labels share one set in memory. Objects with equal
//! parts share these parts in the same way.
//!
//! A label is one text, `key=value` (keys contain no `=`), which is also its term in the index.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use hashbrown::{DefaultHashBuilder, HashTable};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// The number of separately locked parts of the pools, so that concurrent decoders rarely wait.
const SHARDS: usize = 16;
/// The size of a shard at its first sweep of unused values.
const FIRST_SWEEP: usize = 64;
/// A number of labels that few objects exceed.
const COMMON_LABELS: usize = 8;
/// A total size of labels in bytes that few objects exceed.
const COMMON_BYTES: usize = 512;

/// The labels of one object. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<LabelSet>>);

/// The labels `key=value`, in strictly ascending order.
#[derive(Debug, PartialEq, Eq)]
struct LabelSet(Box<[Arc<str>]>);

impl Labels {
    /// The value of the label with this key.
    ///
    /// Cost: one comparison for each of a few labels, otherwise a binary search. No allocation.
    pub fn get(&self, key: &str) -> Option<&str> {
        let terms = self.terms();
        let likely = if terms.len() <= COMMON_LABELS {
            terms
        } else {
            let first = terms.partition_point(|term| term.bytes().lt(key.bytes().chain(*b"=")));
            terms[first..].get(..1)?
        };
        likely.iter().find_map(|term| term.strip_prefix(key)?.strip_prefix('='))
    }

    /// Returns true if there is a label with this text `key=value`. Cost: a binary search.
    pub(crate) fn has(&self, term: &[u8]) -> bool {
        self.terms().binary_search_by(|known| known.as_bytes().cmp(term)).is_ok()
    }

    /// All labels as key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.terms().iter().map(|term| term.split_once('=').unwrap_or((term, "")))
    }

    /// The number of labels.
    pub fn len(&self) -> usize {
        self.terms().len()
    }

    /// Returns true if there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All labels as `key=value`.
    pub(crate) fn terms(&self) -> &[Arc<str>] {
        self.0.as_ref().map_or(&[], |set| &set.0)
    }

    /// Returns true if both share the same set in memory.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

/// Makes equal labels share their memory.
#[derive(Default)]
pub(crate) struct LabelInterner {
    /// The pools are created with the first labels, since thousands of collections have no labels.
    pools: OnceLock<Box<Pools>>,
}

#[derive(Default)]
struct Pools {
    terms: Sharded<str>,
    sets: Sharded<LabelSet>,
    /// Seeded randomly against collision attacks.
    hasher: RandomState,
}

impl LabelInterner {
    /// Returns the shared set of labels with these keys and values.
    ///
    /// Cost: nothing without labels. For known labels, one allocation and one lookup.
    pub(crate) fn intern<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut joined = String::new();
        let mut places: SmallVec<[Range<usize>; COMMON_LABELS]> = SmallVec::new();
        for (key, value) in labels {
            joined.reserve(if joined.is_empty() { COMMON_BYTES } else { 0 });
            let start = joined.len();
            [key, "=", value].into_iter().for_each(|text| joined.push_str(text));
            places.push(start..joined.len());
        }
        if places.is_empty() {
            return Labels(None);
        }
        let mut terms: SmallVec<[&str; COMMON_LABELS]> = places.into_iter().map(|place| &joined[place]).collect();
        terms.sort_unstable();
        // Objects that other servers have written may repeat a label.
        terms.dedup();
        Labels(Some(self.pools.get_or_init(Box::default).set(&terms)))
    }
}

impl Pools {
    /// The set of these strictly ascending terms.
    fn set(&self, terms: &[&str]) -> Arc<LabelSet> {
        let is_set = |set: &LabelSet| set.0.len() == terms.len() && set.0.iter().zip(terms).all(|(a, b)| **a == **b);
        // ORDER: terms are interned while the shard of the set is locked, never the other way round.
        self.sets
            .intern(self.hash(terms), is_set, || Arc::new(LabelSet(terms.iter().map(|term| self.term(term)).collect())))
    }

    fn term(&self, text: &str) -> Arc<str> {
        self.terms.intern(self.hash(&[text]), |known| known == text, || Arc::from(text))
    }

    fn hash(&self, texts: &[&str]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        texts.iter().for_each(|text| text.hash(&mut hasher));
        hasher.finish()
    }
}

/// Makes equal parts of objects share their memory.
#[derive(Default)]
pub(crate) struct PartInterner {
    /// The pool is created with the first part, since thousands of collections have none.
    pool: OnceLock<Box<(Sharded<[u8]>, DefaultHashBuilder)>>,
}

impl PartInterner {
    /// Returns the shared copy of a text. Cost: a lookup and a comparison for a known text.
    pub(crate) fn intern(&self, text: &[u8]) -> Arc<[u8]> {
        let (texts, hasher) = &**self.pool.get_or_init(Box::default);
        texts.intern(hasher.hash_one(text), |known| known == text, || Arc::from(text))
    }
}

/// A pool in parts with separate locks.
struct Sharded<T: ?Sized>([Mutex<Pool<T>>; SHARDS]);

impl<T: ?Sized> Default for Sharded<T> {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl<T: ?Sized> Sharded<T> {
    /// Returns the value with this hash for which `is_wanted` returns true. Creates it if it is unknown.
    fn intern(&self, hash: u64, is_wanted: impl Fn(&T) -> bool, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        // The tables use other bits of the hash: the upper and the lowest ones.
        let shard = usize::try_from((hash >> u16::BITS) % SHARDS as u64).expect("there are few shards");
        self.0[shard].lock().intern(hash, is_wanted, make)
    }
}

/// Values that are shared while in use.
struct Pool<T: ?Sized> {
    known: HashTable<Interned<T>>,
    /// The number of values at which unused ones are removed: twice the number after the last sweep, so amortized O(1)
    /// for each value.
    sweep_at: usize,
}

struct Interned<T: ?Sized> {
    /// The hash is stored because a growing table needs it. Computing it again would make other threads wait longer.
    hash: u64,
    value: Arc<T>,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashTable::new(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized> Pool<T> {
    fn intern(&mut self, hash: u64, is_wanted: impl Fn(&T) -> bool, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.find(hash, |known| known.hash == hash && is_wanted(&known.value)) {
            return known.value.clone();
        }
        if self.known.len() >= self.sweep_at {
            // The pool itself has one reference to each value.
            self.known.retain(|known| Arc::strong_count(&known.value) > 1);
            self.sweep_at = FIRST_SWEEP.max(self.known.len() * 2);
        }
        let value = make();
        self.known.insert_unique(hash, Interned { hash, value: value.clone() }, |known| known.hash);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_found_by_their_whole_key() {
        let interner = LabelInterner::default();
        let labels = interner.intern([("b", "x=y"), ("app", "web"), ("app.kubernetes.io/name", "")].into_iter());
        assert_eq!(labels.get("app"), Some("web"));
        assert_eq!(labels.get("b"), Some("x=y"));
        assert_eq!(labels.get("app.kubernetes.io/name"), Some(""));
        assert_eq!(labels.get("ap"), None);
        assert_eq!(labels.get("app="), None);
        assert_eq!(labels.iter().collect::<Vec<_>>(), [("app.kubernetes.io/name", ""), ("app", "web"), ("b", "x=y")]);
    }

    #[test]
    fn many_labels_are_found_as_few_are() {
        let interner = LabelInterner::default();
        let keys: Vec<String> = ["a", "a-b", "a.b/c", "a0", "aa"].iter().map(ToString::to_string).collect();
        let keys: Vec<String> = keys.into_iter().chain((0..500).map(|number| format!("k{number}"))).collect();
        for count in [5, COMMON_LABELS, COMMON_LABELS + 1, keys.len()] {
            let labels = interner.intern(keys[..count].iter().map(|key| (&**key, &**key)));
            for (place, key) in keys.iter().enumerate() {
                let found = (place < count).then_some(&**key);
                assert_eq!((labels.get(key), labels.has(format!("{key}={key}").as_bytes())), (found, found.is_some()));
                assert!(!labels.has(format!("{key}=").as_bytes()) && !labels.has(key.as_bytes()), "{key}");
            }
            assert_eq!((labels.get(""), labels.get("z"), labels.get("a=")), (None, None, None));
        }
    }

    #[test]
    fn equal_parts_of_objects_share_memory() {
        let interner = PartInterner::default();
        let (one, same, other) = (interner.intern(b"a text"), interner.intern(b"a text"), interner.intern(b"another"));
        assert!(Arc::ptr_eq(&one, &same) && !Arc::ptr_eq(&one, &other));
        assert_eq!((&*same, &*other), (&b"a text"[..], &b"another"[..]));
    }

    #[test]
    fn equal_labels_share_memory_and_unused_ones_are_let_go() {
        let interner = LabelInterner::default();
        let kept = interner.intern([("app", "web")].into_iter());
        for n in 0..10 * SHARDS * FIRST_SWEEP {
            interner.intern([("n", n.to_string().as_str())].into_iter());
        }
        assert!(kept.same(&interner.intern([("app", "web")].into_iter())));
        let pools = interner.pools.get().unwrap();
        assert!(pools.sets.0.iter().all(|shard| shard.lock().known.len() <= FIRST_SWEEP));
        assert!(pools.terms.0.iter().all(|shard| shard.lock().known.len() <= FIRST_SWEEP));
    }
}
