//! Tests of the tail's state machine, step by step, with simulated time and answers.
//!
//! So tests can use every order of inputs. Tests with a real etcd are in `tests`.

use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{StoreEvent, StoreKey, TailBatch};
use tokio::time::Instant;

use super::ranges::{Change, FIRST_WATCH};
use super::state::{Action, End, Follower, Input, Probe};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{Event, KeyValue, ResponseHeader, WatchResponse};

const CLUSTER: u64 = 7;

/// The state machine with a simulated clock.
struct Rig {
    machine: Follower,
    now: Instant,
}

impl Rig {
    /// A tail after a revision, which is not yet connected.
    fn new(after: u64) -> Self {
        let now = Instant::now();
        Self { machine: Follower::new(Keys::new("/registry".to_owned()), CLUSTER, Revision::new(after), now), now }
    }

    /// A tail with a running watch, on an etcd at the same revision.
    fn following(after: u64, truthful: bool) -> Self {
        let mut rig = Self::new(after);
        rig.connect(after, truthful);
        rig
    }

    fn connect(&mut self, newest: u64, truthful: bool) {
        let opened = self.wait_for_due();
        assert!(matches!(opened[..], [Action::Open { .. }]), "{opened:?}");
        assert_eq!(self.step(Input::Opened { truthful }), []);
        let created = WatchResponse { created: true, ..answer(newest, &[]) };
        assert_eq!(self.step(Input::Message(created)), []);
    }

    fn step(&mut self, input: Input) -> Vec<Action> {
        self.machine.step(self.now, input)
    }

    fn hear(&mut self, message: WatchResponse) -> Vec<Action> {
        self.step(Input::Message(message))
    }

    /// Delivers the first message of a stream, and the verification before it.
    fn hear_first(&mut self, message: WatchResponse, from: i64) -> Vec<Action> {
        assert_eq!(self.hear(message), [Action::Verify { revision: from }]);
        self.step(Input::Verified(Probe::Readable))
    }

    fn want(&mut self, revision: u64) -> Vec<Action> {
        self.step(Input::Wanted(Revision::new(revision)))
    }

    /// Advances the time to the machine's due time.
    fn wait_for_due(&mut self) -> Vec<Action> {
        self.now = self.now.max(self.machine.due().expect("it waits for something"));
        self.step(Input::Tick)
    }
}

fn answer(revision: u64, events: &[(i64, &str)]) -> WatchResponse {
    let event = |(mod_revision, key): &(i64, &str)| Event {
        kind: i32::from(key.ends_with('-')),
        kv: Some(KeyValue {
            key: format!("/registry/{}", key.trim_end_matches('-')).into_bytes(),
            mod_revision: *mod_revision,
            ..KeyValue::default()
        }),
    };
    WatchResponse {
        watch_id: FIRST_WATCH,
        header: Some(ResponseHeader { cluster_id: CLUSTER, revision: revision.try_into().unwrap() }),
        events: events.iter().map(event).collect(),
        ..WatchResponse::default()
    }
}

/// The action that delivers a batch of events with its watermark. A name that ends in a hyphen was deleted.
fn batch_action(events: &[(u64, &str)], watermark: u64) -> Action {
    let event = |(revision, key): &(u64, &str)| {
        StoreEvent::new(
            StoreKey::new(format!("/registry/{}", key.trim_end_matches('-'))),
            Revision::new(*revision),
            (!key.ends_with('-')).then(bytes::Bytes::new),
        )
    };
    Action::Tell(TailBatch { events: events.iter().map(event).collect(), watermark: Revision::new(watermark) })
}

fn broken() -> Input {
    Input::Broken(Failure::Unavailable { cause: "gone".to_owned(), sent: true })
}

#[test]
fn a_watch_starts_after_the_reported_revision() {
    let mut rig = Rig::new(41);
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 42 }]);
}

#[test]
fn events_are_reported_with_their_revision_as_watermark() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.hear_first(answer(6, &[(6, "a"), (6, "b-")]), 5), [batch_action(&[(6, "a"), (6, "b-")], 6)]);
    assert_eq!(rig.hear(answer(7, &[(7, "a")])), [batch_action(&[(7, "a")], 7)]);
    // Several revisions at once come from etcd's store, which may lack compacted ones.
    assert_eq!(rig.hear_first(answer(9, &[(8, "a"), (9, "c")]), 7), [batch_action(&[(8, "a"), (9, "c")], 9)]);
}

#[test]
fn fragments_are_reported_as_one() {
    let mut rig = Rig::following(5, true);
    let part = |events: &[(i64, &str)]| WatchResponse { fragment: true, ..answer(6, events) };
    assert_eq!(rig.hear(part(&[(6, "a")])), []);
    assert_eq!(rig.hear(part(&[(6, "b")])), []);
    assert_eq!(rig.hear_first(answer(6, &[(6, "c")]), 5), [batch_action(&[(6, "a"), (6, "b"), (6, "c")], 6)]);
}

