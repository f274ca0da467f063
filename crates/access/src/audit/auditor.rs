//! The auditor: applies the policy to requests and passes their events to the backends.
//!
//! Each backend has a bounded queue. In the mode `batch` requests never wait; events that do not fit into the queue are
//! lost and counted. In the other modes a request waits until its event is written. In `blocking-strict` it is refused
//! if writing the first event fails. The request itself serializes events without objects, since sending the parts to
//! another thread would take longer.

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

use super::event::{Occurrence, SharedMembers};
use super::policy::{Audited, Level, Policy, Stage};
use super::queue::{EventQueue, OfferedForm, QueuedOffer};
use super::record::{AuditRecord, EmittedEvent};
use super::sink::{Forms, STOPPED, Sink, Truncation};
use super::worker::{AuditWorker, Batching};
use crate::authorize::Attributes;
use crate::user::User;

/// The interval between log lines about lost events.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The components that lose events, as labels of the metric.
const PARTS: [&str; 4] = [BUFFERED, "log", "truncate", "webhook"];
/// The largest serialization buffer that a thread keeps, in bytes.
const KEPT_BYTES: usize = 64 << 10;
/// The reason of a loss if the client disconnected while its event waited for the queue.
const LEFT: &str = "the client disconnected while its event waited for space in the queue";
/// The component for events that did not fit into a queue.
const BUFFERED: &str = "buffered";

/// The time for which a request waits for a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditMode {
    /// Requests do not wait.
    Batch,
    /// Requests wait until their events are written.
    Blocking,
    /// Like `Blocking`, and a request is refused if its first event cannot be written.
    BlockingStrict,
}

/// The queue of one backend. Its worker takes the events.
pub struct Backend {
    mode: AuditMode,
    queue: Arc<EventQueue>,
    forms: Forms,
}

/// Counts for the metrics.
#[derive(Debug, Default)]
pub struct AuditCounts {
    rejected: AtomicU64,
    levels: [AtomicU64; Level::ALL.len()],
    lost: [AtomicU64; PARTS.len()],
    untold: Mutex<UnloggedLosses>,
}

/// Lost events that were not logged yet.
#[derive(Debug, Default)]
struct UnloggedLosses {
    /// The time of the last log line.
    told: Option<Instant>,
    /// The number of lost events by component since then, with the latest reason.
    parts: [Option<(usize, Cow<'static, str>)>; PARTS.len()],
}

impl AuditCounts {
    /// The number of requests refused because their first event could not be written.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// The number of audited requests by level.
    pub fn levels(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Level::ALL.into_iter().zip(&self.levels).map(|(level, count)| (level.as_str(), count.load(Ordering::Relaxed)))
    }

    /// The number of lost events by component.
    pub fn lost(&self) -> impl Iterator<Item = (&'static str, u64)> {
        PARTS.into_iter().zip(&self.lost).map(|(part, count)| (part, count.load(Ordering::Relaxed)))
    }

    /// Counts lost events of a component. Logs losses at most every [`TELL_EVERY`].
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

    /// Logs the losses since the last line.
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

/// Audits requests by a policy that may change, and passes their events on.
pub struct Auditor {
    policy: ArcSwap<Policy>,
    backends: Vec<Backend>,
    counts: Arc<AuditCounts>,
    clock: Arc<dyn Clock>,
}

/// The serialization buffers of a thread.
#[derive(Default)]
struct ThreadBuffers {
    /// The members that all events of a request share.
    shown: SharedMembers,
    lines: Vec<u8>,
}

thread_local! {
    static DESK: RefCell<ThreadBuffers> = RefCell::default();
}

impl Auditor {
    /// Creates an auditor for a policy and backends.
    pub fn new(policy: Policy, backends: Vec<Backend>, counts: Arc<AuditCounts>, clock: Arc<dyn Clock>) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), backends, counts, clock }
    }

