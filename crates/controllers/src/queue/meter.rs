//! Metrics of controller queues, by queue name, for the whole process.
//!
//! Metric families and buckets are those of Kubernetes' work queues. Queues with the same name are counted together.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets, Count, Series};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Upper bounds of the buckets in nanoseconds: from ten, each ten times the one before.
static BUCKETS: Buckets = Buckets::of_short_durations(&[
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
    1_000_000_000,
    10_000_000_000,
]);

static QUEUES: LazyLock<Series<&'static str, QueueMeter>> = LazyLock::new(|| Series::new(QueueMeter::new));

/// The metrics of the queues of one name.
#[derive(Debug)]
pub struct QueueMeter {
    /// Keys that were scheduled for a turn.
    pub adds: Count,
    /// Failed turns that are repeated.
    pub retries: Count,
    /// The times that keys waited for a worker.
    pub waits: AtomicHistogram,
    /// The durations of turns.
    pub turns: AtomicHistogram,
    ready: AtomicI64,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    number: u64,
    begun: BTreeMap<u64, Instant>,
}

/// A running turn.
pub(super) struct Turn {
    meter: Arc<QueueMeter>,
    number: u64,
    begun: Instant,
}

impl QueueMeter {
    fn new() -> Self {
        Self {
            adds: Count::new(),
            retries: Count::new(),
            waits: AtomicHistogram::new(&BUCKETS),
            turns: AtomicHistogram::new(&BUCKETS),
            ready: AtomicI64::new(0),
            running: Mutex::default(),
        }
    }

    pub(super) fn for_queue(name: &'static str) -> Arc<Self> {
        // Names are few and fixed.
        QUEUES.get_or_create(name, || name).unwrap_or_else(|| Arc::new(Self::new()))
    }

    /// The metrics of all queues by name.
    pub fn all() -> Vec<(&'static str, Arc<Self>)> {
        QUEUES.all()
    }

    pub(super) fn add_ready(&self, keys: i64) {
        self.ready.fetch_add(keys, Ordering::Relaxed);
    }

    pub(super) fn begin(self: &Arc<Self>) -> Turn {
        let begun = Instant::now();
        let mut running = self.running.lock();
        running.number += 1;
        let number = running.number;
        running.begun.insert(number, begun);
        Turn { meter: self.clone(), number, begun }
    }

    /// The keys that wait for a worker.
    pub fn depth(&self) -> u64 {
        u64::try_from(self.ready.load(Ordering::Relaxed)).unwrap_or_default()
    }

    /// The durations of running turns so far: their sum, and the longest.
    pub fn unfinished(&self) -> (Duration, Duration) {
        let running = self.running.lock();
        let times = running.begun.values().map(Instant::elapsed);
        times.fold((Duration::ZERO, Duration::ZERO), |(sum, longest), time| (sum + time, longest.max(time)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.meter.running.lock().begun.remove(&self.number);
        self.meter.turns.observe_duration(self.begun.elapsed());
    }
}
