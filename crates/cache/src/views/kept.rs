//! Keeps built views for later queries: the views of all collections together, within a limit of bytes.
//!
//! A view is kept with its snapshot. A lookup returns the view of the same snapshot, or a view of another snapshot to
//! update. At the limit, the user whose views use the most memory loses the least recently used view. So the queries of
//! one user do not evict the views of all others. A view is dropped when the history of its collection no longer covers
//! its snapshot, since it could then be the last owner of old objects.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_meta::Revision;
use parking_lot::Mutex;

use super::room::ReservationPool;
use super::{MemoryReservation, View, ViewOwner};
use crate::snapshot::Snapshot;
use crate::written::DecoderId;

/// The memory limit of views that are being built, as a multiple of the limit of kept views. It covers gathered data
/// and the views themselves.
const MAKING: u64 = 2;
/// The maximum number of kept views. It limits the cost of a lookup.
const MOST_KEPT: usize = 1024;
/// The memory of a view in bytes, in addition to its pairs and name: the snapshot and the entry in this list.
const VIEW_BYTES: u64 = 1 << 10;
/// The number of views whose misses are counted.
const MISSED: usize = 256;
/// The maximum number of snapshots whose views of one name are kept.
const MOMENTS: usize = 4;

/// The result of a lookup for a view of a snapshot.
pub enum LookupResult {
    /// The view of this snapshot.
    Exact(View),
    /// A view of another snapshot.
    Near {
        /// The other snapshot.
        snapshot: Snapshot,
        /// Its view.
        view: View,
    },
    /// No view.
    Nothing,
}

/// The kept views.
pub(crate) struct ViewCache {
    /// The limit of their total size in bytes.
    bytes: u64,
    /// The memory limit of views that are being built.
    making: Arc<ReservationPool>,
    /// The kept views. The least recently used is first.
    kept: Mutex<Vec<ViewCacheState>>,
    /// The locks for building views.
    turns: Mutex<Vec<Turn>>,
    /// The views that were not found, with the number of misses. The last miss is last.
    missed: Mutex<Vec<(DecoderId, Arc<str>, usize)>>,
    /// The number of kept views, which is read without the lock.
    count: AtomicUsize,
}

struct ViewCacheState {
    owner: ViewOwner,
    of: DecoderId,
    name: Arc<str>,
    snapshot: Snapshot,
    content: Content,
}

enum Content {
    View(View),
    Index(CachedIndex),
}

/// An index for queries that is not a view. This crate does not know its type.
#[derive(Clone)]
pub struct CachedIndex {
    /// The index.
    pub index: Arc<dyn Any + Send + Sync>,
    /// Its approximate size in bytes.
    pub bytes: u64,
}

impl ViewCacheState {
    fn bytes(&self) -> u64 {
        let content = match &self.content {
            Content::View(view) => view.bytes(),
            Content::Index(index) => index.bytes,
        };
        content + self.name.len() as u64 + VIEW_BYTES
    }

    const fn view(&self) -> Option<&View> {
        match &self.content {
            Content::View(view) => Some(view),
            Content::Index(_) => None,
        }
    }
}

struct Turn {
    of: DecoderId,
    name: Arc<str>,
    turn: Arc<tokio::sync::Mutex<()>>,
}

impl ViewCache {
    /// Creates an empty list with this limit in bytes.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            making: ReservationPool::new(bytes.saturating_mul(MAKING)),
            kept: Mutex::default(),
            turns: Mutex::default(),
            missed: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// The limit of the total size in bytes.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The memory reservation for building a view for a user.
    pub(crate) fn room(&self, owner: ViewOwner) -> MemoryReservation {
        self.making.room(owner)
    }

    /// Finds a view of a collection.
    pub(crate) fn find(&self, of: DecoderId, name: &str, snapshot: &Snapshot) -> LookupResult {
        let mut kept = self.kept.lock();
        let is_it = |kept: &ViewCacheState| kept.of == of && *kept.name == *name;
        let exact =
            kept.iter().position(|kept| is_it(kept) && kept.snapshot.trees.entries.is_same(&snapshot.trees.entries));
        if let Some(place) = exact
            && let Some(view) = kept[place].view().cloned()
        {
            let mut found = kept.remove(place);
            // The view also belongs to the newer revision, so it may stay after the history drops the older one.
            found.snapshot.revision = found.snapshot.revision.max(snapshot.revision);
            kept.push(found);
            return LookupResult::Exact(view);
        }
        let distance =
            |(snapshot_of, _): &(&Snapshot, &View)| snapshot_of.revision.get().abs_diff(snapshot.revision.get());
        kept.iter()
            .filter(|kept| is_it(kept))
            .filter_map(|kept| Some((&kept.snapshot, kept.view()?)))
            .min_by_key(distance)
            .map_or(LookupResult::Nothing, |(snapshot, view)| LookupResult::Near {
                snapshot: snapshot.clone(),
                view: view.clone(),
            })
    }

