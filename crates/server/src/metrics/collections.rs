//! The metrics of the watch cache and of lists, by resource, with upstream's names.
//!
//! One cache follows the whole store, but each collection counts its own events, loads and lists.

use std::sync::Arc;

use keelson_cache::{CollectionCounts, ListIndex};
use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_meta::metering::AtomicHistogram;
use keelson_registry::{Registry, StoredCollection};

/// A revision in metrics is reduced modulo this number, since a floating point number holds no more digits.
const REVISION_MODULUS: u64 = 1_000_000_000_000_000;

/// The labels of a resource: group and plural name.
type ResourceLabels = [(&'static str, String); 2];

/// The collections with the labels of their resources.
fn collections(registry: &Registry) -> Vec<(ResourceLabels, Arc<StoredCollection>)> {
    let surface = registry.surface();
    let named = surface.collections().filter_map(|collection| {
        let resource = collection.layout.resources.first()?;
        let labels = [("group", resource.group.to_string()), ("resource", resource.plural.to_string())];
        Some((labels, collection.clone()))
    });
    named.collect()
}

/// A family by resource: its name, help text, metric kind, and value.
type Family = (&'static str, &'static str, MetricKind, fn(&CollectionCounts) -> u64);

const FAMILIES: [Family; 7] = [
    (
        "apiserver_watch_cache_events_received_total",
        "Events that the watch cache received, by resource",
        MetricKind::Counter,
        |counts| counts.events.get(),
    ),
    (
        "apiserver_watch_cache_events_dispatched_total",
        "Events that the watch cache offered to watches, by resource",
        MetricKind::Counter,
        |counts| counts.events.get(),
    ),
    (
        "apiserver_storage_events_received_total",
        "Events that the store sent, by resource",
        MetricKind::Counter,
        |counts| counts.events.get(),
    ),
    (
        "apiserver_watch_cache_initializations_total",
        "Loads of all objects into the watch cache, by resource",
        MetricKind::Counter,
        |counts| counts.loads.get(),
    ),
    (
        "apiserver_init_events_total",
        "Objects that the watch cache loaded, by resource",
        MetricKind::Counter,
        |counts| counts.loaded.get(),
    ),
    (
        "apiserver_storage_decode_errors_total",
        "Stored values that could not be decoded, by resource",
        MetricKind::Counter,
        |counts| counts.undecodable.get(),
    ),
    (
        "apiserver_cache_list_returned_objects_total",
        "Objects that lists from the watch cache returned, by resource",
        MetricKind::Counter,
        |counts| counts.returned.get(),
    ),
];

/// The counts and gauges of all collections.
pub(crate) fn collection_samples(registry: &Registry) -> Vec<Sample> {
    let collections = collections(registry);
    let mut samples = Vec::new();
    for (name, help, kind, value) in FAMILIES {
        samples.extend(collections.iter().map(|(labels, collection)| Sample {
            name,
            help,
            kind,
            labels: labels.to_vec(),
            value: value(collection.cached.counts()) as f64,
        }));
    }
    samples.extend(gauges(registry, &collections));
    samples.extend(consistency(&collections));
    samples.extend(lists(&collections));
    samples
}

type Collections = [([(&'static str, String); 2], Arc<StoredCollection>)];

fn gauges(registry: &Registry, collections: &Collections) -> Vec<Sample> {
    let reached = registry.cache().watermark().get() % REVISION_MODULUS;
    let one = |name, help, (labels, value): (&[(&'static str, String); 2], u64)| Sample {
        name,
        help,
        kind: MetricKind::Gauge,
        labels: labels.to_vec(),
        value: value as f64,
    };
    let help = "The last 15 digits of the resource version of the watch cache, by resource";
    let versions =
        collections.iter().map(|(labels, _)| one("apiserver_watch_cache_resource_version", help, (labels, reached)));
    let stats: Vec<_> = collections.iter().map(|(labels, it)| (labels, it.cached.stats())).collect();
    let help = "Capacity of the watch cache in events, by resource, adapted to the time that the events cover";
    let kept = stats.iter().map(|(labels, stats)| one("watch_cache_capacity", help, (labels, stats.events as u64)));
    let help = "Bytes of the stored objects in JSON, by resource";
    let name = "apiserver_resource_size_estimate_bytes";
    let sizes = stats.iter().map(|(labels, stats)| one(name, help, (labels, stats.bytes)));
    versions.chain(kept).chain(sizes).collect()
}

/// The results of comparisons with the store, and of consistent reads.
fn consistency(collections: &Collections) -> Vec<Sample> {
    let outcome = |name, help, outcomes: &[(&'static str, &str)], value: fn(&CollectionCounts) -> u64| {
        let of = |(labels, collection): &([(&'static str, String); 2], Arc<StoredCollection>)| {
            let outcomes = outcomes.iter().map(|(label, value)| (*label, (*value).to_owned()));
            Sample {
                name,
                help,
                kind: MetricKind::Counter,
                labels: labels.iter().cloned().chain(outcomes).collect(),
                value: value(collection.cached.counts()) as f64,
            }
        };
        collections.iter().map(of).collect::<Vec<_>>()
    };
    let help = "Comparisons of the watch cache with the store, by resource and outcome";
    let name = "apiserver_storage_consistency_checks_total";
    let mut samples = outcome(name, help, &[("status", "success")], |counts| counts.checks.get());
    samples.extend(outcome(name, help, &[("status", "failure")], |counts| counts.differences.get()));
    let help = "Lists of the newest state from the watch cache, by resource and success";
    let name = "apiserver_watch_cache_consistent_read_total";
    let labels = [("success", "true"), ("fallback", "false")];
    samples.extend(outcome(name, help, &labels, |counts| counts.consistent_reads.get()));
    let labels = [("success", "false"), ("fallback", "false")];
    samples.extend(outcome(name, help, &labels, |counts| counts.inconsistent_reads.get()));
    samples
}

/// The numbers of lists, by source and by index.
fn lists(collections: &Collections) -> Vec<Sample> {
    let counter = |name, help, labels: Vec<(&'static str, String)>, value: u64| Sample {
        name,
        help,
        kind: MetricKind::Counter,
        labels,
        value: value as f64,
    };
    let with = |labels: &[(&'static str, String); 2], more: &[(&'static str, &str)]| {
        let more = more.iter().map(|(label, value)| (*label, (*value).to_owned()));
        labels.iter().cloned().chain(more).collect::<Vec<_>>()
    };
    let (mut cached, mut cached_fetched) = (Vec::new(), Vec::new());
    let (mut total, mut fetched, mut evaluated, mut returned) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (labels, collection) in collections {
        let counts = collection.cached.counts();
        for index in ListIndex::ALL {
            let of_index = &counts.lists[index as usize];
            // Most collections are listed only without an index.
            if index != ListIndex::None && of_index.lists.get() == 0 {
                continue;
            }
            let labels_cached = with(labels, &[("index", index.as_str())]);
            let labels_all = with(labels, &[("storage", CACHE), ("index", index.as_str())]);
            let (lists, objects) = (of_index.lists.get(), of_index.fetched.get());
            let help = "Lists from the watch cache, by resource and index";
            cached.push(counter("apiserver_cache_list_total", help, labels_cached.clone(), lists));
            let help = "Objects that lists from the watch cache looked at, by resource and index";
            cached_fetched.push(counter("apiserver_cache_list_fetched_objects_total", help, labels_cached, objects));
            total.push(counter("apiserver_storage_list_total", LISTS, labels_all.clone(), lists));
            let help = "Objects that lists looked at, by resource, by where they were read and by index";
            fetched.push(counter("apiserver_storage_list_fetched_objects_total", help, labels_all, objects));
        }
        let labels_store = with(labels, &[("storage", STORE), ("index", "")]);
        total.push(counter("apiserver_storage_list_total", LISTS, labels_store, counts.lists_from_store.get()));
        let labels_all = with(labels, &[("storage", CACHE)]);
        let help = "Objects that lists tested by their selectors, by resource and by where they were read";
        let name = "apiserver_storage_list_evaluated_objects_total";
        evaluated.push(counter(name, help, labels_all.clone(), counts.evaluated.get()));
        let help = "Objects that lists returned, by resource and by where they were read";
        let name = "apiserver_storage_list_returned_objects_total";
        returned.push(counter(name, help, labels_all, counts.returned.get()));
    }
    [cached, cached_fetched, total, fetched, evaluated, returned].concat()
}

/// The sources of lists, with upstream's names: any store counts as etcd.
const CACHE: &str = "watchcache";
const STORE: &str = "etcd";
const LISTS: &str = "Lists, by resource, by where they were read and by index";

/// The times that lists waited for the cache to catch up.
pub(crate) fn collection_times(registry: &Registry) -> Vec<HistogramSample> {
    let of = |(labels, collection): ([(&'static str, String); 2], Arc<StoredCollection>)| {
        let times: &AtomicHistogram = &collection.cached.counts().waits;
        let help = "Time that lists waited for a fresh watch cache, in seconds, by resource";
        let sample = HistogramSample::sum(&[times], "apiserver_watch_cache_read_wait_seconds", help)?;
        (sample.count > 0).then(|| sample.with(labels.to_vec()))
    };
    collections(registry).into_iter().filter_map(of).collect()
}
