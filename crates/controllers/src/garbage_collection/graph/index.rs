//! The index from an owner's uid to its dependents.
//!
//! The index returns the objects to check after a change. It may return too many objects but never too few. It does not
//! store the owners of a dependent, since the event that changes them carries them.

use std::hash::RandomState;
use std::sync::Arc;

use hashbrown::hash_map::EntryRef;
use keelson_cache::Event;
use keelson_registry::CollectionId;

use super::super::metadata::{OwnerReference, Ties};
use super::super::owners::{OwnerLookup, find_owner, is_out_of_reach};
use super::{CollectionPlace, ObjectId, Visits};

/// Hash maps with random keys: clients choose names and uids, and must not be able to construct collisions. The
/// standard library's maps can't be searched by these borrowed keys.
type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;
type HashSet<K> = hashbrown::HashSet<K, RandomState>;

/// Dependents by owner, and owners that wait for them.
#[derive(Default)]
pub(super) struct Index {
    /// The dependents of each referenced owner, existing or not.
    dependents: HashMap<Arc<str>, Dependents>,
    /// Objects in deletion that wait for garbage collection, by uid.
    waiting: HashMap<Arc<str>, ObjectId>,
    /// The waiting objects, for a lookup by id.
    waiting_objects: HashSet<ObjectId>,
}

#[derive(Default)]
struct Dependents {
    /// The dependents. The flag is true if the owner's foreground deletion waits for the dependent.
    all: HashMap<ObjectId, bool>,
    blocking: usize,
    /// The owner's last known location, until its deletion is seen.
    owner_at: Option<ObjectId>,
}

/// One object that refers to an owner.
#[derive(Clone)]
pub(in super::super) struct Dependent {
    pub(in super::super) id: ObjectId,
    /// True if the owner's foreground deletion waits for it.
    pub(in super::super) blocks: bool,
}

impl Index {
    /// Processes events of a collection.
    pub(super) fn take(
        &mut self,
        world: OwnerLookup<'_>,
        collection: CollectionId,
        events: &[Arc<Event>],
        visits: &Visits,
    ) {
        let mut found = Vec::new();
        for event in events {
            let [before, after] = [&event.previous, &event.current].map(|entry| entry.as_deref().map(Ties::from_entry));
            self.apply(world, CollectionPlace::Here(collection), before, after, &mut found);
        }
        for id in found {
            visits.add(id);
        }
    }

    /// Processes one change of an object.
    pub(super) fn apply(
        &mut self,
        world: OwnerLookup<'_>,
        collection: CollectionPlace,
        before: Option<Ties<'_>>,
        after: Option<Ties<'_>>,
        visits: &mut Vec<ObjectId>,
    ) {
        let Some(changed) = after.or(before).filter(|_| !is_known(before, after)) else { return };
        let id = ObjectId { collection, key: changed.key().clone() };
        self.relink(world, &id, before, after, visits);
        match after {
            Some(after) => self.note_waiting(&id, after, visits),
            None => self.note_gone(changed, visits),
        }
    }

    /// All dependents of the owner with this uid.
    pub(super) fn dependents(&self, owner: &str) -> Vec<Dependent> {
        let found = self.dependents.get(owner).into_iter().flat_map(|found| &found.all);
        found.map(|(id, blocks)| Dependent { id: id.clone(), blocks: *blocks }).collect()
    }

    /// All dependents of owners that have never been seen.
    pub(super) fn without_owner(&self) -> Vec<ObjectId> {
        let unseen = self.dependents.values().filter(|known| known.owner_at.is_none());
        unseen.flat_map(|known| known.all.keys().cloned()).collect()
    }

    /// Repeats the lookup of an object's owners, since a kind has become known.
    pub(super) fn settle(&mut self, world: OwnerLookup<'_>, id: &ObjectId, visits: &mut Vec<ObjectId>) {
        match id.collection {
            CollectionPlace::Here(collection) => {
                let found = world.surface.collection(collection).and_then(|stored| stored.cached.get(&id.key));
                if let Some(entry) = found {
                    self.link_all(world, id, Ties::from_entry(&entry), visits);
                }
            }
            CollectionPlace::Elsewhere(number) => {
                if let Some(object) = world.elsewhere.object(number, &id.key) {
                    self.link_all(world, id, Ties::of_elsewhere(&object), visits);
                }
            }
        }
    }

    /// Drops the objects of a collection that is no longer served.
    pub(super) fn forget(&mut self, collection: CollectionPlace) {
        for known in self.dependents.values_mut() {
            let before = known.all.values().filter(|blocks| **blocks).count();
            known.all.retain(|id, _| id.collection != collection);
            known.blocking -= before - known.all.values().filter(|blocks| **blocks).count();
            known.owner_at.take_if(|at| at.collection == collection);
        }
        self.dependents.retain(|_, known| !known.all.is_empty());
        self.waiting.retain(|_, id| id.collection != collection);
        self.waiting_objects.retain(|id| id.collection != collection);
    }

    /// True while an object is being deleted and waits for garbage collection.
    pub(super) fn is_waiting(&self, id: &ObjectId) -> bool {
        self.waiting_objects.contains(id)
    }

