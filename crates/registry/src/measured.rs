//! Counts of the whole process for metrics: uses of service account tokens, and comparisons of objects that may differ
//! only in times.
//!
//! Metric families and labels are kube-apiserver's. Their names are in the code that writes metrics out.

use std::sync::LazyLock;
use std::time::Duration;

use keelson_meta::metering::{AtomicHistogram, Buckets, Count};

/// Upper ends of the buckets, in microseconds.
static COMPARISON_BUCKETS: Buckets =
    Buckets::of_durations(&[100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 5_000_000]);

/// The uses of service account tokens that were accepted.
pub static TOKEN_USES: TokenUses =
    TokenUses { automatic: Count::new(), manual: Count::new(), stale: Count::new(), valid: Count::new() };

/// The times of comparisons.
pub static COMPARISONS: LazyLock<ComparisonTimes> =
    LazyLock::new(|| ComparisonTimes(Comparison::ALL.map(|_| AtomicHistogram::new(&COMPARISON_BUCKETS))));

/// Counts of uses of service account tokens.
#[derive(Debug)]
pub struct TokenUses {
    /// Tokens that are kept in a secret, which a controller has made.
    pub automatic: Count,
    /// Tokens that are kept in a secret, which a user has made.
    pub manual: Count,
    /// Tokens of a program that should have read a newer one by now.
    pub stale: Count,
    /// Other tokens.
    pub valid: Count,
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// The objects differ.
    Different,
    /// The objects are equal, and their owners differ by more than times.
    DifferentOwners,
    /// Only times differ.
    Equal,
}

impl Comparison {
    const ALL: [Self; 3] = [Self::Different, Self::DifferentOwners, Self::Equal];

    /// The label of the outcome.
    fn name(self) -> &'static str {
        match self {
            Self::Different => "unequal_objects_fast",
            Self::DifferentOwners => "unequal_objects_slow",
            Self::Equal => "equal_objects",
        }
    }
}

/// The times of comparisons by their outcome.
#[derive(Debug)]
pub struct ComparisonTimes([AtomicHistogram; 3]);

impl ComparisonTimes {
    pub(crate) fn note(&self, outcome: Comparison, took: Duration) {
        self.0[outcome as usize].observe_duration(took);
    }

    /// The histograms with their labels.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &AtomicHistogram)> {
        Comparison::ALL.into_iter().map(Comparison::name).zip(&self.0)
    }
}
