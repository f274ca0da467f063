//! The scope of a watch: the events that may concern it, as distinguished before a wake-up.
//!
//! A scope is at least as wide as its selector. In a collection without the field of a scope, it contains all events.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::entry::{Entry, namespace_of};
use crate::event::Event;
use crate::spec::Layout;

/// The most selective set of events that a selector implies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Every event of the collection.
    All,
    /// The events of the objects in a namespace.
    Namespace(String),
    /// The events of one object.
    Object {
        /// `<namespace>/<name>`, or `<name>` for cluster-scoped objects.
        key: String,
    },
    /// Events of objects with this value of a field before or after the event. All events in a collection that does not
    /// dispatch by the field.
    Field {
        /// The path of the field: `spec.nodeName`.
        path: String,
        /// The value.
        value: String,
    },
    /// Events of objects that a selector matches before or after the event. All events in a collection without the
    /// field of its term.
    Selected(SelectedScope),
}

/// The scope of a selector with a term by which events are found.
#[derive(Clone)]
pub struct SelectedScope {
    /// The term of all selected objects.
    pub term: ScopeTerm,
    /// Their common namespace, if known.
    pub namespace: Option<String>,
    /// Identifies the selector: equal term, namespace and name imply an equal selection.
    pub name: Arc<str>,
    /// Returns true for selected objects.
    pub test: Arc<dyn Fn(&Entry) -> bool + Send + Sync>,
}

/// A term for finding events.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ScopeTerm {
    /// A label with a value.
    Label {
        /// Its key.
        key: String,
        /// Its value.
        value: String,
    },
    /// A label with any value.
    LabelKey(String),
    /// A field in the layout, with its text.
    Field {
        /// Its path.
        path: String,
        /// Its text. Empty if absent.
        value: String,
    },
    /// The name of an object, in any namespace.
    Name(String),
}

impl SelectedScope {
    /// Returns true if one of the two states of an event is selected.
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
    /// Returns true if an event of a collection with this layout is in the scope.
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
    /// Returns true if events of a collection with this layout can be found by the term.
    pub(crate) fn is_known(&self, layout: &Layout) -> bool {
        match &self.term {
            ScopeTerm::Field { path, .. } => layout.place(path).is_some(),
            ScopeTerm::Label { .. } | ScopeTerm::LabelKey(_) | ScopeTerm::Name(_) => true,
        }
    }
}
