//! The worker of a backend: takes events from its queue, puts them into batches, and has these written or sent.
//!
//! A batch goes out when it is full or its time is over, not faster than the throttle lets it, and so many at once as the sink takes.
//! Events are put into their form here and not in the requests that they are about. The worker ends when nobody can tell it anything any
//! more, or soon after it is told that the server has stopped.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

use super::auditor::{AuditCounts, Queued};
use super::event::AuditEvent;
use super::policy::Level;

/// How long a worker with an unfinished batch leaves its queue alone: to be woken for each event costs requests more than the event. At
/// 100,000 events a second half a thousand come meanwhile, which is a small part of a queue.
const DOZE: Duration = Duration::from_millis(5);
/// For how many bytes of a batch room is made before they are there.
const LARGE_BATCH: usize = 1 << 20;
/// How long a worker goes on after the server has stopped.
const LAST_TIME: Duration = Duration::from_secs(5);

/// Writes or sends events.
pub trait Sink: Send + Sync + 'static {
    /// Its name in the metric of lost events.
    fn name(&self) -> &'static str;

    /// What stands before, between and behind the events of a batch.
    fn frame(&self) -> [&'static [u8]; 3];

    /// Appends an event in its form.
    fn write(&self, event: &AuditEvent, out: &mut Vec<u8>);

    /// Writes or sends a batch. `Err` says why its events are lost.
    fn send(&self, batch: Vec<u8>) -> BoxFuture<'_, Result<(), String>>;
}

/// How events are put together.
#[derive(Clone, Copy, Debug)]
pub struct Batching {
    /// How many events wait at the most.
    pub buffer: usize,
    /// How many events a batch has at the most.
    pub most: usize,
    /// How long a batch waits for more events.
    pub wait: Duration,
    /// How fast batches go out.
    pub throttle: Option<Throttle>,
    /// How many are under way at once.
    pub at_once: usize,
}

/// A rate of batches.
#[derive(Clone, Copy, Debug)]
pub struct Throttle {
    /// Batches in a second.
    pub rate: f32,
    /// How many may go out at once after a rest.
    pub burst: usize,
}

/// The bounds of events and batches.
#[derive(Clone, Copy, Debug)]
pub struct Truncation {
    /// A larger event in bytes loses its objects, and is lost if that does not help.
    pub event: usize,
    /// A larger batch in bytes is split.
    pub batch: usize,
}

/// The worker of a backend.
pub struct AuditWorker {
    events: mpsc::Receiver<Queued>,
    batching: Batching,
    parts: Parts,
}

/// What it takes to send a batch.
#[derive(Clone)]
struct Parts {
    sink: Arc<dyn Sink>,
    truncation: Option<Truncation>,
    counts: Arc<AuditCounts>,
}

/// A batch in its form, and who waits for it.
struct Framed {
    bytes: Vec<u8>,
    events: usize,
    waiting: Vec<oneshot::Sender<bool>>,
}

impl AuditWorker {
    pub(super) fn new(
        events: mpsc::Receiver<Queued>,
        batching: Batching,
        truncation: Option<Truncation>,
        sink: Arc<dyn Sink>,
        counts: Arc<AuditCounts>,
    ) -> Self {
        Self { events, batching, parts: Parts { sink, truncation, counts } }
    }

    /// Works until nobody is left who tells events, or until `stopped` and what waits then is written, for a bounded time.
    pub async fn run(mut self, stopped: impl Future<Output = ()>) {
        let mut stopped = pin!(stopped);
        let mut sending = FuturesUnordered::new();
        let mut pending = Pending::new(self.batching);
        let mut last = None;
        loop {
            let now = Instant::now();
            let is_over = pending.is_closed || last.is_some();
            if pending.is_closed && pending.events.is_empty() && sending.is_empty() {
                return;
            }
            let due = pending.due(now, is_over);
            let has_room = sending.len() < self.batching.at_once.max(1);
            if has_room && due.is_some_and(|due| due <= now) {
                sending.push(self.parts.clone().send(pending.take(now)));
                continue;
            }
            let room = self.batching.most.max(1) - pending.events.len();
            let dozing = pending.dozing.filter(|until| *until > now && last.is_none());
            let timer = last.into_iter().chain(due.filter(|_| has_room)).chain(dozing).min();
            let takes = room > 0 && !pending.is_closed && dozing.is_none();
            tokio::select! {
                taken = self.events.recv_many(&mut pending.events, room), if takes => {
                    pending.grown(taken);
                }
                Some(()) = sending.next(), if !sending.is_empty() => {}
                () = sleep_until(timer.unwrap_or(now)), if timer.is_some() => {
                    if last.is_some_and(|last| last <= Instant::now()) {
                        let left = pending.events.len() + self.events.len();
                        self.parts.counts.lose(self.parts.sink.name(), left, "the server has stopped");
                        return;
                    }
                }
                () = &mut stopped, if last.is_none() => {
                    self.events.close();
                    last = Some(Instant::now() + LAST_TIME);
                }
            }
        }
    }
}

