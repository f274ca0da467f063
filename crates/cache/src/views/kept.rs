//! Views that were made, kept for who asks the same again: those of all collections together, within a bound of bytes.
//!
//! A view is kept with the snapshot that it is of, so that it is found again for just that one, and brought from there to others. A full
//! store of views drops one of the user whose views take most, the one that was not used for longest. So no user's queries push out
//! those of all others. None outlives the history of its collection: it would hold objects that nothing else does.

use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keelson_meta::Revision;
use parking_lot::Mutex;

use super::room::AllRoom;
use super::{Room, View, ViewOwner};
use crate::snapshot::Snapshot;
use crate::written::DecoderId;

/// Views that are being made may take so many times as much as those that are kept: what was gathered for them, and they themselves.
const MAKING: u64 = 2;
/// How many views are kept, so that looking for one among them takes little.
const MOST_KEPT: usize = 1024;
/// What a view takes beside its pairs and its name: the snapshot and its place here.
const VIEW_BYTES: u64 = 1 << 10;
/// Of how many views it is remembered how often they would have been of use.
const MISSED: usize = 256;
/// How many moments of one view are kept.
const MOMENTS: usize = 4;

/// What is kept that is of use for a view of a snapshot.
pub enum Found {
    /// The view.
    Exact(View),
    /// The same view of another moment.
    Near {
        /// The moment.
        snapshot: Snapshot,
        /// Its view.
        view: View,
    },
    /// Nothing.
    Nothing,
}

/// The views that are kept.
pub(crate) struct KeptViews {
    /// How many bytes they may take together.
    bytes: u64,
    /// The room for those that are being made.
    making: Arc<AllRoom>,
    /// Least recently used first.
    kept: Mutex<Vec<Kept>>,
    /// Who makes which view now.
    turns: Mutex<Vec<Turn>>,
    /// Views that are not kept and would have been of use, with how often; the one that was missed last stands last.
    missed: Mutex<Vec<(DecoderId, Arc<str>, usize)>>,
    /// How many are kept, to be read without the lock.
    count: AtomicUsize,
}

struct Kept {
    owner: ViewOwner,
    of: DecoderId,
    name: Arc<str>,
    snapshot: Snapshot,
    content: Content,
}

enum Content {
    View(View),
    Index(KeptIndex),
}

/// What queries are answered from and is no view. This crate does not know what it is.
#[derive(Clone)]
pub struct KeptIndex {
    /// The index.
    pub index: Arc<dyn Any + Send + Sync>,
    /// About how many bytes it takes.
    pub bytes: u64,
}

impl Kept {
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

impl KeptViews {
    /// None, which may take so many bytes together.
    pub(crate) fn new(bytes: u64) -> Self {
        Self {
            bytes,
            making: AllRoom::new(bytes.saturating_mul(MAKING)),
            kept: Mutex::default(),
            turns: Mutex::default(),
            missed: Mutex::default(),
            count: AtomicUsize::new(0),
        }
    }

    /// How many bytes all that is kept may take.
    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Room for a view that is to be made for a user.
    pub(crate) fn room(&self, owner: ViewOwner) -> Room {
        self.making.room(owner)
    }

    /// What is kept of a view of a collection.
    pub(crate) fn find(&self, of: DecoderId, name: &str, snapshot: &Snapshot) -> Found {
        let mut kept = self.kept.lock();
        let is_it = |kept: &Kept| kept.of == of && *kept.name == *name;
        let exact =
            kept.iter().position(|kept| is_it(kept) && kept.snapshot.trees.entries.is_same(&snapshot.trees.entries));
        if let Some(place) = exact
            && let Some(view) = kept[place].view().cloned()
        {
            let mut found = kept.remove(place);
            // It is that of the newer moment too, and outlives the history of the older one.
            found.snapshot.revision = found.snapshot.revision.max(snapshot.revision);
            kept.push(found);
            return Found::Exact(view);
        }
        let distance =
            |(snapshot_of, _): &(&Snapshot, &View)| snapshot_of.revision.get().abs_diff(snapshot.revision.get());
        kept.iter()
            .filter(|kept| is_it(kept))
            .filter_map(|kept| Some((&kept.snapshot, kept.view()?)))
            .min_by_key(distance)
            .map_or(Found::Nothing, |(snapshot, view)| Found::Near { snapshot: snapshot.clone(), view: view.clone() })
    }

