//! More metrics of requests: durations without waiting times, sizes of responses and events, aborted requests, and
//! requests for deprecated versions.
//!
//! Names, labels and buckets are those of kube-apiserver, so that its dashboards and alerts work.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use http::header::{CONTENT_LENGTH, HeaderMap};
use keelson_meta::metering::{AtomicHistogram, Buckets};
use parking_lot::Mutex;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use tokio::time::Instant;

use super::atomic_histogram;
use super::requests::{CodeLabel, RequestLabels};

/// From 50 ms to a minute.
static INDICATOR_BUCKETS: Buckets = Buckets::of_durations(&[
    50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000, 3_000_000,
    4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 15_000_000, 20_000_000, 30_000_000, 45_000_000, 60_000_000,
]);
/// From 1 KB to 1 GB.
static SIZE_BUCKETS: Buckets =
    Buckets::of_sizes(&[1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000]);
/// From 1 KiB to 128 KiB.
static EVENT_BUCKETS: Buckets = Buckets::of_sizes(&[1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072]);

/// From 50 ms to five minutes.
static WATCH_LIST_BUCKETS: Buckets = Buckets::of_durations(&[
    50_000,
    100_000,
    200_000,
    400_000,
    600_000,
    800_000,
    1_000_000,
    1_250_000,
    1_500_000,
    2_000_000,
    3_000_000,
    4_000_000,
    5_000_000,
    6_000_000,
    8_000_000,
    10_000_000,
    15_000_000,
    20_000_000,
    30_000_000,
    45_000_000,
    60_000_000,
    90_000_000,
    120_000_000,
    180_000_000,
    300_000_000,
]);
/// The upper ends of [`BODY_BUCKETS`]: from 50 KB to 3 MB, in steps of 100 KB.
static BODY_ENDS: [u64; 31] = {
    let mut ends = [0; 31];
    let mut place = 0;
    while place < ends.len() {
        ends[place] = 50_000 + 100_000 * place as u64;
        place += 1;
    }
    ends
};
static BODY_BUCKETS: Buckets = Buckets::of_sizes(&BODY_ENDS);

/// The verb label for the body size of a request. `None` for verbs without a body.
fn body_verb(verb: &str) -> Option<&'static str> {
    match verb {
        "POST" => Some("create"),
        "PUT" => Some("update"),
        "PATCH" => Some("patch"),
        "DELETE" => Some("delete"),
        "DELETECOLLECTION" => Some("delete_collection"),
        _ => None,
    }
}

/// Returns the deprecation warning of a version of a resource (group, version, plural).
pub(super) type Deprecations = Box<dyn Fn(&str, &str, &str) -> Option<String> + Send + Sync>;

/// The counts of requests with the same labels.
#[derive(Debug)]
pub(super) struct Further {
    /// Durations without waiting for seats and webhooks. Watches have none.
    indicator: Option<AtomicHistogram>,
    /// The sizes of responses to reads of objects and lists, in bytes.
    sizes: Option<AtomicHistogram>,
    /// The sizes of watch events in bytes.
    events: Option<Arc<AtomicHistogram>>,
    /// The times until watches have sent their initial events.
    initial: Option<Arc<AtomicHistogram>>,
    /// The sizes of request bodies of writes, in bytes.
    bodies: Option<AtomicHistogram>,
    /// Requests that the server ended to protect itself, by status code. One series has few codes.
    terminated: Mutex<Vec<(StatusCode, u64)>>,
    /// Responses that the server aborted.
    aborted: AtomicU64,
}

/// Counts the events of a watch.
#[derive(Clone, Debug)]
pub(crate) struct WatchMeter {
    events: Arc<AtomicHistogram>,
    /// The times until watches have sent their initial events, and the start of this one.
    initial: Option<(Arc<AtomicHistogram>, Instant)>,
}

impl WatchMeter {
    /// Counts an event of this many bytes.
    pub(crate) fn sent(&self, bytes: usize) {
        self.events.observe(bytes as u64);
    }

    /// Records that the watch has sent its initial events.
    pub(crate) fn initial_events_end(&self) {
        if let Some((times, begun)) = &self.initial {
            times.observe_duration(begun.elapsed());
        }
    }
}

impl Further {
    pub(super) fn new(labels: &RequestLabels<'_>, long_running: bool) -> Self {
        let (has_size, is_watch) = (matches!(labels.verb, "GET" | "LIST"), labels.verb == "WATCH");
        Self {
            indicator: (!long_running).then(|| AtomicHistogram::new(&INDICATOR_BUCKETS)),
            sizes: has_size.then(|| AtomicHistogram::new(&SIZE_BUCKETS)),
            events: is_watch.then(|| Arc::new(AtomicHistogram::new(&EVENT_BUCKETS))),
            initial: is_watch.then(|| Arc::new(AtomicHistogram::new(&WATCH_LIST_BUCKETS))),
            bodies: body_verb(labels.verb)
                .filter(|_| !labels.resource.is_empty())
                .map(|_| AtomicHistogram::new(&BODY_BUCKETS)),
            terminated: Mutex::default(),
            aborted: AtomicU64::default(),
        }
    }