/// The batch that is being put together.
struct Pending {
    events: Vec<Queued>,
    /// When it goes out though it is not full.
    until: Option<Instant>,
    /// Until when no further events are taken.
    dozing: Option<Instant>,
    is_closed: bool,
    batching: Batching,
    /// How many batches may go out, as of a moment.
    allowed: (f64, Instant),
}

impl Pending {
    fn new(batching: Batching) -> Self {
        let burst = batching.throttle.map_or(0, |throttle| throttle.burst);
        let allowed = (whole(burst), Instant::now());
        Self { events: Vec::new(), until: None, dozing: None, is_closed: false, batching, allowed }
    }

    /// Notes that so many events have come; none is the end.
    fn grown(&mut self, taken: usize) {
        let now = Instant::now();
        self.is_closed |= taken == 0;
        self.until.get_or_insert(now + self.batching.wait);
        let is_full = self.events.len() >= self.batching.most.max(1);
        self.dozing = (self.batching.wait >= DOZE && !is_full).then_some(now + DOZE);
    }

    /// When the batch goes out; `None` as long as there is none. At the end nothing is waited for.
    fn due(&self, now: Instant, is_over: bool) -> Option<Instant> {
        if self.events.is_empty() {
            return None;
        }
        if is_over {
            return Some(now);
        }
        let is_full = self.events.len() >= self.batching.most.max(1);
        let until = if is_full { now } else { self.until.unwrap_or(now) };
        Some(until.max(self.allowed_at(now)))
    }

    /// When the throttle lets the next batch out.
    fn allowed_at(&self, now: Instant) -> Instant {
        let Some(throttle) = self.batching.throttle else { return now };
        let missing = 1.0 - self.allowed_now(throttle, now);
        if missing <= 0.0 { now } else { now + Duration::from_secs_f64(missing / f64::from(throttle.rate)) }
    }

    fn allowed_now(&self, throttle: Throttle, now: Instant) -> f64 {
        let (allowed, since) = self.allowed;
        let grown = allowed + (now - since).as_secs_f64() * f64::from(throttle.rate);
        grown.min(whole(throttle.burst))
    }

    fn take(&mut self, now: Instant) -> Vec<Queued> {
        if let Some(throttle) = self.batching.throttle {
            self.allowed = (self.allowed_now(throttle, now) - 1.0, now);
        }
        self.until = None;
        std::mem::take(&mut self.events)
    }
}

/// A small number with fractions.
fn whole(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}

impl Parts {
    async fn send(self, events: Vec<Queued>) {
        let all = events.len();
        // Objects may be megabytes of another format, and the threads here are those of requests.
        let framed = if events.iter().any(|queued| queued.event.is_heavy()) {
            let parts = self.clone();
            tokio::task::spawn_blocking(move || parts.framed(events)).await
        } else {
            Ok(self.framed(events))
        };
        let batches = match framed {
            Ok(batches) => batches,
            Err(error) => return self.counts.lose(self.sink.name(), all, &error.to_string()),
        };
        for batch in batches {
            let sent = self.sink.send(batch.bytes).await;
            if let Err(why) = &sent {
                self.counts.lose(self.sink.name(), batch.events, why);
            }
            for waiting in batch.waiting {
                // Whoever waited may have gone away.
                let _ = waiting.send(sent.is_ok());
            }
        }
    }

    /// Puts events into batches in their form.
    fn framed(&self, events: Vec<Queued>) -> Vec<Framed> {
        let [opening, between, closing] = self.sink.frame();
        let mut batches: Vec<Framed> = Vec::new();
        let mut line = Vec::new();
        let mut left = events.len();
        for Queued { event, written, .. } in events {
            left -= 1;
            line.clear();
            if !self.write(&event, &mut line) {
                continue;
            }
            let bound = self.truncation.map_or(usize::MAX, |bounds| bounds.batch);
            match batches.last_mut().filter(|batch| batch.bytes.len() + line.len() <= bound) {
                Some(batch) => batch.bytes.extend_from_slice(between),
                None => {
                    // Most events of a batch have about one length.
                    let mut bytes = Vec::with_capacity((line.len() * (left + 2)).min(bound).min(LARGE_BATCH));
                    bytes.extend_from_slice(opening);
                    batches.push(Framed { bytes, events: 0, waiting: Vec::new() });
                }
            }
            if let Some(batch) = batches.last_mut() {
                batch.bytes.extend_from_slice(&line);
                batch.events += 1;
                batch.waiting.extend(written);
            }
        }
        for batch in &mut batches {
            batch.bytes.extend_from_slice(closing);
        }
        batches
    }

