//! The budget of puts in a full store: steps of deletions, and upkeep.
//!
//! The allowed puts use the reserve, and so do deletions. The growth of the live data counts from the start of a
//! shortage. The written bytes count from one compaction to the next, since replaced versions use space until then.
//! Deletions get the rest of the reserve, and puts may add as much live data as deletions remove.
//!
//! Upkeep may add the budget, and steps of deletions the same amount again, so that neither prevents deletions. The put
//! that begins a deletion is always accepted.

use keelson_storage::{Relief, StoreError, Write};

/// The fraction of the reserve that puts may add to the live data: a quarter.
const RESERVE_PART: u64 = 4;
/// The fraction of the quota that puts may add: half of the free space at which the store is no longer full.
const QUOTA_PART: u64 = 32;
/// The minimum budget, in bytes.
const SMALLEST: u64 = 1024 * 1024;
/// The maximum size of a small transaction, in bytes. A large transaction must not prevent the renewal of leases.
const SMALL_BYTES: u64 = 8 * 1024;
/// The approximate size of a row in addition to its value, in bytes.
const ROW_BYTES: u64 = 512;

/// The bytes of some puts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Puts {
    written: u64,
    /// The bytes of the live versions that the puts replace, and of those that the same transaction deletes.
    replaced: u64,
}

impl Puts {
    pub(crate) const fn none() -> Self {
        Self { written: 0, replaced: 0 }
    }

    /// Counts the puts among these writes.
    pub(crate) fn among(writes: &[Write]) -> Self {
        let of = |write: &Write| match write {
            Write::Put { value, .. } => value.len() as u64 + ROW_BYTES,
            Write::Delete { .. } => 0,
        };
        Self { written: writes.iter().map(of).sum(), replaced: 0 }
    }

    /// Counts a live version of this size that is replaced or deleted.
    pub(crate) const fn replace(&mut self, bytes: u64) {
        self.replaced += bytes + ROW_BYTES;
    }

    pub(crate) const fn and(self, other: Self) -> Self {
        Self { written: self.written + other.written, replaced: self.replaced + other.replaced }
    }
}

/// The reason for which a put has to wait or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exceeded {
    /// Since the shortage began, the live data has grown by the whole budget.
    Growth,
    /// So many bytes were written that a compaction is necessary first.
    Writes,
}

impl Exceeded {
    /// The error of a full store for this reason.
    pub(crate) fn error(self, shortage: &dyn std::fmt::Display) -> StoreError {
        match self {
            Self::Growth => {
                StoreError::Full(format!("{shortage}; the space for maintenance of a full store is used up"))
            }
            Self::Writes => StoreError::Unavailable(format!("{shortage}; replaced versions are being deleted")),
        }
    }
}

/// The budget of a store.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes: u64,
    /// The growth of the live data since the shortage began, in bytes.
    grown: u64,
    /// The bytes written since the last compaction.
    written: u64,
}

impl Budget {
    /// The budget of a store with this quota and reserve, in bytes.
    pub(crate) fn new(quota: Option<u64>, reserve: Option<u64>) -> Self {
        let reserve = reserve.filter(|bytes| *bytes > 0).map(|bytes| bytes / RESERVE_PART);
        let parts = [quota.map(|bytes| bytes / QUOTA_PART), reserve];
        let bytes = parts.into_iter().flatten().min().unwrap_or_default().max(SMALLEST);
        Self { bytes, grown: 0, written: 0 }
    }

    /// Starts a new count when a shortage begins.
    pub(crate) const fn begin(&mut self) {
        (self.grown, self.written) = (0, 0);
    }

    /// Resets the written bytes after a compaction.
    pub(crate) const fn compacted(&mut self) {
        self.written = 0;
    }

    /// Counts durable puts.
    pub(crate) const fn spend(&mut self, puts: Puts) {
        self.written += puts.written;
        self.grown = (self.grown + puts.written).saturating_sub(puts.replaced);
    }

