//! The queue of a backend, which collects events in batches.
//!
//! Events without objects are lines in one buffer. A request copies its line to the end, and the worker takes the whole
//! buffer. So hundreds of events move between threads in one allocation. The worker wakes up when a batch starts and
//! when it is full, not for each event.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::record::DeferredEvent;

/// The limit of queued bytes, in addition to the configured limit of events.
const QUEUED_BYTES: usize = 64 << 20;
/// The largest capacity in bytes that is reserved for a batch in advance.
const LARGE_BATCH: usize = 1 << 20;

/// The queue.
pub(super) struct EventQueue {
    waiting: Mutex<Waiting>,
    /// Notified when a batch starts, when one is full, and when the queue is closed.
    changed: Notify,
    /// Notified when there is room again, and when the queue is closed.
    room: Notify,
    /// The largest number of queued events.
    most: usize,
    /// The largest number of events in a batch.
    most_of_batch: usize,
    /// The separator after each line.
    between: &'static [u8],
}

#[derive(Default)]
struct Waiting {
    full: VecDeque<Batch>,
    open: Batch,
    /// The start of the open batch.
    since: Option<Instant>,
    /// The number of queued events and their bytes.
    events: usize,
    bytes: usize,
    /// The number of all events so far, including those that did not fit.
    told: u64,
    is_closed: bool,
}

/// Events to be written together.
#[derive(Default)]
pub(super) struct Batch {
    /// The lines with their separators.
    pub(super) lines: Vec<u8>,
    pub(super) events: Vec<QueuedEvent>,
    bytes: usize,
}

/// An event of a batch.
pub(super) struct QueuedEvent {
    pub(super) form: QueuedForm,
    /// Receives true once the event is written, or false if it is lost.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// The form of a queued event.
pub(super) enum QueuedForm {
    /// A line, as the number of its bytes. Lines follow each other in the batch.
    Line(usize),
    /// An event that the worker serializes.
    Held(Box<DeferredEvent>),
}

/// An event offered to the queue.
pub(super) struct QueuedOffer {
    pub(super) form: OfferedForm,
    /// Receives true once the event is written, or false if it is lost.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// The form of an offered event.
pub(super) enum OfferedForm {
    /// A range of the lines that are offered with the event.
    Line(Range<usize>),
    /// An event that the worker serializes, with its approximate size in bytes.
    Held(Box<DeferredEvent>, usize),
}

/// The state of the queue.
pub(super) struct QueueOverview {
    /// True if a batch is ready to be written.
    pub(super) is_full: bool,
    /// The start of the open batch.
    pub(super) since: Option<Instant>,
    /// True if the queue is closed.
    pub(super) is_closed: bool,
}

impl QueueOverview {
    pub(super) fn is_empty(&self) -> bool {
        !self.is_full && self.since.is_none()
    }
}

impl EventQueue {
    /// Creates a queue for `most` events, in batches of at most `most_of_batch`.
    pub(super) fn new(most: usize, most_of_batch: usize, between: &'static [u8]) -> Self {
        let most = most.max(1);
        Self {
            waiting: Mutex::default(),
            changed: Notify::new(),
            room: Notify::new(),
            most,
            most_of_batch: most_of_batch.clamp(1, most),
            between,
        }
    }

    /// Queues events without waiting; `lines` has the bytes of those that are lines. Returns the number that did not
    /// fit.
    pub(super) fn offer(&self, lines: &[u8], events: impl IntoIterator<Item = OfferedForm>) -> usize {
        let (mut refused, mut is_news) = (0, false);
        {
            let mut waiting = self.waiting.lock();
            for form in events {
                waiting.told += 1;
                let put =
                    (!waiting.is_closed).then(|| self.put(&mut waiting, lines, QueuedOffer { form, written: None }));
                match put {
                    Some(Ok(news)) => is_news |= news,
                    Some(Err(_)) | None => refused += 1,
                }
            }
        }
        self.tell(is_news);
        refused
    }

    /// Queues an event once there is room; `lines` has its bytes if it is a line. Returns false if the queue is closed
    /// first.
    pub(super) async fn push(&self, lines: &[u8], mut event: QueuedOffer) -> bool {
        self.waiting.lock().told += 1;
        loop {
            let room = self.room.notified();
            {
                let mut waiting = self.waiting.lock();
                if waiting.is_closed {
                    return false;
                }
                match self.put(&mut waiting, lines, event) {
                    Ok(is_news) => {
                        self.tell(is_news);
                        return true;
                    }
                    Err(left) => event = left,
                }
            }
            room.await;
        }
    }

