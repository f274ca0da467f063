//! A sharded copy-on-write map, for values of which each small change makes a new version.
//!
//! A clone shares all shards with the original. A change copies one shard, and a comparison skips the shards that both
//! maps share. So changing one entry among thousands costs a copy of one shard.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

/// The number of shards. With a few thousand entries, a shard has less than a hundred. A clone increments one reference
/// count for each shard.
const PARTS: usize = 64;

/// A map that is divided into shards, which its clones share.
#[derive(Clone, Debug)]
pub struct SharedMap<K, V> {
    hasher: DefaultHashBuilder,
    parts: Vec<Arc<HashTable<(K, V)>>>,
    len: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        Self { hasher: DefaultHashBuilder::default(), parts: vec![Arc::default(); PARTS], len: 0 }
    }
}

impl<K, V> SharedMap<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.parts.iter().flat_map(|part| part.iter()).map(|(key, value)| (key, value))
    }

    /// The keys, in no order.
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, in no order.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Hash + Eq + Clone, V: Clone> SharedMap<K, V> {
    /// The value of a key.
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let hash = self.hasher.hash_one(key);
        self.parts[part(hash)].find(hash, |(known, _)| known.borrow() == key).map(|(_, value)| value)
    }

    /// Returns true if the key has a value.
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// Sets the value of a key and returns the old one.
    ///
    /// Cost: a copy of the shard if it is shared.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let hash = self.hasher.hash_one(&key);
        let part = Arc::make_mut(&mut self.parts[part(hash)]);
        if let Some((_, known)) = part.find_mut(hash, |(known, _)| *known == key) {
            return Some(std::mem::replace(known, value));
        }
        let hasher = &self.hasher;
        part.insert_unique(hash, (key, value), |(key, _)| hasher.hash_one(key));
        self.len += 1;
        None
    }

    /// Removes a key and returns its value.
    ///
    /// Cost: a copy of the shard if it is shared.
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if !self.contains_key(key) {
            return None;
        }
        let hash = self.hasher.hash_one(key);
        let part = Arc::make_mut(&mut self.parts[part(hash)]);
        let found = part.find_entry(hash, |(known, _)| known.borrow() == key).ok()?;
        let ((_, value), _) = found.remove();
        self.len -= 1;
        Some(value)
    }

    /// The keys whose values differ, or that only one of the maps has, in no order.
    ///
    /// Cost: a visit of the entries in all shards that the maps do not share.
    pub fn changed<'s>(
        &'s self,
        before: &'s Self,
        is_same: impl Fn(&V, &V) -> bool + 's,
    ) -> impl Iterator<Item = &'s K> {
        let parts = || self.parts.iter().zip(&before.parts).filter(|(now, before)| !Arc::ptr_eq(now, before));
        let is_other = move |(key, value): &&(K, V)| before.get(key).is_none_or(|before| !is_same(value, before));
        let changed = parts().flat_map(|(now, _)| now.iter()).filter(is_other);
        let gone = parts().flat_map(|(_, before)| before.iter()).filter(|(key, _)| !self.contains_key(key));
        changed.chain(gone).map(|(key, _)| key)
    }
}

/// The shard of a hash. It depends on other bits than those that the hash tables use first.
fn part(hash: u64) -> usize {
    (hash >> 32) as usize % PARTS
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Change {
        Insert(u16, u8),
        Remove(u16),
    }

    fn changes() -> impl Strategy<Value = Vec<Change>> {
        let change = prop_oneof![
            (0..500_u16, any::<u8>()).prop_map(|(key, value)| Change::Insert(key, value)),
            (0..500_u16).prop_map(Change::Remove),
        ];
        prop::collection::vec(change, 0..300)
    }

    fn apply(map: &mut SharedMap<u16, u8>, model: &mut BTreeMap<u16, u8>, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Insert(key, value) => assert_eq!(map.insert(*key, *value), model.insert(*key, *value)),
                Change::Remove(key) => assert_eq!(map.remove(key), model.remove(key)),
            }
        }
    }

    fn same(map: &SharedMap<u16, u8>, model: &BTreeMap<u16, u8>) {
        let shown: BTreeMap<u16, u8> = map.iter().map(|(key, value)| (*key, *value)).collect();
        assert_eq!((&shown, map.len(), map.is_empty()), (model, model.len(), model.is_empty()));
        for key in 0..500 {
            assert_eq!(map.get(&key), model.get(&key));
        }
    }

    proptest! {
        #[test]
        fn a_shared_map_behaves_as_a_map_with_immutable_clones(first in changes(), then in changes()) {
            let (mut map, mut model) = (SharedMap::default(), BTreeMap::new());
            apply(&mut map, &mut model, &first);
            let (before, model_before) = (map.clone(), model.clone());
            apply(&mut map, &mut model, &then);
            same(&map, &model);
            same(&before, &model_before);
            let keys = model.keys().chain(model_before.keys());
            let expected: BTreeSet<u16> = keys.filter(|key| model.get(key) != model_before.get(key)).copied().collect();
            let changed: Vec<u16> = map.changed(&before, u8::eq).copied().collect();
            prop_assert_eq!(changed.len(), expected.len());
            prop_assert_eq!(changed.into_iter().collect::<BTreeSet<_>>(), expected);
            // Unrelated maps can be compared too.
            prop_assert_eq!(map.changed(&SharedMap::default(), u8::eq).count(), model.len());
        }
    }

    #[test]
    fn a_change_copies_its_part_alone() {
        let mut map = SharedMap::default();
        for key in 0..10_000_u32 {
            map.insert(key, ());
        }
        let mut next = map.clone();
        next.insert(10_000, ());
        let shared = map.parts.iter().zip(&next.parts).filter(|(a, b)| Arc::ptr_eq(a, b)).count();
        assert_eq!(shared, PARTS - 1);
        assert_eq!(next.changed(&map, |(), ()| true).count(), 1);
        // Removing an absent key changes nothing.
        assert!(next.clone().remove(&20_000).is_none());
    }
}
