//! Counts and durations of webhooks, for metrics.
//!
//! Users choose the names of webhooks, so the number of series is limited.

use std::collections::BTreeMap;
use std::time::Duration;

use keelson_registry::Operation;
use parking_lot::Mutex;

use super::WebhookKind;
use super::hook::Hook;

/// Upper bounds of the buckets in seconds, as in kube-apiserver.
const BUCKETS: [f64; 8] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 25.0];
/// The largest number of series of each metric.
const SERIES: usize = 5_000;

/// The labels of one series of durations.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WebhookKey {
    /// The name of the webhook.
    pub name: String,
    /// The kind.
    pub kind: WebhookKind,
    /// The operation of the request.
    pub operation: Operation,
    /// True if the request was refused.
    pub rejected: bool,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default)]
pub struct WebhookTimes {
    /// The number of durations in each bucket.
    pub counts: [u64; BUCKETS.len()],
    /// The number of durations.
    pub count: u64,
    /// The sum of durations, in seconds.
    pub sum: f64,
}

impl WebhookTimes {
    /// The upper bound of each bucket with the number of calls in it.
    pub fn buckets(&self) -> Vec<(f64, u64)> {
        BUCKETS.into_iter().zip(self.counts).collect()
    }
}

/// The labels of one series of refusals.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rejection {
    /// The name of the webhook.
    pub name: String,
    /// The kind.
    pub kind: WebhookKind,
    /// The operation of the request.
    pub operation: Operation,
    /// The type of the failure, as in upstream's metric.
    pub error: &'static str,
    /// The status code of the refusal; 0 without one.
    pub code: u16,
}

/// The counts.
#[derive(Debug, Default)]
pub struct WebhookStats {
    times: Mutex<BTreeMap<WebhookKey, WebhookTimes>>,
    requests: Mutex<BTreeMap<(WebhookKey, u16), u64>>,
    rejections: Mutex<BTreeMap<Rejection, u64>>,
    failed_open: Mutex<BTreeMap<(String, WebhookKind), u64>>,
    excluded: Mutex<BTreeMap<(String, WebhookKind, Operation), u64>>,
}

fn count<K: Ord>(counts: &Mutex<BTreeMap<K, u64>>, key: K) {
    let mut counts = counts.lock();
    if counts.len() < SERIES || counts.contains_key(&key) {
        *counts.entry(key).or_default() += 1;
    }
}

impl WebhookStats {
    pub(super) fn called(&self, key: WebhookKey, code: u16, took: Duration) {
        count(&self.requests, (key.clone(), code));
        let mut times = self.times.lock();
        if times.len() >= SERIES && !times.contains_key(&key) {
            return;
        }
        let (times, took) = (times.entry(key).or_default(), took.as_secs_f64());
        if let Some(bucket) = BUCKETS.iter().position(|end| took <= *end) {
            times.counts[bucket] += 1;
        }
        times.count += 1;
        times.sum += took;
    }

    pub(super) fn rejected(
        &self,
        hook: &Hook,
        kind: WebhookKind,
        operation: Operation,
        error: &'static str,
        code: u16,
    ) {
        count(&self.rejections, Rejection { name: hook.name.clone(), kind, operation, error, code });
    }

    pub(super) fn failed_open(&self, name: &str, kind: WebhookKind) {
        count(&self.failed_open, (name.to_owned(), kind));
    }

    pub(super) fn excluded(&self, name: &str, kind: WebhookKind, operation: Operation) {
        count(&self.excluded, (name.to_owned(), kind, operation));
    }

    /// The durations of calls.
    pub fn times(&self) -> Vec<(WebhookKey, WebhookTimes)> {
        self.times.lock().iter().map(|(key, times)| (key.clone(), times.clone())).collect()
    }

    /// The numbers of calls by response code; 0 without a response.
    pub fn requests(&self) -> Vec<((WebhookKey, u16), u64)> {
        self.requests.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    /// The numbers of refused requests.
    pub fn rejections(&self) -> Vec<(Rejection, u64)> {
        self.rejections.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    /// The numbers of requests that passed because a webhook failed open.
    pub fn failures_open(&self) -> Vec<((String, WebhookKind), u64)> {
        self.failed_open.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }

    /// The numbers of calls that match conditions avoided.
    pub fn exclusions(&self) -> Vec<((String, WebhookKind, Operation), u64)> {
        self.excluded.lock().iter().map(|(key, count)| (key.clone(), *count)).collect()
    }
}
