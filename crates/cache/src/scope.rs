//! The scope of a watcher: what it is interested in, as far as events are told apart before anybody is woken.
//!
//! A scope is wider than the selector that it stands for, never narrower: where a collection does not keep the field of a scope, all its
//! events are in it.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::entry::{Entry, namespace_of};
use crate::event::Event;
use crate::spec::Layout;

/// What a watcher is interested in: the most selective set of events that its selector implies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every event of the collection.
    All,
    /// The events of the objects in a namespace.
    Namespace(String),
    /// The events of one object.
    Object {
        /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
        key: String,
    },
    /// The events of objects in which a field has a value before or after the event. In a collection that does not
    /// dispatch by this field these are all events.
    Field {
        /// The path of the field: `spec.nodeName`.
        path: String,
        /// The value.
        value: String,
    },
    /// The events of objects that a selector selects before or after the event. In a collection that does not keep the field of its term
    /// these are all events.
    Selected(SelectedScope),
}

/// The scope of a selector that demands something which events can be found by.
#[derive(Clone)]
pub struct SelectedScope {
    /// What every object has that is selected.
    pub term: ScopeTerm,
    /// The namespace in which all of them are, if it is known.
    pub namespace: Option<String>,
    /// Tells selectors apart: those of one term, namespace and name select the same.
    pub name: Arc<str>,
    /// Whether an object is selected.
    pub test: Arc<dyn Fn(&Entry) -> bool + Send + Sync>,
}

/// What events can be found by.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScopeTerm {
    /// A label with a value.
    Label {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A label, whatever its value.
    LabelKey(String),
    /// A field that the collection keeps, with the text that it has.
    Field {
        /// Its path.
        path: String,
        /// Its text; empty where the object does not have it.
        value: String,
    },
    /// The name of an object, in whatever namespace.
    Name(String),
}

impl SelectedScope {
    /// Whether one of the two states of an event is selected.
    pub(crate) fn selects(&self, event: &Event) -> bool {
        [&event.previous, &event.current].into_iter().flatten().any(|entry| (self.test)(entry))
    }
}

impl PartialEq for SelectedScope {
    fn eq(&self, other: &Self) -> bool {
        (&self.term, &self.namespace, &self.name) == (&other.term, &other.namespace, &other.name)
    }
}

impl Eq for SelectedScope {}

impl Hash for SelectedScope {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.term, &self.namespace, &self.name).hash(state);
    }
}

impl fmt::Debug for SelectedScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedScope")
            .field("term", &self.term)
            .field("namespace", &self.namespace)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Scope {
    /// Whether an event of a collection with this layout is in the scope.
    pub(crate) fn holds(&self, event: &Event, layout: &Layout) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => namespace_of(event.key()) == Some(namespace),
            Self::Object { key } => event.key() == key,
            Self::Field { path, value } => layout.dispatched(path).is_none_or(|place| {
                [&event.previous, &event.current].into_iter().flatten().any(|entry| entry.field(place) == value)
            }),
            Self::Selected(selected) => !selected.is_known(layout) || selected.selects(event),
        }
    }
}

impl SelectedScope {
    /// Whether events of a collection with this layout can be found by the term.
    pub(crate) fn is_known(&self, layout: &Layout) -> bool {
        match &self.term {
            ScopeTerm::Field { path, .. } => layout.place(path).is_some(),
            ScopeTerm::Label { .. } | ScopeTerm::LabelKey(_) | ScopeTerm::Name(_) => true,
        }
    }
}
