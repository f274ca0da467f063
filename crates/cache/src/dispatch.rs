//! The dispatch index: the watches that an event concerns.
//!
//! The index contains only scopes that have watches. Each scope has the positions of its events, so that cursors find
//! them without examining other events, and the wakers of waiting cursors. An event costs a few hash lookups, the
//! watches of its own scopes, and the selectors that require a term of its object. The total number of watches does not
//! matter.

mod selected;

use std::collections::{HashMap, VecDeque, hash_map};
use std::sync::Arc;
use std::task::Waker;

use self::selected::SelectedScopes;
use crate::entry::{Entry, namespace_of};
use crate::event::Event;
use crate::scope::{Scope, SelectedScope};
use crate::spec::Layout;

/// Identifies a cursor within its scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WatcherId(u64);

/// A scope with watches.
#[derive(Default)]
pub(crate) struct ScopeState {
    /// The positions of the scope's events from [`Self::since`] on that are still in the ring.
    postings: VecDeque<u64>,
    /// The position from which postings are complete. Before this position, a cursor must examine every event of the
    /// ring.
    pub(crate) since: u64,
    /// Events of the scope below this position are lost. A cursor at a lower position returns an error.
    pub(crate) lost: u64,
    watchers: usize,
    waiting: HashMap<WatcherId, Waker>,
}

/// All scopes with watches.
pub(crate) struct Dispatch {
    /// The scope of all events. It has no postings, since it contains every event.
    all: ScopeState,
    namespaces: HashMap<Box<str>, ScopeState>,
    objects: HashMap<Box<str>, ScopeState>,
    values: HashMap<Box<str>, ScopeState>,
    selected: SelectedScopes,
    layout: Arc<Layout>,
    next_id: u64,
}

/// The location of the state of a scope.
enum ScopeSlot<'a, 'n> {
    All(&'a mut ScopeState),
    Named(&'a mut HashMap<Box<str>, ScopeState>, &'n str),
    Selected(&'a mut SelectedScopes, &'n SelectedScope, &'a Layout),
}

/// The reason for which the scope must exist.
const REGISTERED: &str = "a scope is known as long as a cursor is registered in it";

impl ScopeState {
    /// The positions of the scope's events from `position`, which must be at least `since`.
    pub(crate) fn postings_from(&self, position: u64) -> impl Iterator<Item = u64> {
        self.postings.range(self.postings.partition_point(|at| *at < position)..).copied()
    }

    /// The number of cursors on the scope.
    pub(crate) const fn watchers(&self) -> usize {
        self.watchers
    }

    fn wake(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.waiting.drain().map(|(_, waker)| waker));
    }

    fn post(&mut self, position: u64, first: u64, woken: &mut Vec<Waker>) {
        while let Some(oldest) = self.postings.front().copied()
            && oldest < first
        {
            self.postings.pop_front();
            self.lost = oldest + 1;
        }
        self.postings.push_back(position);
        self.wake(woken);
    }
}

impl Dispatch {
    pub(crate) fn new(layout: Arc<Layout>) -> Self {
        Self {
            all: ScopeState { since: u64::MAX, ..ScopeState::default() },
            namespaces: HashMap::new(),
            objects: HashMap::new(),
            values: HashMap::new(),
            selected: SelectedScopes::default(),
            layout,
            next_id: 0,
        }
    }

    /// The layout of the objects.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Adds an event to its scopes, and moves the wakers that wait for it to `woken`. `first` is the oldest position in
    /// the ring.
    pub(crate) fn post(&mut self, event: &Event, position: u64, first: u64, woken: &mut Vec<Waker>) {
        self.all.wake(woken);
        if !self.objects.is_empty()
            && let Some(state) = self.objects.get_mut(event.key())
        {
            state.post(position, first, woken);
        }
        if !self.namespaces.is_empty()
            && let Some(state) = namespace_of(event.key()).and_then(|namespace| self.namespaces.get_mut(namespace))
        {
            state.post(position, first, woken);
        }
        if let (Some(place), false) = (self.layout.dispatch, self.values.is_empty()) {
            let before = value(event.previous.as_ref(), place);
            let after = value(event.current.as_ref(), place);
            for value in before.filter(|before| Some(*before) != after).into_iter().chain(after) {
                if let Some(state) = self.values.get_mut(value) {
                    state.post(position, first, woken);
                }
            }
        }
        self.selected.concerned(event, |state| state.post(position, first, woken));
    }

