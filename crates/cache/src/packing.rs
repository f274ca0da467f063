//! Keeps the objects of large collections compressed, except for those in use.
//!
//! An object that was written or read lately is plain, within a limit of memory. The others are packed: compressed
//! against a dictionary of their collection. Packing replaces the object inside of its [`Entry`], so trees, snapshots
//! and the history need no change.
//!
//! A read of a packed object decodes it. If it was read in an earlier tick too, it becomes plain again. So one scan of
//! a collection leaves it packed, and repeated ones do not. The age of a use is measured in ticks.
//!
//! Invariant: an entry has the same object in either form.

mod dictionary;
mod pool;
mod slot;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::time::{Duration, Instant};

use keelson_supervision::Supervisor;
use parking_lot::{Condvar, Mutex};
use tokio_util::sync::CancellationToken;

pub(crate) use self::pool::Pool;
pub use self::slot::ObjectRef;
pub(crate) use self::slot::{PackResult, Slot};
use crate::collection::Collection;
use crate::entry::Entry;

/// The number of ticks in which a second read makes a packed object plain.
const RECENT_TICKS: u32 = 30;
/// The number of objects that become plain between two comparisons with the limit.
const MEASURED_PROMOTIONS: u64 = 64;

/// The settings of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packing {
    /// The limit in bytes of the plain objects in large collections. Objects of small collections do not count.
    pub plain_bytes: u64,
    /// The unit of the age of a use.
    pub tick: Duration,
    /// The number of ticks without use after which an object is packed.
    pub after_ticks: u32,
    /// The number of objects from which a collection is large.
    pub from_objects: usize,
    /// The size of the objects in bytes from which a collection is large.
    pub from_bytes: u64,
    /// The size of a skeleton in bytes below which an object stays plain.
    pub least_bytes: usize,
    /// Packs every object at once, for tests.
    pub at_once: bool,
}

/// The default limit of plain objects in bytes, for a caller that does not know the memory of the machine.
pub const DEFAULT_PLAIN_BYTES: u64 = 256 << 20;

impl Default for Packing {
    fn default() -> Self {
        Self {
            plain_bytes: DEFAULT_PLAIN_BYTES,
            tick: Duration::from_secs(1),
            after_ticks: 30,
            from_objects: 500,
            from_bytes: 2 << 20,
            least_bytes: 256,
            at_once: false,
        }
    }
}

impl Packing {
    /// Packs nothing.
    pub const OFF: Self = Self {
        plain_bytes: u64::MAX,
        tick: Duration::from_secs(1),
        after_ticks: u32::MAX,
        from_objects: usize::MAX,
        from_bytes: u64::MAX,
        least_bytes: usize::MAX,
        at_once: false,
    };

    /// Packs every object as soon as it is read from the store.
    pub const AT_ONCE: Self = Self {
        plain_bytes: 0,
        tick: Duration::from_secs(1),
        after_ticks: 0,
        from_objects: 1,
        from_bytes: 1,
        least_bytes: 1,
        at_once: true,
    };

    /// Packs every object after a millisecond, and makes it plain at the second read.
    pub const SWITCHING: Self = Self {
        plain_bytes: DEFAULT_PLAIN_BYTES,
        tick: Duration::from_millis(1),
        after_ticks: 1,
        from_objects: 1,
        from_bytes: 1,
        least_bytes: 1,
        at_once: false,
    };
}

/// Statistics of packing, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PackingStats {
    /// The size of the plain objects in bytes.
    pub plain_bytes: u64,
    /// The size of the packed objects in bytes, compressed.
    pub packed_bytes: u64,
    /// The number of packed objects.
    pub packed_objects: u64,
    /// The number of reads of plain objects.
    pub hits: u64,
    /// The number of reads of packed objects, each of which decoded the object.
    pub misses: u64,
    /// The number of objects that were packed.
    pub packs: u64,
    /// The number of packed objects that became plain again.
    pub promotions: u64,
    /// The number of dictionaries in use.
    pub dictionaries: u64,
    /// The number of trained dictionaries.
    pub trainings: u64,
}

/// The part of packing that all collections of a cache share.
pub(crate) struct Packer {
    pub(crate) settings: Packing,
    began: Instant,
    /// The tick of the last step or promotion. Reads of plain objects use it instead of the clock.
    tick: AtomicU32,
    queue: Mutex<worker::Queue>,
    wake: Condvar,
    /// The pools of large collections.
    pools: Mutex<Vec<Weak<Pool>>>,
    /// True while the plain objects of large collections exceed the limit.
    is_full: AtomicBool,
    started: Once,
    supervisor: Supervisor,
    closing: CancellationToken,
    counters: PackingCounters,
}

