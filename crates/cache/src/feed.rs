//! The events of a collection, the waiting watches, and the revision up to which events are complete.
//!
//! The ring of events is separate from the state of the collection, so a slow watch retains events but no state.

use std::sync::Arc;

use keelson_meta::Revision;
use parking_lot::{Mutex, MutexGuard};

use crate::environment::Environment;
use crate::history::History;

/// The history of a collection.
pub(crate) struct Feed {
    history: Mutex<History>,
    environment: Arc<Environment>,
}

impl Feed {
    pub(crate) const fn new(history: History, environment: Arc<Environment>) -> Self {
        Self { history: Mutex::new(history), environment }
    }

    /// The watermark of the whole server.
    pub(crate) fn reached(&self) -> Revision {
        self.environment.watermark.get()
    }

    pub(crate) fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock()
    }
}
