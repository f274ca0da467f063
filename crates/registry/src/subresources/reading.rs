//! Decodes many objects for one request.
//!
//! The task yields after about a millisecond of work, so that no request holds a shared thread.

use keelson_cache::Entry;
use keelson_meta::Object;
use tokio::task::yield_now;

/// The bytes of objects that are decoded before the task yields: about a millisecond.
const BYTES_AT_ONCE: usize = 64 * 1024;

/// The objects that a request has decoded since it last yielded.
#[derive(Debug, Default)]
pub(super) struct Reading {
    bytes: usize,
}

impl Reading {
    /// Decodes an object.
    pub(super) async fn decode(&mut self, entry: &Entry) -> Object {
        self.bytes += entry.size();
        if self.bytes > BYTES_AT_ONCE {
            self.bytes = 0;
            yield_now().await;
        }
        entry.object().decode(entry.revision)
    }
}