#[test]
fn fragments_of_a_broken_stream_are_forgotten() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.hear(WatchResponse { fragment: true, ..answer(6, &[(6, "a")]) }), []);
    assert!(matches!(rig.step(broken())[..], [Action::Close { .. }]));
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 6 }]);
    rig.step(Input::Opened { truthful: true });
    rig.hear(WatchResponse { created: true, ..answer(6, &[]) });
    assert_eq!(rig.hear_first(answer(6, &[(6, "a"), (6, "b")]), 5), [batch_action(&[(6, "a"), (6, "b")], 6)]);
}

#[test]
fn after_a_break_the_watch_continues_where_it_was() {
    let mut rig = Rig::following(5, true);
    rig.hear_first(answer(9, &[(9, "a")]), 5);
    rig.step(broken());
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 10 }]);
    assert!(matches!(rig.step(broken())[..], [Action::Close { .. }]));
    rig.connect(12, true);
    // Repeated events are not delivered again.
    assert_eq!(rig.hear_first(answer(12, &[(9, "a"), (12, "b")]), 9), [batch_action(&[(12, "b")], 12)]);
}

#[test]
fn compacted_history_is_never_skipped() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.hear(answer(8, &[(8, "a")])), [Action::Verify { revision: 5 }]);
    let compacted = End::Compacted { position: 5 };
    assert_eq!(rig.step(Input::Verified(Probe::Compacted)), [Action::End(compacted)]);

    let mut rig = Rig::following(5, true);
    let cancelled = WatchResponse { canceled: true, compact_revision: 7, ..answer(9, &[]) };
    assert_eq!(rig.hear(cancelled), [Action::End(End::Compacted { position: 5 })]);
    assert_eq!(rig.machine.due(), None);
}

#[test]
fn an_event_answers_a_wait_for_its_revision() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.want(6), []);
    assert_eq!(rig.hear_first(answer(6, &[(6, "a")]), 5), [batch_action(&[(6, "a")], 6)]);
    rig.now += Duration::from_secs(1);
    assert_eq!(rig.step(Input::Tick), []);
}

#[test]
fn a_wanted_revision_without_events_is_requested() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.want(8), []);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    // The revision has not arrived yet, so it is requested again.
    assert_eq!(rig.hear_first(answer(7, &[]), 5), []);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    // The watermark is the revision that the reader waits for, not etcd's newest.
    assert_eq!(rig.hear(answer(11, &[])), [batch_action(&[], 8)]);
    assert_eq!(rig.want(11), [batch_action(&[], 11)]);
}

#[test]
fn untrusted_progress_reports_are_replaced_by_writes() {
    let mut rig = Rig::following(5, false);
    assert_eq!(rig.want(8), []);
    assert_eq!(rig.wait_for_due(), [Action::WriteTick]);
    assert_eq!(rig.hear(answer(8, &[])), []);
    assert_eq!(rig.hear_first(answer(9, &[(9, ".keelson/tick")]), 5), [batch_action(&[], 8)]);
}

#[test]
fn an_untrusted_progress_report_proves_liveness() {
    let mut rig = Rig::following(5, false);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    assert_eq!(rig.hear(answer(99, &[])), []);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    rig.step(broken());
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 6 }]);
}

#[test]
fn a_silent_watch_of_a_live_member_is_closed_eventually() {
    let mut rig = Rig::following(5, true);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    let mut asked = 0;
    let given_up = loop {
        let actions = rig.wait_for_due();
        if actions != [Action::AskLife] {
            break actions;
        }
        assert_eq!(rig.step(Input::Alive), []);
        asked += 1;
    };
    assert!((5..=7).contains(&asked) && matches!(given_up[..], [Action::TurnFrom { .. }, Action::Close { .. }]));
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 6 }]);
    // Also if etcd never confirms the watch, the reader must get an error by now.
    rig.step(Input::Opened { truthful: true });
    let given_up = rig.wait_for_due();
    assert!(matches!(given_up[..], [Action::TurnFrom { .. }, Action::End(End::Failed(_))]), "{given_up:?}");
}

#[test]
fn a_watch_leaves_a_dead_member_within_seconds() {
    let mut rig = Rig::following(5, true);
    let begun = rig.now;
    rig.want(6);
    assert_eq!(rig.wait_for_due(), [Action::AskProgress]);
    while !rig.wait_for_due().contains(&Action::AskLife) {}
    assert!(matches!(rig.step(broken())[..], [Action::Close { .. }]));
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 6 }]);
    assert!(rig.now - begun < Duration::from_secs(3));
}

/// A message with one event for each revision.
fn history(watch: i64, newest: u64, revisions: std::ops::RangeInclusive<i64>) -> WatchResponse {
    let events: Vec<(i64, &str)> = revisions.map(|revision| (revision, "a")).collect();
    WatchResponse { watch_id: watch, ..answer(newest, &events) }
}

fn begun(watch: i64, start: i64) -> Action {
    Action::Share(Change::Begin { watch, start })
}