    /// Moves a dependent from its old owners to its new ones. Enqueues each waiting owner that loses its last blocking
    /// dependent, and the dependent itself if a new owner of it waits or is not found.
    fn relink(
        &mut self,
        world: OwnerLookup<'_>,
        id: &ObjectId,
        before: Option<Ties<'_>>,
        after: Option<Ties<'_>>,
        visits: &mut Vec<ObjectId>,
    ) {
        if before.and_then(|ties| ties.references) == after.and_then(|ties| ties.references) {
            return;
        }
        for reference in before.map(Ties::owners).unwrap_or_default() {
            self.unlink(id, &reference, visits);
        }
        if let Some(after) = after {
            self.link_all(world, id, after, visits);
        }
    }

    fn link_all(&mut self, world: OwnerLookup<'_>, id: &ObjectId, ties: Ties<'_>, visits: &mut Vec<ObjectId>) {
        let mut orphaned = false;
        for reference in ties.owners() {
            orphaned |= !self.link(world, id, &reference);
        }
        if orphaned && !ties.is_deleted() {
            visits.push(id.clone());
        }
    }

    /// Records an owner of a dependent. Returns false when the owner waits for its dependents, or is not where the
    /// reference says.
    fn link(&mut self, world: OwnerLookup<'_>, id: &ObjectId, reference: &OwnerReference<'_>) -> bool {
        let owner = &*reference.uid;
        let place = find_owner(world, reference, id);
        let known = match self.dependents.entry_ref(owner) {
            EntryRef::Occupied(known) => known.into_mut(),
            EntryRef::Vacant(new) => new.insert_with_key(owner.into(), Dependents::default()),
        };
        // An owner does not wait for a dependent whose reference can't be resolved. An owner that is named twice counts
        // once.
        let blocks = known.all.entry(id.clone()).or_default();
        if reference.blocks() && place.is_some() && !*blocks {
            *blocks = true;
            known.blocking += 1;
        }
        // The dependent is deleted with its waiting owner and needs no check of its own.
        if self.waiting.get(owner).is_some_and(|waiting| waiting != id) {
            return false;
        }
        let Some(place) = place.filter(|place| !known.owner_at.as_ref().is_some_and(|at| place.is_of(at))) else {
            return !is_out_of_reach(world, reference, id);
        };
        let place = place.id();
        let there = is_there(world, &place, owner);
        if there {
            known.owner_at = Some(place);
        }
        there
    }

    fn unlink(&mut self, id: &ObjectId, reference: &OwnerReference<'_>, visits: &mut Vec<ObjectId>) {
        let owner = &*reference.uid;
        let Some(known) = self.dependents.get_mut(owner) else { return };
        if known.all.remove(id) == Some(true) {
            known.blocking -= 1;
        }
        if known.blocking == 0 {
            visits.extend(self.waiting.get(owner).cloned());
        }
        if known.all.is_empty() {
            self.dependents.remove(owner);
        }
    }

    fn note_waiting(&mut self, id: &ObjectId, ties: Ties<'_>, visits: &mut Vec<ObjectId>) {
        if ties.waits_for_collection() {
            self.waiting.insert((&*ties.uid()).into(), id.clone());
            self.waiting_objects.insert(id.clone());
            visits.push(id.clone());
        } else if ties.is_deleted() && self.waiting.remove(&*ties.uid()).is_some() {
            self.waiting_objects.remove(id);
        }
    }

    fn note_gone(&mut self, ties: Ties<'_>, visits: &mut Vec<ObjectId>) {
        let uid = ties.uid();
        if let Some(id) = self.waiting.remove(&*uid) {
            self.waiting_objects.remove(&id);
        }
        if let Some(known) = self.dependents.get_mut(&*uid) {
            known.owner_at = None;
            visits.extend(known.all.keys().cloned());
        }
    }
}

/// Returns true if an event does not change the index. That holds for nearly all events: an object without owners is
/// created, or its owners stay as they were. Deletion can't be undone, so an object that is not being deleted was never
/// a waiting owner.
fn is_known(before: Option<Ties<'_>>, after: Option<Ties<'_>>) -> bool {
    match (before, after) {
        (None, Some(after)) => after.is_free(),
        (Some(before), Some(after)) => after.are_those_of(before),
        // Other objects may name the deleted object as their owner.
        (_, None) => false,
    }
}

