//! The ranges of a stream: the revisions that each of its watches delivers. Has no IO.
//!
//! etcd sends a lagging watch 1,000 revisions at a time, continues 100 ms later, and reads all remaining history each
//! time. So several watches of the same keys share a long history. They start 1,000 revisions apart, get their events
//! in the same round, and are cancelled after their range. The last one stays open.
//!
//! Invariant: events are delivered once, in order, and in whole revisions, whatever the order in which the watches
//! deliver them.

use std::collections::VecDeque;

use crate::proto::Event;

/// The first watch of a stream.
pub(super) const FIRST_WATCH: i64 = 1;
/// The watch id of a progress report about all watches of its stream.
const ALL_WATCHES: i64 = -1;
/// The number of revisions that etcd sends a lagging watch at a time.
const RANGE_REVISIONS: i64 = 1000;
/// The maximum number of watches that share a history. Each watch makes etcd check every event in every round.
const MOST_WATCHES: usize = 16;
/// The target size in bytes of events that wait for earlier ones.
const WAITING_BYTES: usize = 64 << 20;

/// A request for the stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Starts another watch at a revision.
    Begin { watch: i64, start: i64 },
    /// Cancels a watch.
    Cancel { watch: i64 },
}

/// The watches of one stream.
#[derive(Debug)]
pub(super) struct WatchRanges {
    /// The ranges by revision. The last one has no end.
    open: VecDeque<WatchRange>,
    next_watch: i64,
    /// etcd's newest known revision.
    newest: i64,
    /// The size and number of all revisions so far. They limit the ranges that wait for earlier ones.
    bytes: usize,
    revisions: usize,
    /// True while more watches may start.
    sharing: bool,
}

#[derive(Debug)]
struct WatchRange {
    watch: i64,
    /// All events of the range up to this revision have arrived.
    reached: i64,
    /// The last revision of the range.
    until: Option<i64>,
    cancelled: bool,
    /// The events of an incomplete response.
    fragments: Vec<Event>,
    /// Events that wait for earlier ranges.
    events: Vec<Event>,
}

impl WatchRange {
    const fn new(watch: i64, reached: i64) -> Self {
        Self { watch, reached, until: None, cancelled: false, fragments: Vec::new(), events: Vec::new() }
    }

    fn is_complete(&self) -> bool {
        self.until.is_some_and(|until| self.reached >= until)
    }
}

impl WatchRanges {
    /// A stream with one watch after a revision, when etcd is at `newest`.
    pub(super) fn new(after: i64, newest: i64) -> Self {
        let open = VecDeque::from([WatchRange::new(FIRST_WATCH, after)]);
        let mut ranges = Self { open, next_watch: FIRST_WATCH + 1, newest, bytes: 0, revisions: 0, sharing: true };
        ranges.sharing = ranges.has_more_to_share();
        ranges
    }

    /// Returns true if this module has cancelled the watch. Its later events are ignored.
    pub(super) fn was_cancelled(&self, watch: i64) -> bool {
        (FIRST_WATCH..self.next_watch).contains(&watch)
            && self.open.iter().find(|range| range.watch == watch).is_none_or(|range| range.cancelled)
    }

    /// Adds events. Once the response is complete, returns the number of revisions in it.
    pub(super) fn bring(&mut self, watch: i64, newest: i64, events: Vec<Event>, more_follow: bool) -> usize {
        self.newest = self.newest.max(newest);
        let Some(range) = self.open.iter_mut().find(|range| range.watch == watch && !range.cancelled) else { return 0 };
        range.fragments.extend(events);
        if more_follow {
            return 0;
        }
        let events = std::mem::take(&mut range.fragments);
        let (before, mut last, mut revisions) = (range.reached, 0, 0);
        for event in events {
            let revision = event.kv.as_ref().map_or(0, |kv| kv.mod_revision);
            revisions += usize::from(revision != last);
            last = revision;
            self.bytes += event.kv.as_ref().map_or(0, |kv| kv.key.len() + kv.value.len());
            if revision > before && range.until.is_none_or(|until| revision <= until) {
                range.events.push(event);
            }
        }
        range.reached = range.reached.max(last);
        self.revisions += revisions;
        revisions
    }

    /// Records a reliable report that all events up to a revision have arrived.
    pub(super) fn report(&mut self, watch: i64, revision: i64) {
        for range in self.open.iter_mut().filter(|range| watch == ALL_WATCHES || range.watch == watch) {
            range.reached = range.reached.max(revision);
        }
    }

