//! The room of the store: the quota, the limit of history, the reserve on the disk.
//!
//! The writer measures after some appended bytes, and after each group while there is little room. A store without room refuses new
//! data and still does deletions, compaction and checkpoints. It takes puts that relieve up to a [budget](super::relief). History gives
//! way first: it is cut when it takes more than its share, which is smaller in a shortage, and given up while the store is full.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use keelson_meta::Revision;
use keelson_storage::crowd::{Superseded, raise};
use keelson_storage::{StoreError, Transaction};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::sqlite::relief::{Budget, Puts};
use crate::sqlite::reserve::Reserve;
use crate::sqlite::schema::PAGE_SIZE;

/// The bytes that may be appended between two measurements.
const MEASURED_BYTES: u64 = 1024 * 1024;
/// The part of the room that history may take at the most, be its own limit larger.
const HISTORY_PART: u64 = 4;
/// The store has room again when so much of the quota is free: a sixteenth.
const QUOTA_MARGIN_PART: u64 = 16;
/// The share of history is smaller when less than this part of the quota is free: an eighth.
const QUOTA_SHORT_PART: u64 = 8;
/// The part of the free room that history may take then: half.
const SHORT_HISTORY_PART: u64 = 2;
/// The part of the free pages that stays in the file for the next writes, in a store with room: a quarter of the file.
const KEPT_FREE_PART: u64 = 4;
/// The fewest free pages that stay.
const KEPT_FREE_PAGES: u64 = 1024;

/// The share of a disk that a store may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// The most bytes of pages in use; `None` for as many as the disk has.
    pub(crate) quota: Option<u64>,
    /// The most bytes of superseded versions.
    pub(crate) history: u64,
}

/// Numbers about the room of a store, for metrics. They outlive it.
#[derive(Debug, Default)]
pub struct SpaceGauges {
    used: AtomicU64,
    file: AtomicU64,
    quota: AtomicU64,
    history: AtomicU64,
    reserve: AtomicU64,
    cuts: AtomicU64,
    refused: AtomicU64,
    full: AtomicBool,
    /// The bytes that are left for new data, and one more; 0 before the first measurement.
    left: AtomicU64,
    /// The reason for which new data is refused.
    refusal: Mutex<Option<String>>,
}

/// The values of [`SpaceGauges`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// The bytes of the pages in use.
    pub used: u64,
    /// The bytes of the database's file, free pages included.
    pub file: u64,
    /// The most that the pages in use may take; 0 for no limit.
    pub quota: u64,
    /// The bytes of versions that only reads of the past see, as far as this process has written them.
    pub history: u64,
    /// The bytes of the reserve on the disk; 0 while it is given up.
    pub reserve: u64,
    /// The number of compactions before their time.
    pub cuts: u64,
    /// The number of transactions that were refused for want of room.
    pub refused: u64,
    /// True while the store refuses new data.
    pub full: bool,
}

impl SpaceGauges {
    /// The bytes that are left for new data; `None` before the first measurement.
    pub(crate) fn free(&self) -> Option<u64> {
        self.left.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The reason for which new data is refused, while it is.
    pub(crate) fn refusal(&self) -> Option<String> {
        self.refusal.lock().clone()
    }

    /// Reads the current values.
    pub fn read(&self) -> SpaceStats {
        let of = |gauge: &AtomicU64| gauge.load(Ordering::Relaxed);
        SpaceStats {
            used: of(&self.used),
            file: of(&self.file),
            quota: of(&self.quota),
            history: of(&self.history),
            reserve: of(&self.reserve),
            cuts: of(&self.cuts),
            refused: of(&self.refused),
            full: self.full.load(Ordering::Relaxed),
        }
    }
}

/// The number of pages of the database, and of those without content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    pub(crate) all: u64,
    pub(crate) free: u64,
}

impl Pages {
    pub(crate) fn count(connection: &Connection) -> rusqlite::Result<Self> {
        let number = |pragma: &str| {
            let mut statement = connection.prepare_cached(pragma)?;
            statement.query_row([], |row| row.get::<_, i64>(0)).map(i64::unsigned_abs)
        };
        Ok(Self { all: number("PRAGMA page_count")?, free: number("PRAGMA freelist_count")? })
    }

    const fn bytes(pages: u64) -> u64 {
        pages * PAGE_SIZE as u64
    }
}

