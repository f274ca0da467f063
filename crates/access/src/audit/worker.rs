//! The worker of a backend: takes batches from the queue, and writes or sends them.
//!
//! A batch is sent when it is full or its time has passed, within the throttle's rate and the sink's concurrency.
//! Events with objects are serialized by the worker, so that requests do not wait for that. The worker ends after the
//! last auditor is dropped, or soon after the server stops.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep_until};

use super::queue::{EventQueue, QueueOverview};
use super::sink::{Forms, STOPPED};

/// The longest wait between two checks of the throttle.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// The time limit of the worker after the server has stopped.
const LAST_TIME: Duration = Duration::from_secs(5);

/// The settings of batches.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// The largest number of queued events.
    pub buffer: usize,
    /// The largest number of events in a batch.
    pub most: usize,
    /// The longest time that a batch waits for more events.
    pub wait: Duration,
    /// The rate limit of batches.
    pub throttle: Option<Throttle>,
    /// The largest number of batches in flight.
    pub at_once: usize,
}

/// A rate limit of batches.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Batches per second.
    pub rate: f32,
    /// The largest number of batches sent at once after a pause.
    pub burst: usize,
}

/// The worker of a backend.
pub struct AuditWorker {
    queue: Arc<EventQueue>,
    batching: Batching,
    forms: Forms,
}

impl AuditWorker {
    pub(super) fn new(queue: Arc<EventQueue>, batching: Batching, forms: Forms) -> Self {
        Self { queue, batching, forms }
    }

    /// Runs until the last auditor is dropped. After `stopped` it writes the queued events within [`LAST_TIME`].
    pub async fn run(self, stopped: impl Future<Output = ()>) {
        let mut stopped = pin!(stopped);
        let mut sending = FuturesUnordered::new();
        let mut allowance = Allowance::new(self.batching.throttle);
        let mut last = None;
        loop {
            let (now, seen) = (Instant::now(), self.queue.outlook());
            if seen.is_closed && seen.is_empty() && sending.is_empty() {
                break;
            }
            // At the end, batches do not wait for more events.
            let due = if seen.is_closed {
                (!seen.is_empty()).then_some(now)
            } else {
                self.due(&seen, now).map(|due| due.max(allowance.at(now)))
            };
            let has_room = sending.len() < self.batching.at_once.max(1);
            if has_room && due.is_some_and(|due| due <= now) {
                if let Some(batch) = self.queue.take() {
                    allowance.take(now);
                    sending.push(self.forms.clone().send(batch));
                }
                continue;
            }
            let timer = last.into_iter().chain(due.filter(|_| has_room)).min();
            tokio::select! {
                () = self.queue.changed() => {}
                Some(()) = sending.next(), if !sending.is_empty() => {}
                () = sleep_until(timer.unwrap_or(now)), if timer.is_some() => {
                    if last.is_some_and(|last| last <= Instant::now()) {
                        break;
                    }
                }
                () = &mut stopped, if last.is_none() => {
                    self.queue.close();
                    last = Some(Instant::now() + LAST_TIME);
                }
            }
        }
        // Dropping a send counts its unwritten events as lost.
        drop(sending);
        while let Some(batch) = self.queue.take() {
            self.forms.lose(batch.events.len(), STOPPED);
        }
        self.forms.counts.tell_losses();
    }

    /// The time of the next batch; `None` without one.
    fn due(&self, seen: &QueueOverview, now: Instant) -> Option<Instant> {
        if seen.is_full { Some(now) } else { seen.since.map(|since| since + self.batching.wait) }
    }
}

/// The batches that the throttle currently allows.
struct Allowance {
    throttle: Option<Throttle>,
    /// The number of allowed batches, and the time of that number.
    allowed: (f64, Instant),
}

impl Allowance {
    fn new(throttle: Option<Throttle>) -> Self {
        let burst = throttle.map_or(0, |throttle| throttle.burst);
        Self { throttle, allowed: (whole(burst), Instant::now()) }
    }

