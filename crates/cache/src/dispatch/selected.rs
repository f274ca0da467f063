//! Watches with selectors. The index finds a selector by a term that every selected object has.
//!
//! An event is tested only against selectors whose term its object has before or after the event. It belongs to the
//! scope of a selector that selects one of the two states. So a watch is woken for objects that match, and for objects
//! that no longer match.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::ScopeState;
use crate::entry::{Entry, namespace_of};
use crate::event::Event;
use crate::scope::{ScopeTerm, SelectedScope};
use crate::spec::Layout;

/// A selector with watches.
struct WatchedSelector {
    scope: SelectedScope,
    state: ScopeState,
}

/// The selectors that require one term.
#[derive(Default)]
struct TermSelectors {
    anywhere: HashMap<Arc<str>, WatchedSelector>,
    namespaces: HashMap<Box<str>, HashMap<Arc<str>, WatchedSelector>>,
}

type ByTerm = HashMap<Box<str>, TermSelectors>;

/// All watched selectors.
#[derive(Default)]
pub(super) struct SelectedScopes {
    /// The selectors that require a label, by `key=value` as in entries.
    labels: ByTerm,
    label_keys: ByTerm,
    names: ByTerm,
    /// The selectors that require a value of a field, by the index of the field and by the value.
    fields: Vec<ByTerm>,
}

/// The reason for which the scope must exist.
const REGISTERED: &str = "a scope is known as long as a cursor is registered in it";

impl SelectedScopes {
    /// Calls `found` with the scopes of an event.
    pub(super) fn concerned(&mut self, event: &Event, mut found: impl FnMut(&mut ScopeState)) {
        let key = event.key();
        let namespace = namespace_of(key);
        let mut of_term = |terms: &mut ByTerm, term: &str| {
            if let Some(demanding) = terms.get_mut(term) {
                demanding.followed(namespace, |followed| {
                    if followed.scope.selects(event) {
                        found(&mut followed.state);
                    }
                });
            }
        };
        let (before, after) = (event.previous.as_deref(), event.current.as_deref());
        if !self.names.is_empty() {
            of_term(&mut self.names, key.rsplit_once('/').map_or(key, |(_, name)| name));
        }
        if !self.labels.is_empty() || !self.label_keys.is_empty() {
            for (term, is_again, is_key_again) in terms_of(before, after) {
                if !is_again && !self.labels.is_empty() {
                    of_term(&mut self.labels, term);
                }
                if !is_key_again && !self.label_keys.is_empty() {
                    of_term(&mut self.label_keys, key_of(term));
                }
            }
        }
        for (place, terms) in self.fields.iter_mut().enumerate().filter(|(_, terms)| !terms.is_empty()) {
            let (before, after) = (before.map(|entry| entry.field(place)), after.map(|entry| entry.field(place)));
            for value in before.filter(|before| Some(*before) != after).into_iter().chain(after) {
                of_term(terms, value);
            }
        }
    }

    pub(super) fn states(&mut self) -> impl Iterator<Item = &mut ScopeState> {
        let Self { labels, label_keys, names, fields } = self;
        let maps = [labels, label_keys, names].into_iter().chain(fields);
        maps.flat_map(HashMap::values_mut)
            .flat_map(|TermSelectors { anywhere, namespaces }| {
                anywhere.values_mut().chain(namespaces.values_mut().flat_map(HashMap::values_mut))
            })
            .map(|followed| &mut followed.state)
    }

    /// The state of a scope, created if necessary.
    pub(super) fn entry(
        &mut self,
        scope: &SelectedScope,
        layout: &Layout,
        fresh: impl FnOnce() -> ScopeState,
    ) -> &mut ScopeState {
        let (terms, term) = self.terms_mut(&scope.term, layout);
        let TermSelectors { anywhere, namespaces } = terms.entry(term.into()).or_default();
        let followed = match &scope.namespace {
            Some(namespace) => namespaces.entry(namespace.as_str().into()).or_default(),
            None => anywhere,
        };
        let followed = followed.entry(scope.name.clone());
        &mut followed.or_insert_with(|| WatchedSelector { scope: scope.clone(), state: fresh() }).state
    }

