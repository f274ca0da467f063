//! Metrics of admission policies, match conditions and CEL expressions, with upstream's names.
//!
//! The counts of policies are for one server, those of expressions for the whole process.

use std::sync::Arc;

use keelson_admission::expression_times::{COMPILATIONS, EVALUATIONS};
use keelson_admission::{ConditionKey, PolicyKey, PolicyStats};
use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_meta::metering::AtomicHistogram;

/// The counts of policy expressions, and of errors in match conditions.
pub(crate) fn policy_samples(stats: &PolicyStats) -> Vec<Sample> {
    let checks = |name, help, all: Vec<(PolicyKey, Arc<AtomicHistogram>)>| {
        let one = move |(key, times): (PolicyKey, Arc<AtomicHistogram>)| Sample {
            name,
            help,
            kind: MetricKind::Counter,
            labels: policy_labels(key),
            value: times.count() as f64,
        };
        all.into_iter().map(one).collect::<Vec<_>>()
    };
    let help = "Evaluated expressions of validating policies, by policy, binding, error and enforcement action";
    let mut samples = checks("apiserver_validating_admission_policy_check_total", help, stats.validations());
    let help = "Expressions of mutating policies, by policy, binding and error";
    samples.extend(checks("apiserver_mutating_admission_policy_check_total", help, stats.mutations()));
    samples.extend(stats.match_conditions().into_iter().map(|(key, counts)| Sample {
        name: "apiserver_admission_match_condition_evaluation_errors_total",
        help: "Match conditions that could not be evaluated, by policy or webhook and operation",
        kind: MetricKind::Counter,
        labels: condition_labels(key),
        value: counts.errors.get() as f64,
    }));
    samples
}

/// The durations of expressions.
pub(crate) fn policy_times(stats: &PolicyStats) -> Vec<HistogramSample> {
    let mut samples = Vec::new();
    let (name, help) = (
        "apiserver_validating_admission_policy_check_duration_seconds",
        "Duration of expressions of validating policies, in seconds, by policy, binding, error and action",
    );
    samples.extend(
        stats
            .validations()
            .into_iter()
            .filter_map(|(key, times)| Some(HistogramSample::sum(&[&*times], name, help)?.with(policy_labels(key)))),
    );
    let (name, help) = (
        "apiserver_mutating_admission_policy_check_duration_seconds",
        "Duration of expressions of mutating policies, in seconds, by policy, binding and error",
    );
    samples.extend(
        stats
            .mutations()
            .into_iter()
            .filter_map(|(key, times)| Some(HistogramSample::sum(&[&*times], name, help)?.with(policy_labels(key)))),
    );
    let (name, help) = (
        "apiserver_admission_match_condition_evaluation_seconds",
        "Duration of match conditions, in seconds, by policy or webhook and operation",
    );
    samples.extend(stats.match_conditions().into_iter().filter_map(|(key, counts)| {
        Some(HistogramSample::sum(&[&counts.times], name, help)?.with(condition_labels(key)))
    }));
    samples.extend(expression_times());
    samples
}

/// The durations of compiling and evaluating all expressions.
fn expression_times() -> impl Iterator<Item = HistogramSample> {
    let help = "Duration of the compilation of an expression, in seconds";
    let compilations = HistogramSample::sum(&[&*COMPILATIONS], "apiserver_cel_compilation_duration_seconds", help);
    let help = "Duration of the evaluation of an object's rules or of a policy's expression, in seconds";
    let evaluations = HistogramSample::sum(&[&*EVALUATIONS], "apiserver_cel_evaluation_duration_seconds", help);
    compilations.into_iter().chain(evaluations)
}

fn policy_labels(key: PolicyKey) -> Vec<(&'static str, String)> {
    let PolicyKey { policy, binding, error, action } = key;
    let mut labels = vec![("policy", policy), ("policy_binding", binding), ("error_type", error.as_str().to_owned())];
    if !action.is_empty() {
        labels.push(("enforcement_action", action.to_owned()));
    }
    labels
}

fn condition_labels(key: ConditionKey) -> Vec<(&'static str, String)> {
    vec![
        ("name", key.name),
        ("kind", key.kind.to_owned()),
        ("type", key.stage.to_owned()),
        ("operation", key.operation.as_str().to_owned()),
    ]
}