    /// Checks the puts of a transaction. `group` are the earlier puts of its group.
    pub(crate) const fn check(&self, group: Puts, puts: Puts, relief: Relief) -> Result<(), Exceeded> {
        let all = group.and(puts);
        let grown = (self.grown + all.written).saturating_sub(all.replaced);
        let most_grown = match relief {
            Relief::None | Relief::Upkeep => self.bytes,
            Relief::Step => 2 * self.bytes,
            Relief::Mark => u64::MAX,
        };
        let most = if puts.written <= SMALL_BYTES { 2 * self.bytes } else { self.bytes };
        if puts.written > puts.replaced && grown > most_grown {
            Err(Exceeded::Growth)
        } else if puts.written > 0 && self.written + group.written >= most {
            Err(Exceeded::Writes)
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Puts = Puts::none();

    #[test]
    fn a_budget_is_a_part_of_the_least_bound() {
        for (quota, reserve, bytes) in [
            (None, None, SMALLEST),
            (None, Some(0), SMALLEST),
            (None, Some(64 << 20), 16 << 20),
            (Some(8 << 30), Some(0), 256 << 20),
            (Some(8 << 30), Some(64 << 20), 16 << 20),
            (Some(1), Some(64 << 20), SMALLEST),
        ] {
            assert_eq!(Budget::new(quota, reserve).bytes, bytes, "{quota:?} {reserve:?}");
        }
    }

    #[test]
    fn growth_counts_per_shortage_and_writes_per_compaction() {
        let mut budget = Budget::new(None, None);
        let half = Puts { written: SMALLEST / 2, replaced: 0 };
        assert_eq!(
            budget.check(half.and(half), half, Relief::Upkeep),
            Err(Exceeded::Growth),
            "a group counts as a whole"
        );
        budget.spend(half);
        assert_eq!(budget.check(NONE, half, Relief::Upkeep), Ok(()));
        budget.spend(half);
        let (renewal, smaller) = (Puts { written: 9, replaced: 9 }, Puts { written: 600, replaced: 700 });
        let large = Puts { written: SMALLEST, replaced: SMALLEST };
        assert_eq!(budget.check(NONE, NONE, Relief::Upkeep), Ok(()), "deletions pass");
        assert_eq!(budget.check(NONE, large, Relief::Upkeep), Err(Exceeded::Writes));
        assert_eq!(budget.check(NONE, renewal, Relief::Upkeep), Ok(()), "a large one does not keep it back");
        budget.spend(large);
        assert_eq!(budget.check(NONE, renewal, Relief::Upkeep), Err(Exceeded::Writes));
        budget.compacted();
        assert_eq!(budget.check(NONE, renewal, Relief::Upkeep), Ok(()));
        assert_eq!(budget.check(NONE, Puts { written: 10, replaced: 9 }, Relief::Upkeep), Err(Exceeded::Growth));
        budget.spend(smaller);
        assert_eq!(
            budget.check(NONE, Puts { written: 10, replaced: 9 }, Relief::Upkeep),
            Ok(()),
            "what was made smaller counts"
        );
        budget.begin();
        assert_eq!(budget.check(half, half, Relief::Upkeep), Ok(()));
    }

    #[test]
    fn deletions_continue_when_upkeep_has_used_its_budget() {
        let mut budget = Budget::new(None, None);
        let (grown, step) = (Puts { written: SMALLEST, replaced: 0 }, Puts { written: 20, replaced: 9 });
        budget.spend(grown);
        budget.compacted();
        for (relief, expected) in
            [(Relief::Upkeep, Err(Exceeded::Growth)), (Relief::Step, Ok(())), (Relief::Mark, Ok(()))]
        {
            assert_eq!(budget.check(NONE, step, relief), expected, "{relief:?}");
        }
        budget.spend(grown);
        budget.compacted();
        assert_eq!(budget.check(NONE, step, Relief::Step), Err(Exceeded::Growth));
        assert_eq!(budget.check(NONE, step, Relief::Mark), Ok(()));
        // Puts may add as many bytes as deletions have removed.
        let mut deleted = NONE;
        deleted.replace(5000);
        budget.spend(deleted);
        assert_eq!(budget.check(NONE, step, Relief::Step), Ok(()));
        assert_eq!(budget.check(NONE, step, Relief::Upkeep), Err(Exceeded::Growth));
    }
}