    /// Appends an event in its form, without its objects where it is too long. Whether it is short enough then.
    fn write(&self, event: &AuditEvent, out: &mut Vec<u8>) -> bool {
        self.sink.write(event, out);
        let Some(bounds) = self.truncation else { return true };
        if out.len() > bounds.event && event.request.audited.level >= Level::Request {
            out.clear();
            self.sink.write(&event.truncated(), out);
        }
        let fits = out.len() <= bounds.event;
        if !fits {
            self.counts.lose("truncate", 1, "event is too large even after truncating");
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use keelson_meta::json::json;
    use parking_lot::Mutex;
    use tokio::sync::Semaphore;

    use super::super::auditor::{AuditMode, Auditor, Backend};
    use super::super::event::tests::event;
    use super::super::policy::Policy;
    use super::*;

    /// Takes a batch for each permit, and refuses all while told to.
    struct Taking {
        batches: Mutex<Vec<String>>,
        permits: Semaphore,
        refusals: AtomicUsize,
    }

    impl Taking {
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

    impl Sink for Taking {
        fn name(&self) -> &'static str {
            "webhook"
        }

        fn frame(&self) -> [&'static [u8]; 3] {
            [b"[", b",", b"]"]
        }

        fn write(&self, event: &AuditEvent, out: &mut Vec<u8>) {
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
        sink: &Arc<Taking>,
    ) -> (Auditor, AuditWorker) {
        let policy = json!({ "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{ "level": "Metadata" }] });
        let counts = Arc::new(AuditCounts::default());
        let (backend, worker) = Backend::new(mode, batching, truncation, sink.clone(), counts.clone());
        (Auditor::new(Policy::of(&policy).unwrap(), vec![backend], counts), worker)
    }

    fn lost(auditor: &Auditor) -> Vec<(&'static str, u64)> {
        auditor.counts().lost().filter(|(_, lost)| *lost > 0).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_goes_out_when_it_is_full_or_its_time_is_over() {
        let sink = Taking::with(100);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..5 {
            auditor.tell(event("Metadata"));
        }
        tokio::time::sleep(Duration::from_secs(29)).await;
        assert_eq!(sink.lengths(), [4]);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(sink.lengths(), [4, 1]);
        auditor.tell(event("Metadata"));
        drop(auditor);
        running.await.unwrap();
        assert_eq!(sink.lengths(), [4, 1, 1], "what waits is written before the end");
    }

    #[tokio::test(start_paused = true)]
    async fn what_does_not_fit_is_lost_and_counted_and_nobody_waits() {
        let sink = Taking::with(0);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..30 {
            auditor.tell(event("Metadata"));
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
    async fn a_dead_sink_does_not_hold_up_the_end_of_the_server() {
        let sink = Taking::with(0);
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, None, &sink);
        auditor.tell(event("Metadata"));
        let begun = Instant::now();
        worker.run(std::future::ready(())).await;
        assert!(begun.elapsed() <= LAST_TIME + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn batches_go_out_no_faster_than_the_throttle_lets_them() {
        let sink = Taking::with(100);
        let throttle = Some(Throttle { rate: 1.0, burst: 2 });
        let batching = Batching { most: 1, throttle, wait: Duration::ZERO, ..BATCHING };
        let (auditor, worker) = auditor(AuditMode::Batch, batching, None, &sink);
        let running = tokio::spawn(worker.run(std::future::pending()));
        for _ in 0..5 {
            auditor.tell(event("Metadata"));
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
    async fn a_request_waits_only_where_that_is_asked_for_and_is_refused_only_by_the_strict() {
        for (mode, goes_on) in [(AuditMode::Blocking, true), (AuditMode::BlockingStrict, false)] {
            let sink = Taking::with(1);
            let (auditor, worker) = auditor(mode, BATCHING, None, &sink);
            let running = tokio::spawn(worker.run(std::future::pending()));
            assert!(auditor.begin(event("Metadata")).await);
            assert_eq!(sink.lengths(), [1], "it is written before the request goes on");
            let waiting = tokio::time::timeout(Duration::from_secs(60), auditor.begin(event("Metadata")));
            assert!(waiting.await.is_err(), "nobody has written it");
            sink.refusals.store(1, Ordering::SeqCst);
            sink.permits.add_permits(2);
            assert_eq!(auditor.begin(event("Metadata")).await, goes_on, "{mode:?}");
            assert_eq!((auditor.counts().rejected(), lost(&auditor)), (u64::from(!goes_on), vec![("webhook", 2)]));
            drop(auditor);
            running.await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_large_loses_its_objects_or_is_lost() {
        let sink = Taking::with(100);
        let bare = {
            let mut out = Vec::new();
            event("RequestResponse").truncated().write_json(false, &mut out);
            out.len()
        };
        let truncation = Some(Truncation { event: bare, batch: 2 * bare + 10 });
        let (auditor, worker) = auditor(AuditMode::Batch, BATCHING, truncation, &sink);
        let mut long = event("Metadata");
        Arc::make_mut(&mut long.annotations).insert("long".into(), "x".repeat(2 * bare));
        let mut whole = event("RequestResponse");
        whole.response_object =
            Some(super::super::event::Body::new(vec![b'1'; bare].into(), |bytes, _| Some(bytes.to_vec())));
        for event in [whole.clone(), long, whole.clone(), whole] {
            auditor.tell(event);
        }
        drop(auditor);
        worker.run(std::future::pending()).await;
        assert_eq!(sink.lengths(), [2, 1], "a batch that is too large is split");
        assert!(sink.batches.lock().iter().all(|batch| batch.contains("truncated") && !batch.contains("1111")));
    }
}