    /// The index of a collection that is kept under a name, and the moment that it is of. It counts as used.
    pub(crate) fn find_index(&self, of: DecoderId, name: &str) -> Option<(Snapshot, KeptIndex)> {
        let mut kept = self.kept.lock();
        let place = kept.iter().position(|kept| kept.of == of && *kept.name == *name)?;
        let Content::Index(index) = &kept[place].content else { return None };
        let found = (kept[place].snapshot.clone(), index.clone());
        let used = kept.remove(place);
        kept.push(used);
        Some(found)
    }

    /// Keeps an index in place of that of another moment, unless it alone takes too much.
    pub(crate) fn keep_index(
        &self,
        owner: ViewOwner,
        (of, name): (DecoderId, &str),
        snapshot: &Snapshot,
        index: KeptIndex,
    ) {
        // ORDER: declared before the lock, and so dropped without it: a state may be the last that holds many objects.
        let _before: Vec<Kept>;
        let mut kept = self.kept.lock();
        _before = kept.extract_if(.., |kept| kept.of == of && *kept.name == *name).collect();
        if index.bytes <= self.bytes {
            let (snapshot, content) = (snapshot.clone(), Content::Index(index));
            self.add(&mut kept, Kept { owner, of, name: name.into(), snapshot, content });
        }
    }

    /// Keeps a view, unless it alone takes too much.
    pub(crate) fn keep(&self, owner: ViewOwner, (of, name): (DecoderId, &str), snapshot: &Snapshot, view: &View) {
        if view.bytes() > self.bytes {
            return;
        }
        let mut kept = self.kept.lock();
        let is_it = |kept: &Kept| kept.of == of && *kept.name == *name;
        kept.retain(|kept| !is_it(kept) || !kept.snapshot.trees.entries.is_same(&snapshot.trees.entries));
        let name = kept.iter().find(|kept| is_it(kept)).map_or_else(|| name.into(), |kept| kept.name.clone());
        let is_it = |kept: &Kept| kept.of == of && kept.name == name;
        if kept.iter().filter(|kept| is_it(kept)).count() == MOMENTS
            && let Some(place) = kept.iter().position(is_it)
        {
            kept.remove(place);
        }
        let (snapshot, content) = (snapshot.clone(), Content::View(view.clone()));
        self.add(&mut kept, Kept { owner, of, name, snapshot, content });
    }

    /// Adds what is used last, in place of what was used least of the user whose views take most.
    fn add(&self, kept: &mut Vec<Kept>, added: Kept) {
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

    /// Notes that a view would have been of use, and tells how often that was so.
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

    /// The turn to make a view: who waits for it finds what the one before has made.
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

    /// Lets go of what is of moments before `oldest`: of one collection, or of all.
    pub(crate) fn trim(&self, of: Option<DecoderId>, oldest: Revision) {
        self.retain(|kept| of.is_some_and(|of| kept.of != of) || kept.snapshot.revision >= oldest);
    }

    /// Lets go of all views of a collection.
    pub(crate) fn forget(&self, of: DecoderId) {
        self.retain(|kept| kept.of != of);
    }

    /// How many are kept, and about how many bytes they take.
    pub(crate) fn sizes(&self) -> (usize, u64) {
        let kept = self.kept.lock();
        (kept.len(), kept.iter().map(Kept::bytes).sum())
    }

    fn retain(&self, wanted: impl Fn(&Kept) -> bool) {
        if self.count.load(Ordering::Relaxed) == 0 {
            return;
        }
        // ORDER: dropped without the lock: a state may be the last that holds many objects.
        let gone: Vec<Kept> = {
            let mut kept = self.kept.lock();
            let gone = kept.extract_if(.., |kept| !wanted(kept)).collect();
            self.count.store(kept.len(), Ordering::Relaxed);
            gone
        };
        drop(gone);
    }
}
