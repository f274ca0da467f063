//! Labels as entries hold them: one pointer, shared by all entries of a collection with the same labels.
//!
//! A label is one text, `key=value` (keys hold no `=`), because that is also the term under which the index knows it.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

/// How many texts or sets an interner holds before it first looks for unused ones.
const FIRST_SWEEP: usize = 1024;
/// As many labels as hardly any object has more of.
const COMMON_LABELS: usize = 8;

/// The labels of one object. Cloning is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Option<Arc<LabelSet>>);

/// The labels `key=value`, ascending by key.
#[derive(Debug, PartialEq, Eq, Hash)]
struct LabelSet(Box<[Arc<str>]>);

impl Labels {
    /// The value of the label with this key.
    ///
    /// Cost: one comparison a label, no allocation.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.terms().iter().find_map(|term| term.strip_prefix(key)?.strip_prefix('='))
    }

    /// All labels as key and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.terms().iter().map(|term| term.split_once('=').unwrap_or((term, "")))
    }

    /// How many labels there are.
    pub fn len(&self) -> usize {
        self.terms().len()
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All labels as `key=value`.
    pub(crate) fn terms(&self) -> &[Arc<str>] {
        self.0.as_ref().map_or(&[], |set| &set.0)
    }

    /// Whether both are known to be equal without looking at them.
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
    pools: Mutex<Pools>,
}

#[derive(Default)]
struct Pools {
    terms: Pool<Arc<str>>,
    sets: Pool<SharedSet>,
}

impl LabelInterner {
    /// The labels with these keys and values. Allocates only where they are new.
    pub(crate) fn intern<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut joined = String::new();
        let mut places: SmallVec<[Range<usize>; COMMON_LABELS]> = SmallVec::new();
        for (key, value) in labels {
            let start = joined.len();
            joined.extend([key, "=", value]);
            places.push(start..joined.len());
        }
        if places.is_empty() {
            return Labels(None);
        }
        places.sort_unstable_by(|a, b| joined[a.clone()].cmp(&joined[b.clone()]));
        // What another server stored may name a label twice.
        places.dedup_by(|a, b| joined[a.clone()] == joined[b.clone()]);
        let mut pools = self.pools.lock();
        let terms: SmallVec<[Arc<str>; COMMON_LABELS]> =
            places.into_iter().map(|place| pools.terms.intern(&joined[place], |text: &str| Arc::from(text))).collect();
        let set = pools.sets.intern(&terms[..], |terms| SharedSet(Arc::new(LabelSet(terms.into()))));
        Labels(Some(set.0))
    }
}

/// A set that is looked for by its terms.
#[derive(Clone, PartialEq, Eq, Hash)]
struct SharedSet(Arc<LabelSet>);

impl Borrow<[Arc<str>]> for SharedSet {
    fn borrow(&self) -> &[Arc<str>] {
        &self.0.0
    }
}

/// Something that is shared as long as somebody uses it.
trait Shared: Clone + Eq + Hash {
    /// Whether anybody has it beside the pool.
    fn is_used(&self) -> bool;
}

impl Shared for Arc<str> {
    fn is_used(&self) -> bool {
        Self::strong_count(self) > 1
    }
}

impl Shared for SharedSet {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

/// Values that are shared as long as somebody uses them.
struct Pool<T> {
    known: HashSet<T>,
    /// The size at which unused values are looked for. Twice what was in use the last time: O(1) a value in the mean.
    sweep_at: usize,
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: Shared> Pool<T> {
    fn intern<Q: Eq + Hash + ?Sized>(&mut self, value: &Q, make: impl FnOnce(&Q) -> T) -> T
    where
        T: Borrow<Q>,
    {
        if let Some(known) = self.known.get(value) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(T::is_used);
            self.sweep_at = FIRST_SWEEP.max(self.known.len() * 2);
        }
        let made = make(value);
        self.known.insert(made.clone());
        made
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
    fn equal_labels_share_memory_and_unused_ones_are_let_go() {
        let interner = LabelInterner::default();
        let kept = interner.intern([("app", "web")].into_iter());
        for n in 0..10 * FIRST_SWEEP {
            interner.intern([("n", n.to_string().as_str())].into_iter());
        }
        assert!(kept.same(&interner.intern([("app", "web")].into_iter())));
        let pools = interner.pools.lock();
        assert!(pools.sets.known.len() <= FIRST_SWEEP && pools.terms.known.len() <= FIRST_SWEEP);
    }
}
