//! The space of the store: the quota, the limit of history, and the reserve on the disk.
//!
//! The writer measures the space after a number of appended bytes, and after each group while there is little space. A
//! full store refuses new data, but still executes deletions, compaction and checkpoints. It accepts puts that keep the
//! cluster alive or continue deletions, within a [budget](super::relief). History is removed before new data is
//! refused: it is compacted early when it exceeds its limit. The limit is lower in a shortage, and a full store keeps
//! no history.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use keelson_meta::Revision;
use keelson_storage::crowd::{SupersededBytes, raise};
use keelson_storage::{StoreError, Transaction};
use parking_lot::Mutex;
use rusqlite::Connection;
use tokio::sync::watch;

use crate::sqlite::relief::{Budget, Puts};
use crate::sqlite::reserve::Reserve;
use crate::sqlite::schema::PAGE_SIZE;

/// The bytes that may be appended between two measurements.
const MEASURED_BYTES: u64 = 1024 * 1024;
/// History uses at most this fraction of the space, even if its configured limit is larger.
const HISTORY_PART: u64 = 4;
/// A full store accepts new data again when this fraction of the quota is free: a sixteenth.
const QUOTA_MARGIN_PART: u64 = 16;
/// The limit of history is lower when less than this fraction of the quota is free: an eighth.
const QUOTA_SHORT_PART: u64 = 8;
/// The fraction of the free space that history may use then: half.
const SHORT_HISTORY_PART: u64 = 2;
/// The fraction of the file that may be free pages for later writes, in a store with space: a quarter.
const KEPT_FREE_PART: u64 = 4;
/// The minimum number of free pages that stay in the file.
const KEPT_FREE_PAGES: u64 = 1024;

/// The limits of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// The maximum bytes of pages in use; `None` for all of the disk.
    pub(crate) quota: Option<u64>,
    /// The maximum bytes of superseded versions.
    pub(crate) history: u64,
}

/// Gauges of the space of a store, for metrics. They can be read after the store is dropped.
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
    /// The bytes available for new data, plus one. 0 before the first measurement.
    left: AtomicU64,
    /// The maximum bytes of superseded versions, plus one. 0 before the first measurement.
    history_limit: AtomicU64,
    /// The reason for refusing new data, if the store does.
    refusal: Mutex<Option<String>>,
}

/// The values of [`SpaceGauges`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// The bytes of the pages in use.
    pub used: u64,
    /// The bytes of the database file, including free pages.
    pub file: u64,
    /// The maximum bytes of pages in use. 0 for no limit.
    pub quota: u64,
    /// The bytes of old versions that writes of this process have replaced. Writes of earlier processes are not
    /// counted.
    pub history: u64,
    /// The bytes of the reserve on the disk. 0 while it is released.
    pub reserve: u64,
    /// The number of early compactions.
    pub cuts: u64,
    /// The number of transactions that were refused because of missing space.
    pub refused: u64,
    /// True while the store refuses new data.
    pub full: bool,
}

impl SpaceGauges {
    /// The bytes available for new data; `None` before the first measurement.
    pub(crate) fn free(&self) -> Option<u64> {
        self.left.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The maximum bytes of superseded versions; `None` before the first measurement.
    pub(crate) fn history_limit(&self) -> Option<u64> {
        self.history_limit.load(Ordering::Relaxed).checked_sub(1)
    }

    /// The reason for refusing new data. None if the store accepts it.
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

/// The number of pages of the database, and of those that are free.
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

/// The reason for which a store is full.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Shortage {
    /// The pages in use have reached the quota.
    Quota { used: u64, quota: u64 },
    /// The disk is full, and the file has no free pages.
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

/// Displays bytes in a readable unit.
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

/// The writer's state about space.
pub(crate) struct Space {
    allowance: Allowance,
    /// The reserve. None in memory.
    reserve: Option<Reserve>,
    history: SupersededBytes,
    unmeasured: u64,
    /// True if so little space is left that each group is followed by a measurement.
    is_near: bool,
    pages: Pages,
    shortage: Option<Shortage>,
    /// The budget of puts during a shortage.
    budget: Budget,
    gauges: Arc<SpaceGauges>,
    crowded: Arc<watch::Sender<Revision>>,
}

impl Space {
    pub(crate) fn new(allowance: Allowance, reserve: Option<Reserve>) -> Self {
        let gauges = SpaceGauges::default();
        gauges.quota.store(allowance.quota.unwrap_or_default(), Ordering::Relaxed);
        let budget = Budget::new(allowance.quota, reserve.as_ref().map(Reserve::bytes));
        Self {
            allowance,
            reserve,
            history: SupersededBytes::within(allowance.history),
            unmeasured: 0,
            is_near: false,
            pages: Pages::default(),
            shortage: None,
            budget,
            gauges: Arc::new(gauges),
            crowded: Arc::new(watch::Sender::new(Revision::ZERO)),
        }
    }

    /// The space of a store in memory, without limits.
    pub(crate) fn unbounded() -> Self {
        Self::new(Allowance { quota: None, history: u64::MAX }, None)
    }

    pub(crate) fn gauges(&self) -> Arc<SpaceGauges> {
        self.gauges.clone()
    }

    /// The channel for the revision of an early compaction.
    pub(crate) fn crowded(&self) -> Arc<watch::Sender<Revision>> {
        self.crowded.clone()
    }

    /// Refuses a transaction that needs space in a full store. `group` are the earlier puts of its group.
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

    /// The size of the reserve when it is allocated, in bytes. 0 for no reserve.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve.as_ref().map_or(0, Reserve::bytes)
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.shortage.is_some()
    }

    /// Counts the bytes that a group has appended at revisions up to `newest`, and measures the space when necessary.
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

    /// Records a compaction to `oldest`.
    pub(crate) fn compacted(&mut self, oldest: Revision) {
        self.history.compacted(oldest);
        self.budget.compacted();
        self.gauges.history.store(self.history.bytes(), Ordering::Relaxed);
        if *self.crowded.borrow() == oldest {
            self.gauges.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Handles a write that failed because the disk is full. Releases the reserve. Returns true if this freed space.
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

    /// Measures the space. Allocates the reserve again if the disk has space for it.
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
        set(&self.gauges.history_limit, self.history.limit.saturating_add(1));
        set(&self.gauges.file, Pages::bytes(self.pages.all));
        set(&self.gauges.history, self.history.bytes());
        set(&self.gauges.reserve, self.reserve.as_ref().filter(|held| held.is_held()).map_or(0, Reserve::bytes));
    }

    /// Returns the free bytes of the disk. Allocates the reserve if the disk has space for it.
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
        // Free pages in the file are space too, if the log has some: in the released reserve, or outside of it.
        let roomy = inside >= 4 * reserve.bytes();
        let needed = match &self.shortage {
            Some(Shortage::Disk { .. }) => reserve.bytes(),
            Some(Shortage::Quota { .. }) | None => reserve.bytes() / 2,
        };
        let is_short = !roomy && (reserve.is_spent() || free < needed);
        is_short.then_some(Shortage::Disk { free })
    }

    /// Returns true if there is so little space that history must be removed before new data is refused.
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

    /// The number of free pages to return to the disk.
    pub(crate) fn to_give_back(&self, pages: Pages) -> u64 {
        let kept = if matches!(self.shortage, Some(Shortage::Disk { .. })) {
            0
        } else {
            (pages.all / KEPT_FREE_PART).max(KEPT_FREE_PAGES)
        };
        pages.free.saturating_sub(kept)
    }
}
