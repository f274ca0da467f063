//! Requests to the storage engine, by operation and resource, and the stored sizes of resources.
//!
//! The metrics have kube-apiserver's names, which call every engine etcd, so its dashboards show this server's engine.
//! Lists are answered from the cache, so few of these requests are reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_meta::metering::{AtomicHistogram, Buckets};
use keelson_registry::Registry;
use keelson_storage::{StoreKey, StoreMeter, StoreOperation};
use parking_lot::RwLock;

/// Upper ends of the buckets, in microseconds: those of kube-apiserver.
static BUCKETS: Buckets = Buckets::of_durations(&[
    5_000, 25_000, 50_000, 100_000, 200_000, 400_000, 600_000, 800_000, 1_000_000, 1_250_000, 1_500_000, 2_000_000,
    3_000_000, 4_000_000, 5_000_000, 6_000_000, 8_000_000, 10_000_000, 15_000_000, 20_000_000, 30_000_000, 45_000_000,
    60_000_000,
]);
/// The maximum number of key prefixes that are counted separately. Further ones are counted together.
const MOST_PLACES: usize = 5_000;
/// Key prefixes, other than those of groups, that contain the prefixes of several resources.
const NESTED: [&str; 1] = ["services"];
/// The prefix of all object keys.
const ROOT: &str = "/registry/";

/// The counts of requests to the store.
#[derive(Debug, Default)]
pub(crate) struct StoreRequests(RwLock<HashMap<Box<str>, Arc<Place>>>);

/// The counts of requests with one key prefix, by operation.
#[derive(Debug)]
struct Place([Counts; StoreOperation::ALL.len()]);

#[derive(Debug)]
struct Counts {
    times: AtomicHistogram,
    errors: AtomicU64,
}

impl StoreRequests {
    /// The counts of a key prefix. Few are created after the first minutes.
    fn place(&self, name: &str) -> Arc<Place> {
        if let Some(place) = self.0.read().get(name) {
            return place.clone();
        }
        let mut places = self.0.write();
        let name = if places.len() < MOST_PLACES { name } else { "" };
        let new = || {
            let counts = |_| Counts { times: AtomicHistogram::new(&BUCKETS), errors: AtomicU64::default() };
            Arc::new(Place(StoreOperation::ALL.map(counts)))
        };
        places.entry(name.into()).or_insert_with(new).clone()
    }

    /// All counts by the resource of their prefix, sorted. A prefix of no served resource is counted under an empty
    /// name.
    fn by_resource(&self, registry: &Registry) -> BTreeMap<(String, String), Vec<Arc<Place>>> {
        let surface = registry.surface();
        let named = surface.collections().filter_map(|collection| {
            let resource = collection.layout.resources.first()?;
            let prefix = collection.layout.key_prefix();
            let place = prefix.strip_prefix(ROOT)?.trim_end_matches('/').to_owned();
            Some((place, (resource.group.to_string(), resource.plural.to_string())))
        });
        let named: HashMap<String, (String, String)> = named.collect();
        let mut found: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for (name, place) in &*self.0.read() {
            let resource = named.get(&**name).cloned().unwrap_or_default();
            found.entry(resource).or_default().push(place.clone());
        }
        found
    }

    /// The numbers of requests and of failed requests.
    pub(crate) fn samples(&self, registry: &Registry) -> Vec<Sample> {
        let places = self.by_resource(registry);
        let family = |name, help, value: fn(&Counts) -> u64| {
            let mut samples = Vec::new();
            for (operation, index) in StoreOperation::ALL.into_iter().zip(0..) {
                for (resource, places) in &places {
                    let value: u64 = places.iter().map(|place| value(&place.0[index])).sum();
                    // A prefix with requests also has a sample of errors, even if it is 0, since a rate needs a first
                    // value.
                    if places.iter().any(|place| place.0[index].times.count() > 0) {
                        let labels = labels(operation, resource);
                        samples.push(Sample { name, help, kind: MetricKind::Counter, labels, value: value as f64 });
                    }
                }
            }
            samples
        };
        let mut samples = family("etcd_requests_total", "Requests to the engine of the store", |it| it.times.count());
        let help = "Requests that the engine of the store did not answer";
        samples.extend(family("etcd_request_errors_total", help, |it| it.errors.load(Ordering::Relaxed)));
        samples
    }

    /// The durations of requests.
    pub(crate) fn times(&self, registry: &Registry) -> Vec<HistogramSample> {
        let places = self.by_resource(registry);
        let mut samples = Vec::new();
        for (operation, index) in StoreOperation::ALL.into_iter().zip(0..) {
            for (resource, places) in &places {
                let times: Vec<&AtomicHistogram> = places.iter().map(|place| &place.0[index].times).collect();
                let help = "Duration of requests to the engine of the store, in seconds";
                let sample = HistogramSample::sum(&times, "etcd_request_duration_seconds", help);
                let sample = sample.filter(|sample| sample.count > 0);
                samples.extend(sample.map(|sample| HistogramSample { labels: labels(operation, resource), ..sample }));
            }
        }
        samples
    }
}

fn labels(operation: StoreOperation, (group, resource): &(String, String)) -> Vec<(&'static str, String)> {
    vec![("operation", operation.as_str().to_owned()), ("group", group.clone()), ("resource", resource.clone())]
}

/// The prefix of a key: the first segment after the root. Also the second, if the first is a group or contains others.
fn place_of(key: &str) -> &str {
    let Some(path) = key.strip_prefix(ROOT) else { return "" };
    let end = |from: usize| path[from..].find('/').map_or(path.len(), |end| from + end);
    let first = end(0);
    let holds_others = path[..first].contains('.') || NESTED.contains(&&path[..first]);
    if holds_others && first < path.len() { &path[..end(first + 1)] } else { &path[..first] }
}

impl StoreMeter for StoreRequests {
    fn note(&self, operation: StoreOperation, key: &StoreKey, took: Duration, failed: bool) {
        let place = self.place(place_of(key.as_str()));
        let counts = &place.0[operation as usize];
        counts.times.observe_duration(took);
        if failed {
            counts.errors.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_in_the_place_of_its_collection() {
        for (key, place) in [
            ("/registry/pods/default/a", "pods"),
            ("/registry/services/specs/default/a", "services/specs"),
            (
                "/registry/apiextensions.k8s.io/customresourcedefinitions/a.b",
                "apiextensions.k8s.io/customresourcedefinitions",
            ),
            ("/registry/example.org/widgets/default/a", "example.org/widgets"),
            ("/registry/pods/", "pods"),
            ("/registry/pods", "pods"),
            ("/elsewhere/a", ""),
        ] {
            assert_eq!(place_of(key), place, "{key}");
        }
    }

    #[test]
    fn the_number_of_measured_collections_is_limited() {
        let requests = StoreRequests::default();
        for number in 0..2 * MOST_PLACES {
            let key = StoreKey::new(format!("/registry/place{number}/a"));
            requests.note(StoreOperation::Get, &key, Duration::from_millis(1), false);
        }
        assert!(requests.0.read().len() <= MOST_PLACES + 1);
    }
}