/// Returns true if the cache, or the data of the owner's server, has this owner with this uid. If not, the data may
/// only be stale. If it has the owner, the index will see its deletion.
fn is_there(world: OwnerLookup<'_>, owner: &ObjectId, uid: &str) -> bool {
    match owner.collection {
        CollectionPlace::Here(collection) => {
            let found = world.surface.collection(collection).and_then(|stored| stored.cached.get(&owner.key));
            found.is_some_and(|entry| entry.object().uid() == uid)
        }
        CollectionPlace::Elsewhere(number) => {
            world.elsewhere.object(number, &owner.key).is_some_and(|object| object.uid == uid)
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_builtin::{collection_specs, contributions};
    use keelson_cache::{Cache, CacheConfig, Entry};
    use keelson_meta::{Revision, SystemClock};
    use keelson_registry::{ApiRegistrations, RegistryConfig, ServedApis, StoredCollection};
    use keelson_storage::memory::MemoryStore;
    use keelson_storage::{KeyValue, StoreKey};

    use super::super::super::elsewhere::RemoteKnowledge;
    use super::*;

    /// An index that receives events of config maps only.
    struct IndexModel {
        surface: Arc<ServedApis>,
        index: Index,
        collection: Arc<StoredCollection>,
        known: HashMap<String, Arc<Entry>>,
    }

    impl IndexModel {
        async fn new() -> Self {
            let config = CacheConfig::new(Arc::new(SystemClock));
            let cache = Cache::start(Arc::new(MemoryStore::new()), collection_specs(), config).await.unwrap();
            let config = RegistryConfig::default();
            let surface = ApiRegistrations::builtin(&contributions(&config), cache, &config).current();
            let collection = surface.resource("", "configmaps").unwrap().stored().unwrap().clone();
            Self { surface, index: Index::default(), collection, known: HashMap::default() }
        }

        /// Passes an object with this metadata, or its deletion, to the index. Returns the objects to check.
        fn tell(&mut self, name: &str, metadata: Option<&str>) -> Vec<String> {
            let current = metadata.map(|metadata| {
                let key = StoreKey::new(format!("/registry/configmaps/a/{name}"));
                let value = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{metadata}}}"#).into();
                self.collection.cached.decode(&KeyValue::new(key, value, Revision::new(1))).unwrap()
            });
            let previous = match &current {
                Some(current) => self.known.insert(name.to_owned(), current.clone()),
                None => self.known.remove(name),
            };
            let mut visits = Vec::new();
            let elsewhere = RemoteKnowledge::new(None);
            let world = OwnerLookup { surface: &self.surface, elsewhere: &elsewhere };
            let [before, after] = [&previous, &current].map(|entry| entry.as_deref().map(Ties::from_entry));
            self.index.apply(world, CollectionPlace::Here(self.collection.id), before, after, &mut visits);
            visits.iter().map(|id| id.name().to_owned()).collect()
        }

        fn check(&self, owner: &str, expected: &[(&str, bool)]) {
            let found = self.index.dependents(owner);
            let mut found: Vec<_> = found.iter().map(|dependent| (dependent.id.name(), dependent.blocks)).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{owner}");
        }
    }

    /// Metadata with these owners. A `!` precedes an owner whose deletion this object blocks.
    fn owned_by(owners: &[&str]) -> String {
        let reference = |owner: &&str| {
            let (uid, blocks) = owner.strip_prefix('!').map_or((*owner, false), |uid| (uid, true));
            format!(
                r#"{{"apiVersion":"v1","kind":"ConfigMap","name":"{uid}","uid":"{uid}","blockOwnerDeletion":{blocks}}}"#
            )
        };
        let owners: Vec<String> = owners.iter().map(reference).collect();
        format!(r#"{{"uid":"d","ownerReferences":[{}]}}"#, owners.join(","))
    }

    const WAITING: &str = r#"{"uid":"o","deletionTimestamp":"t","finalizers":["foregroundDeletion"]}"#;

    #[tokio::test]
    async fn an_object_is_a_dependent_of_the_owners_that_it_has_now() {
        let mut model = IndexModel::new().await;
        model.tell("d", Some(&owned_by(&["x", "!y", "y"])));
        model.check("x", &[("d", false)]);
        model.check("y", &[("d", true)]);
        model.tell("e", Some(&owned_by(&["y"])));
        model.tell("d", Some(&owned_by(&["y", "z"])));
        model.check("x", &[]);
        model.check("y", &[("d", false), ("e", false)]);
        model.check("z", &[("d", false)]);
        model.tell("d", None);
        model.tell("e", Some("{}"));
        assert!(model.index.dependents.is_empty());
    }

    #[tokio::test]
    async fn objects_with_missing_or_deleted_owners_are_visited() {
        let mut model = IndexModel::new().await;
        assert_eq!(model.tell("d", Some(&owned_by(&["o"]))), ["d"], "the owner has not been seen");
        assert!(model.tell("d", Some(&owned_by(&["o"]))).is_empty(), "its owners are those that it had");
        model.tell("o", Some(r#"{"uid":"o"}"#));
        assert_eq!(model.tell("o", None), ["d"]);
    }

    #[tokio::test]
    async fn a_waiting_owner_is_visited_after_its_last_dependent() {
        let mut model = IndexModel::new().await;
        model.tell("d", Some(&owned_by(&["!o"])));
        model.tell("e", Some(&owned_by(&["!o"])));
        assert_eq!(model.tell("o", Some(WAITING)), ["o"]);
        assert!(model.tell("d", None).is_empty());
        assert_eq!(model.tell("e", Some(&owned_by(&["o"])))[0], "o", "it no longer blocks");
        assert_eq!(model.tell("f", Some(&owned_by(&["!o"]))), ["f"], "it is deleted with its owner");
        model.tell("o", None);
        assert!(model.index.waiting.is_empty() && model.index.waiting_objects.is_empty());
    }
}
