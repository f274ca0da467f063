//! What is measured of connections, and of how long requests hold the threads that all of them share.
//!
//! A thread of the runtime that one request holds can do nothing for others. A poll is one such hold; none should last longer than
//! 10 ms, for which there is a bucket.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use super::source::{MetricKind, Sample};

/// Upper ends of the buckets of polls, in microseconds.
const BUCKETS_MICROS: [u64; 8] = [100, 1_000, 5_000, 10_000, 50_000, 250_000, 1_000_000, 10_000_000];

/// The numbers of a listener.
#[derive(Debug, Default)]
pub struct Edge {
    /// How long threads were held.
    pub(crate) polls: Polls,
    strangers: AtomicI64,
    known: AtomicI64,
    refused: AtomicU64,
    displaced: AtomicU64,
    large_heads: AtomicU64,
    unread: AtomicU64,
    cut_lists: AtomicU64,
    kept_at_the_door: AtomicU64,
}

impl Edge {
    /// A connection came; nobody knows yet whose.
    pub(crate) fn count_stranger(&self, change: i64) {
        self.strangers.fetch_add(change, Ordering::Relaxed);
    }

    /// A connection is of a user who is known.
    pub(crate) fn count_known(&self, change: i64) {
        self.known.fetch_add(change, Ordering::Relaxed);
    }

    /// A connection was refused, for there are as many as there may be.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection of nobody who is known gave way to a newer one.
    pub(crate) fn count_displaced(&self) {
        self.displaced.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was cut, since it sent much before it said who it is.
    pub(crate) fn count_large_head(&self) {
        self.large_heads.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer was given up, since its client took nothing of it.
    pub(crate) fn count_unread(&self) {
        self.unread.fetch_add(1, Ordering::Relaxed);
    }

    /// A list was cut, since its snapshot kept too much.
    pub(crate) fn count_cut_list(&self) {
        self.cut_lists.fetch_add(1, Ordering::Relaxed);
    }

    /// A connection was served where it is accepted, since no thread of the runtime took it in time.
    pub(crate) fn count_kept_at_the_door(&self) {
        self.kept_at_the_door.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        let count = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed) as f64;
            Sample { name, help, kind: MetricKind::Counter, labels: Vec::new(), value }
        };
        let open = |state: &str, value: &AtomicI64| Sample {
            name: "keelson_connections",
            help: "Open connections, by whether a user who is known came over them",
            kind: MetricKind::Gauge,
            labels: vec![("state", state.to_owned())],
            value: value.load(Ordering::Relaxed) as f64,
        };
        vec![
            open("stranger", &self.strangers),
            open("known", &self.known),
            count(
                "keelson_connections_refused_total",
                "Connections refused, since there were as many as there may be",
                &self.refused,
            ),
            count(
                "keelson_connections_displaced_total",
                "Connections without a known user that gave way to newer ones",
                &self.displaced,
            ),
            count(
                "keelson_connections_large_heads_total",
                "Connections cut, since they sent much before they said who they are",
                &self.large_heads,
            ),
            count(
                "keelson_connections_kept_at_the_door_total",
                "Connections served by the thread that accepts them, since no other took them in time",
                &self.kept_at_the_door,
            ),
            count(
                "keelson_answers_unread_total",
                "Answers given up, since their clients took nothing of them",
                &self.unread,
            ),
            count("keelson_lists_cut_total", "Lists cut, since their snapshots kept too much memory", &self.cut_lists),
        ]
    }
}

/// How long requests held a thread, poll by poll.
#[derive(Debug)]
pub(crate) struct Polls {
    /// How many fell into each bucket, and above all of them.
    counts: [AtomicU64; BUCKETS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl Default for Polls {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl Polls {
    /// Does a piece of the work and notes how long it took.
    pub(crate) fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let done = work();
        self.note(started.elapsed());
        done
    }

    fn note(&self, held: Duration) {
        let nanos = u64::try_from(held.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.iter().position(|end| nanos <= end * 1_000).unwrap_or(BUCKETS_MICROS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }
}

/// Shows the polls of a listener.
#[derive(Debug)]
pub(super) struct PollsCollector(pub(super) Arc<Edge>);

impl Collector for PollsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let polls = &self.0.polls;
        let counts: Vec<u64> = polls.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let ends = BUCKETS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(counts.iter().copied()).collect();
        let sum = polls.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        let (name, help) =
            ("keelson_request_poll_seconds", "How long requests held a thread of the runtime at a time.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        family.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn a_thread_that_was_held_too_long_is_seen() {
        let metrics = Metrics::new();
        metrics.edge().polls.note(Duration::from_micros(50));
        metrics.edge().polls.note(Duration::from_millis(20));
        metrics.edge().polls.note(Duration::from_secs(20));
        let text = metrics.classic().unwrap();
        for line in [
            "# TYPE keelson_request_poll_seconds histogram",
            r#"keelson_request_poll_seconds_bucket{le="0.01"} 1"#,
            r#"keelson_request_poll_seconds_bucket{le="0.05"} 2"#,
            r#"keelson_request_poll_seconds_bucket{le="10.0"} 2"#,
            r#"keelson_request_poll_seconds_bucket{le="+Inf"} 3"#,
            "keelson_request_poll_seconds_count 3",
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
    }
}
