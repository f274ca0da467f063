//! Random histories of writes, compactions, restarts, and added and removed collections, compared with a model that
//! remembers every revision.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::*;
use keelson_cache::{Cache, Collection, CollectionSpec, Packing, Scope, ScopeTerm, SnapshotError, TooOld, WatchCursor};
use keelson_meta::Revision;
use keelson_storage::memory::MemoryStore;
use keelson_storage::{Store, Transaction};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Write(String, Option<Body>),
    /// Several writes to different keys in one transaction.
    Together(Vec<(u8, Option<Body>)>),
    /// Many writes. They are more than the events between two kept states.
    Burst(u16, u8),
    /// A write to another collection, which advances the watermark.
    Elsewhere,
    CompactStore(u16),
    TrimCache(u16),
    /// Starts a new cache, whose backfill may still run during the next steps.
    Restart {
        wait: bool,
    },
    /// Removes the collection, if present. Writes to its keys continue.
    Remove,
    /// Adds the collection, if absent, during these writes.
    Add(Vec<(u8, Option<Body>)>),
    /// Replaces the collection by one with another order of fields, during these writes.
    Replace(Vec<(u8, Option<Body>)>),
    /// Starts the cache of a fork, during these writes of the origin.
    Fork(Vec<(u8, Option<Body>)>),
    /// Starts a cursor this many revisions back.
    Watch(u16, Scope),
    /// A cursor takes the available events.
    Drain(u8, u8),
    /// Checks the state this many revisions back.
    Look(u16),
    Pin(u16),
}

fn key(place: u8) -> String {
    format!("{}/p{}", if place.is_multiple_of(3) { "a" } else { "b" }, place % 40)
}

fn body() -> impl Strategy<Value = Body> {
    (prop::option::of(0..3u8), prop::option::of(0..3u8), any::<u32>()).prop_map(|(app, node, number)| Body {
        app,
        node,
        number,
    })
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![
        1 => Just(Scope::All),
        1 => Just(Scope::Namespace("a".to_owned())),
        1 => (0..40u8).prop_map(|place| Scope::Object { key: key(place) }),
        1 => (0..3u8).prop_map(|node| on_node(&format!("n{node}"))),
        1 => Just(on_node("")),
        4 => (term(), prop::option::of(prop_oneof!["a", "b"]), prop::option::of(0..3u8))
            .prop_map(|(term, namespace, app)| selected(term, namespace.as_deref(), app)),
    ]
}

