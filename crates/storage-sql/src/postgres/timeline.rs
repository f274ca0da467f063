//! Recent changes in revision order: the groups that this server has committed, and the changes of other servers that
//! it reads.
//!
//! The values of this server's groups are already in memory, so it reads only the changes of other servers. A group
//! waits here until all changes before it are known.

use std::collections::BTreeMap;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreEvent;

use crate::recent::Recent;
use crate::tail::{BATCH_EVENTS, Changes};

/// The changes without a gap, and groups of this server above a gap.
pub(crate) struct Timeline {
    recent: Recent,
    /// `recent` has had every change up to this revision.
    newest: Revision,
    /// The groups of this server above the gap, by the revision before their first change.
    own: BTreeMap<Revision, Vec<StoreEvent>>,
    own_bytes: usize,
    max_bytes: usize,
}

impl Timeline {
    pub(crate) fn new(newest: Revision, max_bytes: usize) -> Self {
        Self { recent: Recent::new(newest, max_bytes), newest, own: BTreeMap::new(), own_bytes: 0, max_bytes }
    }

    /// The newest revision that can be published.
    pub(crate) const fn newest(&self) -> Revision {
        self.newest
    }

    /// The next range to read: the changes after the first revision, up to the second one if there is one.
    pub(crate) fn gap(&self) -> (Revision, Option<Revision>) {
        (self.newest, self.own.keys().next().copied())
    }

    /// Adds a group of this server. `base` is the revision before its first change.
    pub(crate) fn add_own(&mut self, base: Revision, events: Vec<StoreEvent>) {
        if events.last().is_none_or(|last| last.revision <= self.newest) {
            return;
        }
        self.own_bytes += bytes(&events);
        self.own.insert(base, events);
        self.join();
        // Dropped groups are read from the table, like changes of other servers. The last group stays, since it is a
        // witness.
        while self.own_bytes > self.max_bytes
            && self.own.len() > 1
            && let Some((_, dropped)) = self.own.pop_first()
        {
            self.own_bytes = self.own_bytes.saturating_sub(bytes(&dropped));
        }
    }

    /// Adds changes that were read from the table: all after `after` up to `reached`.
    pub(crate) fn add_read(&mut self, after: Revision, events: Vec<StoreEvent>, reached: Revision) {
        if after > self.newest || reached <= self.newest {
            return;
        }
        let known = self.newest;
        self.recent.push(events.into_iter().filter(|event| event.revision > known).collect());
        self.newest = reached;
        self.join();
    }

    /// Restarts at a revision, when earlier changes can no longer be read.
    pub(crate) fn begin_at(&mut self, revision: Revision) {
        if revision > self.newest {
            *self = Self::new(revision, self.max_bytes);
        }
    }

    /// The newest changes that are known, including groups above a gap, ascending.
    pub(crate) fn newest_events(&self, count: usize) -> Vec<StoreEvent> {
        let own: Vec<&StoreEvent> = self.own.values().flatten().collect();
        let own = &own[own.len().saturating_sub(count)..];
        self.recent.newest(count - own.len()).chain(own.iter().copied()).cloned().collect()
    }

    /// Changes from memory: see [`Recent::between`].
    pub(crate) fn between(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.recent.between(after, until, BATCH_EVENTS)
    }

    /// Moves the groups whose gap is closed to the recent changes.
    fn join(&mut self) {
        while let Some(group) = self.own.first_entry().filter(|group| *group.key() <= self.newest) {
            let events = group.remove();
            self.own_bytes = self.own_bytes.saturating_sub(bytes(&events));
            let known = self.newest;
            let events: Vec<StoreEvent> = events.into_iter().filter(|event| event.revision > known).collect();
            if let Some(last) = events.last() {
                self.newest = last.revision;
                self.recent.push(events);
            }
        }
    }
}

fn bytes(events: &[StoreEvent]) -> usize {
    events.iter().filter_map(|event| event.value.as_ref()).map(Bytes::len).sum()
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreKey;

    use super::*;

    fn events(revisions: std::ops::RangeInclusive<u64>) -> Vec<StoreEvent> {
        let event = |number| StoreEvent::new(StoreKey::new("k"), Revision::new(number), Some(Bytes::from_static(b"v")));
        revisions.map(event).collect()
    }

    fn at(number: u64) -> Revision {
        Revision::new(number)
    }

    #[test]
    fn own_groups_wait_for_earlier_revisions() {
        let mut timeline = Timeline::new(at(1), 1 << 20);
        timeline.add_own(at(1), events(2..=3));
        assert_eq!(timeline.gap(), (at(3), None));
        timeline.add_own(at(5), events(6..=7));
        timeline.add_own(at(9), events(10..=10));
        assert_eq!(timeline.gap(), (at(3), Some(at(5))));
        timeline.add_read(at(3), events(4..=5), at(5));
        assert_eq!(timeline.gap(), (at(7), Some(at(9))));
        // A read that was sent before the group of this server also closes the gap, and no event is published twice.
        timeline.add_read(at(7), events(8..=11), at(11));
        assert_eq!(timeline.gap(), (at(11), None));
        timeline.add_own(at(9), events(10..=10));
        assert_eq!(timeline.between(at(1), at(11)), Some((events(2..=11), at(11))));
    }

    #[test]
    fn reads_that_do_not_follow_the_timeline_are_ignored() {
        let mut timeline = Timeline::new(at(1), 1 << 20);
        timeline.begin_at(at(8));
        timeline.add_read(at(9), events(10..=11), at(11));
        assert_eq!(timeline.newest(), at(8));
        assert_eq!(timeline.between(at(1), at(8)), None);
    }
}
