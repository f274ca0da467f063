//! The scope of a watch: the events for which the watch is woken.
//!
//! A scope contains at least the events that the selector of the watch matches. In a collection that lacks the field of
//! a scope, it contains all events.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::entry::{Entry, namespace_of};
use crate::event::Event;
use crate::spec::Layout;

/// The smallest set of events that contains all events of a selector.
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
    /// Events of objects that have this value of a field before or after the event. Contains all events in a collection
    /// that does not dispatch by the field.
    Field {
        /// The path of the field: `spec.nodeName`.
        path: String,
        /// The value.
        value: String,
    },
    /// Events of objects that a selector matches before or after the event. Contains all events in a collection that
    /// lacks the field of its term.
    Selected(SelectedScope),
}

/// The scope of a selector. Its term finds the events.
#[derive(Clone)]
pub struct SelectedScope {
    /// A term that all selected objects have.
    pub term: ScopeTerm,
    /// The namespace of all selected objects, if they are in one namespace.
    pub namespace: Option<String>,
    /// The name of the selector. Two scopes with equal term, namespace and name must select the same objects.
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
    /// A field of the layout with its value.
    Field {
        /// Its path.
        path: String,
        /// The value. Empty if the field is absent.
        value: String,
    },
    /// The name of an object, in any namespace.
    Name(String),
}

impl SelectedScope {
    /// Returns true if the object is selected before or after the event.
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
    /// Returns true if the term can find the events of a collection with this layout.
    pub(crate) fn is_known(&self, layout: &Layout) -> bool {
        match &self.term {
            ScopeTerm::Field { path, .. } => layout.place(path).is_some(),
            ScopeTerm::Label { .. } | ScopeTerm::LabelKey(_) | ScopeTerm::Name(_) => true,
        }
    }
}
