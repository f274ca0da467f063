//! The scope of a watcher: what it is interested in, as far as events are told apart before anybody looks at a selector.
//!
//! A scope is wider than the selector that it stands for, never narrower: where a collection does not dispatch by the field
//! of a scope, all its events are in it.

use crate::entry::namespace_of;
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
        }
    }
}
