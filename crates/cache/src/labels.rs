//! Labels as entries hold them: one pointer, shared by all entries of a collection with the same labels.
//!
//! A label is one text, `key=value` (keys hold no `=`), because that is also the term under which the index knows it.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;

/// How many texts or sets an interner holds before it first looks for unused ones.
const FIRST_SWEEP: usize = 1024;

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
    terms: Pool<str>,
    sets: Pool<LabelSet>,
}

impl LabelInterner {
    /// The labels with these keys and values.
    pub(crate) fn intern<'a>(&self, labels: impl Iterator<Item = (&'a str, &'a str)>) -> Labels {
        let mut texts: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
        if texts.is_empty() {
            return Labels(None);
        }
        texts.sort_unstable();
        let mut pools = self.pools.lock();
        let terms = texts.into_iter().map(|text| pools.terms.intern(Arc::from(text))).collect();
        Labels(Some(pools.sets.intern(Arc::new(LabelSet(terms)))))
    }
}

/// Values that are shared as long as somebody uses them.
struct Pool<T: ?Sized> {
    known: HashSet<Arc<T>>,
    /// The size at which unused values are looked for. Twice what was in use the last time: O(1) a value in the mean.
    sweep_at: usize,
}

impl<T: ?Sized> Default for Pool<T> {
    fn default() -> Self {
        Self { known: HashSet::new(), sweep_at: FIRST_SWEEP }
    }
}

impl<T: ?Sized + Eq + Hash> Pool<T> {
    fn intern(&mut self, value: Arc<T>) -> Arc<T> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at {
            self.known.retain(|value| Arc::strong_count(value) > 1);
            self.sweep_at = FIRST_SWEEP.max(self.known.len() * 2);
        }
        self.known.insert(value.clone());
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
