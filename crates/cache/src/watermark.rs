//! The watermark: the revision up to which all collections have followed the store. It is common to all, so an idle
//! collection is as fresh as a busy one.
//!
//! Only the tail's task advances it, after every collection has the events up to it. Any task may wait for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keelson_meta::Revision;
use tokio::sync::watch;

/// A revision that only grows. Tasks can wait for it.
pub(crate) struct Watermark {
    reached: AtomicU64,
    sender: watch::Sender<Revision>,
}

/// The cache did not reach a revision before the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the cache is at revision {current}, not yet at {wanted}")]
pub struct BehindError {
    /// The awaited revision.
    pub wanted: Revision,
    /// The watermark at the end of the wait.
    pub current: Revision,
}

impl Default for Watermark {
    fn default() -> Self {
        Self { reached: AtomicU64::new(0), sender: watch::Sender::new(Revision::ZERO) }
    }
}

impl Watermark {
    /// Returns the watermark. Every collection has all events up to it.
    pub(crate) fn get(&self) -> Revision {
        Revision::new(self.reached.load(Ordering::Acquire))
    }

    /// ORDER: called after every collection has all events up to `revision`, so a reader that sees the revision finds
    /// them all.
    pub(crate) fn advance(&self, revision: Revision) {
        self.reached.fetch_max(revision.get(), Ordering::Release);
        self.sender.send_if_modified(|known| {
            let grows = revision > *known;
            *known = revision.max(*known);
            grows
        });
    }

    pub(crate) async fn wait_for(&self, wanted: Revision, timeout: Duration) -> Result<(), BehindError> {
        if self.get() >= wanted {
            return Ok(());
        }
        let mut receiver = self.sender.subscribe();
        match tokio::time::timeout(timeout, receiver.wait_for(|reached| *reached >= wanted)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(BehindError { wanted, current: self.get() }),
        }
    }
}
