//! Collects the validation faults of one object, and bounds the work of looking for them.
//!
//! A schema can ask for more than anybody waits for: alternatives that are tried for each of many values, patterns that are slow to
//! match. Upstream goes on for as long as it takes. Here an object has a budget, which no useful schema comes near, and an object that
//! exceeds it is refused. Faults are collected as long as more of them tell something.

use keelson_cel::cost::limits;
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FAULTS_MAX, FieldError};

/// How much work it may be to judge one object by keywords, in nanoseconds, about.
const WORK: u64 = 10_000_000_000;
/// How much work it is to tell of a fault, besides its bytes.
const TELL: u64 = 200;

/// What is left of what judging one object, or all defaults of a definition, may take.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Of expressions, by upstream's count.
    pub(super) cost: u64,
    /// Of expressions besides that, in nanoseconds.
    pub(super) expressions: u64,
    /// Of keywords, in nanoseconds.
    pub(super) keywords: u64,
}

impl Budget {
    /// All of it.
    pub const FULL: Self = Self { cost: limits::OBJECT, expressions: limits::WORK, keywords: WORK };

    /// Whether expressions may cost no more.
    pub fn is_spent(&self) -> bool {
        self.cost == 0
    }
}

/// Faults of a value.
#[derive(Debug)]
pub(super) struct Found {
    faults: Vec<FieldError>,
    bytes: usize,
    /// How much work it may be to go on.
    work: u64,
}

impl Found {
    /// None yet, and so much work.
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

    /// Takes back what was found behind the first so many.
    pub(super) fn truncate(&mut self, length: usize) {
        self.bytes -= self.faults.drain(length..).map(|fault| fault.about_bytes()).sum::<usize>();
    }

    /// Whether no more faults are looked for.
    pub(super) fn is_full(&self) -> bool {
        self.faults.len() >= FAULTS_MAX || self.bytes >= FAULTS_BYTES_MAX || self.is_exhausted()
    }

    /// Whether it was too much work.
    pub(super) fn is_exhausted(&self) -> bool {
        self.work == 0
    }

    /// Does so much work, in nanoseconds.
    pub(super) fn spend(&mut self, work: u64) {
        self.work = self.work.saturating_sub(work);
    }

    /// What is found by another look, beside what was found so far.
    pub(super) fn beside(&mut self, look: impl FnOnce(&mut Self)) -> Vec<FieldError> {
        let mut beside = Self::new(self.work);
        look(&mut beside);
        self.work = beside.work;
        beside.faults
    }

    /// All of it, and how much work is left.
    pub(super) fn into_parts(self) -> (Vec<FieldError>, u64) {
        (self.faults, self.work)
    }
}
