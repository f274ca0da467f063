//! The auditor: decides whether a request is audited, and hands its events to the backends.
//!
//! A backend has a queue with a bound. In the mode `batch` nobody waits for it, and what does not fit is lost and counted; in the others
//! the request waits until its event is written, and in `blocking-strict` it is refused where that fails as it begins. An event without
//! objects is put into its form by the request: its texts are at hand there, and to hand them on would take longer.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use keelson_meta::Clock;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::event::{Occurrence, Shown};
use super::policy::{Audited, Level, Policy, Stage};
use super::queue::{EventQueue, Offered, OfferedForm};
use super::record::{AuditRecord, Telling};
use super::worker::{AuditWorker, Batching, Forms, STOPPED, Sink, Truncation};
use crate::authorize::Attributes;
use crate::user::User;

/// How often it is told that events are lost.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The parts that lose events, as the metric names them.
const PARTS: [&str; 4] = [BUFFERED, "log", "truncate", "webhook"];
/// The most bytes that a thread keeps to put events into their form.
const KEPT_BYTES: usize = 64 << 10;
/// Why an event is lost for whose place in a queue its request no longer waits.
const LEFT: &str = "the client has gone before there was room for its event";
/// The part that loses what does not fit.
const BUFFERED: &str = "buffered";

/// How a request waits for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditMode {
    /// It does not.
    Batch,
    /// Until its events are written.
    Blocking,
    /// The same, and it is refused where the first can't be written.
    BlockingStrict,
}

/// A queue of events for a worker.
pub struct Backend {
    mode: AuditMode,
    queue: Arc<EventQueue>,
    forms: Forms,
}

/// What was counted, for the metrics.
#[derive(Debug, Default)]
pub struct AuditCounts {
    rejected: AtomicU64,
    levels: [AtomicU64; Level::ALL.len()],
    lost: [AtomicU64; PARTS.len()],
    untold: Mutex<Untold>,
}

/// What the operator was not told yet of lost events.
#[derive(Debug, Default)]
struct Untold {
    /// When he was told last.
    told: Option<Instant>,
    /// How many events each part has lost since, and why the latest of them.
    parts: [Option<(usize, Cow<'static, str>)>; PARTS.len()],
}

impl AuditCounts {
    /// How many requests were refused because their first event could not be written.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// How many requests were audited at each level.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Level::ALL.into_iter().zip(&self.levels).map(|(level, count)| (level.as_str(), count.load(Ordering::Relaxed)))
    }

    /// How many events were lost, and where.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PARTS.into_iter().zip(&self.lost).map(|(part, count)| (part, count.load(Ordering::Relaxed)))
    }

    /// Counts events that a part has lost, and tells the operator now and then.
    pub(super) fn lose(&self, part: &'static str, events: usize, why: impl Into<Cow<'static, str>>) {
        let Some(at) = PARTS.iter().position(|known| *known == part).filter(|_| events > 0) else { return };
        self.lost[at].fetch_add(events as u64, Ordering::Relaxed);
        let is_due = {
            let mut untold = self.untold.lock();
            let before = untold.parts[at].as_ref().map_or(0, |(events, _)| *events);
            untold.parts[at] = Some((before + events, why.into()));
            untold.told.is_none_or(|told| told.elapsed() >= TELL_EVERY)
        };
        if is_due {
            self.tell_losses();
        }
    }

    /// Tells the operator of what was lost since he was told last.
    pub(super) fn tell_losses(&self) {
        let parts = {
            let mut untold = self.untold.lock();
            untold.told = Some(Instant::now());
            std::mem::take(&mut untold.parts)
        };
        for (part, lost) in PARTS.into_iter().zip(parts) {
            if let Some((events, why)) = lost {
                tracing::error!(part, events, %why, "audit events are lost; apiserver_audit_error_total counts them");
            }
        }
    }
}

/// Decides what is audited, by a policy that may change meanwhile, and hands it on.
pub struct Auditor {
    policy: ArcSwap<Policy>,
    backends: Vec<Backend>,
    counts: Arc<AuditCounts>,
    clock: Arc<dyn Clock>,
}

/// Where a thread puts events into their form.
#[derive(Default)]
struct Desk {
    /// What the events of a request say alike.
    shown: Shown,
    lines: Vec<u8>,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::default();
}

