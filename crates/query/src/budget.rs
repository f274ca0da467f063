//! The budget of a query: the cost of its expressions for all objects together.
//!
//! Each object has a limit of its own (`condition.rs`, `filter.rs`), which is some milliseconds. A query looks at many objects, so that the
//! sum has a limit too: a fixed amount, and for each object as much as ordinary expressions take. Costs are counted, not measured by a
//! clock, so that the load of the machine does not decide about a query.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::condition::TooCostly;

/// The budget of a query of few objects, in nanoseconds.
const FIXED: i64 = 1_000_000_000;
/// The addition for each object, in nanoseconds.
const FOR_EACH: i64 = 5_000;

/// The rest of the budget of a query.
#[derive(Debug)]
pub struct Budget {
    left: AtomicI64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: AtomicI64::new(FIXED) }
    }
}

impl Budget {
    /// Begins anew, for another look at the objects.
    pub fn renew(&self) {
        self.left.store(FIXED, Ordering::Relaxed);
    }

    /// Spends about so many nanoseconds on one object.
    ///
    /// # Errors
    /// When no more is left.
    pub(crate) fn spend(&self, nanos: u64) -> Result<(), TooCostly> {
        // No more than what ends it, so that many of them never come round to a positive number.
        let cost = i64::try_from(nanos).unwrap_or(i64::MAX).min(2 * FIXED) - FOR_EACH;
        if self.left.fetch_sub(cost, Ordering::Relaxed) < cost { Err(TooCostly::ForQuery) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_objects_may_cost_little_each_and_few_may_cost_much() {
        let budget = Budget::default();
        assert!((0..1_000_000).all(|_| budget.spend(4_000).is_ok()));
        budget.renew();
        let affordable = (0..3_000).take_while(|_| budget.spend(2_000_000).is_ok()).count();
        assert_eq!(affordable, 501);
        assert_eq!(budget.spend(u64::MAX), Err(TooCostly::ForQuery));
    }
}
