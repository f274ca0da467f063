//! The state machine of a tail: an enum and one step function, without IO and clock.
//!
//! Invariants:
//! - Every event after the start is delivered once, in order, and in whole revisions.
//! - The watermark never decreases, and never passes an event that may still arrive.
//! - A new connection delivers events only after a check that compaction has removed none since the previous one.
//!
//! An event moves the watermark. Without events, the watermark moves only to a revision that a reader waits for
//! (`wanted`, see `revision.rs`), after etcd confirms that the watch has passed it. The confirmation is a progress
//! report if the reports of this etcd are reliable, and otherwise the event of a tick.

use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{StoreEvent, TailBatch};
use tokio::time::Instant;

use super::ranges::{Change, FIRST_WATCH, WatchRanges};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{Event, EventType, WatchResponse};
use crate::revision::{from_etcd, to_etcd};

/// The time that a reader's revision may take before progress is requested. Its event usually takes one or two
/// milliseconds.
const ASK_AFTER: Duration = Duration::from_millis(5);
/// The wait before the next progress request. An etcd that is still sending older events does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// The maximum time until etcd continues watches that share a history. If no event arrives by then, no history is left.
const NEXT_ROUND: Duration = Duration::from_millis(1500);
/// The time without messages after which the progress of a watch is requested.
const QUIET: Duration = Duration::from_secs(5);
/// The time without an answer after which the member is checked.
const SUSPECT: Duration = Duration::from_secs(2);
/// The time without an answer after which the watch is given up, even if its member works.
const SILENT: Duration = Duration::from_secs(15);
/// The first backoff before a broken watch is reopened. It doubles with each further one.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The maximum of these backoffs.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// The time limit of reopening before the tail ends. Its reader must get the error that the store is unreachable.
const GIVE_UP: Duration = Duration::from_secs(5);

/// An input of the state machine.
#[derive(Debug)]
pub(super) enum Input {
    /// A stream with its watch is open.
    Opened {
        /// True if this member's progress reports are reliable.
        truthful: bool,
    },
    /// A stream could not be opened, or it ended.
    Broken(Failure),
    /// A message of etcd.
    Message(WatchResponse),
    /// The answer to [`Action::Verify`].
    Verified(Probe),
    /// The member answered [`Action::AskLife`].
    Alive,
    /// A reader waits for this revision.
    Wanted(Revision),
    /// The time of [`Follower::due`] has come.
    Tick,
}

/// The result of a read at a revision.
#[derive(Debug)]
pub(super) enum Probe {
    Readable,
    Compacted,
    Future,
    Failed(Failure),
}

/// An action for the caller.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Opens a stream whose first watch starts at this revision.
    Open { start: i64 },
    /// Starts or cancels a watch of the stream.
    Share(Change),
    /// Drops the stream.
    Close { cause: String },
    /// Drops the stream.
    TurnFrom { cause: String },
    /// Checks that this revision can still be read.
    Verify { revision: i64 },
    /// Requests the progress of the watches.
    AskProgress,
    /// Checks that the stream's member works.
    AskLife,
    /// Writes the tick key.
    WriteTick,
    /// Delivers a batch to the tail's reader.
    Tell(TailBatch),
    /// Ends the tail.
    End(End),
}

/// The reason for which a tail ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The changes after this revision are compacted.
    Compacted { position: i64 },
    /// etcd does not have this revision any more, since an older state was restored.
    Future { position: i64 },
    /// Another cluster answered.
    OtherCluster,
    /// Reopening failed for too long.
    Failed(Failure),
}

#[derive(Debug)]
enum State {
    /// There is no stream. The next one opens at this time.
    Waiting {
        until: Instant,
        wait: Duration,
    },
    /// A stream is being opened, or is open but without an answer so far.
    Opening {
        wait: Duration,
        since: Instant,
        truthful: bool,
    },
    /// The watch runs.
    Following(ActiveWatch),
    Ended,
}

#[derive(Debug)]
struct ActiveWatch {
    truthful: bool,
    /// True after a check that no event was lost before the received ones. etcd reads earlier events from its store,
    /// which lacks compacted ones.
    verified: bool,
    /// Received events that are not delivered yet.
    ranges: WatchRanges,
    /// The time of etcd's last message.
    heard: Instant,
    /// The time of the oldest unanswered request.
    asked: Option<Instant>,
    /// The time when the member last answered.
    alive: Instant,
    /// The time for the next progress request.
    ask_at: Option<Instant>,
}

/// The state of one tail.
#[derive(Debug)]
pub(super) struct Follower {
    keys: Keys,
    cluster: u64,
    state: State,
    /// Every event up to this revision of etcd was delivered or is not relevant.
    position: i64,
    /// The last delivered watermark.
    watermark: Revision,
    /// The newest revision that a reader waits for.
    wanted: Revision,
    /// The time since which no stream could be opened.
    failing: Option<Instant>,
}