    /// Replaces the policy. Running requests keep the previous decision.
    pub fn change(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// The counts of losses, levels and refusals.
    pub fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// The number of events. Each goes to all backends.
    pub fn events(&self) -> u64 {
        self.backends.first().map_or(0, |backend| backend.queue.told())
    }

    /// The current time, for events.
    pub fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// Decides about a request, and counts its level.
    pub fn decide(&self, user: Option<&User>, attributes: &Attributes<'_>) -> Audited {
        let audited = self.policy.load().decide(user, attributes);
        self.counts.levels[audited.level as usize].fetch_add(1, Ordering::Relaxed);
        audited
    }

    /// Returns true if a backend makes requests wait.
    pub fn waits(&self) -> bool {
        self.backends.iter().any(|backend| backend.mode != AuditMode::Batch)
    }

    /// Passes on the event if the policy records its stage. Does not wait.
    pub fn tell(&self, record: &AuditRecord, occurred: &Occurrence) {
        Self::hand_on(record.telling(occurred).as_slice(), &self.backends);
    }

    /// Passes on both events of a request that was answered immediately. Does not wait.
    pub fn tell_both(&self, record: &AuditRecord, begun: &Occurrence, complete: &Occurrence) {
        // Only the second event locks the recorded details.
        debug_assert_eq!(begun.stage, Stage::RequestReceived, "nothing is noted yet when a request has come");
        let told = [record.telling(begun), record.telling(complete)];
        Self::hand_on(&told.into_iter().flatten().collect::<SmallVec<[EmittedEvent<'_>; 2]>>(), &self.backends);
    }

    /// Passes events of one request to backends.
    fn hand_on<'b>(told: &[EmittedEvent<'_>], backends: impl IntoIterator<Item = &'b Backend>) {
        let Some(first) = told.first() else { return };
        DESK.with_borrow_mut(|desk| {
            if !told.iter().all(EmittedEvent::is_heavy) {
                desk.shown.put_together(first.request());
            }
            for backend in backends {
                backend.offer(told, desk);
            }
            desk.lines.shrink_to(KEPT_BYTES);
            desk.shown.shrink_to(KEPT_BYTES);
        });
    }

    /// Passes on the first event of a request, and waits if the mode of a backend requires it. Returns false if the
    /// request must be refused.
    pub async fn begin(&self, record: &AuditRecord, occurred: &Occurrence) -> bool {
        let goes_on = self.tell_and_wait(record, occurred).await;
        if !goes_on {
            self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        }
        goes_on
    }

    /// Passes on the event if the policy records its stage, and waits if the mode of a backend requires it. Returns
    /// false if a required write failed.
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
            let mut untaken = WaitingEvent { forms: &backend.forms, why: Some(LEFT) };
            let is_taken = backend.queue.push(&[], QueuedOffer { form, written: Some(written) }).await;
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
    /// Creates a queue with its worker.
    pub fn new(
        mode: AuditMode,
        batching: Batching,
        truncation: Option<Truncation>,
        sink: Arc<dyn Sink>,
        counts: Arc<AuditCounts>,
    ) -> (Self, AuditWorker) {
        let [_, between, _] = sink.frame();
        let queue = Arc::new(EventQueue::new(batching.buffer, batching.most, between));
        // In the blocking modes a request waits until its event is written. So such an event waits neither for a full
        // batch nor for the throttle.
        let (wait, throttle) = match mode {
            AuditMode::Batch => (batching.wait, batching.throttle),
            AuditMode::Blocking | AuditMode::BlockingStrict => (Duration::ZERO, None),
        };
        let forms = Forms { sink, truncation, counts };
        let worker = AuditWorker::new(queue.clone(), Batching { wait, throttle, ..batching }, forms.clone());
        (Self { mode, queue, forms }, worker)
    }

    /// Queues events of one request, as far as they fit.
    fn offer(&self, told: &[EmittedEvent<'_>], desk: &mut ThreadBuffers) {
        let ThreadBuffers { shown, lines } = desk;
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

    /// The form of an event in the queue. Appends its line to `lines`. Returns `None` for an event above the size
    /// limit, and counts it as lost.
    fn form(&self, telling: &EmittedEvent<'_>, shown: &SharedMembers, lines: &mut Vec<u8>) -> Option<OfferedForm> {
        if telling.is_heavy() {
            return Some(telling.held());
        }
        let begin = lines.len();
        self.forms.write(&telling.event(shown), lines).then(|| OfferedForm::Line(begin..lines.len()))
    }
}

/// An event that waits for room in the queue. If it is dropped while waiting, it counts as lost with this reason.
struct WaitingEvent<'b> {
    forms: &'b Forms,
    why: Option<&'static str>,
}

impl Drop for WaitingEvent<'_> {
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
