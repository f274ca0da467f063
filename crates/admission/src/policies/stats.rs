//! Counts and durations of policies and match conditions, for metrics.
//!
//! Labels, outcomes and buckets are kube-apiserver's. A policy is timed as a whole, once for each parameter object. The
//! time is divided equally among its expressions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_meta::metering::{AtomicHistogram, Buckets, Count, Series};
use keelson_registry::Operation;

use crate::conditions::ConditionsResult;

/// Upper bounds of the buckets for expressions, in nanoseconds.
static CHECK_BUCKETS: Buckets = Buckets::of_short_durations(&[500, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000]);
/// Upper bounds of the buckets for match conditions, in microseconds.
static CONDITION_BUCKETS: Buckets = Buckets::of_durations(&[1_000, 5_000, 10_000, 25_000, 100_000, 200_000, 250_000]);

/// The error of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PolicyError {
    /// No error.
    #[default]
    None,
    /// The expression does not compile.
    Compile,
    /// The evaluation failed, or another error kept the policy from running.
    Invalid,
    /// The cost limit was exceeded.
    OutOfBudget,
}

impl PolicyError {
    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "no_error",
            Self::Compile => "compile_error",
            Self::Invalid => "invalid_error",
            Self::OutOfBudget => "out_of_budget",
        }
    }
}

/// The labels of one series for expressions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PolicyKey {
    /// The name of the policy.
    pub policy: String,
    /// The name of its binding.
    pub binding: String,
    /// The error.
    pub error: PolicyError,
    /// The action: `allow`, `deny`, `audit` or `warn`; empty for a mutating policy.
    pub action: &'static str,
}

/// The labels of one series for match conditions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConditionKey {
    /// The name of the policy or webhook.
    pub name: String,
    /// `policy` or `webhook`.
    pub kind: &'static str,
    /// The type of a webhook; `validate` for policies.
    pub stage: &'static str,
    /// The operation of the request.
    pub operation: Operation,
}

/// The counts of the match conditions of one policy or webhook.
#[derive(Debug)]
pub struct ConditionCounts {
    /// The durations of evaluations.
    pub times: AtomicHistogram,
    /// The number of evaluations with errors.
    pub errors: Count,
}

/// The counts of policies, and of the match conditions of policies and webhooks.
#[derive(Debug)]
pub struct PolicyStats {
    validating: Series<PolicyKey, AtomicHistogram>,
    mutating: Series<PolicyKey, AtomicHistogram>,
    conditions: Series<ConditionKey, ConditionCounts>,
}

impl Default for PolicyStats {
    fn default() -> Self {
        let checks = || AtomicHistogram::new(&CHECK_BUCKETS);
        let conditions = || ConditionCounts { times: AtomicHistogram::new(&CONDITION_BUCKETS), errors: Count::new() };
        Self { validating: Series::new(checks), mutating: Series::new(checks), conditions: Series::new(conditions) }
    }
}

impl PolicyStats {
    pub(crate) fn validated(&self, key: &PolicyKey, took: Duration) {
        observe(&self.validating, key, took);
    }

    pub(crate) fn mutated(&self, key: &PolicyKey, took: Duration) {
        observe(&self.mutating, key, took);
    }

    /// Evaluates match conditions, and counts the duration and errors.
    pub(crate) fn timed(&self, key: &ConditionKey, evaluate: impl FnOnce() -> ConditionsResult) -> ConditionsResult {
        let begun = Instant::now();
        let met = evaluate();
        if let Some(counts) = self.conditions.get_or_create(key, || key.clone()) {
            counts.times.observe_duration(begun.elapsed());
            if matches!(met, ConditionsResult::Unknown(_)) {
                counts.errors.increment();
            }
        }
        met
    }

    /// The durations of expressions of validating policies.
    pub fn validations(&self) -> Vec<(PolicyKey, Arc<AtomicHistogram>)> {
        self.validating.all()
    }

    /// The durations of expressions of mutating policies.
    pub fn mutations(&self) -> Vec<(PolicyKey, Arc<AtomicHistogram>)> {
        self.mutating.all()
    }

    /// The counts of match conditions.
    pub fn match_conditions(&self) -> Vec<(ConditionKey, Arc<ConditionCounts>)> {
        self.conditions.all()
    }
}

fn observe(series: &Series<PolicyKey, AtomicHistogram>, key: &PolicyKey, took: Duration) {
    if let Some(times) = series.get_or_create(key, || key.clone()) {
        times.observe_duration(took);
    }
}
