//! The rules that a run must keep. All are checked against the order of the store's changes.
//!
//! The store of the simulation is one engine in this process, so the order of its changes is known exactly, and each rule
//! has one correct answer. Requests with unknown outcomes are allowed both.

use std::collections::BTreeMap;

use keelson_storage::StoreEvent;
use keelson_verify::history::{Effect, Event, History, State};

use crate::plan::Kind;
use crate::record::{Listing, Process, Record, WatchStep, Watched, mark_of, text};

/// A broken rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) rule: String,
    pub(crate) why: String,
}

impl Violation {
    pub(crate) fn new(rule: &str, why: impl Into<String>) -> Self {
        Self { rule: rule.to_owned(), why: why.into() }
    }
}

/// The changes of the store to the objects of the clients, in order.
#[derive(Default)]
pub(crate) struct Truth {
    changes: Vec<Change>,
    /// The uids of the present objects.
    uids: BTreeMap<(Kind, String), String>,
}

#[derive(Debug)]
struct Change {
    revision: u64,
    kind: Kind,
    name: String,
    state: State,
    is_new: bool,
}

impl Truth {
    /// Adds a change, if it is to an object of the clients. Returns its description for the trace.
    pub(crate) fn add(&mut self, event: &StoreEvent) -> Option<String> {
        let key = event.key.as_str();
        let kind = Kind::ALL.into_iter().find(|kind| key.contains(&format!("/{}/sim/", kind.plural())))?;
        let name = key.rsplit('/').next().unwrap_or_default().to_owned();
        if name.contains("kube-root-ca") {
            return None;
        }
        let place = (kind, name.clone());
        let is_new = !self.uids.contains_key(&place);
        let state = match &event.value {
            Some(value) => {
                let object: serde_json::Value = serde_json::from_slice(value).unwrap_or_default();
                self.uids.insert(place, text(&object["metadata"]["uid"]));
                State::Written(mark_of(&object))
            }
            None => State::Deleted(self.uids.remove(&place).unwrap_or_default()),
        };
        let change = Change { revision: event.revision.get(), kind, name, state, is_new };
        let description = format!("{} {} {:?}", kind.plural(), change.name, change.state);
        self.changes.push(change);
        Some(description)
    }

    /// The revision of the last change of a kind.
    pub(crate) fn last(&self, kind: Kind) -> u64 {
        self.changes.iter().rev().find(|change| change.kind == kind).map_or(0, |change| change.revision)
    }

    pub(crate) fn len(&self) -> usize {
        self.changes.len()
    }

    /// The objects of a kind at a revision.
    fn at(&self, kind: Kind, revision: u64) -> BTreeMap<String, (u64, String)> {
        let mut objects = BTreeMap::new();
        for change in self.changes.iter().filter(|change| change.kind == kind && change.revision <= revision) {
            match &change.state {
                State::Written(mark) => {
                    objects.insert(change.name.clone(), (change.revision, mark.clone()));
                }
                State::Deleted(_) => drop(objects.remove(&change.name)),
            }
        }
        objects
    }
}

/// Checks all rules. Returns the broken ones.
pub(crate) fn all(record: &Record, truth: &Truth) -> Vec<Violation> {
    let mut broken = Vec::new();
    objects(record, truth, &mut broken);
    broken.extend(record.lists.iter().filter_map(|list| listed(list, truth).err()));
    broken.extend(record.watches.iter().filter_map(|watch| watched(watch, truth).err()));
    broken.extend(fresh(record, truth).err());
    broken.extend(monotonic(record).err());
    broken
}

/// Each acknowledged write is one change, and each object is linearizable.
fn objects(record: &Record, truth: &Truth, broken: &mut Vec<Violation>) {
    let mut histories: BTreeMap<(Kind, &str), History> = BTreeMap::new();
    for request in &record.requests {
        let history = histories.entry((request.kind, &request.name)).or_default();
        history.operations.push(request.operation.clone());
    }
    for change in &truth.changes {
        let event = Event { state: change.state.clone(), version: change.revision.to_string() };
        histories.entry((change.kind, &change.name)).or_default().events.push(event);
    }
    for ((kind, name), history) in &histories {
        let name = format!("{}/{name}", kind.plural());
        if let Err(why) = history.check_events() {
            broken.push(Violation::new("writes", format!("{name}: {why}")));
        } else if let Err(why) = history.check_order() {
            broken.push(Violation::new("linearizable", format!("{name}: {why}")));
        }
    }
    for request in &record.requests {
        let (Effect::Made { state, .. } | Effect::Saw(state)) = &request.operation.effect else { continue };
        let made = truth
            .changes
            .iter()
            .find(|change| change.kind == request.kind && change.name == request.name && change.state == *state);
        if let Some(change) = made
            && request.is_create
            && !change.is_new
        {
            let why = format!("{} has replaced an object", request.operation.text);
            broken.push(Violation::new("linearizable", why));
        }
        if let (Some(change), Some(version)) = (made, request.version)
            && change.revision != version
        {
            let why = format!("{} names the version {version} of {}", request.operation.text, change.revision);
            broken.push(Violation::new("versions", why));
        }
    }
}

