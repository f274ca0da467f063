//! The states of a tail: an enum and one step function, without IO and without a clock of its own.
//!
//! Invariants: every event after the start is told once, in order, whole revisions at a time; the watermark never goes back
//! and is never ahead of an event that may still come; nothing of a connection is told before it is known that no event
//! between it and the last one was compacted away.
//!
//! How the watermark moves. An event moves it. Without events it moves only to a revision that somebody waits for (`wanted`,
//! see `revision.rs`), and when etcd has said that the watch is past it: by a progress report, if this etcd's reports can be
//! believed, or else by the event of the tick key, which is written for that.

use std::time::Duration;

use keelson_meta::Revision;
use keelson_storage::{StoreEvent, TailBatch};
use tokio::time::Instant;

use super::ranges::{Change, FIRST_WATCH, WatchRanges};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{Event, EventType, WatchResponse};
use crate::revision::{from_etcd, to_etcd};

/// How long a wanted revision may take to come by itself. Its event usually takes one or two milliseconds.
const ASK_AFTER: Duration = Duration::from_millis(5);
/// How long until it is asked for again. An etcd that is still sending older events does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long etcd may take until it looks again at watches that share a history. Nothing is left of it, if no event comes.
const NEXT_ROUND: Duration = Duration::from_millis(1500);
/// How long a watch may say nothing before it is asked how far it is.
const QUIET: Duration = Duration::from_secs(5);
/// How long it may leave a question unanswered before its member is asked whether it lives.
const SUSPECT: Duration = Duration::from_secs(2);
/// How long it may leave a question unanswered before it is given up, whether its member lives or not.
const SILENT: Duration = Duration::from_secs(15);
/// The wait before a broken watch is opened again. Each further one takes twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// The longest such wait.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How long opening is tried before the tail ends: whoever reads it must learn that the store is away.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Something happened.
#[derive(Debug)]
pub(super) enum Input {
    /// A stream is open, and the watch asked for.
    Opened {
        /// Whether progress reports of this member can be believed.
        truthful: bool,
    },
    /// No stream could be opened, or the one that was has ended.
    Broken(Failure),
    /// etcd said something.
    Message(WatchResponse),
    /// The answer to [`Action::Verify`].
    Verified(Probe),
    /// The member answers, which [`Action::AskLife`] had asked.
    Alive,
    /// Somebody waits until this revision is told.
    Wanted(Revision),
    /// Time has passed; see [`Follower::due`].
    Tick,
}

/// What a read at a revision gave.
#[derive(Debug)]
pub(super) enum Probe {
    Readable,
    Compacted,
    Future,
    Failed(Failure),
}

/// Something to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Open a stream whose first watch begins with this revision.
    Open { start: i64 },
    /// Begin or end a watch of the stream.
    Share(Change),
    /// Drop the stream.
    Close { cause: String },
    /// Use another member from now on.
    TurnFrom { cause: String },
    /// Find out whether this revision can still be read.
    Verify { revision: i64 },
    /// Ask how far the watches are.
    AskProgress,
    /// Ask whether the member of the stream lives.
    AskLife,
    /// Write the tick key.
    WriteTick,
    /// Hand this to the tail's reader.
    Tell(TailBatch),
    /// The tail is over.
    End(End),
}

/// Why a tail is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// What followed this revision is compacted.
    Compacted { position: i64 },
    /// etcd does not know this revision any more: an older state was put back.
    Future { position: i64 },
    /// This is another etcd.
    OtherCluster,
    /// No watch could be opened for too long.
    Failed(Failure),
}

#[derive(Debug)]
enum State {
    /// No stream; the next is opened then.
    Waiting {
        until: Instant,
        wait: Duration,
    },
    /// A stream is being opened, or opened and not yet answered.
    Opening {
        wait: Duration,
        since: Instant,
        truthful: bool,
    },
    /// The watch runs.
    Following(Following),
    Ended,
}

#[derive(Debug)]
struct Following {
    truthful: bool,
    /// Whether it is known that nothing was lost between what was told and what has come. etcd hands what happened before out of
    /// its store, and what it has compacted there is missing.
    verified: bool,
    /// What has come and was not told.
    ranges: WatchRanges,
    /// When etcd last said anything.
    heard: Instant,
    /// Since when a question is open.
    asked: Option<Instant>,
    /// When the member last said that it lives.
    alive: Instant,
    /// When to ask for the wanted revision.
    ask_at: Option<Instant>,
}

/// The state of one tail.
#[derive(Debug)]
pub(super) struct Follower {
    keys: Keys,
    cluster: u64,
    state: State,
    /// Everything up to here, in etcd's count, has been told or is none of our business.
    position: i64,
    /// What the reader was last told.
    watermark: Revision,
    /// The newest revision that somebody waits for.
    wanted: Revision,
    /// Since when no stream could be opened.
    failing: Option<Instant>,
}

impl Follower {
    pub(super) fn new(keys: Keys, cluster: u64, after: Revision, now: Instant) -> Self {
        let state = State::Waiting { until: now, wait: FIRST_WAIT };
        let (position, wanted, failing) = (to_etcd(after), Revision::ZERO, None);
        Self { keys, cluster, state, position, watermark: after, wanted, failing }
    }

    /// When it wants a [`Input::Tick`], if nothing else happens.
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

    /// How far it is, in etcd's count.
    pub(super) const fn position(&self) -> i64 {
        self.position
    }

    /// Whether [`Input::Wanted`] with this revision is news.
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
        // Events of one revision come as they happen; several come out of the store.
        following.verified &= revisions <= 1;
        let mut actions: Vec<Action> = following.ranges.balance().into_iter().map(Action::Share).collect();
        actions.extend(self.deliver(now));
        actions
    }

    fn created(&mut self, newest: i64, now: Instant) -> Vec<Action> {
        let State::Opening { truthful, .. } = self.state else { return Vec::new() };
        self.failing = None;
        self.state = State::Following(Following {
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
            // A member that lags behind, or an etcd that was set back.
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

    /// Tells what has come, once it is known that nothing is missing before it.
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

    /// Sees to it that a wanted revision is asked for if it does not come.
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

impl Following {
    /// Asks what is due to be asked.
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

/// An event of ours that was not told before.
fn store_event(keys: &Keys, event: Event, position: i64) -> Option<StoreEvent> {
    let is_put = event.kind == i32::from(EventType::Put);
    let kv = event.kv.filter(|kv| kv.mod_revision > position && !keys.is_reserved(&kv.key))?;
    let revision = from_etcd(kv.mod_revision);
    Some(StoreEvent::new(keys.decode(&kv.key)?, revision, is_put.then(|| kv.value.into())))
}
