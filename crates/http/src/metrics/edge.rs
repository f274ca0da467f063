//! Metrics of connections, and of the time that requests block shared threads.
//!
//! While a request blocks a thread, the thread serves no other request. Each poll blocks the thread once. No poll
//! should exceed 10 ms, which is the end of a bucket. On a busy machine a thread may be descheduled during a poll, so
//! its CPU time is measured too.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

use keelson_supervision::Supervisor;

use super::marks::RequestMarks;
use super::source::{MetricKind, Sample};

/// Upper ends of the buckets of polls, in microseconds.
const BUCKETS_MICROS: [u64; 9] = [100, 1_000, 5_000, 10_000, 50_000, 100_000, 250_000, 1_000_000, 10_000_000];

/// The CPU time of a shorter poll is not read. It could only be less than the elapsed time.
const ASK_FROM: Duration = Duration::from_millis(5);
/// The maximum age of a CPU clock reading at the start of a poll. A reading takes a microsecond, too long for each
/// poll. The CPU time since the reading counts as that of the poll.
const READING_AGE: Duration = Duration::from_millis(2);

/// The metrics of a listener.
#[derive(Debug, Default)]
pub struct Edge {
    /// The times that polls blocked threads.
    pub(crate) polls: Polls,
    strangers: AtomicI64,
    known: AtomicI64,
    refused: AtomicU64,
    displaced: AtomicU64,
    over_share: AtomicU64,
    large_heads: AtomicU64,
    unread: AtomicU64,
    cut_lists: AtomicU64,
    slow: AtomicU64,
    seats_lent: AtomicU64,
    kept_at_the_door: AtomicU64,
    handshake_errors: AtomicU64,
}

impl Edge {
    /// Lets the supervisor's watchdog name the connections and requests that block threads.
    pub fn watched_by(&self, supervisor: &Supervisor) {
        let _first = self.polls.marks.set(RequestMarks::new(supervisor));
    }

    /// The marks of requests, if a watchdog reads them.
    pub(crate) fn marks(&self) -> Option<&RequestMarks> {
        self.polls.marks.get()
    }

    /// Changes the number of unauthenticated connections.
    pub(crate) fn count_unauthenticated(&self, change: i64) {
        self.strangers.fetch_add(change, Ordering::Relaxed);
    }

    /// Changes the number of connections that count for users.
    pub(crate) fn count_known(&self, change: i64) {
        self.known.fetch_add(change, Ordering::Relaxed);
    }