fn term() -> impl Strategy<Value = ScopeTerm> {
    let field = |path: &str, value: String| ScopeTerm::Field { path: path.to_owned(), value };
    prop_oneof![
        (0..3u8).prop_map(|app| ScopeTerm::Label { key: "app".to_owned(), value: format!("a{app}") }),
        prop_oneof!["app", "all", "none"].prop_map(ScopeTerm::LabelKey),
        (0..40u8).prop_map(|place| ScopeTerm::Name(format!("p{place}"))),
        (0..4u8).prop_map(move |node| field(NODE, if node == 3 { String::new() } else { format!("n{node}") })),
        (0..40u16).prop_map(move |number| field("data.number", number.to_string())),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let change = || prop::option::weighted(0.7, body());
    prop_oneof![
        12 => (0..40u8, change()).prop_map(|(place, body)| Step::Write(key(place), body)),
        2 => prop::collection::btree_map(0..40u8, change(), 1..6).prop_map(|writes| Step::Together(writes.into_iter().collect())),
        2 => (1..400u16, 1..40u8).prop_map(|(count, stride)| Step::Burst(count, stride)),
        1 => Just(Step::Elsewhere),
        1 => (0..300u16).prop_map(Step::CompactStore),
        1 => (0..300u16).prop_map(Step::TrimCache),
        2 => any::<bool>().prop_map(|wait| Step::Restart { wait }),
        1 => Just(Step::Remove),
        2 => prop::collection::vec((0..40u8, change()), 0..12).prop_map(Step::Add),
        1 => prop::collection::vec((0..40u8, change()), 0..12).prop_map(Step::Replace),
        2 => prop::collection::vec((0..40u8, change()), 0..12).prop_map(Step::Fork),
        3 => (0..600u16, scope()).prop_map(|(back, scope)| Step::Watch(back, scope)),
        6 => (any::<u8>(), 1..50u8).prop_map(|(which, max)| Step::Drain(which, max)),
        3 => (0..800u16).prop_map(Step::Look),
        2 => (0..800u16).prop_map(Step::Pin),
    ]
}

/// A cursor and its expected events in the model.
struct Watcher {
    cursor: WatchCursor,
    scope: Scope,
    after: Revision,
    seen: Vec<ModelChange>,
    /// True if the collection of the cursor was removed.
    ended: bool,
}

struct CacheModel {
    store: MemoryStore,
    cache: Arc<Cache>,
    model: Model,
    watchers: Vec<Watcher>,
    history_bytes: u64,
    packing: Packing,
    /// Removed collections with the revision of their removal.
    removed: Vec<(Arc<Collection>, Revision)>,
    /// True if the next collection has the other order of fields.
    turned: bool,
}

impl CacheModel {
    async fn new(history_bytes: u64, packing: Packing) -> Self {
        let store = MemoryStore::new();
        let cache = start_with(&store, keelson_cache::CacheConfig { history_bytes, packing, ..config() }).await;
        let (watchers, removed) = (Vec::new(), Vec::new());
        Self { store, cache, model: Model::default(), watchers, history_bytes, packing, removed, turned: false }
    }

    fn back(&self, by: u16) -> Revision {
        Revision::new(self.cache.watermark().get().saturating_sub(u64::from(by)))
    }

    fn pods(&self) -> Option<Arc<Collection>> {
        self.cache.collection(PODS)
    }

    /// The specification of the next collection, with fields in varying order.
    fn spec(&mut self) -> CollectionSpec {
        self.turned = !self.turned;
        let mut spec = specs().remove(0);
        if self.turned {
            spec.fields.reverse();
            spec.dispatch = spec.dispatch.map(|place| spec.fields.len() - 1 - place);
        }
        spec
    }

    fn let_go(&mut self, pods: Arc<Collection>) {
        assert!(pods.is_removed());
        let last = pods.snapshot().revision;
        assert!(pods.watch(last, Scope::All).is_err());
        assert!(matches!(pods.snapshot_at(last.next()), Err(SnapshotError::Removed { .. })));
        check_snapshot(&pods.snapshot(), &self.model.at(last));
        self.watchers.iter_mut().for_each(|watcher| watcher.ended = true);
        self.removed.push((pods, last));
    }

    async fn remove(&mut self) {
        let Some(pods) = self.pods() else { return };
        let reached = self.cache.watermark();
        self.cache.remove(&[PODS.to_owned(), "/registry/none/".to_owned()]).await;
        assert!(self.pods().is_none());
        assert_eq!(pods.snapshot().revision, reached);
        self.let_go(pods);
    }

    /// Adds or replaces the collection during writes.
    async fn add(&mut self, writes: &[(u8, Option<Body>)]) {
        let before = self.pods();
        let (spec, cache) = (self.spec(), self.cache.clone());
        let replaces = before.is_some();
        let adding =
            async move { if replaces { cache.replace(vec![spec]).await } else { cache.add(vec![spec]).await } };
        let writing = async {
            for (place, body) in writes {
                self.commit(vec![(key(*place), body.clone())]).await;
                tokio::task::yield_now().await;
            }
        };
        let (added, ()) = tokio::join!(adding, writing);
        let added = added.unwrap().remove(0);
        assert!(Arc::ptr_eq(&added, &self.pods().unwrap()));
        // The snapshot must have all writes up to the watermark at this time too.
        let snapshot = added.snapshot();
        check_snapshot(&snapshot, &self.model.at(snapshot.revision));
        before.into_iter().for_each(|before| self.let_go(before));
    }

    /// Starts the cache of a fork at the state before some writes. Neither cache may see writes of the other.
    async fn fork(&mut self, writes: &[(u8, Option<Body>)]) {
        let snapshot = self.store.snapshot();
        let at = snapshot.revision();
        for (place, body) in writes {
            self.commit(vec![(key(*place), body.clone())]).await;
        }
        catch_up(&self.store, &self.cache).await;
        let state = self.cache.state_at(at, PATIENCE).await.unwrap();
        let store = MemoryStore::from_snapshot(&snapshot);
        let fork = Cache::from_state(Arc::new(store.clone()), &state, config()).await.unwrap();
        assert_eq!((state.revision(), fork.watermark()), (at, at));
        let known = self.pods().filter(|pods| pods.oldest().max(self.cache.unexpired()) <= at);
        assert!(known.is_none() || fork.collection(PODS).is_some());
        let Some(pods) = fork.collection(PODS) else { return };
        let mut model = Model { newest: self.model.at(at), ..Model::default() };
        check_snapshot(&pods.snapshot(), &model.newest);
        let mut watch = pods.watch(at, Scope::All).unwrap();
        let (gone, changed): (Vec<String>, Vec<String>) =
            model.newest.keys().cloned().partition(|key| key.ends_with(|last: char| "02468".contains(last)));
        let put = Body { app: Some(1), node: Some(2), number: 3 };
        let writes = gone.into_iter().map(|key| (key, None));
        for (key, body) in writes.chain(changed.into_iter().map(|key| (key, Some(put.clone())))) {
            model.apply(commit(&store, &key, body.as_ref()).await, &key, body);
        }
        catch_up(&store, &fork).await;
        check_snapshot(&pods.snapshot(), &model.newest);
        let events = watch.try_next(usize::MAX).unwrap().events;
        assert_eq!(events.iter().map(|event| happened(event)).collect::<Vec<_>>(), model.events);
        let origin = self.pods().map(|pods| pods.snapshot());
        origin.iter().for_each(|origin| check_snapshot(origin, &self.model.newest));
    }

    async fn commit(&mut self, writes: Vec<(String, Option<Body>)>) {
        let transaction = Transaction {
            writes: writes.iter().map(|(key, body)| write(key, body.as_ref())).collect(),
            ..Transaction::default()
        };
        let committed = self.store.commit(transaction).await.unwrap();
        for ((key, body), revision) in writes.into_iter().zip(committed.revisions) {
            self.model.apply(revision, &key, body);
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Write(key, body) => self.commit(vec![(key.clone(), body.clone())]).await,
            Step::Together(writes) => {
                self.commit(writes.iter().map(|(place, body)| (key(*place), body.clone())).collect()).await;
            }
            Step::Burst(count, stride) => {
                for n in 0..*count {
                    let place = ((n * u16::from(*stride)) % 40) as u8;
                    let body = Body { app: Some((n % 3) as u8), node: Some((n % 5) as u8), number: u32::from(n) };
                    self.commit(vec![(key(place), (n % 7 != 0).then_some(body))]).await;
                }
            }
            Step::Elsewhere => {
                let key = keelson_storage::StoreKey::new("/registry/minions/n0");
                let put = keelson_storage::Write::Put { key, value: bytes::Bytes::from_static(b"{}"), expires: None };
                self.store.commit(Transaction { writes: vec![put], ..Transaction::default() }).await.unwrap();
            }
            Step::CompactStore(back) => {
                let oldest = self.back(*back);
                self.store.compact(oldest).await.unwrap();
            }
            Step::TrimCache(back) => self.cache.compacted(self.back(*back)),
            Step::Restart { wait } => {
                self.watchers.clear();
                let (history_bytes, packing) = (self.history_bytes, self.packing);
                let config = keelson_cache::CacheConfig { history_bytes, packing, ..config() };
                self.cache = start_with(&self.store, config).await;
                let oldest = self.store.oldest_revision().await.unwrap();
                if *wait {
                    filled(&self.cache).await;
                }
                if *wait && self.history_bytes == u64::MAX {
                    assert!(pods(&self.cache).oldest() <= oldest, "all the store knows is known again");
                }
            }
            Step::Remove => self.remove().await,
            Step::Add(writes) if self.pods().is_none() => self.add(writes).await,
            Step::Replace(writes) if self.pods().is_some() => self.add(writes).await,
            Step::Add(_) | Step::Replace(_) => {}
            Step::Fork(writes) => self.fork(writes).await,
            Step::Watch(back, scope) => self.watch(self.back(*back), scope),
            Step::Drain(which, max) => self.drain(usize::from(*which), usize::from(*max)),
            Step::Look(back) => self.look(self.back(*back)),
            Step::Pin(back) => {
                if let Some(pods) = self.pods()
                    && let Ok(snapshot) = pods.snapshot_at(self.back(*back))
                {
                    pods.pin(&snapshot);
                }
            }
        }
        catch_up(&self.store, &self.cache).await;
    }

    fn watch(&mut self, after: Revision, scope: &Scope) {
        let Some(pods) = self.pods() else { return };
        let oldest = pods.oldest();
        match pods.watch(after, scope.clone()) {
            Ok(cursor) => {
                assert!(after >= oldest);
                self.watchers.push(Watcher { cursor, scope: scope.clone(), after, seen: Vec::new(), ended: false });
            }
            Err(gone) => assert_eq!((gone, after < oldest), (TooOld { requested: after, oldest }, true)),
        }
    }

    fn drain(&mut self, which: usize, max: usize) {
        if self.watchers.is_empty() {
            return;
        }
        let place = which % self.watchers.len();
        let watcher = &mut self.watchers[place];
        if watcher.ended {
            assert!(watcher.cursor.try_next(max).is_err(), "nothing is told of a collection that is gone");
            self.watchers.remove(place);
            return;
        }
        let expected = self.model.events_after(watcher.after, &watcher.scope);
        match watcher.cursor.try_next(max) {
            Ok(batch) => {
                assert!(batch.events.len() <= max);
                watcher.seen.extend(batch.events.iter().map(|event| happened(event)));
                assert_eq!(watcher.seen, expected[..watcher.seen.len()]);
                if let Some(next) = expected.get(watcher.seen.len()) {
                    assert!(batch.watermark.get() < next.revision, "nothing below the watermark is left to come");
                    assert!(!batch.events.is_empty(), "what is there is delivered");
                    assert_eq!(watcher.cursor.delivered_up_to(), None);
                } else {
                    assert_eq!(watcher.cursor.delivered_up_to(), Some(self.cache.watermark().max(watcher.after)));
                }
            }
            Err(gone) => {
                let next = expected.get(watcher.seen.len());
                let missed = next.is_some_and(|next| next.revision <= gone.oldest.get());
                let never_looked = watcher.after < gone.oldest;
                assert!(missed || never_looked, "{gone} at {:?}", watcher.seen.last());
                self.watchers.remove(place);
            }
        }
    }

    fn look(&self, revision: Revision) {
        let Some(pods) = self.pods() else { return };
        let oldest = pods.oldest().max(self.cache.unexpired());
        match pods.snapshot_at(revision) {
            Ok(snapshot) => {
                assert!(revision >= oldest && snapshot.revision == revision);
                check_snapshot(&snapshot, &self.model.at(revision));
            }
            Err(error) => assert_eq!((error, revision < oldest), (SnapshotError::TooOld { oldest }, true)),
        }
    }

    fn look_everywhere(&self) {
        let newest = self.cache.watermark();
        for (pods, last) in &self.removed {
            check_snapshot(&pods.snapshot(), &self.model.at(*last));
        }
        let Some(pods) = self.pods() else { return };
        let snapshot = pods.snapshot();
        assert_eq!(snapshot.revision, newest);
        check_snapshot(&snapshot, &self.model.newest);
        for revision in pods.oldest().max(self.cache.unexpired()).get()..=newest.get() {
            let snapshot = pods.snapshot_at(Revision::new(revision)).unwrap();
            assert_eq!(state_of(snapshot.range("", None)), self.model.at(Revision::new(revision)), "at {revision}");
        }
        let future = pods.snapshot_at(newest.next());
        assert_eq!(future.err(), Some(SnapshotError::Future { current: newest }));
    }
}

/// Objects that stay plain, are packed at once, or change between both forms.
fn any_packing() -> impl Strategy<Value = Packing> {
    prop::sample::select(vec![Packing::OFF, Packing::AT_ONCE, Packing::SWITCHING])
}

fn run(history_bytes: u64, packing: Packing, steps: &[Step]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut world = CacheModel::new(history_bytes, packing).await;
        for step in steps {
            world.take(step).await;
        }
        filled(&world.cache).await;
        for place in (0..world.watchers.len()).rev() {
            world.drain(place, usize::MAX);
        }
        world.look_everywhere();
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_readable_revision_and_every_watch_agrees_with_the_model(
        packing in any_packing(),
        steps in prop::collection::vec(step(), 1..80),
    ) {
        run(u64::MAX, packing, &steps);
    }

    #[test]
    fn a_history_short_of_bytes_forgets_but_never_lies(
        history_bytes in 0..600_000u64,
        packing in any_packing(),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(history_bytes, packing, &steps);
    }
}
