//! The cost budget of a query's expressions for all objects together.
//!
//! Each object has its own limit of a few milliseconds (`condition.rs`, `filter.rs`). A query evaluates many objects,
//! so their sum is limited too: a fixed amount, and an allowance for each object that covers ordinary expressions. The
//! budget counts model costs and measures no time, so the machine's load does not affect the result.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::condition::CostExceeded;

/// The budget of a query of few objects, in nanoseconds.
const FIXED: i64 = 1_000_000_000;
/// The addition to the budget for each object, in nanoseconds.
const FOR_EACH: i64 = 5_000;

/// The remaining budget of a query.
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
    /// Resets the budget for another pass over the objects.
    pub fn renew(&self) {
        self.left.store(FIXED, Ordering::Relaxed);
    }

    /// Spends approximately `nanos` nanoseconds on one object.
    ///
    /// # Errors
    /// The budget is exhausted.
    pub(crate) fn spend(&self, nanos: u64) -> Result<(), CostExceeded> {
        // Costs are capped at an exhausting amount, so that many of them never wrap around to a positive budget.
        let cost = i64::try_from(nanos).unwrap_or(i64::MAX).min(2 * FIXED) - FOR_EACH;
        if self.left.fetch_sub(cost, Ordering::Relaxed) < cost { Err(CostExceeded::ForQuery) } else { Ok(()) }
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
        assert_eq!(budget.spend(u64::MAX), Err(CostExceeded::ForQuery));
    }
}