    /// Moves all wakers to `woken`.
    pub(crate) fn wake_all(&mut self, woken: &mut Vec<Waker>) {
        self.states().for_each(|state| state.wake(woken));
    }

    /// Marks events below a position as lost for every scope.
    pub(crate) fn lose_before(&mut self, position: u64) {
        self.states().for_each(|state| {
            state.postings.clear();
            state.lost = position;
        });
    }

    /// The number of cursors.
    pub(crate) fn watchers(&mut self) -> usize {
        self.states().map(|state| state.watchers).sum()
    }

    fn states(&mut self) -> impl Iterator<Item = &mut ScopeState> {
        let scoped = self.namespaces.values_mut().chain(self.objects.values_mut()).chain(self.values.values_mut());
        std::iter::once(&mut self.all).chain(scoped).chain(self.selected.states())
    }

    /// Adds a watch to a scope. `end` is the position of the next event.
    pub(crate) fn register(&mut self, scope: &Scope, end: u64) -> WatcherId {
        self.next_id += 1;
        let id = WatcherId(self.next_id);
        let fresh = || ScopeState { since: end, ..ScopeState::default() };
        let state = match self.place(scope) {
            ScopeSlot::All(state) => state,
            ScopeSlot::Named(scopes, name) => scopes.entry(name.into()).or_insert_with(fresh),
            ScopeSlot::Selected(scopes, scope, layout) => scopes.entry(scope, layout, fresh),
        };
        state.watchers += 1;
        id
    }

    /// Removes a watch from a scope, and an empty scope from the index.
    pub(crate) fn unregister(&mut self, scope: &Scope, id: WatcherId) {
        let state = self.state_mut(scope);
        state.waiting.remove(&id);
        state.watchers -= 1;
        if state.watchers > 0 {
            return;
        }
        match self.place(scope) {
            ScopeSlot::All(_) => {}
            ScopeSlot::Named(scopes, name) => {
                scopes.remove(name);
            }
            ScopeSlot::Selected(scopes, scope, layout) => scopes.remove(scope, layout),
        }
    }

    /// Registers a waker for the next event of the scope.
    pub(crate) fn wait(&mut self, scope: &Scope, id: WatcherId, waker: &Waker) {
        match self.state_mut(scope).waiting.entry(id) {
            hash_map::Entry::Occupied(mut known) => known.get_mut().clone_from(waker),
            hash_map::Entry::Vacant(place) => {
                place.insert(waker.clone());
            }
        }
    }

    /// The state of a scope that has a watch.
    pub(crate) fn state(&self, scope: &Scope) -> &ScopeState {
        let found = match scope {
            Scope::All => Some(&self.all),
            Scope::Namespace(name) => self.namespaces.get(name.as_str()),
            Scope::Object { key } => self.objects.get(key.as_str()),
            Scope::Field { path, value } => match self.layout.dispatched(path) {
                Some(_) => self.values.get(value.as_str()),
                None => Some(&self.all),
            },
            Scope::Selected(selected) if selected.is_known(&self.layout) => self.selected.get(selected, &self.layout),
            Scope::Selected(_) => Some(&self.all),
        };
        found.expect(REGISTERED)
    }

    fn state_mut(&mut self, scope: &Scope) -> &mut ScopeState {
        match self.place(scope) {
            ScopeSlot::All(state) => state,
            ScopeSlot::Named(scopes, name) => scopes.get_mut(name).expect(REGISTERED),
            ScopeSlot::Selected(scopes, scope, layout) => scopes.get_mut(scope, layout).expect(REGISTERED),
        }
    }

    fn place<'n>(&mut self, scope: &'n Scope) -> ScopeSlot<'_, 'n> {
        match scope {
            Scope::All => ScopeSlot::All(&mut self.all),
            Scope::Namespace(name) => ScopeSlot::Named(&mut self.namespaces, name),
            Scope::Object { key } => ScopeSlot::Named(&mut self.objects, key),
            Scope::Field { path, value } => match self.layout.dispatched(path) {
                Some(_) => ScopeSlot::Named(&mut self.values, value),
                None => ScopeSlot::All(&mut self.all),
            },
            Scope::Selected(selected) if selected.is_known(&self.layout) => {
                ScopeSlot::Selected(&mut self.selected, selected, &self.layout)
            }
            Scope::Selected(_) => ScopeSlot::All(&mut self.all),
        }
    }
}

fn value(entry: Option<&Arc<Entry>>, place: usize) -> Option<&str> {
    entry.map(|entry| entry.field(place))
}
