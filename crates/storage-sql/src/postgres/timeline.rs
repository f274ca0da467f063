//! Recent changes in revision order, put together from the groups that this server has committed and what it reads of others'.
//!
//! The values of our own groups are in memory already, so only other servers' changes are read. A group waits here until
//! everything before it is known.

use std::collections::BTreeMap;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreEvent;

use crate::recent::Recent;
use crate::tail::{BATCH_EVENTS, Changes};

/// A run of changes without a gap, and groups of ours that are above the gap.
pub(crate) struct Timeline {
    recent: Recent,
    /// Every change up to here has been in `recent`.
    newest: Revision,
    /// Our groups above, by the revision before their first.
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

    /// The next range to read: the changes after the first revision, up to the second if there is one.
    pub(crate) fn gap(&self) -> (Revision, Option<Revision>) {
        (self.newest, self.own.keys().next().copied())
    }

    /// Adds a group of ours whose first change comes after `base`.
    pub(crate) fn add_own(&mut self, base: Revision, events: Vec<StoreEvent>) {
        if events.last().is_none_or(|last| last.revision <= self.newest) {
            return;
        }
        self.own_bytes += bytes(&events);
        self.own.insert(base, events);
        self.join();
        // Dropped events are read from the table, as others' changes. The last group stays: it is a witness.
        while self.own_bytes > self.max_bytes
            && self.own.len() > 1
            && let Some((_, dropped)) = self.own.pop_first()
        {
            self.own_bytes = self.own_bytes.saturating_sub(bytes(&dropped));
        }
    }

    /// Adds what was read of the table: everything after `after` up to `reached`.
    pub(crate) fn add_read(&mut self, after: Revision, events: Vec<StoreEvent>, reached: Revision) {
        if after > self.newest || reached <= self.newest {
            return;
        }
        let known = self.newest;
        self.recent.push(events.into_iter().filter(|event| event.revision > known).collect());
        self.newest = reached;
        self.join();
    }

    /// Begins again at a revision, when what comes before it can no longer be read.
    pub(crate) fn begin_at(&mut self, revision: Revision) {
        if revision > self.newest {
            *self = Self::new(revision, self.max_bytes);
        }
    }

    /// The newest changes that were seen, those above a gap too, ascending.
    pub(crate) fn newest_events(&self, count: usize) -> Vec<StoreEvent> {
        let own: Vec<&StoreEvent> = self.own.values().flatten().collect();
        let own = &own[own.len().saturating_sub(count)..];
        self.recent.newest(count - own.len()).chain(own.iter().copied()).cloned().collect()
    }

    /// Changes from memory, as [`Recent::between`].
    pub(crate) fn between(&self, after: Revision, until: Revision) -> Option<Changes> {
        self.recent.between(after, until, BATCH_EVENTS)
    }

    /// Takes our groups in that the gap has closed before.
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
    fn own_groups_wait_for_what_is_before_them() {
        let mut timeline = Timeline::new(at(1), 1 << 20);
        timeline.add_own(at(1), events(2..=3));
        assert_eq!(timeline.gap(), (at(3), None));
        timeline.add_own(at(5), events(6..=7));
        timeline.add_own(at(9), events(10..=10));
        assert_eq!(timeline.gap(), (at(3), Some(at(5))));
        timeline.add_read(at(3), events(4..=5), at(5));
        assert_eq!(timeline.gap(), (at(7), Some(at(9))));
        // A read that was sent before our group closes the gap too, and no event is published twice.
        timeline.add_read(at(7), events(8..=11), at(11));
        assert_eq!(timeline.gap(), (at(11), None));
        timeline.add_own(at(9), events(10..=10));
        assert_eq!(timeline.between(at(1), at(11)), Some((events(2..=11), at(11))));
    }

    #[test]
    fn a_read_that_does_not_follow_is_not_taken() {
        let mut timeline = Timeline::new(at(1), 1 << 20);
        timeline.begin_at(at(8));
        timeline.add_read(at(9), events(10..=11), at(11));
        assert_eq!(timeline.newest(), at(8));
        assert_eq!(timeline.between(at(1), at(8)), None);
    }
}