    /// Returns true if everything up to a revision above `position` has arrived.
    pub(super) fn is_past(&self, position: i64) -> bool {
        self.open.front().is_some_and(|range| range.reached > position)
    }

    /// Removes and returns the next events, and the revision that they reach.
    pub(super) fn take(&mut self) -> (Vec<Event>, i64) {
        let mut events = Vec::new();
        loop {
            let Some(range) = self.open.front_mut() else { return (events, 0) };
            events.append(&mut range.events);
            match range.until {
                Some(_) if range.cancelled => self.open.pop_front(),
                _ => return (events, range.reached),
            };
        }
    }

    /// Starts watches for the remaining history, and cancels those that have delivered their range. Called before
    /// events are taken and afterwards, when there is space again.
    pub(super) fn balance(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for range in self.open.iter_mut().filter(|range| range.is_complete() && !range.cancelled) {
            range.cancelled = true;
            range.fragments = Vec::new();
            changes.push(Change::Cancel { watch: range.watch });
        }
        while self.sharing && self.open.len() < self.room() && self.has_more_to_share() {
            let Some(last) = self.open.back_mut() else { break };
            let until = last.reached + RANGE_REVISIONS;
            last.until = Some(until);
            let watch = self.next_watch;
            self.next_watch += 1;
            self.open.push_back(WatchRange::new(watch, until));
            changes.push(Change::Begin { watch, start: until + 1 });
        }
        if self.open.len() == 1 && !self.has_more_to_share() {
            self.sharing = false;
        }
        changes
    }

    /// Returns true while more watches may start. Until then the stream must not request its progress, since the report
    /// covers only the watches that exist when etcd reads the request.
    pub(super) const fn is_sharing(&self) -> bool {
        self.sharing
    }

    /// Starts no more watches from now on.
    pub(super) const fn stop_sharing(&mut self) {
        self.sharing = false;
    }

    /// Returns true if the last watch lags so far behind that another one can take over its later revisions.
    fn has_more_to_share(&self) -> bool {
        self.open.back().is_some_and(|last| last.reached + RANGE_REVISIONS < self.newest)
    }

    /// The maximum number of concurrent ranges. One, until the size of revisions is known.
    fn room(&self) -> usize {
        let of_one = self.bytes / self.revisions.max(1) * RANGE_REVISIONS.unsigned_abs() as usize;
        let most = if self.revisions == 0 { 1 } else { WAITING_BYTES / of_one.max(1) };
        most.clamp(1, MOST_WATCHES)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::proto::KeyValue;

    fn event(revision: i64, size: usize) -> Event {
        Event { kind: 0, kv: Some(KeyValue { value: vec![0; size], mod_revision: revision, ..KeyValue::default() }) }
    }

    /// A simulated etcd. Like a real one, it sends each watch 1,000 revisions with events in a round.
    struct Etcd {
        /// The number of events of each revision from 1. A write to other keys has none.
        history: Vec<usize>,
        /// The watches with their positions.
        watches: Vec<(i64, i64)>,
    }

    impl Etcd {
        fn newest(&self) -> i64 {
            self.history.len() as i64
        }

        fn ask(&mut self, changes: Vec<Change>) {
            for change in changes {
                match change {
                    Change::Begin { watch, start } => self.watches.push((watch, start)),
                    Change::Cancel { watch } => self.watches.retain(|(known, _)| *known != watch),
                }
            }
        }

        fn batch(&mut self, at: usize) -> (i64, Vec<Event>) {
            let (watch, from) = self.watches[at];
            let revisions = (from..=self.newest()).filter(|revision| self.history[*revision as usize - 1] > 0);
            let revisions: Vec<i64> = revisions.take(RANGE_REVISIONS as usize).collect();
            self.watches[at].1 = revisions.last().map_or(self.newest(), |last| *last) + 1;
            let events = |revision: &i64| vec![event(*revision, 10); self.history[*revision as usize - 1]];
            (watch, revisions.iter().flat_map(events).collect())
        }
    }

    /// Runs rounds until everything is delivered. Returns the revisions of the events in order of delivery, and the
    /// number of rounds.
    fn follow(history: Vec<usize>, order: &[usize], cut: usize) -> (Vec<i64>, usize) {
        let mut etcd = Etcd { history, watches: vec![(FIRST_WATCH, 1)] };
        let mut ranges = WatchRanges::new(0, etcd.newest());
        let (mut told, mut position, mut rounds) = (Vec::new(), 0, 0);
        loop {
            let mut waiting: Vec<_> = (0..etcd.watches.len()).map(|at| etcd.batch(at)).collect();
            waiting.retain(|(_, events)| !events.is_empty());
            if waiting.is_empty() {
                break;
            }
            rounds += 1;
            while !waiting.is_empty() {
                let (watch, mut events) = waiting.remove(order[rounds % order.len()] % waiting.len());
                let rest = events.split_off(events.len().min(cut));
                ranges.bring(watch, etcd.newest(), events, true);
                ranges.bring(watch, etcd.newest(), rest, false);
                etcd.ask(ranges.balance());
                let (events, reached) = ranges.take();
                etcd.ask(ranges.balance());
                assert!(
                    reached >= position
                        && events.iter().all(|event| event.kv.as_ref().unwrap().mod_revision <= reached)
                );
                position = reached;
                told.extend(events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision));
            }
        }
        // The progress report after all watches have reached etcd's newest revision.
        ranges.stop_sharing();
        ranges.report(ALL_WATCHES, etcd.newest());
        etcd.ask(ranges.balance());
        let (events, reached) = ranges.take();
        told.extend(events.iter().map(|event| event.kv.as_ref().unwrap().mod_revision));
        assert_eq!(reached, etcd.newest());
        (told, rounds)
    }