    pub(super) fn get(&self, scope: &SelectedScope, layout: &Layout) -> Option<&ScopeState> {
        let demanding = match &scope.term {
            ScopeTerm::Label { key, value } => self.labels.get(&*label(key, value)),
            ScopeTerm::LabelKey(key) => self.label_keys.get(key.as_str()),
            ScopeTerm::Name(name) => self.names.get(name.as_str()),
            ScopeTerm::Field { path, value } => self.fields.get(layout.place(path)?)?.get(value.as_str()),
        }?;
        let followed = match &scope.namespace {
            Some(namespace) => demanding.namespaces.get(namespace.as_str())?,
            None => &demanding.anywhere,
        };
        followed.get(&scope.name).map(|followed| &followed.state)
    }

    pub(super) fn get_mut(&mut self, scope: &SelectedScope, layout: &Layout) -> Option<&mut ScopeState> {
        let (terms, term) = self.terms_mut(&scope.term, layout);
        let demanding = terms.get_mut(&*term)?;
        let followed = match &scope.namespace {
            Some(namespace) => demanding.namespaces.get_mut(namespace.as_str())?,
            None => &mut demanding.anywhere,
        };
        followed.get_mut(&scope.name).map(|followed| &mut followed.state)
    }

    /// Removes a scope without watches, and its empty index entries.
    pub(super) fn remove(&mut self, scope: &SelectedScope, layout: &Layout) {
        let (terms, term) = self.terms_mut(&scope.term, layout);
        let Some(demanding) = terms.get_mut(&*term) else { return };
        match &scope.namespace {
            Some(namespace) => {
                if let Some(followed) = demanding.namespaces.get_mut(namespace.as_str()) {
                    followed.remove(&scope.name);
                    if followed.is_empty() {
                        demanding.namespaces.remove(namespace.as_str());
                    }
                }
            }
            None => {
                demanding.anywhere.remove(&scope.name);
            }
        }
        if demanding.anywhere.is_empty() && demanding.namespaces.is_empty() {
            terms.remove(&*term);
        }
    }

    /// The index for a term, and the key of the term there. A field that the layout lacks has no terms, and its scope
    /// contains all events.
    fn terms_mut<'t>(&mut self, term: &'t ScopeTerm, layout: &Layout) -> (&mut ByTerm, Cow<'t, str>) {
        match term {
            ScopeTerm::Label { key, value } => (&mut self.labels, label(key, value).into()),
            ScopeTerm::LabelKey(key) => (&mut self.label_keys, key.into()),
            ScopeTerm::Name(name) => (&mut self.names, name.into()),
            ScopeTerm::Field { path, value } => {
                let place = layout.place(path).expect(REGISTERED);
                if self.fields.len() <= place {
                    self.fields.resize_with(place + 1, ByTerm::default);
                }
                (&mut self.fields[place], value.into())
            }
        }
    }
}

impl TermSelectors {
    /// Calls `found` with the selectors that may match objects of a namespace.
    fn followed(&mut self, namespace: Option<&str>, found: impl FnMut(&mut WatchedSelector)) {
        let within = namespace.and_then(|namespace| self.namespaces.get_mut(namespace));
        self.anywhere.values_mut().chain(within.into_iter().flat_map(HashMap::values_mut)).for_each(found);
    }
}

fn label(key: &str, value: &str) -> String {
    [key, "=", value].concat()
}

fn key_of(term: &str) -> &str {
    term.split_once('=').map_or(term, |(key, _)| key)
}

/// The labels before and after an event. The flags are true if the label, or its key, was already returned.
fn terms_of<'e>(before: Option<&'e Entry>, after: Option<&'e Entry>) -> impl Iterator<Item = (&'e str, bool, bool)> {
    let old = before.map_or(&[][..], |entry| entry.labels.terms());
    let is_same = before.zip(after).is_some_and(|(before, after)| before.labels.same(&after.labels));
    let new = after.filter(|_| !is_same).map_or(&[][..], |entry| entry.labels.terms());
    let first = old.iter().map(|term| (&**term, false, false));
    let second = new.iter().map(move |term| {
        let is_again = before.is_some_and(|entry| entry.labels.has(term.as_bytes()));
        (&**term, is_again, is_again || before.is_some_and(|entry| entry.labels.get(key_of(term)).is_some()))
    });
    first.chain(second)
}