    /// Returns true if the worker must be woken. Returns the event if there is no room.
    fn put(&self, waiting: &mut Waiting, lines: &[u8], event: QueuedOffer) -> Result<bool, QueuedOffer> {
        let bytes = match &event.form {
            OfferedForm::Line(line) => line.len() + self.between.len(),
            OfferedForm::Held(_, weight) => *weight,
        };
        // An event above the limit is only queued if the queue is empty.
        let has_room = waiting.events == 0 || waiting.bytes + bytes <= QUEUED_BYTES;
        if waiting.events >= self.most || !has_room {
            return Err(event);
        }
        let open = &mut waiting.open;
        let form = match event.form {
            OfferedForm::Line(line) => {
                open.lines.extend_from_slice(&lines[line.clone()]);
                open.lines.extend_from_slice(self.between);
                QueuedForm::Line(line.len())
            }
            OfferedForm::Held(held, _) => QueuedForm::Held(held),
        };
        open.events.push(QueuedEvent { form, written: event.written });
        open.bytes += bytes;
        waiting.events += 1;
        waiting.bytes += bytes;
        if open.events.len() >= self.most_of_batch {
            let full = waiting.take_open();
            waiting.full.push_back(full);
            return Ok(true);
        }
        let begins = waiting.since.is_none();
        if begins {
            waiting.since = Some(Instant::now());
        }
        Ok(begins)
    }

    fn tell(&self, is_news: bool) {
        if is_news {
            self.changed.notify_one();
        }
    }

    /// Takes the oldest batch, whether it is full or not.
    pub(super) fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let batch = match waiting.full.pop_front() {
            Some(full) => full,
            None => waiting.take_open(),
        };
        waiting.events -= batch.events.len();
        waiting.bytes -= batch.bytes;
        drop(waiting);
        self.room.notify_waiters();
        (!batch.events.is_empty()).then_some(batch)
    }

    /// The current state.
    pub(super) fn outlook(&self) -> QueueOverview {
        let waiting = self.waiting.lock();
        QueueOverview { is_full: !waiting.full.is_empty(), since: waiting.since, is_closed: waiting.is_closed }
    }

    /// Waits for a change of the state. May return without one.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Closes the queue.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
        self.room.notify_waiters();
    }

    /// The number of queued events.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().events
    }

    /// The number of all events so far, including those that did not fit.
    pub(super) fn told(&self) -> u64 {
        self.waiting.lock().told
    }
}

impl Waiting {
    /// Takes the open batch. Reserves the same capacity for the next.
    fn take_open(&mut self) -> Batch {
        self.since = None;
        let lines = Vec::with_capacity(self.open.lines.len().min(LARGE_BATCH));
        let events = Vec::with_capacity(self.open.events.len());
        std::mem::replace(&mut self.open, Batch { lines, events, bytes: 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn takes(queue: &EventQueue, text: &str) -> bool {
        queue.offer(text.as_bytes(), [OfferedForm::Line(0..text.len())]) == 0
    }

    fn batch_text(queue: &EventQueue) -> Option<(String, usize)> {
        queue.take().map(|batch| (String::from_utf8(batch.lines).unwrap(), batch.events.len()))
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_ordered_and_limited_in_size() {
        let queue = EventQueue::new(4, 2, b"\n");
        let took: Vec<bool> = ["a", "b", "c", "d", "e"].map(|text| takes(&queue, text)).into();
        assert_eq!((took, queue.told(), queue.len()), (vec![true, true, true, true, false], 5, 4));
        assert_eq!(batch_text(&queue), Some(("a\nb\n".to_owned(), 2)));
        assert!(takes(&queue, "f"));
        assert_eq!(batch_text(&queue), Some(("c\nd\n".to_owned(), 2)));
        assert!(queue.outlook().since.is_some() && !queue.outlook().is_full);
        assert_eq!(batch_text(&queue), Some(("f\n".to_owned(), 1)));
        assert!(queue.outlook().is_empty() && batch_text(&queue).is_none());
        queue.close();
        assert!(!takes(&queue, "g") && queue.len() == 0);
    }

    #[test]
    fn concurrent_events_are_accepted_or_refused_one_by_one() {
        let queue = EventQueue::new(3, 2, b"\n");
        assert_eq!(queue.offer(b"abcd", (0..4).map(|place| OfferedForm::Line(place..place + 1))), 1);
        let all = [batch_text(&queue), batch_text(&queue), batch_text(&queue)];
        assert_eq!(all, [Some(("a\nb\n".to_owned(), 2)), Some(("c\n".to_owned(), 1)), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_writer_continues_with_space_or_when_the_queue_closes() {
        let queue = Arc::new(EventQueue::new(1, 1, b""));
        assert!(takes(&queue, "a"));
        let push = |text: &'static str| {
            let queue = queue.clone();
            let event = QueuedOffer { form: OfferedForm::Line(0..text.len()), written: None };
            tokio::spawn(async move { queue.push(text.as_bytes(), event).await })
        };
        let second = push("b");
        tokio::task::yield_now().await;
        assert_eq!(batch_text(&queue), Some(("a".to_owned(), 1)));
        assert!(second.await.unwrap());
        let third = push("c");
        tokio::task::yield_now().await;
        queue.close();
        assert!(!third.await.unwrap(), "no worker has taken it");
        assert_eq!((batch_text(&queue), batch_text(&queue)), (Some(("b".to_owned(), 1)), None));
    }
}