    #[test]
    fn a_long_history_takes_a_few_rounds() {
        let (told, rounds) = follow(vec![1; 40_000], &[0, 3, 1], 100);
        assert_eq!(told, (1..=40_000).collect::<Vec<i64>>());
        assert!(rounds <= 5, "{rounds}");
    }

    #[test]
    fn a_short_history_needs_one_watch_that_may_be_asked_at_once() {
        let mut ranges = WatchRanges::new(50, 900);
        assert!(!ranges.is_sharing() && ranges.balance().is_empty());
        assert_eq!(ranges.bring(FIRST_WATCH, 900, vec![event(51, 1), event(51, 1), event(60, 1)], false), 2);
        assert!(ranges.is_past(50) && ranges.balance().is_empty());
        assert_eq!(ranges.take().1, 60);
    }

    #[test]
    fn large_events_do_not_wait_in_many_parts() {
        let begun = |size: usize| {
            let mut ranges = WatchRanges::new(0, 100_000);
            assert!(ranges.is_sharing() && ranges.balance().is_empty(), "their size is not known yet");
            ranges.bring(FIRST_WATCH, 100_000, (1..=1000).map(|revision| event(revision, size)).collect(), false);
            ranges.balance().len() + 1
        };
        assert_eq!([begun(100), begun(16 << 10), begun(100 << 10)], [MOST_WATCHES, 3 + 1, 1]);
    }

    #[test]
    fn responses_of_a_cancelled_watch_are_ignored() {
        let mut ranges = WatchRanges::new(0, 5000);
        ranges.bring(FIRST_WATCH, 5000, (1..=1000).map(|revision| event(revision, 1)).collect(), false);
        let begun = ranges.balance();
        assert_eq!(begun[0], Change::Begin { watch: 2, start: 2001 });
        ranges.bring(FIRST_WATCH, 5000, (1001..=2000).map(|revision| event(revision, 1)).collect(), false);
        assert_eq!(ranges.balance(), [Change::Cancel { watch: FIRST_WATCH }]);
        assert!(ranges.was_cancelled(FIRST_WATCH) && !ranges.was_cancelled(2) && !ranges.was_cancelled(ALL_WATCHES));
        assert_eq!(ranges.bring(FIRST_WATCH, 5000, vec![event(2001, 1)], false), 0);
        assert_eq!((ranges.take().0.len(), ranges.take().1), (2000, 2000));
        assert!(ranges.was_cancelled(FIRST_WATCH));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// For every history and every order of responses.
        #[test]
        fn every_event_comes_once_and_in_order(
            runs in prop::collection::vec((0_usize..3, 1_usize..4000), 1..12),
            order in prop::collection::vec(0_usize..20, 1..8),
            cut in 0_usize..3000,
        ) {
            let history: Vec<usize> = runs.iter().flat_map(|(events, length)| vec![*events; *length]).collect();
            let expected: Vec<i64> = history
                .iter()
                .enumerate()
                .flat_map(|(at, events)| vec![at as i64 + 1; *events])
                .collect();
            let (told, _) = follow(history, &order, cut);
            prop_assert_eq!(told, expected);
        }
    }
}