/// A list, also one in chunks, is the state at its revision.
fn listed(list: &Listing, truth: &Truth) -> Result<(), Violation> {
    let expected = truth.at(list.kind, list.revision);
    let mut items = list.items.clone();
    items.retain(|name, _| !name.contains("kube-root-ca"));
    if items == expected {
        return Ok(());
    }
    let why = format!("{} has {items:?} at {}, where the store had {expected:?}", list.text, list.revision);
    Err(Violation::new("snapshots", why))
}

/// A watch has each change after its start once, in order, up to its end.
fn watched(watch: &Watched, truth: &Truth) -> Result<(), Violation> {
    let broken = |rule: &str, why: String| Err(Violation::new(rule, format!("{}: {why}", watch.text)));
    let mut last = watch.start;
    let mut events = Vec::new();
    for step in &watch.steps {
        let is_bookmark = matches!(step, WatchStep::Bookmark(_));
        if step.revision() < last || step.revision() == last && !is_bookmark {
            return broken("watch.order", format!("{step:?} follows {last}"));
        }
        last = step.revision();
        if let WatchStep::Event { name, .. } = step
            && !name.contains("kube-root-ca")
        {
            events.push(step);
        }
    }
    let changes = truth.changes.iter().filter(|change| change.kind == watch.kind);
    let expected: Vec<_> = changes.filter(|change| change.revision > watch.start && change.revision <= last).collect();
    for (place, change) in expected.iter().enumerate() {
        let kind = match &change.state {
            State::Deleted(_) => "DELETED",
            State::Written(_) if change.is_new => "ADDED",
            State::Written(_) => "MODIFIED",
        };
        let event = WatchStep::Event {
            kind: kind.to_owned(),
            name: change.name.clone(),
            revision: change.revision,
            state: change.state.clone(),
        };
        match events.get(place) {
            Some(seen) if **seen == event => {}
            Some(seen) => return broken("watch.complete", format!("{seen:?} is in the place of {event:?}")),
            None => return broken("watch.complete", format!("{event:?} is missing")),
        }
    }
    match events.get(expected.len()) {
        Some(more) => broken("watch.unique", format!("{more:?} is not in the store")),
        None => Ok(()),
    }
}

/// A list of the newest state has each write that was acknowledged before it began.
fn fresh(record: &Record, truth: &Truth) -> Result<(), Violation> {
    for list in record.lists.iter().filter(|list| !list.is_any) {
        for request in record.requests.iter().filter(|request| request.kind == list.kind) {
            let Effect::Made { state, .. } = &request.operation.effect else { continue };
            let change = truth.changes.iter().find(|change| change.kind == list.kind && change.state == *state);
            if request.operation.ended < list.begun && change.is_some_and(|change| change.revision > list.revision) {
                let why = format!("{} is at {}, after {}", list.text, list.revision, request.operation.text);
                return Err(Violation::new("fresh", why));
            }
        }
    }
    Ok(())
}

/// The lists of one process never go back.
fn monotonic(record: &Record) -> Result<(), Violation> {
    let mut lists: BTreeMap<Process, Vec<&Listing>> = BTreeMap::new();
    for list in &record.lists {
        if let Some(process) = list.process {
            lists.entry(process).or_default().push(list);
        }
    }
    for list in lists.values().flatten() {
        let same = lists.values().flatten().filter(|other| other.process == list.process);
        if let Some(later) = same.into_iter().find(|other| other.begun > list.ended && other.revision < list.revision) {
            let why = format!("{} is at {}, after {} at {}", later.text, later.revision, list.text, list.revision);
            return Err(Violation::new("monotonic", why));
        }
    }
    Ok(())
}