impl Follower {
    pub(super) fn new(keys: Keys, cluster: u64, after: Revision, now: Instant) -> Self {
        let state = State::Waiting { until: now, wait: FIRST_WAIT };
        let (position, wanted, failing) = (to_etcd(after), Revision::ZERO, None);
        Self { keys, cluster, state, position, watermark: after, wanted, failing }
    }

    /// The time at which [`Input::Tick`] is due if there is no other input.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.state {
            State::Waiting { until, .. } => Some(*until),
            State::Opening { since, .. } => Some(*since + SILENT),
            State::Following(following) => {
                let silence = match following.asked {
                    Some(asked) => (asked + SILENT).min(following.alive.max(asked) + SUSPECT),
                    None => following.heard + QUIET,
                };
                Some(following.ask_at.map_or(silence, |ask_at| ask_at.min(silence)))
            }
            State::Ended => None,
        }
    }

    /// The position as etcd's revision.
    pub(super) const fn position(&self) -> i64 {
        self.position
    }

    /// Returns true if [`Input::Wanted`] with this revision would change the state.
    pub(super) fn wants(&self, revision: Revision) -> bool {
        revision > self.wanted
    }

    pub(super) fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        match input {
            Input::Opened { truthful } => self.opened(truthful, now),
            Input::Broken(failure) => self.broken(failure, now),
            Input::Message(message) => self.message(message, now),
            Input::Verified(probe) => self.verified(probe, now),
            Input::Alive => {
                if let State::Following(following) = &mut self.state {
                    following.alive = now;
                }
                Vec::new()
            }
            Input::Wanted(revision) => self.want(revision, now),
            Input::Tick => self.tick(now),
        }
    }

    fn opened(&mut self, truthful: bool, now: Instant) -> Vec<Action> {
        if let State::Opening { wait, .. } = self.state {
            self.state = State::Opening { wait, since: now, truthful };
        }
        Vec::new()
    }

    fn broken(&mut self, failure: Failure, now: Instant) -> Vec<Action> {
        let wait = match &self.state {
            State::Waiting { wait, .. } | State::Opening { wait, .. } => *wait,
            State::Following(_) => FIRST_WAIT,
            State::Ended => return Vec::new(),
        };
        let since = *self.failing.get_or_insert(now);
        if now.duration_since(since) >= GIVE_UP {
            return self.end(End::Failed(failure));
        }
        let cause = match &failure {
            Failure::Unavailable { cause, .. } | Failure::Refused(cause) | Failure::Nonsense(cause) => cause.clone(),
            other => format!("{other:?}"),
        };
        self.state = State::Waiting { until: now + wait, wait: (wait * 2).min(LONGEST_WAIT) };
        vec![Action::Close { cause }]
    }

    fn message(&mut self, message: WatchResponse, now: Instant) -> Vec<Action> {
        let header = message.header.unwrap_or_default();
        if header.cluster_id != self.cluster {
            return self.end(End::OtherCluster);
        }
        let watch = message.watch_id;
        if message.canceled {
            if matches!(&self.state, State::Following(following) if following.ranges.was_cancelled(watch)) {
                return Vec::new();
            }
            if message.compact_revision > 0 {
                return self.end(End::Compacted { position: self.position });
            }
            return self.broken(Failure::Refused(crate::error::plain(&message.cancel_reason).to_owned()), now);
        }
        if message.created {
            return if watch == FIRST_WATCH { self.created(header.revision, now) } else { Vec::new() };
        }
        let State::Following(following) = &mut self.state else { return Vec::new() };
        following.heard = now;
        following.asked = None;
        if message.events.is_empty() && !message.fragment && following.truthful {
            following.ranges.report(watch, header.revision);
        }
        let revisions = following.ranges.bring(watch, header.revision, message.events, message.fragment);
        // A single revision is a live event. Several come from etcd's store, which may lack compacted ones.
        following.verified &= revisions <= 1;
        let mut actions: Vec<Action> = following.ranges.balance().into_iter().map(Action::Share).collect();
        actions.extend(self.deliver(now));
        actions
    }

    fn created(&mut self, newest: i64, now: Instant) -> Vec<Action> {
        let State::Opening { truthful, .. } = self.state else { return Vec::new() };
        self.failing = None;
        self.state = State::Following(ActiveWatch {
            truthful,
            verified: false,
            ranges: WatchRanges::new(self.position, newest),
            heard: now,
            asked: None,
            alive: now,
            ask_at: None,
        });
        self.schedule(now);
        if newest < self.position {
            // The member lags, or etcd was reset.
            return vec![Action::Verify { revision: self.position }];
        }
        Vec::new()
    }

    fn verified(&mut self, probe: Probe, now: Instant) -> Vec<Action> {
        let State::Following(following) = &mut self.state else { return Vec::new() };
        match probe {
            Probe::Readable => {
                following.verified = following.ranges.is_past(self.position);
                self.deliver(now)
            }
            Probe::Compacted => self.end(End::Compacted { position: self.position }),
            Probe::Future => self.end(End::Future { position: self.position }),
            Probe::Failed(failure) => self.broken(failure, now),
        }
    }

    fn want(&mut self, revision: Revision, now: Instant) -> Vec<Action> {
        self.wanted = self.wanted.max(revision);
        let actions = self.tell(Vec::new());
        self.schedule(now);
        actions
    }

    fn tick(&mut self, now: Instant) -> Vec<Action> {
        match &mut self.state {
            State::Waiting { until, wait } if *until <= now => {
                self.state = State::Opening { wait: *wait, since: now, truthful: false };
                vec![Action::Open { start: self.position + 1 }]
            }
            State::Opening { since, .. } if *since + SILENT <= now => self.fell_silent(now),
            State::Following(following) => {
                if following.asked.is_some_and(|asked| asked + SILENT <= now) {
                    return self.fell_silent(now);
                }
                following.tick(now)
            }
            State::Waiting { .. } | State::Opening { .. } | State::Ended => Vec::new(),
        }
    }

    fn fell_silent(&mut self, now: Instant) -> Vec<Action> {
        let cause = "the watch does not answer".to_owned();
        let mut actions = vec![Action::TurnFrom { cause: cause.clone() }];
        actions.extend(self.broken(Failure::Unavailable { cause, sent: true }, now));
        actions
    }

    /// Delivers received events after a check that none is missing before them.
    fn deliver(&mut self, now: Instant) -> Vec<Action> {
        let State::Following(following) = &mut self.state else { return Vec::new() };
        if !following.ranges.is_past(self.position) {
            return Vec::new();
        }
        if !following.verified {
            return vec![Action::Verify { revision: self.position }];
        }
        let (events, reached) = following.ranges.take();
        let shared = following.ranges.balance();
        let (keys, position) = (&self.keys, self.position);
        let events: Vec<StoreEvent> =
            events.into_iter().filter_map(|event| store_event(keys, event, position)).collect();
        self.position = self.position.max(reached);
        let mut actions: Vec<Action> = shared.into_iter().map(Action::Share).collect();
        actions.extend(self.tell(events));
        self.schedule(now);
        actions
    }

    fn tell(&mut self, events: Vec<StoreEvent>) -> Vec<Action> {
        let mut watermark = events.last().map_or(self.watermark, |last| last.revision.max(self.watermark));
        if to_etcd(self.wanted) <= self.position {
            watermark = watermark.max(self.wanted);
        }
        if events.is_empty() && watermark == self.watermark {
            return Vec::new();
        }
        self.watermark = watermark;
        vec![Action::Tell(TailBatch { events, watermark })]
    }

    /// Schedules a progress request in case a reader's revision does not arrive.
    fn schedule(&mut self, now: Instant) {
        let is_ahead = to_etcd(self.wanted) > self.position;
        if let State::Following(following) = &mut self.state {
            following.ask_at = is_ahead.then(|| following.ask_at.unwrap_or(now + ASK_AFTER));
        }
    }

    fn end(&mut self, end: End) -> Vec<Action> {
        self.state = State::Ended;
        vec![Action::End(end)]
    }
}

