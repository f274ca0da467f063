//! The thread that packs objects out of use.
//!
//! A queue has every plain object of large collections, in the order of their last use as far as known. When the first
//! one is old enough, the thread packs it, or puts it back if it was used meanwhile. An object that was replaced leaves
//! the queue without work. With an empty queue the thread sleeps, so an idle server does nothing here.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::{PackResult, Packer};
use crate::collection::Collection;
use crate::entry::Entry;

/// The name of the thread.
pub(super) const NAME: &str = "cache-packing";
/// The number of objects taken from the queue under one lock.
const BATCH: usize = 64;
/// The time of work after which the thread pauses.
const STEP: Duration = Duration::from_millis(5);
/// The pause. Together with the step it limits the thread to half of a core.
const PAUSE: Duration = Duration::from_millis(5);

/// The work of the thread.
#[derive(Default)]
pub(super) struct Queue {
    /// Plain objects, each with the tick of its last known use.
    entries: VecDeque<(Weak<Entry>, u32)>,
    /// The collections that need a dictionary.
    requests: Vec<Weak<Collection>>,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn push(&mut self, entry: Weak<Entry>, tick: u32) {
        self.entries.push_back((entry, tick));
    }

    pub(super) fn request(&mut self, collection: Weak<Collection>) {
        if !self.requests.iter().any(|known| known.ptr_eq(&collection)) {
            self.requests.push(collection);
        }
    }
}

/// Packs objects until the cache is closed.
pub(super) fn run(packer: &Packer) {
    while let Some(requests) = packer.wait() {
        for collection in requests.iter().filter_map(Weak::upgrade) {
            packer.prepare(&collection);
        }
        packer.pack_aged();
    }
}

impl Packer {
    /// Waits until there is work. Returns the requests, and `None` when the cache is closed.
    fn wait(&self) -> Option<Vec<Weak<Collection>>> {
        let mut queue = self.queue.lock();
        loop {
            if self.closing.is_cancelled() {
                return None;
            }
            if !queue.requests.is_empty() {
                return Some(std::mem::take(&mut queue.requests));
            }
            match queue.entries.front().map(|(_, tick)| *tick) {
                None => {
                    // The room that a burst of writes took is given back.
                    queue.entries.shrink_to_fit();
                    self.wake.wait(&mut queue);
                }
                Some(tick) => {
                    self.wake.wait_for(&mut queue, self.settings.tick);
                    if self.is_aged(tick, self.now()) || self.is_full() {
                        return Some(Vec::new());
                    }
                }
            }
        }
    }

    /// Trains the dictionary of a collection, and queues its objects.
    fn prepare(&self, collection: &Arc<Collection>) {
        collection.pool().prepare(collection);
        let mut began = Instant::now();
        for leaf in collection.snapshot().cursor("", None) {
            let plain = leaf.entries().iter().filter(|entry| !entry.slot().is_packed());
            let aged: Vec<_> = plain.map(|entry| (Arc::downgrade(entry), entry.slot().read_at())).collect();
            self.queue.lock().entries.extend(aged);
            self.rest(&mut began);
        }
    }

    /// Packs the objects at the front of the queue that are out of use.
    fn pack_aged(&self) {
        let mut began = Instant::now();
        let mut batch = Vec::with_capacity(BATCH);
        // Objects that are put back are looked at in the next round.
        let mut left = self.queue.lock().entries.len();
        while left > 0 && !self.closing.is_cancelled() {
            self.measure();
            let now = self.now();
            let mut queue = self.queue.lock();
            while batch.len() < BATCH.min(left)
                && let Some((_, tick)) = queue.entries.front()
                && (self.is_full() || self.is_aged(*tick, now))
            {
                batch.extend(queue.entries.pop_front());
            }
            drop(queue);
            if batch.is_empty() {
                return;
            }
            left -= batch.len();
            for (entry, tick) in batch.drain(..) {
                self.pack(&entry, tick, now);
            }
            self.rest(&mut began);
        }
    }

    /// Packs an object, or puts it back if it was used since `tick`.
    fn pack(&self, queued: &Weak<Entry>, tick: u32, now: u32) {
        let Some(entry) = queued.upgrade() else { return };
        let Some((pool, encoder)) = entry.slot().pool().and_then(|pool| Some((pool, pool.encoder()?))) else { return };
        if entry.slot().is_pinned() {
            return;
        }
        let read_at = entry.slot().read_at();
        let is_used = if self.is_full() { read_at > tick } else { !self.is_aged(read_at, now) };
        if is_used {
            // With a full pool an object gets this second chance only if it is used again and again.
            self.queue.lock().push(queued.clone(), read_at.min(now));
        } else if pool.pack(&entry, &encoder) == PackResult::Busy {
            self.queue.lock().push(queued.clone(), now);
        }
    }

    fn is_aged(&self, tick: u32, now: u32) -> bool {
        now.saturating_sub(tick) >= self.settings.after_ticks
    }

    /// Pauses after a step of work, unless memory is short.
    fn rest(&self, began: &mut Instant) {
        if began.elapsed() >= STEP {
            if !self.is_full() {
                thread::sleep(PAUSE);
            }
            *began = Instant::now();
        }
    }
}