    /// The event meter of a watch.
    pub(super) fn watch_meter(&self, begun: Instant) -> Option<WatchMeter> {
        let initial = self.initial.clone().map(|times| (times, begun));
        self.events.clone().map(|events| WatchMeter { events, initial })
    }

    /// Records the size of a request body, by its `Content-Length`.
    pub(super) fn received(&self, headers: &HeaderMap) {
        let Some(bodies) = &self.bodies else { return };
        let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        if let Some(length) = length {
            bodies.observe(length);
        }
    }

    /// Records the size of a response, and its duration without waiting times.
    pub(super) fn answered(&self, took: Duration, bytes: u64) {
        if let Some(indicator) = &self.indicator {
            indicator.observe_duration(took);
        }
        if let Some(sizes) = &self.sizes {
            sizes.observe(bytes);
        }
    }

    /// Counts a request that the server ended to protect itself.
    pub(super) fn terminated(&self, code: StatusCode) {
        let mut terminated = self.terminated.lock();
        match terminated.iter_mut().find(|(known, _)| *known == code) {
            Some((_, count)) => *count += 1,
            None => terminated.push((code, 1)),
        }
    }

    /// Counts a response that the server aborted.
    pub(super) fn aborted(&self) {
        self.aborted.fetch_add(1, Ordering::Relaxed);
    }
}

/// Encodes the families of all series, sorted by labels.
pub(super) fn encode<'s>(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[(RequestLabels<'s>, &'s Further)],
    deprecations: Option<&Deprecations>,
) -> fmt::Result {
    encode_events(encoder, all)?;
    encode_bodies(encoder, all)?;
    // The families of this file have no label for dry runs, so the series of dry runs are merged with those of other
    // requests.
    let alike: Vec<MergedSeries<'_, 's>> =
        all.chunk_by(|(one, _), (other, _)| one.of_watches() == other.of_watches()).collect();
    encode_histograms(encoder, &alike)?;
    let help = "Requests that the server ended to protect itself.";
    let mut family = encoder.encode_descriptor("apiserver_request_terminations", help, None, MetricType::Counter)?;
    for series in &alike {
        let mut counts: BTreeMap<u16, u64> = BTreeMap::new();
        for (_, further) in *series {
            let terminated = further.terminated.lock();
            terminated.iter().for_each(|(code, count)| *counts.entry(code.as_u16()).or_default() += count);
        }
        for (code, count) in counts {
            let labels = (labels_of(series), CodeLabel { code });
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    let help = "Answers that the server broke off.";
    let mut family = encoder.encode_descriptor("apiserver_request_aborts", help, None, MetricType::Counter)?;
    for series in &alike {
        let aborted: u64 = series.iter().map(|(_, further)| further.aborted.load(Ordering::Relaxed)).sum();
        if aborted > 0 {
            family.encode_family(&labels_of(series))?.encode_counter::<NoLabelSet, _, u64>(&aborted, None)?;
        }
    }
    let Some(deprecations) = deprecations else { return Ok(()) };
    encode_deprecated(encoder, all, deprecations)
}

/// Series that differ only in the label for dry runs, at least one.
type MergedSeries<'a, 's> = &'a [(RequestLabels<'s>, &'s Further)];

/// The labels of the merged series.
fn labels_of<'s>(series: MergedSeries<'_, 's>) -> Vec<(&'static str, &'s str)> {
    series.first().map(|(labels, _)| labels.of_watches().to_vec()).unwrap_or_default()
}

fn encode_histograms(encoder: &mut DescriptorEncoder<'_>, alike: &[MergedSeries<'_, '_>]) -> fmt::Result {
    let name = "apiserver_request_sli_duration_seconds";
    let help = "Time from the head of a request to the end of its answer, without waiting for seats and webhooks.";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for series in alike {
        let times: Vec<_> = series.iter().filter_map(|(_, further)| further.indicator.as_ref()).collect();
        if !times.is_empty() {
            atomic_histogram::encode(&times, &mut family.encode_family(&labels_of(series))?)?;
        }
    }
    let help = "Bytes of answers to reads of objects and lists.";
    let mut family = encoder.encode_descriptor("apiserver_response_sizes", help, None, MetricType::Histogram)?;
    for series in alike {
        let sizes: Vec<_> = series.iter().filter_map(|(_, further)| further.sizes.as_ref()).collect();
        if !sizes.is_empty() {
            atomic_histogram::encode(&sizes, &mut family.encode_family(&labels_of(series))?)?;
        }
    }
    let help = "Time from the head of a watch to the end of the objects that it began with.";
    let name = "apiserver_watch_list_duration_seconds";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for series in alike {
        let times: Vec<_> = series.iter().filter_map(|(_, further)| further.initial.as_deref()).collect();
        let [(RequestLabels { group, version, resource, scope, .. }, _), ..] = series else { continue };
        if times.iter().any(|times| times.count() > 0) {
            let labels = [("group", *group), ("version", *version), ("resource", *resource), ("scope", *scope)];
            atomic_histogram::encode(&times, &mut family.encode_family(&labels)?)?;
        }
    }
    Ok(())
}

/// The bodies of all versions, subresources and scopes of a resource are one series for each verb.
fn encode_bodies(encoder: &mut DescriptorEncoder<'_>, all: &[(RequestLabels<'_>, &Further)]) -> fmt::Result {
    let mut bodies: BTreeMap<_, Vec<&AtomicHistogram>> = BTreeMap::new();
    for (RequestLabels { verb, group, resource, .. }, further) in all {
        if let (Some(verb), Some(sizes)) = (body_verb(verb), &further.bodies) {
            bodies.entry((*group, *resource, verb)).or_default().push(sizes);
        }
    }
    let help = "Bytes of the bodies of writes, as their heads state them.";
    let name = "apiserver_request_body_size_bytes";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
    for ((group, resource, verb), sizes) in bodies {
        let labels = [("group", group), ("resource", resource), ("verb", verb)];
        atomic_histogram::encode(&sizes, &mut family.encode_family(&labels)?)?;
    }
    Ok(())
}

