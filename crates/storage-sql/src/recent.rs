//! The most recent changes, in memory, for tails that keep up with the commits.
//!
//! Their size is limited in bytes. A tail that is further behind reads the table.

use std::collections::VecDeque;

use bytes::Bytes;
use keelson_meta::Revision;
use keelson_storage::StoreEvent;

/// The estimated memory of an event in addition to its key and value, in bytes.
const EVENT_OVERHEAD: usize = 128;

/// Consecutive changes without a gap, limited in size.
pub(crate) struct Recent {
    /// Every change after this revision is in memory.
    floor: Revision,
    events: VecDeque<StoreEvent>,
    bytes: usize,
    max_bytes: usize,
}

impl Recent {
    pub(crate) fn new(floor: Revision, max_bytes: usize) -> Self {
        Self { floor, events: VecDeque::new(), bytes: 0, max_bytes }
    }

    /// Adds the changes of a group. Drops the oldest ones beyond the limit, but never the last.
    pub(crate) fn push(&mut self, events: Vec<StoreEvent>) {
        self.bytes += events.iter().map(cost).sum::<usize>();
        self.events.extend(events);
        while self.bytes > self.max_bytes && self.events.len() > 1 {
            let Some(forgotten) = self.events.pop_front() else { break };
            self.bytes -= cost(&forgotten);
            self.floor = forgotten.revision;
        }
    }

    /// The newest changes in memory, at most `max_events`, ascending.
    #[cfg(feature = "postgres")]
    pub(crate) fn newest(&self, max_events: usize) -> impl Iterator<Item = &StoreEvent> {
        self.events.range(self.events.len().saturating_sub(max_events)..)
    }

    /// At most `max_events` changes after `after` up to `until`, and the revision that they reach. `None` if some of
    /// them were dropped.
    pub(crate) fn between(
        &self,
        after: Revision,
        until: Revision,
        max_events: usize,
    ) -> Option<(Vec<StoreEvent>, Revision)> {
        if after < self.floor {
            return None;
        }
        let start = self.events.partition_point(|event| event.revision <= after);
        let end = self.events.partition_point(|event| event.revision <= until);
        let cut = end.min(start + max_events);
        let events: Vec<StoreEvent> = self.events.range(start..cut).cloned().collect();
        let reached = match events.last() {
            Some(last) if cut < end => last.revision,
            Some(_) | None => until,
        };
        Some((events, reached))
    }
}

fn cost(event: &StoreEvent) -> usize {
    EVENT_OVERHEAD + event.key.as_str().len() + event.value.as_ref().map_or(0, Bytes::len)
}

#[cfg(test)]
mod tests {
    use keelson_storage::StoreKey;

    use super::*;

    fn event(revision: u64) -> StoreEvent {
        StoreEvent::new(StoreKey::new("k"), Revision::new(revision), Some(Bytes::from_static(b"v")))
    }

    #[test]
    fn removed_entries_are_not_served() {
        let mut recent = Recent::new(Revision::new(1), 3 * cost(&event(1)));
        recent.push((2..=6).map(event).collect());
        let between = |after, max| recent.between(Revision::new(after), Revision::new(6), max);
        assert_eq!(between(2, 9), None);
        assert_eq!(between(3, 9), Some((vec![event(4), event(5), event(6)], Revision::new(6))));
        assert_eq!(between(3, 2), Some((vec![event(4), event(5)], Revision::new(5))));
        assert_eq!(between(6, 9), Some((vec![], Revision::new(6))));
        assert_eq!(recent.between(Revision::new(3), Revision::new(4), 9), Some((vec![event(4)], Revision::new(4))));
    }
}