    /// The time from which the next batch may be sent.
    fn at(&self, now: Instant) -> Instant {
        let Some(throttle) = self.throttle else { return now };
        let missing = 1.0 - self.now(throttle, now);
        if missing <= 0.0 {
            return now;
        }
        // With a rate of 0 or NaN no batch is sent before the end.
        let wait = Duration::try_from_secs_f64(missing / f64::from(throttle.rate)).unwrap_or(LONGEST_WAIT);
        now + wait.min(LONGEST_WAIT)
    }

    fn now(&self, throttle: Throttle, now: Instant) -> f64 {
        let (allowed, since) = self.allowed;
        let grown = allowed + (now - since).as_secs_f64() * f64::from(throttle.rate);
        grown.min(whole(throttle.burst))
    }

    fn take(&mut self, now: Instant) {
        if let Some(throttle) = self.throttle {
            self.allowed = (self.now(throttle, now) - 1.0, now);
        }
    }
}

/// A small number as a float.
fn whole(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::BoxFuture;
    use keelson_meta::json::json;
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use std::time::SystemTime;

    use keelson_meta::clock::ManualClock;

    use super::super::auditor::{AuditCounts, AuditMode, Auditor, Backend};
    use super::super::event::tests::{event, occurrence, request};
    use super::super::event::{AuditEvent, Body, Occurrence};
    use super::super::policy::Policy;
    use super::super::record::AuditRecord;
    use super::super::sink::{Sink, Truncation};
    use super::*;

    /// A sink that accepts one batch for each permit, and fails on demand.
    struct PermitSink {
        batches: Mutex<Vec<String>>,
        permits: Semaphore,
        refusals: AtomicUsize,
    }

    impl PermitSink {
        fn with(permits: usize) -> Arc<Self> {
            Arc::new(Self {
                batches: Mutex::default(),
                permits: Semaphore::new(permits),
                refusals: AtomicUsize::new(0),
            })
        }

        fn lengths(&self) -> Vec<usize> {
            self.batches.lock().iter().map(|batch| batch.matches("auditID").count()).collect()
        }
    }

    impl Sink for PermitSink {
        fn name(&self) -> &'static str {
            "webhook"
        }

        fn frame(&self) -> [&'static [u8]; 3] {
            [b"[", b",", b"]"]
        }

        fn write(&self, event: &AuditEvent<'_>, out: &mut Vec<u8>) {
            event.write_json(false, out);
        }

        fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>> {
            Box::pin(async move {
                self.permits.acquire().await.unwrap().forget();
                if self.refusals.load(Ordering::SeqCst) > 0 {
                    return Err("not now".to_owned());
                }
                self.batches.lock().push(String::from_utf8(batch).unwrap());
                Ok(())
            })
        }
    }

    const BATCHING: Batching =
        Batching { buffer: 10, most: 4, wait: Duration::from_secs(30), throttle: None, at_once: 1 };

    fn auditor(
        mode: AuditMode,
        batching: Batching,
        truncation: Option<Truncation>,
        sink: &Arc<PermitSink>,
    ) -> (Auditor, AuditWorker) {
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
        let counts = Arc::new(AuditCounts::default());
        let (backend, worker) = Backend::new(mode, batching, truncation, sink.clone(), counts.clone());
        let clock = Arc::new(ManualClock::new(SystemTime::UNIX_EPOCH));
        (Auditor::new(Policy::parse(&policy).unwrap(), vec![backend], counts, clock), worker)
    }

    fn record() -> AuditRecord {
        AuditRecord::new(request("Metadata"))
    }

    fn end() -> Occurrence {
        Occurrence { response_object: None, ..occurrence() }
    }

    fn tell(auditor: &Auditor) {
        auditor.tell(&record(), &end());
    }

    fn lost(auditor: &Auditor) -> Vec<(&'static str, u64)> {
        auditor.counts().lost().filter(|(_, lost)| *lost > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_is_sent_when_full_or_after_its_delay() {
        let sink = PermitSink::with(100);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..5 {
            tell(&auditor);
        }
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(sink.lengths(), [4]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(sink.lengths(), [4, 1]);
        tell(&auditor);
        drop(auditor);
        running.await.unwrap();
        assert_eq!(sink.lengths(), [4, 1, 1], "queued events are written before the end");
    }

    #[tokio::test(start_paused = true)]
    async fn events_with_objects_and_without_keep_their_order() {
        let sink = PermitSink::with(100);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        let whole = AuditRecord::new(request("RequestResponse"));
        auditor.tell(&record(), &end());
        auditor.tell(&whole, &occurrence());
        auditor.tell(&record(), &end());
        assert_eq!(auditor.events(), 3);
        drop(auditor);
        worker.run(std::future::pending()).await;
        let batches = sink.batches.lock();
        let events: Vec<serde_json::Value> = serde_json::from_str(&batches[0]).unwrap();
        let levels: Vec<&str> = events.iter().map(|event| event["level"].as_str().unwrap()).collect();
        assert_eq!((batches.len(), levels), (1, vec!["Metadata", "RequestResponse", "Metadata"]));
    }

    #[tokio::test(start_paused = true)]
    async fn events_beyond_the_buffer_are_counted_as_lost_without_waiting() {
        let sink = PermitSink::with(0);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..30 {
            tell(&auditor);
            tokio::task::yield_now().await;
        }
        let [(part, events)] = lost(&auditor)[..] else { panic!("{:?}", lost(&auditor)) };
        assert!(part == "buffered" && events >= 30 - 10 - 2 * 4, "{events}");
        sink.permits.add_permits(100);
        drop(auditor);
        running.await.unwrap();
        assert_eq!(sink.lengths().iter().sum::<usize>() as u64, 30 - events);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dead_sink_does_not_delay_shutdown() {
        let sink = PermitSink::with(0);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        for _ in 0..6 {
            tell(&auditor);
        }
        let begun = Instant::now();
        worker.run(std::future::ready(())).await;
        assert!(begun.elapsed() <= LAST_TIME + Duration::from_secs(1));
        assert_eq!(lost(&auditor), [("webhook", 6)], "those of the batch under way and those that waited");
    }

    /// A rate of 0 is a valid setting: queued events are written when the server stops.
    #[tokio::test(start_paused = true)]
    async fn a_zero_rate_holds_events_until_shutdown_but_no_blocking_request() {
        for rate in [0.0, -1.0, 1e-20, f32::NAN, f32::INFINITY] {
            let throttled = Batching { throttle: Some(Throttle { rate, burst: 1 }), most: 1, ..BATCHING };
            let sink = PermitSink::with(100);
            let (batched, worker) = auditor(AuditMode::Batch, throttled, None, &sink);
            let running = tokio::spawn(worker.run(std::future::pending()));
            for _ in 0..3 {
                tell(&batched);
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
            drop(batched);
            running.await.unwrap();
            assert_eq!(sink.lengths().len(), 3, "{rate}");

            let sink = PermitSink::with(100);
            let (blocking, worker) = auditor(AuditMode::BlockingStrict, throttled, None, &sink);
            tokio::spawn(worker.run(std::future::pending()));
            let begun = Instant::now();
            for _ in 0..3 {
                assert!(blocking.begin(&record(), &end()).await);
            }
            assert_eq!(begun.elapsed(), Duration::ZERO, "the throttle is one of batches");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_throttle_limits_the_rate_of_batches() {
        let sink = PermitSink::with(100);
        let throttle = Some(Throttle { rate: 1.0, burst: 2 });
        let batching = Batching { most: 1, throttle, wait: Duration::ZERO, ..BATCHING };
        let (auditor, worker) = auditor(AuditMode::Batch, batching, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..5 {
            tell(&auditor);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(sink.lengths().len(), 2);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(sink.lengths().len(), 3);
        drop(auditor);
        running.await.unwrap();
        assert_eq!(sink.lengths().len(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn only_blocking_modes_wait_and_only_the_strict_mode_refuses() {
        for (mode, goes_on) in [(AuditMode::Blocking, true), (AuditMode::BlockingStrict, false)] {
            let sink = PermitSink::with(1);
            let (auditor, worker) = auditor(mode, BATCHING, None, &sink);
            let running = tokio::spawn(worker.run(std::future::pending()));
            let (record, end) = (record(), end());
            assert!(auditor.begin(&record, &end).await);
            assert_eq!(sink.lengths(), [1], "it is written before the request continues");
            let waiting = tokio::time::timeout(Duration::from_secs(60), auditor.begin(&record, &end));
            assert!(waiting.await.is_err(), "it was not written");
            sink.refusals.store(1, Ordering::SeqCst);
            sink.permits.add_permits(2);
            assert_eq!(auditor.begin(&record, &end).await, goes_on, "{mode:?}");
            assert_eq!((auditor.counts().rejected(), lost(&auditor)), (u64::from(!goes_on), vec![("webhook", 2)]));
            drop(auditor);
            running.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_never_sent_is_lost_and_counted() {
        let sink = PermitSink::with(0);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        tell(&auditor);
        drop(worker.forms.clone().send(worker.queue.take().unwrap()));
        assert_eq!(lost(&auditor), [("webhook", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_awaited_event_at_shutdown_is_counted_as_lost() {
        let sink = PermitSink::with(0);
        let (auditor, worker) = auditor(AuditMode::BlockingStrict, BATCHING, None, &sink);
        worker.run(std::future::ready(())).await;
        assert!(!auditor.begin(&record(), &end()).await);
        assert_eq!(lost(&auditor), [("webhook", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_of_a_cancelled_request_is_counted_as_lost() {
        let sink = PermitSink::with(0);
        let batching = Batching { buffer: 1, most: 1, ..BATCHING };
        let (auditor, _worker) = auditor(AuditMode::Blocking, batching, None, &sink);
        let (record, end) = (record(), end());
        let waits = async || tokio::time::timeout(Duration::from_secs(1), auditor.begin(&record, &end)).await.is_err();
        assert!(waits().await && lost(&auditor).is_empty(), "the first has a place in the queue");
        assert!(waits().await);
        assert_eq!(lost(&auditor), [("webhook", 1)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_refused_for_the_size_of_its_event() {
        let sink = PermitSink::with(100);
        let truncation = Some(Truncation { event: 10, batch: 100 });
        let (auditor, worker) = auditor(AuditMode::BlockingStrict, BATCHING, truncation, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        assert!(auditor.begin(&record(), &end()).await);
        assert_eq!((sink.lengths(), lost(&auditor)), (vec![], vec![("truncate", 1)]));
        drop(auditor);
        running.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn too_large_events_lose_their_objects_or_are_lost() {
        let sink = PermitSink::with(100);
        let bare = {
            let mut out = Vec::new();
            event(&request("RequestResponse")).truncated().write_json(false, &mut out);
            out.len()
        };
        let truncation = Some(Truncation { event: bare, batch: 2 * bare + 10 });
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, truncation, &sink);
        let long = record();
        long.annotate("long", "x".repeat(2 * bare));
        let whole = AuditRecord::new(request("RequestResponse"));
        whole.annotate("a", "b");
        let body = Body::new(vec![b'1'; bare].into(), |bytes, _| Some(bytes.to_vec()));
        let occurred = Occurrence { response_object: Some(body), ..occurrence() };
        for (record, occurred) in [(&whole, &occurred), (&long, &end()), (&whole, &occurred), (&whole, &occurred)] {
            auditor.tell(record, occurred);
        }
        drop(auditor);
        worker.run(std::future::pending()).await;
        assert_eq!(sink.lengths(), [2, 1], "a batch that is too large is split");
        assert!(sink.batches.lock().iter().all(|batch| batch.contains("truncated") && !batch.contains("1111")));
    }
}