impl Auditor {
    /// An auditor that hands what a policy wants written to these backends.
    pub fn new(policy: Policy, backends: Vec<Backend>, counts: Arc<AuditCounts>, clock: Arc<dyn Clock>) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), backends, counts, clock }
    }

    /// Decides by this policy from now on. A request that has begun is written down as the one before had it.
    pub fn change(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// What was counted of losses, levels and refusals.
    pub fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// How many events were handed to the backends, each of which is told of all.
    pub fn events(&self) -> u64 {
        self.backends.first().map_or(0, |backend| backend.queue.told())
    }

    /// The time as events have it.
    pub fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// How much of a request is written down. Counts it.
    pub fn decide(&self, user: Option<&User>, attributes: &Attributes<'_>) -> Audited {
        let audited = self.policy.load().decide(user, attributes);
        self.counts.levels[audited.level as usize].fetch_add(1, Ordering::Relaxed);
        audited
    }

    /// Whether somebody has to be waited for.
    pub fn waits(&self) -> bool {
        self.backends.iter().any(|backend| backend.mode != AuditMode::Batch)
    }

    /// Hands on what has come of a request, where that is written down, and waits for nobody.
    pub fn tell(&self, record: &AuditRecord, occurred: &Occurrence) {
        Self::hand_on(record.telling(occurred).as_slice(), &self.backends);
    }

    /// The same of a request that has come and was answered at once.
    pub fn tell_both(&self, record: &AuditRecord, begun: &Occurrence, complete: &Occurrence) {
        // Of the two it is the second that holds the lock of what is noted.
        debug_assert_eq!(begun.stage, Stage::RequestReceived, "nothing is noted yet when a request has come");
        let told = [record.telling(begun), record.telling(complete)];
        Self::hand_on(&told.into_iter().flatten().collect::<SmallVec<[Telling<'_>; 2]>>(), &self.backends);
    }

    /// Hands on what is told of one request.
    fn hand_on<'b>(told: &[Telling<'_>], backends: impl IntoIterator<Item = &'b Backend>) {
        let Some(first) = told.first() else { return };
        DESK.with_borrow_mut(|desk| {
            if !told.iter().all(Telling::is_heavy) {
                desk.shown.put_together(first.request());
            }
            for backend in backends {
                backend.offer(told, desk);
            }
            desk.lines.shrink_to(KEPT_BYTES);
            desk.shown.shrink_to(KEPT_BYTES);
        });
    }

    /// Hands on the first event of a request, and waits where that is asked for. Whether the request may go on.
    pub async fn begin(&self, record: &AuditRecord, occurred: &Occurrence) -> bool {
        let goes_on = self.tell_and_wait(record, occurred).await;
        if !goes_on {
            self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        }
        goes_on
    }

    /// Hands on what has come of a request, where that is written down, and waits where that is asked for. Whether those wrote it that
    /// have to.
    pub async fn tell_and_wait(&self, record: &AuditRecord, occurred: &Occurrence) -> bool {
        if !self.waits() {
            self.tell(record, occurred);
            return true;
        }
        let mut is_written = true;
        let mut waiting = Vec::new();
        let is_batched = |backend: &&Backend| backend.mode == AuditMode::Batch;
        Self::hand_on(record.telling(occurred).as_slice(), self.backends.iter().filter(is_batched));
        for backend in self.backends.iter().filter(|backend| !is_batched(backend)) {
            let Some(form) = record.telling(occurred).map(|telling| telling.held()) else { return true };
            let (written, told) = oneshot::channel();
            let mut untaken = Untaken { forms: &backend.forms, why: Some(LEFT) };
            let is_taken = backend.queue.push(&[], Offered { form, written: Some(written) }).await;
            untaken.why = (!is_taken).then_some(STOPPED);
            drop(untaken);
            if is_taken {
                waiting.push((backend.mode, told));
            } else {
                is_written &= backend.mode != AuditMode::BlockingStrict;
            }
        }
        for (mode, told) in waiting {
            let written = told.await.unwrap_or_default();
            is_written &= written || mode != AuditMode::BlockingStrict;
        }
        is_written
    }
}

impl Backend {
    /// A queue, and the worker that takes from it.
    pub fn new(
        mode: AuditMode,
        batching: Batching,
        truncation: Option<Truncation>,
        sink: Arc<dyn Sink>,
        counts: Arc<AuditCounts>,
    ) -> (Self, AuditWorker) {
        let [_, between, _] = sink.frame();
        let queue = Arc::new(EventQueue::new(batching.buffer, batching.most, between));
        // Who waits for an event waits neither for others to come nor for what batches are let out by.
        let (wait, throttle) = match mode {
            AuditMode::Batch => (batching.wait, batching.throttle),
            AuditMode::Blocking | AuditMode::BlockingStrict => (Duration::ZERO, None),
        };
        let forms = Forms { sink, truncation, counts };
        let worker = AuditWorker::new(queue.clone(), Batching { wait, throttle, ..batching }, forms.clone());
        (Self { mode, queue, forms }, worker)
    }

    /// Puts events of one request into the queue, as far as there is room for them.
    fn offer(&self, told: &[Telling<'_>], desk: &mut Desk) {
        let Desk { shown, lines } = desk;
        lines.clear();
        let forms: SmallVec<[OfferedForm; 2]> =
            told.iter().filter_map(|telling| self.form(telling, shown, lines)).collect();
        let refused = self.queue.offer(lines, forms);
        if refused > 0 {
            let is_over = self.queue.outlook().is_closed;
            let why = if is_over { STOPPED } else { "the queue of a backend is full" };
            self.forms.counts.lose(BUFFERED, refused, why);
            if is_over {
                self.forms.counts.tell_losses();
            }
        }
    }

    /// An event as it waits, whose line is put behind the others. What is too long is counted already, and none.
    fn form(&self, telling: &Telling<'_>, shown: &Shown, lines: &mut Vec<u8>) -> Option<OfferedForm> {
        if telling.is_heavy() {
            return Some(telling.held());
        }
        let begin = lines.len();
        self.forms.write(&telling.event(shown), lines).then(|| OfferedForm::Line(begin..lines.len()))
    }
}

/// An event for which there was no room yet. It is lost for this reason where none comes any more.
struct Untaken<'b> {
    forms: &'b Forms,
    why: Option<&'static str>,
}

impl Drop for Untaken<'_> {
    fn drop(&mut self) {
        if let Some(why) = self.why {
            self.forms.lose(1, why);
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.queue.close();
    }
}
