//! The auditor: decides whether a request is audited, and hands its events to the backends.
//!
//! A backend has a queue with a bound. In the mode `batch` nobody waits for it, and what does not fit is lost and counted; in the others
//! the request waits until its event is written, and in `blocking-strict` it is refused where that fails as it begins.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::event::AuditEvent;
use super::policy::{Audited, Level, Policy};
use super::worker::{AuditWorker, Batching, Sink, Truncation};
use crate::authorize::Attributes;
use crate::user::User;

/// How many bytes of events wait for a backend at the most, whatever its queue may hold.
const QUEUED_BYTES: usize = 64 << 20;
/// How often it is told that events are lost.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// The parts that lose events, as the metric names them.
const PARTS: [&str; 4] = [BUFFERED, "log", "truncate", "webhook"];
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
#[derive(Debug)]
pub struct Backend {
    mode: AuditMode,
    queue: mpsc::Sender<Queued>,
    held: Arc<AtomicUsize>,
}

/// An event that waits.
pub(super) struct Queued {
    pub(super) event: Arc<AuditEvent>,
    /// Told whether it was written.
    pub(super) written: Option<oneshot::Sender<bool>>,
    _weight: Weight,
}

/// What an event takes of the bytes that may wait.
struct Weight {
    bytes: usize,
    held: Arc<AtomicUsize>,
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What was counted, for the metrics.
#[derive(Debug, Default)]
pub struct AuditCounts {
    events: AtomicU64,
    rejected: AtomicU64,
    levels: [AtomicU64; Level::ALL.len()],
    lost: [AtomicU64; PARTS.len()],
    told: Mutex<Option<Instant>>,
}

impl AuditCounts {
    /// How many events were handed to the backends.
    pub fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

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
    pub(super) fn lose(&self, part: &'static str, events: usize, why: &str) {
        if let Some(at) = PARTS.iter().position(|known| *known == part) {
            self.lost[at].fetch_add(events as u64, Ordering::Relaxed);
        }
        let mut told = self.told.lock();
        if told.is_none_or(|at| at.elapsed() >= TELL_EVERY) {
            *told = Some(Instant::now());
            drop(told);
            tracing::error!(part, events, why, "audit events are lost; apiserver_audit_error_total counts them");
        }
    }
}

/// Decides what is audited, by a policy that may change meanwhile, and hands it on.
#[derive(Debug)]
pub struct Auditor {
    policy: ArcSwap<Policy>,
    backends: Vec<Backend>,
    counts: Arc<AuditCounts>,
}

impl Auditor {
    /// An auditor that hands what a policy wants written to these backends.
    pub fn new(policy: Policy, backends: Vec<Backend>, counts: Arc<AuditCounts>) -> Self {
        Self { policy: ArcSwap::from_pointee(policy), backends, counts }
    }

    /// Decides by this policy from now on. A request that has begun is written down as the one before had it.
    pub fn change(&self, policy: Policy) {
        self.policy.store(Arc::new(policy));
    }

    /// What was counted.
    pub fn counts(&self) -> &Arc<AuditCounts> {
        &self.counts
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

    /// Hands an event on, and waits for nobody.
    pub fn tell(&self, event: AuditEvent) {
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        let event = Arc::new(event);
        for backend in &self.backends {
            backend.offer(&event, None, &self.counts);
        }
    }

    /// Hands on the first event of a request, and waits where that is asked for. Whether the request may go on.
    pub async fn begin(&self, event: AuditEvent) -> bool {
        let goes_on = self.tell_and_wait(event).await;
        if !goes_on {
            self.counts.rejected.fetch_add(1, Ordering::Relaxed);
        }
        goes_on
    }

    /// Hands an event on, and waits where that is asked for. Whether those wrote it that have to.
    pub async fn tell_and_wait(&self, event: AuditEvent) -> bool {
        if !self.waits() {
            self.tell(event);
            return true;
        }
        self.counts.events.fetch_add(1, Ordering::Relaxed);
        let event = Arc::new(event);
        let mut waiting = Vec::new();
        for backend in &self.backends {
            match backend.mode {
                AuditMode::Batch => backend.offer(&event, None, &self.counts),
                AuditMode::Blocking | AuditMode::BlockingStrict => {
                    let (written, told) = oneshot::channel();
                    // A worker that has ended loses what comes; its end is told elsewhere.
                    let _ = backend.queue.send(backend.queued(&event, Some(written))).await;
                    waiting.push((backend.mode, told));
                }
            }
        }
        let mut is_written = true;
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
        let (queue, events) = mpsc::channel(batching.buffer.max(1));
        // Who waits for an event does not wait for others to come.
        let wait = if mode == AuditMode::Batch { batching.wait } else { Duration::ZERO };
        let worker = AuditWorker::new(events, Batching { wait, ..batching }, truncation, sink, counts);
        (Self { mode, queue, held: Arc::default() }, worker)
    }

    fn queued(&self, event: &Arc<AuditEvent>, written: Option<oneshot::Sender<bool>>) -> Queued {
        let (bytes, held) = (event.weight(), self.held.clone());
        held.fetch_add(bytes, Ordering::Relaxed);
        Queued { event: event.clone(), written, _weight: Weight { bytes, held } }
    }

    /// Puts an event into the queue, if there is room for it.
    fn offer(&self, event: &Arc<AuditEvent>, written: Option<oneshot::Sender<bool>>, counts: &AuditCounts) {
        let queued = self.queued(event, written);
        let is_full = self.held.load(Ordering::Relaxed) > QUEUED_BYTES;
        if is_full || self.queue.try_send(queued).is_err() {
            counts.lose(BUFFERED, 1, "the queue of a backend is full");
        }
    }
}