/// The reason for a store without room.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shortage {
    /// The pages in use take what they may.
    Quota { used: u64, quota: u64 },
    /// The disk is full, and so is the file.
    Disk { free: u64 },
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Quota { used, quota } => write!(
                f,
                "it takes {} of the {} that --store-quota allows; delete objects, or raise --store-quota",
                Size(*used),
                Size(*quota)
            ),
            Self::Disk { free } => {
                write!(f, "its disk has {} left; delete objects, or make room on the disk", Size(*free))
            }
        }
    }
}

/// Bytes as people read them.
struct Size(u64);

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            bytes if bytes >= 10 << 30 => write!(f, "{} GiB", bytes >> 30),
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes => write!(f, "{} KiB", bytes >> 10),
        }
    }
}

/// The writer's knowledge of room.
pub(crate) struct Space {
    allowance: Allowance,
    /// None in memory.
    reserve: Option<Reserve>,
    history: Superseded,
    unmeasured: u64,
    /// True when so little is left that each group is followed by a measurement.
    is_near: bool,
    pages: Pages,
    shortage: Option<Shortage>,
    /// The budget of puts while there is one.
    budget: Budget,
    gauges: Arc<SpaceGauges>,
    crowded: Arc<watch::Sender<Revision>>,
}

impl Space {
    pub(crate) fn new(allowance: Allowance, reserve: Option<Reserve>) -> Self {
        let gauges = SpaceGauges::default();
        gauges.quota.store(allowance.quota.unwrap_or_default(), Ordering::Relaxed);
        let budget = Budget::of(allowance.quota, reserve.as_ref().map(Reserve::bytes));
        Self {
            allowance,
            reserve,
            history: Superseded::within(allowance.history),
            unmeasured: 0,
            is_near: false,
            pages: Pages::default(),
            shortage: None,
            budget,
            gauges: Arc::new(gauges),
            crowded: Arc::new(watch::Sender::new(Revision::ZERO)),
        }
    }

    /// Without bounds, for a store in memory.
    pub(crate) fn unbounded() -> Self {
        Self::new(Allowance { quota: None, history: u64::MAX }, None)
    }

    pub(crate) fn gauges(&self) -> Arc<SpaceGauges> {
        self.gauges.clone()
    }

    /// The channel of the revision to compact to before its time.
    pub(crate) fn crowded(&self) -> Arc<watch::Sender<Revision>> {
        self.crowded.clone()
    }

