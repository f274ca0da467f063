//! Watching: cursors in a collection's history, and the index by which an event finds the watchers it concerns.

mod cursor;
mod dispatch;

pub use cursor::{CursorBatch, TooOld, WatchCursor};
pub(crate) use dispatch::Dispatch;

use crate::entry::namespace_of;
use crate::event::Event;

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
    /// The events of objects whose dispatch field has a value before or after the event. In a collection without a
    /// dispatch field these are all events.
    Field {
        /// The value.
        value: String,
    },
}

impl Scope {
    /// Whether an event is in the scope. `dispatch` is the place of the dispatch field.
    fn holds(&self, event: &Event, dispatch: Option<usize>) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(namespace) => namespace_of(event.key()) == Some(namespace),
            Self::Object { key } => event.key() == key,
            Self::Field { value } => dispatch.is_none_or(|place| {
                [&event.previous, &event.current].into_iter().flatten().any(|entry| entry.field(place) == value)
            }),
        }
    }
}