impl ActiveWatch {
    /// Sends the requests that are due.
    fn tick(&mut self, now: Instant) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.asked.is_some_and(|asked| self.alive.max(asked) + SUSPECT <= now) {
            self.alive = now;
            actions.push(Action::AskLife);
        }
        let is_quiet = self.asked.is_none() && self.heard + QUIET <= now;
        let is_wanted = self.ask_at.is_some_and(|ask_at| ask_at <= now);
        if !is_quiet && !is_wanted {
            return actions;
        }
        if self.ranges.is_sharing() && now < self.heard + NEXT_ROUND {
            self.ask_at = Some(self.heard + NEXT_ROUND);
            return actions;
        }
        self.ranges.stop_sharing();
        self.asked.get_or_insert(now);
        if is_wanted {
            self.ask_at = Some(now + ASK_AGAIN);
        }
        actions.push(if is_wanted && !self.truthful { Action::WriteTick } else { Action::AskProgress });
        actions
    }
}

/// Converts an event to one of the store, if it was not delivered before.
fn store_event(keys: &Keys, event: Event, position: i64) -> Option<StoreEvent> {
    let is_put = event.kind == i32::from(EventType::Put);
    let kv = event.kv.filter(|kv| kv.mod_revision > position && !keys.is_reserved(&kv.key))?;
    let revision = from_etcd(kv.mod_revision);
    Some(StoreEvent::new(keys.decode(&kv.key)?, revision, is_put.then(|| kv.value.into())))
}