    /// Refuses a transaction that needs room where there is none. `group` are the puts of its group before it.
    pub(crate) fn admit(&self, transaction: &Transaction, group: Puts, puts: Puts) -> Result<(), StoreError> {
        let Some(shortage) = &self.shortage else { return Ok(()) };
        let admitted = if transaction.needs_no_room() {
            self.budget.check(group, puts, transaction.relief()).map_err(|exceeded| exceeded.error(shortage))
        } else {
            Err(StoreError::Full(shortage.to_string()))
        };
        admitted.inspect_err(|_| {
            self.gauges.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The size of the reserve when it is held, in bytes; 0 for none.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, Reserve::bytes)
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.shortage.is_some()
    }

    /// Notes what a group has appended, at the revisions up to `newest`, and measures when it is time.
    pub(crate) fn appended(
        &mut self,
        connection: &Connection,
        newest: Revision,
        bytes: u64,
        superseded: u64,
        puts: Puts,
    ) {
        if self.is_full() {
            self.budget.spend(puts);
        }
        if superseded > 0 {
            self.history.add(newest, superseded);
        }
        self.unmeasured += bytes;
        if self.unmeasured >= MEASURED_BYTES || self.is_near || self.is_full() {
            self.measure(connection, newest);
        } else if superseded > 0
            && let Some(oldest) = self.history.excess()
        {
            raise(&self.crowded, oldest);
        }
    }

    /// History up to `oldest` is given up.
    pub(crate) fn compacted(&mut self, oldest: Revision) {
        self.history.compacted(oldest);
        self.budget.compacted();
        self.gauges.history.store(self.history.bytes(), Ordering::Relaxed);
        if *self.crowded.borrow() == oldest {
            self.gauges.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A write has met a full disk. Gives up the reserve; returns whether that made room.
    pub(crate) fn disk_is_full(&mut self, newest: Revision) -> bool {
        let had = self.reserve.as_mut().is_some_and(|reserve| {
            let held = reserve.is_held();
            reserve.give_up();
            held
        });
        self.be(Some(Shortage::Disk { free: 0 }));
        self.gauges.reserve.store(0, Ordering::Relaxed);
        raise(&self.crowded, newest);
        had
    }

    /// Measures the room, and takes the reserve again if the disk has room for it.
    pub(crate) fn measure(&mut self, connection: &Connection, newest: Revision) {
        self.unmeasured = 0;
        match Pages::count(connection) {
            Ok(pages) => self.pages = pages,
            Err(error) => return tracing::warn!(%error, "the pages of the store can't be counted"),
        }
        let used = Pages::bytes(self.pages.all - self.pages.free);
        let inside = Pages::bytes(self.pages.free);
        let outside = self.outside();
        let shortage = self.shortage_of(used, inside, outside);
        self.be(shortage);
        let is_near = |(reserve, free): (&Reserve, u64)| free < 2 * reserve.bytes();
        self.is_near = self.reserve.as_ref().zip(outside).is_some_and(is_near);
        let room = outside.map_or(u64::MAX, |free| used.saturating_add(inside).saturating_add(free));
        let all = self.allowance.quota.map_or(room, |quota| quota.min(room));
        self.history.limit = self.allowance.history.min(all / HISTORY_PART);
        if self.is_short(used, inside, outside) {
            let left = all.saturating_sub(used);
            self.history.limit = self.history.limit.min(left / SHORT_HISTORY_PART);
        }
        let wanted = if self.is_full() { Some(newest) } else { self.history.excess() };
        if let Some(oldest) = wanted {
            raise(&self.crowded, oldest);
        }
        let set = |gauge: &AtomicU64, value| gauge.store(value, Ordering::Relaxed);
        set(&self.gauges.used, used);
        set(&self.gauges.left, all.saturating_sub(used).saturating_add(1));
        set(&self.gauges.file, Pages::bytes(self.pages.all));
        set(&self.gauges.history, self.history.bytes());
        set(&self.gauges.reserve, self.reserve.as_ref().filter(|held| held.is_held()).map_or(0, Reserve::bytes));
    }

    /// The free bytes of the disk. Takes the reserve if the disk has room for it.
    fn outside(&mut self) -> Option<u64> {
        let reserve = self.reserve.as_mut()?;
        reserve.keep();
        reserve.room().ok().map(|room| room.free)
    }

    fn shortage_of(&self, used: u64, inside: u64, outside: Option<u64>) -> Option<Shortage> {
        if let Some(quota) = self.allowance.quota {
            let margin = if self.is_full() { quota / QUOTA_MARGIN_PART } else { 0 };
            if used.saturating_add(margin) >= quota {
                return Some(Shortage::Quota { used, quota });
            }
        }
        let (Some(reserve), Some(free)) = (&self.reserve, outside) else { return None };
        // Free pages are room too, where the log has some: in what the reserve gave, or beside it.
        let roomy = inside >= 4 * reserve.bytes();
        let needed = match &self.shortage {
            Some(Shortage::Disk { .. }) => reserve.bytes(),
            Some(Shortage::Quota { .. }) | None => reserve.bytes() / 2,
        };
        let is_short = !roomy && (reserve.is_spent() || free < needed);
        is_short.then_some(Shortage::Disk { free })
    }

    /// Returns true for so little room that history has to give way before new data is refused.
    fn is_short(&self, used: u64, inside: u64, outside: Option<u64>) -> bool {
        let of_quota = self.allowance.quota.is_some_and(|quota| used >= quota - quota / QUOTA_SHORT_PART);
        let of_disk = self.reserve.as_ref().zip(outside);
        of_quota || of_disk.is_some_and(|(reserve, free)| free.saturating_add(inside) < reserve.bytes())
    }

    fn be(&mut self, shortage: Option<Shortage>) {
        match (&self.shortage, &shortage) {
            (None, Some(why)) => {
                self.budget.begin();
                tracing::error!(%why, "the store is full: it takes deletions and refuses new data");
            }
            (Some(_), None) => tracing::info!("the store has room again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        self.gauges.full.store(shortage.is_some(), Ordering::Relaxed);
        if self.shortage != shortage {
            *self.gauges.refusal.lock() = shortage.as_ref().map(|why| format!("the store is full: {why}"));
        }
        self.shortage = shortage;
    }

    /// The number of free pages to give back to the disk.
    pub(crate) fn to_give_back(&self, pages: Pages) -> u64 {
        let kept = if matches!(self.shortage, Some(Shortage::Disk { .. })) {
            0
        } else {
            (pages.all / KEPT_FREE_PART).max(KEPT_FREE_PAGES)
        };
        pages.free.saturating_sub(kept)
    }
}
