//! Collects the validation faults of one object, and limits the work of finding them.
//!
//! A schema can require unbounded work, such as many alternatives for each of many values, or slow patterns. Upstream
//! has no limit for this. Here each object has a budget far above what useful schemas need, and an object that exceeds
//! it is refused. Collecting ends at `FAULTS_MAX` faults or `FAULTS_BYTES_MAX` bytes.

use keelson_cel::cost::limits;
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FAULTS_MAX, FieldError};

/// The approximate budget for validating one object by keywords, in nanoseconds.
const WORK: u64 = 10_000_000_000;
/// The work units for reporting a fault, in addition to its bytes.
const TELL: u64 = 200;

/// The remaining budget for validating one object, or for all defaults of a definition.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// For CEL rules, in upstream's cost units.
    pub(super) cost: u64,
    /// For CEL rules, in nanoseconds.
    pub(super) expressions: u64,
    /// For keywords, in nanoseconds.
    pub(super) keywords: u64,
}

impl Budget {
    /// The whole budget.
    pub const FULL: Self = Self { cost: limits::OBJECT, expressions: limits::WORK, keywords: WORK };

    /// Returns true if a budget of CEL rules is used up.
    pub fn is_spent(&self) -> bool {
        self.cost == 0
    }
}

/// Faults of a value.
#[derive(Debug)]
pub(super) struct FaultList {
    faults: Vec<FieldError>,
    bytes: usize,
    /// The remaining work.
    work: u64,
}

impl FaultList {
    /// Creates an empty collection with this budget.
    pub(super) fn new(work: u64) -> Self {
        Self { faults: Vec::new(), bytes: 0, work }
    }

    pub(super) fn push(&mut self, fault: FieldError) {
        let bytes = fault.about_bytes();
        self.bytes += bytes;
        self.spend(TELL + bytes as u64);
        self.faults.push(fault);
    }

    pub(super) fn extend(&mut self, faults: impl IntoIterator<Item = FieldError>) {
        faults.into_iter().for_each(|fault| self.push(fault));
    }

    pub(super) fn len(&self) -> usize {
        self.faults.len()
    }

    /// Drops all faults but the first `length`.
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes -= self.faults.drain(length..).map(|fault| fault.about_bytes()).sum::<usize>();
    }

    /// Returns true if no more faults are collected.
    pub(super) fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX || self.bytes >= FAULTS_BYTES_MAX || self.is_exhausted()
    }

    /// Returns true if the budget is exceeded.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work == 0
    }

    /// Charges work, in nanoseconds.
    pub(super) fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    /// Runs a check with the same budget, and returns its faults separately.
    pub(super) fn beside(&mut self, look: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut beside = Self::new(self.work);
        look(&mut beside);
        self.work = beside.work;
        beside.faults
    }

    /// The faults and the remaining work.
    pub(super) fn into_parts(self) -> (Vec<FieldError>, u64) {
        (self.faults, self.work)
    }
}