    /// Returns the index of a collection with this name, and its snapshot. The index counts as used.
    pub(crate) fn find_index(&self, of: DecoderId, name: &str) -> Option<(Snapshot, CachedIndex)> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|kept| kept.of == of && *kept.name == *name)?;
        let Content::Index(index) = &kept[place].content else { return None };
        let found = (kept[place].snapshot.clone(), index.clone());
        let used = kept.remove(place);
        kept.push(used);
        Some(found)
    }

    /// Keeps an index in place of the index for another snapshot. Does nothing if the index alone exceeds the limit.
    pub(crate) fn keep_index(
        &self,
        owner: ViewOwner,
        (of, name): (DecoderId, &str),
        snapshot: &Snapshot,
        index: CachedIndex,
    ) {
        // ORDER: this is declared before the lock and therefore dropped after it, because a state may be the last owner
        // of many objects, whose release takes time.
        let _before: Vec<ViewCacheState>;
        let mut kept = self.kept.lock();
        _before = kept.extract_if(.., |kept| kept.of == of && *kept.name == *name).collect();
        if index.bytes <= self.bytes {
            let (snapshot, content) = (snapshot.clone(), Content::Index(index));
            self.add(&mut kept, ViewCacheState { owner, of, name: name.into(), snapshot, content });
        }
    }

    /// Keeps a view. Does nothing if the view alone exceeds the limit.
    pub(crate) fn keep(&self, owner: ViewOwner, (of, name): (DecoderId, &str), snapshot: &Snapshot, view: &View) {
        if view.bytes() > self.bytes {
            return;
        }
        let mut kept = self.kept.lock();
        let is_it = |kept: &ViewCacheState| kept.of == of && *kept.name == *name;
        kept.retain(|kept| !is_it(kept) || !kept.snapshot.trees.entries.is_same(&snapshot.trees.entries));
        let name = kept.iter().find(|kept| is_it(kept)).map_or_else(|| name.into(), |kept| kept.name.clone());
        let is_it = |kept: &ViewCacheState| kept.of == of && kept.name == name;
        if kept.iter().filter(|kept| is_it(kept)).count() == MOMENTS
            && let Some(place) = kept.iter().position(is_it)
        {
            kept.remove(place);
        }
        let (snapshot, content) = (snapshot.clone(), Content::View(view.clone()));
        self.add(&mut kept, ViewCacheState { owner, of, name, snapshot, content });
    }

    /// Adds an entry as the most recently used one. While the limit is exceeded, evicts the least recently used entry
    /// of the user whose views use the most memory.
    fn add(&self, kept: &mut Vec<ViewCacheState>, added: ViewCacheState) {
        kept.push(added);
        let mut by_owner: HashMap<ViewOwner, u64> = HashMap::new();
        for view in &*kept {
            *by_owner.entry(view.owner).or_default() += view.bytes();
        }
        let mut bytes: u64 = by_owner.values().sum();
        while bytes > self.bytes || kept.len() > MOST_KEPT {
            let most = by_owner.iter().max_by_key(|(_, bytes)| **bytes).map(|(owner, _)| *owner);
            let Some(place) = kept.iter().position(|view| Some(view.owner) == most) else { break };
            let gone = kept.remove(place).bytes();
            bytes -= gone;
            most.and_then(|most| by_owner.get_mut(&most)).into_iter().for_each(|left| *left -= gone);
        }
        self.count.store(kept.len(), Ordering::Relaxed);
    }

    /// Records that a view was not found. Returns the number of such misses.
    pub(crate) fn miss(&self, of: DecoderId, name: &str) -> usize {
        let mut missed = self.missed.lock();
        let known = missed.iter().position(|(known, named, _)| *known == of && **named == *name);
        let (of, name, times) = match known {
            Some(place) => missed.remove(place),
            None => (of, name.into(), 0),
        };
        if missed.len() == MISSED {
            missed.remove(0);
        }
        missed.push((of, name, times + 1));
        times + 1
    }

    /// The lock for building a view. A caller that had to wait for it finds the view that was built meanwhile.
    pub(crate) fn turn(&self, of: DecoderId, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        turns.retain(|turn| Arc::strong_count(&turn.turn) > 1);
        if let Some(known) = turns.iter().find(|turn| turn.of == of && *turn.name == *name) {
            return known.turn.clone();
        }
        let turn = Arc::<tokio::sync::Mutex<()>>::default();
        turns.push(Turn { of, name: name.into(), turn: turn.clone() });
        turn
    }

    /// Drops views of snapshots before `oldest`, of one collection or of all.
    pub(crate) fn trim(&self, of: Option<DecoderId>, oldest: Revision) {
        self.retain(|kept| of.is_some_and(|of| kept.of != of) || kept.snapshot.revision >= oldest);
    }

    /// Drops all views of a collection.
    pub(crate) fn forget(&self, of: DecoderId) {
        self.retain(|kept| kept.of != of);
    }

    /// The number of kept views, and their approximate size in bytes.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        let kept = self.kept.lock();
        (kept.len(), kept.iter().map(ViewCacheState::bytes).sum())
    }

    fn retain(&self, wanted: impl Fn(&ViewCacheState) -> bool) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // ORDER: the entries are dropped after the lock, because a state may be the last owner of many objects, whose
        // release takes time.
        let gone: Vec<ViewCacheState> = {
            let mut kept = self.kept.lock();
            let gone = kept.extract_if(.., |kept| !wanted(kept)).collect();
            self.count.store(kept.len(), Ordering::Relaxed);
            gone
        };
        drop(gone);
    }
}