    /// Counts a connection that was refused because the limit was reached.
    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an evicted connection.
    pub(crate) fn count_displaced(&self) {
        self.displaced.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was refused because its user has used its share and all connections are in use.
    pub(crate) fn count_over_share(&self) {
        self.over_share.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed because it sent a large head before authentication.
    pub(crate) fn count_large_head(&self) {
        self.large_heads.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response that was aborted because its client read nothing.
    pub(crate) fn count_unread(&self) {
        self.unread.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a list that was aborted because its snapshot kept too much memory.
    pub(crate) fn count_cut_list(&self) {
        self.cut_lists.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response that was aborted because its client read too slowly, or its user had too many waiting
    /// responses.
    pub(crate) fn count_slow(&self) {
        self.slow.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a response that lent its seats while it waited for its client.
    pub(crate) fn count_seats_lent(&self) {
        self.seats_lent.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that the accepting thread served because no runtime thread took it in time.
    pub(crate) fn count_inline_served(&self) {
        self.kept_at_the_door.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a TLS handshake that failed or took too long.
    pub(crate) fn count_handshake_error(&self) {
        self.handshake_errors.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn samples(&self) -> Vec<Sample> {
        let count = |name, help, value: &AtomicU64| {
            let value = value.load(Ordering::Relaxed) as f64;
            Sample { name, help, kind: MetricKind::Counter, labels: Vec::new(), value }
        };
        let open = |state: &str, value: &AtomicI64| Sample {
            name: "keelson_connections",
            help: "Open connections, by authentication of their requests",
            kind: MetricKind::Gauge,
            labels: vec![("state", state.to_owned())],
            value: value.load(Ordering::Relaxed) as f64,
        };
        vec![
            open("stranger", &self.strangers),
            open("known", &self.known),
            count(
                "apiserver_tls_handshake_errors_total",
                "TLS handshakes of clients that failed or took too long",
                &self.handshake_errors,
            ),
            count(
                "keelson_connections_refused_total",
                "Connections refused, since there were as many as there may be",
                &self.refused,
            ),
            count(
                "keelson_connections_evicted_total",
                "Connections evicted for newer ones: unauthenticated ones, and those of users with the most connections",
                &self.displaced,
            ),
            count(
                "keelson_connections_over_share_total",
                "Requests refused because their user has its share of connections and none is idle",
                &self.over_share,
            ),
            count(
                "keelson_connections_header_limit_exceeded_total",
                "Connections closed because an unauthenticated client sent too large headers",
                &self.large_heads,
            ),
            count(
                "keelson_connections_inline_served_total",
                "Connections served by the accepting thread, because no runtime thread took them in time",
                &self.kept_at_the_door,
            ),
            count(
                "keelson_responses_aborted_total",
                "Responses aborted because the client did not read them",
                &self.unread,
            ),
            count(
                "keelson_responses_slow_total",
                "Responses aborted because their clients read too slowly, or their users had too many waiting responses",
                &self.slow,
            ),
            count(
                "keelson_seats_lent_total",
                "Answers that gave their seats back while they waited for their clients",
                &self.seats_lent,
            ),
            count(
                "keelson_lists_aborted_total",
                "Lists aborted because their snapshots retained too much memory",
                &self.cut_lists,
            ),
        ]
    }
}

/// The times that polls blocked a thread.
#[derive(Debug, Default)]
pub(crate) struct Polls {
    /// The elapsed times.
    held: Durations,
    /// The CPU times.
    worked: Durations,
    marks: OnceLock<RequestMarks>,
}

impl Polls {
    /// Runs a poll and records its times.
    pub(crate) fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let before = Reading::at_most_so_old(started);
        let done = match self.marks.get() {
            Some(marks) => marks.connection().poll(work),
            None => work(),
        };
        let held = started.elapsed();
        let worked = if held < ASK_FROM { held } else { Reading::take(started + held).worked_since(before).min(held) };
        self.note(held, worked);
        done
    }

    fn note(&self, held: Duration, worked: Duration) {
        self.held.note(held);
        self.worked.note(worked);
    }
}

/// A reading of a thread's CPU clock.
#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Instant,
    worked: Duration,
}

thread_local! {
    static LAST_READING: Cell<Option<Reading>> = const { Cell::new(None) };
}

impl Reading {
    fn take(at: Instant) -> Self {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // A clock that cannot be read counts as zero.
        let reading = Self { at, worked: Duration::try_from(clock).unwrap_or_default() };
        LAST_READING.set(Some(reading));
        reading
    }

    /// The last reading of this thread, or a new one if that is older than [`READING_AGE`].
    fn at_most_so_old(now: Instant) -> Self {
        let last = LAST_READING.get().filter(|last| now.saturating_duration_since(last.at) <= READING_AGE);
        last.unwrap_or_else(|| Self::take(now))
    }

    fn worked_since(self, before: Self) -> Duration {
        self.worked.saturating_sub(before.worked)
    }
}

/// A histogram of durations.
#[derive(Debug)]
struct Durations {
    /// The number of durations in each bucket, and above all of them.
    counts: [AtomicU64; BUCKETS_MICROS.len() + 1],
    nanos: AtomicU64,
}

impl Default for Durations {
    fn default() -> Self {
        Self { counts: std::array::from_fn(|_| AtomicU64::new(0)), nanos: AtomicU64::new(0) }
    }
}

impl Durations {
    fn note(&self, one: Duration) {
        let nanos = u64::try_from(one.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_MICROS.iter().position(|end| nanos <= end * 1_000).unwrap_or(BUCKETS_MICROS.len());
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    fn encode(&self, encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str) -> fmt::Result {
        let counts: Vec<u64> = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let ends = BUCKETS_MICROS.iter().map(|micros| *micros as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = ends.zip(counts.iter().copied()).collect();
        let sum = self.nanos.load(Ordering::Relaxed) as f64 / 1e9;
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        family.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)
    }
}

/// Encodes the poll times of a listener.
#[derive(Debug)]
pub(super) struct PollsCollector(pub(super) Arc<Edge>);

impl Collector for PollsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Polls { held, worked, .. } = &self.0.polls;
        let help = "Time that a request held a thread of the runtime without a break, in seconds.";
        held.encode(&mut encoder, "keelson_request_poll_seconds", help)?;
        let help = "CPU time of a request on a thread of the runtime without a break, in seconds.";
        worked.encode(&mut encoder, "keelson_request_poll_cpu_seconds", help)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Metrics;
    use super::*;

    #[test]
    fn long_polls_are_counted_in_histograms() {
        let metrics = Metrics::new();
        let note = |held, worked| metrics.edge().polls.note(held, worked);
        note(Duration::from_micros(50), Duration::from_micros(50));
        note(Duration::from_millis(20), Duration::from_millis(6));
        note(Duration::from_secs(20), Duration::from_secs(2));
        let text = metrics.classic().unwrap();
        for line in [
            "# TYPE keelson_request_poll_seconds histogram",
            r#"keelson_request_poll_seconds_bucket{le="0.01"} 1"#,
            r#"keelson_request_poll_seconds_bucket{le="0.05"} 2"#,
            r#"keelson_request_poll_seconds_bucket{le="10"} 2"#,
            r#"keelson_request_poll_seconds_bucket{le="+Inf"} 3"#,
            "keelson_request_poll_seconds_count 3",
            r#"keelson_request_poll_cpu_seconds_bucket{le="0.01"} 2"#,
            r#"keelson_request_poll_cpu_seconds_bucket{le="10"} 3"#,
        ] {
            assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn a_thread_works_only_as_long_as_the_system_lets_it() {
        let polls = Polls::default();
        polls.timed(|| std::thread::sleep(Duration::from_millis(60)));
        polls.timed(|| {
            let before = Reading::take(Instant::now());
            while Reading::take(Instant::now()).worked_since(before) < Duration::from_millis(60) {}
        });
        let above = |durations: &Durations| -> u64 {
            let first = BUCKETS_MICROS.iter().position(|end| *end == 50_000).unwrap() + 1;
            durations.counts[first..].iter().map(|count| count.load(Ordering::Relaxed)).sum()
        };
        assert_eq!((above(&polls.held), above(&polls.worked)), (2, 1));
    }
}
