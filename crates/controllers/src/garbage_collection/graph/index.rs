//! The index: from the uid of an owner to its dependents, and from a dependent to the uids of its owners.
//!
//! It says who has to be visited after a change. It may say so too often, never too rarely.

use std::collections::HashMap;
use std::sync::Arc;

use keelson_cache::{Cache, Entry, Event};
use keelson_resources::CollectionId;

use super::super::metadata::Ties;
use super::super::owners::find_owner;
use super::ObjectId;
use crate::queue::Queue;

/// See the head of the module.
#[derive(Default)]
pub(super) struct Index {
    /// Of each dependent, its owners.
    owners: HashMap<ObjectId, Box<[Link]>>,
    /// Of each owner that anything refers to, whether it exists or not, its dependents.
    dependents: HashMap<Arc<str>, Dependents>,
    /// By uid, objects that are being deleted and wait for garbage collection.
    waiting: HashMap<Arc<str>, ObjectId>,
}

#[derive(Clone, PartialEq)]
struct Link {
    owner: Arc<str>,
    /// Whether the owner, deleted in the foreground, waits for the dependent.
    blocks: bool,
}

#[derive(Default)]
struct Dependents {
    /// With whether the owner waits for it.
    all: HashMap<ObjectId, bool>,
    blocking: usize,
    /// Where the owner was seen, until it is seen to go.
    owner_at: Option<ObjectId>,
}

/// One object that refers to an owner.
#[derive(Clone)]
pub(in super::super) struct Dependent {
    pub(in super::super) id: ObjectId,
    /// Whether the owner, deleted in the foreground, waits for it.
    pub(in super::super) blocks: bool,
}

impl Index {
    /// Takes in events of a collection.
    pub(super) fn take(
        &mut self,
        cache: &Cache,
        collection: CollectionId,
        events: &[Arc<Event>],
        queue: &Queue<ObjectId>,
    ) {
        let mut visits = Vec::new();
        for event in events {
            self.apply(cache, collection, event.previous.as_deref(), event.current.as_deref(), &mut visits);
        }
        for id in visits {
            queue.add(id);
        }
    }

    /// Takes in one change of an object.
    pub(super) fn apply(
        &mut self,
        cache: &Cache,
        collection: CollectionId,
        previous: Option<&Entry>,
        current: Option<&Entry>,
        visits: &mut Vec<ObjectId>,
    ) {
        match (previous, current) {
            (_, Some(current)) => {
                let ties = Ties(current);
                if is_known(previous, ties) {
                    return;
                }
                let id = ObjectId { collection, key: current.key.clone() };
                self.link(cache, &id, ties, visits);
                self.note_waiting(&id, ties, visits);
            }
            (Some(previous), None) => {
                let id = ObjectId { collection, key: previous.key.clone() };
                self.relink(&id, Box::default(), visits);
                let uid = previous.object.uid();
                self.waiting.remove(&*uid);
                if let Some(known) = self.dependents.get_mut(&*uid) {
                    known.owner_at = None;
                    visits.extend(known.all.keys().cloned());
                }
            }
            (None, None) => {}
        }
    }

    /// All that refer to an owner.
    pub(super) fn dependents(&self, owner: &str) -> Vec<Dependent> {
        let found = self.dependents.get(owner).into_iter().flat_map(|found| &found.all);
        found.map(|(id, blocks)| Dependent { id: id.clone(), blocks: *blocks }).collect()
    }

    /// The owners that are being deleted and wait for garbage collection.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ObjectId> {
        self.waiting.values()
    }

    fn link(&mut self, cache: &Cache, id: &ObjectId, ties: Ties<'_>, visits: &mut Vec<ObjectId>) {
        let mut orphaned = false;
        let mut seen = Vec::new();
        let links = ties.owners().into_iter().map(|reference| {
            let place = find_owner(&reference, id);
            // Nobody waits for what can't be decided about.
            let blocks = reference.blocks() && place.is_some();
            let (owner, known_at) = match self.dependents.get_key_value(reference.uid.as_str()) {
                Some((owner, known)) => (owner.clone(), known.owner_at.as_ref()),
                None => (reference.uid.as_str().into(), None),
            };
            if let Some(place) = place.filter(|place| Some(place) != known_at) {
                match is_there(cache, &place, &owner) {
                    true => seen.push((owner.clone(), place)),
                    false => orphaned = true,
                }
            }
            Link { owner, blocks }
        });
        let links: Box<[Link]> = links.collect();
        if self.relink(id, links, visits) && orphaned && !ties.is_deleted() {
            visits.push(id.clone());
        }
        for (owner, place) in seen {
            if let Some(known) = self.dependents.get_mut(&owner) {
                known.owner_at = Some(place);
            }
        }
    }

    /// Replaces the links of a dependent and tells whether they changed. Owners that wait are visited when they gain a
    /// dependent, and when they lose the last one that they waited for.
    fn relink(&mut self, id: &ObjectId, links: Box<[Link]>, visits: &mut Vec<ObjectId>) -> bool {
        let before = self.owners.get(id).map_or(&[][..], |known| known);
        if *before == *links {
            return false;
        }
        let before = self.owners.remove(id).unwrap_or_default();
        for Link { owner, .. } in &before {
            let Some(known) = self.dependents.get_mut(owner) else { continue };
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
        for Link { owner, blocks } in &links {
            let known = self.dependents.entry(owner.clone()).or_default();
            // An owner that is named twice counts once.
            let old = known.all.get(id).copied().unwrap_or_default();
            known.all.insert(id.clone(), old || *blocks);
            known.blocking += usize::from(*blocks && !old);
            visits.extend(self.waiting.get(owner).cloned());
        }
        if !links.is_empty() {
            self.owners.insert(id.clone(), links);
        }
        true
    }

    fn note_waiting(&mut self, id: &ObjectId, ties: Ties<'_>, visits: &mut Vec<ObjectId>) {
        if ties.waits_for_collection() {
            self.waiting.insert((&*ties.uid()).into(), id.clone());
            visits.push(id.clone());
        } else if ties.is_deleted() {
            self.waiting.remove(&*ties.uid());
        }
    }
}

/// Whether the index says of an object already what it is to say. That holds for nearly all events: an object without owners
/// is made, or its owners are those that it had, and it stays. Who is being deleted never ceases to be, so such an object
/// is not among those that wait.
fn is_known(previous: Option<&Entry>, ties: Ties<'_>) -> bool {
    match previous {
        None => ties.is_free(),
        Some(previous) => ties.are_those_of(Ties(previous)),
    }
}

/// Whether the cache has this very owner by now. When it has not, that may only be because it is behind. When it has, the
/// index is told when it goes.
fn is_there(cache: &Cache, owner: &ObjectId, uid: &str) -> bool {
    let found = cache.collection(usize::from(owner.collection.0)).get(&owner.key);
    found.is_some_and(|entry| entry.object.uid() == uid)
}