/// The watches of all scopes of a resource are one series.
fn encode_events(encoder: &mut DescriptorEncoder<'_>, all: &[(RequestLabels<'_>, &Further)]) -> fmt::Result {
    let resource =
        |labels: &RequestLabels<'_>| (labels.group.to_owned(), labels.version.to_owned(), labels.resource.to_owned());
    let watches: Vec<_> =
        all.iter().filter_map(|(labels, further)| Some((resource(labels), further.events.as_ref()?))).collect();
    let help = "Bytes of the events that were sent to watches.";
    let mut family = encoder.encode_descriptor("apiserver_watch_events_sizes", help, None, MetricType::Histogram)?;
    for alike in watches.chunk_by(|(one, _), (other, _)| one == other) {
        let [((group, version, resource), _), ..] = alike else { continue };
        let labels = [("group", &**group), ("version", version), ("resource", resource)];
        let events: Vec<&AtomicHistogram> = alike.iter().map(|(_, events)| &***events).collect();
        atomic_histogram::encode(&events, &mut family.encode_family(&labels)?)?;
    }
    let help = "Events that were sent to watches.";
    let mut family = encoder.encode_descriptor("apiserver_watch_events", help, None, MetricType::Counter)?;
    for alike in watches.chunk_by(|(one, _), (other, _)| one == other) {
        let [((group, version, resource), _), ..] = alike else { continue };
        let labels = [("group", &**group), ("version", version), ("resource", resource)];
        let count: u64 = alike.iter().map(|(_, events)| events.count()).sum();
        family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
    }
    Ok(())
}

fn encode_deprecated(
    encoder: &mut DescriptorEncoder<'_>,
    all: &[(RequestLabels<'_>, &Further)],
    deprecations: &Deprecations,
) -> fmt::Result {
    let mut found: Vec<_> = all
        .iter()
        .filter(|(labels, _)| !labels.resource.is_empty())
        .filter_map(|(RequestLabels { group, version, resource, subresource, .. }, _)| {
            let warning = deprecations(group, version, resource)?;
            let removed = removed_release(&warning).unwrap_or_default().to_owned();
            Some((*group, *version, *resource, *subresource, removed))
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    let help = "Deprecated versions that clients requested, always 1.";
    let name = "apiserver_requested_deprecated_apis";
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (group, version, resource, subresource, removed_release) in &found {
        let labels = [
            ("group", *group),
            ("version", *version),
            ("resource", *resource),
            ("subresource", *subresource),
            ("removed_release", &**removed_release),
        ];
        family.encode_family(&labels)?.encode_gauge(&1_i64)?;
    }
    Ok(())
}

/// The release that removes a version, as its deprecation warning names it.
pub(crate) fn removed_release(warning: &str) -> Option<&str> {
    let (release, _) = warning.split_once(", unavailable in v").and_then(|(_, rest)| rest.split_once('+'))?;
    Some(release)
}