#[derive(Default)]
struct PackingCounters {
    plain_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    packed_objects: AtomicU64,
    hits: Striped,
    misses: Striped,
    packs: AtomicU64,
    promotions: AtomicU64,
    trainings: AtomicU64,
}

/// The number of parts of a [`Striped`] counter.
const STRIPES: usize = 16;

/// A counter in parts, so that cores which count the same event do not wait for one cache line.
#[derive(Default)]
struct Striped([Stripe; STRIPES]);

#[derive(Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

static NEXT_STRIPE: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The part of this thread.
    static STRIPE: usize = NEXT_STRIPE.fetch_add(1, Ordering::Relaxed) as usize % STRIPES;
}

impl Striped {
    fn increment(&self) {
        STRIPE.with(|stripe| self.0[*stripe].0.fetch_add(1, Ordering::Relaxed));
    }

    fn get(&self) -> u64 {
        self.0.iter().map(|stripe| stripe.0.load(Ordering::Relaxed)).sum()
    }
}

impl Packer {
    pub(crate) fn new(settings: Packing, supervisor: Supervisor, closing: CancellationToken) -> Self {
        Self {
            settings,
            began: Instant::now(),
            tick: AtomicU32::new(1),
            queue: Mutex::default(),
            wake: Condvar::new(),
            pools: Mutex::default(),
            is_full: AtomicBool::new(false),
            started: Once::new(),
            supervisor,
            closing,
            counters: PackingCounters::default(),
        }
    }

    /// A packer that packs nothing.
    #[cfg(test)]
    pub(crate) fn off() -> Arc<Self> {
        Arc::new(Self::new(Packing::OFF, Supervisor::default(), CancellationToken::new()))
    }

    /// The tick of now. Ticks begin with 1.
    fn now(&self) -> u32 {
        let ticks = self.began.elapsed().as_nanos() / self.settings.tick.as_nanos();
        let tick = u32::try_from(ticks).unwrap_or(u32::MAX / 2) + 1;
        // While the thread sleeps, only this notices that there is room again.
        if self.tick.swap(tick, Ordering::Relaxed) != tick && self.is_full() {
            self.measure();
        }
        tick
    }

    /// The tick of the last step of the worker, which is awake while there are plain objects to pack.
    fn last_tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Compares the plain objects of large collections with their limit.
    fn measure(&self) {
        let mut pools = self.pools.lock();
        pools.retain(|pool| pool.strong_count() > 0);
        let plain: u64 = pools.iter().filter_map(Weak::upgrade).map(|pool| pool.plain_bytes()).sum();
        self.is_full.store(plain > self.settings.plain_bytes, Ordering::Relaxed);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Queues the plain object of an entry, to be packed when it is out of use.
    fn enqueue(&self, entry: Weak<Entry>, tick: u32) {
        // A fork reads objects of an origin that has ended.
        if self.closing.is_cancelled() {
            return;
        }
        let mut queue = self.queue.lock();
        let was_idle = queue.is_empty();
        queue.push(entry, tick);
        drop(queue);
        if was_idle {
            self.wake.notify_one();
        }
    }

    /// Requests a dictionary for a collection, and the packing of its objects. Starts the thread at the first request.
    pub(crate) fn request(self: &Arc<Self>, collection: &Arc<Collection>) {
        self.queue.lock().request(Arc::downgrade(collection));
        self.wake.notify_one();
        self.started.call_once(|| {
            let packer = self.clone();
            let worker = move || worker::run(&packer);
            if let Err(error) = self.supervisor.spawn_thread(worker::NAME, &self.closing, worker) {
                tracing::error!(%error, "the thread that packs objects did not start; objects stay unpacked");
            }
        });
    }

    /// Ends the thread.
    fn stop(&self) {
        self.closing.cancel();
        // The thread may be between its check and its wait.
        drop(self.queue.lock());
        self.wake.notify_all();
    }

    /// The statistics.
    pub(crate) fn stats(&self) -> PackingStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        PackingStats {
            plain_bytes: get(&counters.plain_bytes),
            packed_bytes: get(&counters.packed_bytes),
            packed_objects: get(&counters.packed_objects),
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            packs: get(&counters.packs),
            promotions: get(&counters.promotions),
            dictionaries: self.pools.lock().iter().filter_map(Weak::upgrade).map(|pool| pool.dictionaries()).sum(),
            trainings: get(&counters.trainings),
        }
    }
}

/// Ends the thread of a packer when it is dropped.
pub(crate) struct PackerGuard(pub(crate) Arc<Packer>);

impl Drop for PackerGuard {
    fn drop(&mut self) {
        self.0.stop();
    }
}
