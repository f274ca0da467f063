//! The progress of one mirrored resource: the revision that its watch has reached, and the state of its source.
//!
//! The tail writes it, and reads wait for it. It also has the revision that reads wait for, so that the tail can ask the
//! source for a bookmark.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use keelson_meta::Revision;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// After a failed question, further reads ask no question for this time.
const QUIET_TIME: Duration = Duration::from_secs(5);

/// The progress of a mirrored resource.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The revision that the tail has delivered.
    reached: watch::Sender<Revision>,
    /// The newest revision that a read waits for.
    wanted: watch::Sender<Revision>,
    /// True while a watch at the source is open.
    watching: AtomicBool,
    /// The source no longer has the events after revisions up to this one.
    expired: AtomicU64,
    /// The source has gone back to an earlier state.
    restored: watch::Sender<bool>,
    contact: Mutex<Contact>,
}

/// The contact with the source.
#[derive(Debug)]
struct Contact {
    /// The time at which the mirror was complete for certain, on both clocks.
    confirmed: (Instant, SystemTime),
    /// The end of the contact.
    away: Option<Unreachable>,
}

#[derive(Clone, Copy, Debug)]
struct Unreachable {
    /// Reads ask no question before this time.
    until: Instant,
}

/// The age of a mirrored state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Age {
    /// The longest time by which the state may be older than that of the source.
    pub(crate) lag: Duration,
    /// If the source is away, or has gone back to an earlier state, the time of this state.
    pub(crate) as_of: Option<SystemTime>,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self {
            reached: watch::Sender::new(Revision::ZERO),
            wanted: watch::Sender::new(Revision::ZERO),
            watching: AtomicBool::new(false),
            expired: AtomicU64::new(0),
            restored: watch::Sender::new(false),
            contact: Mutex::new(Contact { confirmed: (Instant::now(), SystemTime::now()), away: None }),
        }
    }

    /// The revision that the tail has delivered.
    pub(crate) fn reached(&self) -> Revision {
        *self.reached.borrow()
    }

    /// Records that everything up to a revision was delivered.
    pub(crate) fn reach(&self, revision: Revision) {
        self.reached.send_if_modified(|reached| {
            let is_newer = revision > *reached;
            *reached = (*reached).max(revision);
            is_newer
        });
        // A state below a revision that the source is known to have is not complete.
        if self.reached() >= *self.wanted.borrow() {
            self.heard(Instant::now());
        }
    }

    /// Records a revision that the source has.
    pub(crate) fn want(&self, revision: Revision) {
        self.wanted.send_if_modified(|wanted| {
            let is_newer = revision > *wanted;
            *wanted = (*wanted).max(revision);
            is_newer
        });
    }

    /// Waits until the tail has delivered a revision, for at most `time`. Returns the reached revision.
    pub(crate) async fn wait_for(&self, revision: Revision, time: Duration) -> Revision {
        self.want(revision);
        let mut reached = self.reached.subscribe();
        let _waited = tokio::time::timeout(time, reached.wait_for(|reached| *reached >= revision)).await;
        self.reached()
    }

    /// A receiver of the newest revision that a read waits for.
    pub(crate) fn wanted(&self) -> watch::Receiver<Revision> {
        self.wanted.subscribe()
    }

    /// Returns true while a watch is open.
    pub(crate) fn is_watching(&self) -> bool {
        self.watching.load(Ordering::Relaxed)
    }

    /// Records that a watch was opened or has ended.
    pub(crate) fn set_watching(&self, is_open: bool) {
        self.watching.store(is_open, Ordering::Relaxed);
        if is_open {
            self.contact.lock().away = None;
        }
    }

    /// Records that the source no longer has the events after a revision. Some sources report that only in the watch.
    pub(crate) fn set_expired(&self, revision: Revision) {
        self.expired.fetch_max(revision.get(), Ordering::Relaxed);
    }

    /// Returns true if the source no longer has the events after a revision.
    pub(crate) fn is_expired(&self, revision: Revision) -> bool {
        revision.get() <= self.expired.load(Ordering::Relaxed)
    }

    /// Records that the state was complete at a time.
    pub(crate) fn heard(&self, at: Instant) {
        let mut contact = self.contact.lock();
        contact.away = None;
        if at > contact.confirmed.0 {
            let ago = at.elapsed();
            contact.confirmed = (at, SystemTime::now().checked_sub(ago).unwrap_or(SystemTime::UNIX_EPOCH));
        }
    }

    /// Records that the source does not answer.
    pub(crate) fn lost(&self) {
        self.contact.lock().away = Some(Unreachable { until: Instant::now() + QUIET_TIME });
    }

    /// Returns true if the source does not answer, and a read should not ask it again yet.
    pub(crate) fn is_away(&self) -> bool {
        let away = self.contact.lock().away;
        away.is_some_and(|away| !self.is_watching() || Instant::now() < away.until)
    }

    /// The age of the state.
    pub(crate) fn age(&self) -> Age {
        let contact = self.contact.lock();
        // A state that the source no longer has is not its newest, even if the source answers.
        let is_old = contact.away.is_some() || self.is_restored();
        let as_of = is_old.then_some(contact.confirmed.1);
        Age { lag: contact.confirmed.0.elapsed(), as_of }
    }

    /// Records that the source's revisions went back, so that the mirror must be loaded anew.
    pub(crate) fn set_restored(&self) {
        self.restored.send_replace(true);
    }

    /// Returns true if the source's revisions went back.
    pub(crate) fn is_restored(&self) -> bool {
        *self.restored.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_waits_for_a_revision_no_longer_than_its_time() {
        let progress = Progress::new();
        progress.reach(Revision::new(3));
        let begun = Instant::now();
        assert_eq!(progress.wait_for(Revision::new(3), Duration::from_secs(1)).await, Revision::new(3));
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert_eq!(progress.wait_for(Revision::new(4), Duration::from_secs(1)).await, Revision::new(3));
        assert_eq!(begun.elapsed(), Duration::from_secs(1));
        assert_eq!(*progress.wanted().borrow(), Revision::new(4));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unreachable_source_is_retried_after_a_delay() {
        let progress = Progress::new();
        progress.set_watching(true);
        progress.lost();
        assert!(progress.is_away() && progress.age().as_of.is_some());
        tokio::time::advance(QUIET_TIME).await;
        assert!(!progress.is_away());
        progress.set_watching(false);
        progress.lost();
        tokio::time::advance(QUIET_TIME).await;
        assert!(progress.is_away(), "the tail finds out when it is back");
        progress.set_watching(true);
        assert!(!progress.is_away() && progress.age().as_of.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_source_makes_the_mirror_stale() {
        let progress = Progress::new();
        progress.set_watching(true);
        progress.heard(Instant::now());
        assert_eq!(progress.age().as_of, None);
        progress.set_restored();
        progress.heard(Instant::now());
        assert!(progress.age().as_of.is_some());
    }
}