#[test]
fn a_long_history_comes_by_several_watches_and_is_reported_in_order() {
    let mut rig = Rig::new(0);
    rig.connect(3500, true);
    rig.want(3500);
    rig.wait_for_due();
    let shared = [begun(2, 2001), begun(3, 3001), Action::Verify { revision: 0 }];
    assert_eq!(rig.hear(history(FIRST_WATCH, 3500, 1..=1000)), shared);
    let revisions = |actions: &[Action]| -> Vec<u64> {
        let told = actions.iter().filter_map(|action| match action {
            Action::Tell(batch) => Some(batch.events.iter().map(|event| event.revision.get())),
            _ => None,
        });
        told.flatten().collect()
    };
    assert_eq!(revisions(&rig.step(Input::Verified(Probe::Readable))), (1..=1000).collect::<Vec<_>>());
    assert_eq!(rig.hear(history(3, 3500, 3001..=3500)), []);
    // The watch delivers only up to the end of its range. Later events belong to the next watch.
    assert_eq!(rig.hear(history(2, 3500, 2001..=3000)), [Action::Share(Change::Cancel { watch: 2 })]);
    let cancelled = WatchResponse { watch_id: 2, canceled: true, ..answer(3500, &[]) };
    assert_eq!(rig.hear(cancelled), []);
    let last = rig.hear(history(FIRST_WATCH, 3500, 1001..=2000));
    assert_eq!(last, [Action::Share(Change::Cancel { watch: FIRST_WATCH }), Action::Verify { revision: 1000 }]);
    assert_eq!(revisions(&rig.step(Input::Verified(Probe::Readable))), (1001..=3500).collect::<Vec<_>>());
    let live = WatchResponse { watch_id: 3, ..answer(3501, &[(3501, "b")]) };
    assert_eq!(rig.hear(live), [batch_action(&[(3501, "b")], 3501)]);
    assert_eq!(rig.hear(history(2, 3501, 3501..=3501)), [], "the cancelled watch was not yet gone");
}

#[test]
fn a_shareable_watch_gets_no_progress_request() {
    let mut rig = Rig::new(0);
    rig.connect(5000, true);
    rig.want(5000);
    let begun = rig.now;
    // All that history may belong to other keys. Then no event arrives.
    while rig.wait_for_due() != [Action::AskProgress] {}
    assert!(rig.now - begun >= Duration::from_secs(1));
    assert_eq!(rig.hear_first(WatchResponse { watch_id: -1, ..answer(5000, &[]) }, 0), [batch_action(&[], 5000)]);
    // Later events are not divided among watches, since the answer to a progress request may still be in flight.
    assert_eq!(rig.hear(history(FIRST_WATCH, 9000, 5001..=6000)), [Action::Verify { revision: 5000 }]);
}

#[test]
fn a_tail_ends_when_no_watch_can_be_opened_for_long() {
    let mut rig = Rig::new(5);
    let mut opened = 0;
    let end = loop {
        match &rig.wait_for_due()[..] {
            [Action::Open { start: 6 }] => opened += 1,
            other => panic!("{other:?}"),
        }
        match rig.step(broken()).pop() {
            Some(Action::Close { .. }) => {}
            other => break other,
        }
    };
    assert!(matches!(end, Some(Action::End(End::Failed(_)))), "{end:?}");
    assert!((4..20).contains(&opened), "{opened} tries");
}

#[test]
fn a_lagging_member_is_distinguished_from_a_restored_etcd() {
    let connect_to_older = || {
        let mut rig = Rig::new(50);
        rig.wait_for_due();
        rig.step(Input::Opened { truthful: true });
        let created = WatchResponse { created: true, ..answer(40, &[]) };
        assert_eq!(rig.hear(created), [Action::Verify { revision: 50 }]);
        rig
    };
    let mut lagging = connect_to_older();
    assert_eq!(lagging.step(Input::Verified(Probe::Readable)), []);
    assert_eq!(lagging.hear_first(answer(51, &[(51, "a")]), 50), [batch_action(&[(51, "a")], 51)]);
    let set_back = connect_to_older().step(Input::Verified(Probe::Future));
    assert_eq!(set_back, [Action::End(End::Future { position: 50 })]);
}

#[test]
fn another_etcd_is_detected() {
    let mut rig = Rig::following(5, true);
    let mut foreign = answer(6, &[(6, "a")]);
    foreign.header.as_mut().unwrap().cluster_id = 8;
    assert_eq!(rig.hear(foreign), [Action::End(End::OtherCluster)]);
}

#[test]
fn a_cancelled_watch_is_opened_again() {
    let mut rig = Rig::following(5, true);
    let cancelled =
        WatchResponse { canceled: true, cancel_reason: "etcdserver: no leader".to_owned(), ..answer(5, &[]) };
    assert_eq!(rig.hear(cancelled), [Action::Close { cause: "no leader".to_owned() }]);
    assert_eq!(rig.wait_for_due(), [Action::Open { start: 6 }]);
}
