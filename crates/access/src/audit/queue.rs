//! The queue of a backend: the events that wait for it, in batches.
//!
//! Events without objects are lines that stand one behind the other, as they are written: a request adds its own by copying it, and
//! a batch is taken as a whole. So nothing is handed from one thread to another but one piece of memory for hundreds of events, and the
//! worker is woken when a batch begins and when one is full, not for each event.

use std::collections::VecDeque;
use std::ops::Range;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::record::HeldEvent;

/// How many bytes of events wait for a backend at the most, whatever its queue may hold.
const QUEUED_BYTES: usize = 64 << 20;
/// For how many bytes of a batch room is made before they are there.
const LARGE_BATCH: usize = 1 << 20;

/// The queue.
pub(super) struct EventQueue {
    waiting: Mutex<Waiting>,
    /// Told when a batch begins, when one is full, and at the end.
    changed: Notify,
    /// Told when there is room again, and at the end.
    room: Notify,
    /// How many events wait at the most.
    most: usize,
    /// How many events a batch has at the most.
    most_of_batch: usize,
    /// What stands behind each line.
    between: &'static [u8],
}

#[derive(Default)]
struct Waiting {
    full: VecDeque<Batch>,
    open: Batch,
    /// When the open batch began.
    since: Option<Instant>,
    /// How many events wait, and how many bytes they have.
    events: usize,
    bytes: usize,
    /// How many events were ever told.
    told: u64,
    is_closed: bool,
}

/// Events that are written together.
#[derive(Default)]
pub(super) struct Batch {
    /// The lines, with what stands behind each of them.
    pub(super) lines: Vec<u8>,
    pub(super) events: Vec<Queued>,
    bytes: usize,
}

/// An event of a batch.
pub(super) struct Queued {
    pub(super) form: QueuedForm,
    /// Told whether the request may take it for written.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// How an event waits.
pub(super) enum QueuedForm {
    /// As the next so many bytes of the lines.
    Line(usize),
    /// As what it says.
    Held(Box<HeldEvent>),
}

/// An event that is told.
pub(super) struct Offered {
    pub(super) form: OfferedForm,
    /// Told whether the request may take it for written.
    pub(super) written: Option<oneshot::Sender<bool>>,
}

/// How an event is told.
pub(super) enum OfferedForm {
    /// As it is written, by where it stands among the lines that come with it.
    Line(Range<usize>),
    /// As what it says, with about how many bytes that has.
    Held(Box<HeldEvent>, usize),
}

/// What waits.
pub(super) struct Outlook {
    /// Whether there is a batch that waits for no further events.
    pub(super) is_full: bool,
    /// When the batch began that does.
    pub(super) since: Option<Instant>,
    /// Whether nothing comes any more.
    pub(super) is_closed: bool,
}

impl Outlook {
    pub(super) fn is_empty(&self) -> bool {
        !self.is_full && self.since.is_none()
    }
}

impl EventQueue {
    /// A queue for so many events, in batches of at the most so many.
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

    /// Puts events in for which nobody waits, some of them as parts of `lines`, as far as there is room for them, and says how many there
    /// was none for.
    pub(super) fn offer(&self, lines: &[u8], events: impl IntoIterator<Item = OfferedForm>) -> usize {
        let (mut refused, mut is_news) = (0, false);
        {
            let mut waiting = self.waiting.lock();
            for form in events {
                waiting.told += 1;
                let put = (!waiting.is_closed).then(|| self.put(&mut waiting, lines, Offered { form, written: None }));
                match put {
                    Some(Ok(news)) => is_news |= news,
                    Some(Err(_)) | None => refused += 1,
                }
            }
        }
        self.tell(is_news);
        refused
    }

    /// Puts an event in, which may be a part of `lines`, as soon as there is room for it. Whether that came before the end.
    pub(super) async fn push(&self, lines: &[u8], mut event: Offered) -> bool {
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

    /// Whether the worker has to hear of it; the event again where there is no room.
    fn put(&self, waiting: &mut Waiting, lines: &[u8], event: Offered) -> Result<bool, Offered> {
        let bytes = match &event.form {
            OfferedForm::Line(line) => line.len() + self.between.len(),
            OfferedForm::Held(_, weight) => *weight,
        };
        // One that is larger than all that may wait has to wait alone.
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
        open.events.push(Queued { form, written: event.written });
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

    /// Takes the oldest batch, full or not.
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

    /// What waits now.
    pub(super) fn outlook(&self) -> Outlook {
        let waiting = self.waiting.lock();
        Outlook { is_full: !waiting.full.is_empty(), since: waiting.since, is_closed: waiting.is_closed }
    }

    /// Waits until there may be something else to do.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes nothing more.
    pub(super) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.changed.notify_one();
        self.room.notify_waiters();
    }

    /// How many events wait.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.waiting.lock().events
    }

    /// How many events were told, also those that there was no room for.
    pub(super) fn told(&self) -> u64 {
        self.waiting.lock().told
    }
}

impl Waiting {
    /// Takes the open batch. The next one is likely to be as long.
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

    fn taken(queue: &EventQueue) -> Option<(String, usize)> {
        queue.take().map(|batch| (String::from_utf8(batch.lines).unwrap(), batch.events.len()))
    }

    #[tokio::test(start_paused = true)]
    async fn batches_are_taken_in_their_order_and_no_larger_than_they_may_be() {
        let queue = EventQueue::new(4, 2, b"\n");
        let took: Vec<bool> = ["a", "b", "c", "d", "e"].map(|text| takes(&queue, text)).into();
        assert_eq!((took, queue.told(), queue.len()), (vec![true, true, true, true, false], 5, 4));
        assert_eq!(taken(&queue), Some(("a\nb\n".to_owned(), 2)));
        assert!(takes(&queue, "f"));
        assert_eq!(taken(&queue), Some(("c\nd\n".to_owned(), 2)));
        assert!(queue.outlook().since.is_some() && !queue.outlook().is_full);
        assert_eq!(taken(&queue), Some(("f\n".to_owned(), 1)));
        assert!(queue.outlook().is_empty() && taken(&queue).is_none());
        queue.close();
        assert!(!takes(&queue, "g") && queue.len() == 0);
    }

    #[test]
    fn of_events_that_come_together_each_is_taken_or_refused_by_itself() {
        let queue = EventQueue::new(3, 2, b"\n");
        assert_eq!(queue.offer(b"abcd", (0..4).map(|place| OfferedForm::Line(place..place + 1))), 1);
        let all = [taken(&queue), taken(&queue), taken(&queue)];
        assert_eq!(all, [Some(("a\nb\n".to_owned(), 2)), Some(("c\n".to_owned(), 1)), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_room_goes_on_when_there_is_some_or_when_nothing_comes_any_more() {
        let queue = Arc::new(EventQueue::new(1, 1, b""));
        assert!(takes(&queue, "a"));
        let push = |text: &'static str| {
            let queue = queue.clone();
            let event = Offered { form: OfferedForm::Line(0..text.len()), written: None };
            tokio::spawn(async move { queue.push(text.as_bytes(), event).await })
        };
        let second = push("b");
        tokio::task::yield_now().await;
        assert_eq!(taken(&queue), Some(("a".to_owned(), 1)));
        assert!(second.await.unwrap());
        let third = push("c");
        tokio::task::yield_now().await;
        queue.close();
        assert!(!third.await.unwrap(), "nobody has taken it");
        assert_eq!((taken(&queue), taken(&queue)), (Some(("b".to_owned(), 1)), None));
    }
}
