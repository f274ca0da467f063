//! Metrics of requests: one series for all requests of the same kind to the same resource.
//!
//! A request finds its series once, at its beginning, and counts in it at its end. Series of resources that are no
//! longer served are dropped at each scrape, after a change of the served resources, and before they become many.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use hashbrown::{Equivalent, HashMap};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, LabelSetEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use super::further::{self, Deprecations, Further};

/// Upper ends of the duration buckets in seconds: upstream's, so that its dashboards work.
const DURATION_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0,
    45.0, 60.0,
];

/// The value of the label `component`, as upstream.
const COMPONENT: &str = "apiserver";

/// The labels that all requests of a series share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RequestLabels<'a> {
    pub(super) verb: &'static str,
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) resource: &'a str,
    pub(super) subresource: &'a str,
    pub(super) scope: &'static str,
    /// The last label, so that series that differ only in it are adjacent when sorted.
    pub(super) dry_run: &'static str,
}

impl<'a> RequestLabels<'a> {
    const fn names(&self) -> [&'a str; 4] {
        [self.group, self.version, self.resource, self.subresource]
    }

    /// The ends of group, version and resource in the text of all names.
    const fn ends(&self) -> [usize; 3] {
        let [group, version] = [self.group.len(), self.group.len() + self.version.len()];
        [group, version, version + self.resource.len()]
    }

    /// The labels of all families. Families of watches have no others.
    pub(super) const fn of_watches(&self) -> [(&'static str, &'a str); 7] {
        let Self { verb, group, version, resource, subresource, scope, .. } = *self;
        [
            ("verb", verb),
            ("group", group),
            ("version", version),
            ("resource", resource),
            ("subresource", subresource),
            ("scope", scope),
            ("component", COMPONENT),
        ]
    }
}

impl EncodeLabelSet for RequestLabels<'_> {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        self.of_watches().encode(encoder)?;
        [("dry_run", self.dry_run)].encode(encoder)
    }
}

/// Equal to `==`, and quicker for the same constant: every request compares its labels with those of its series.
fn is_same(one: &'static str, other: &'static str) -> bool {
    std::ptr::eq(one, other) || one == other
}

impl Hash for RequestLabels<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let names = self.names();
        names.iter().for_each(|name| state.write(name.as_bytes()));
        // The lengths separate the names, and tell most verbs and scopes apart.
        let lengths = names.map(str::len).into_iter().chain([self.verb, self.scope, self.dry_run].map(str::len));
        state.write_u64(lengths.fold(0, |all, length| (all << 9) | (length as u64 & 0x1ff)));
        state.write_u8(self.verb.as_bytes().first().copied().unwrap_or_default());
    }
}

/// The owned labels, stored with a series. Both forms have the same hash.
#[derive(Clone, Debug)]
struct OwnLabels {
    verb: &'static str,
    scope: &'static str,
    dry_run: &'static str,
    /// Group, version, resource and subresource, in one allocation so that a comparison reads one place.
    names: Box<str>,
    /// The ends of the first three names.
    ends: [usize; 3],
}

impl OwnLabels {
    fn shown(&self) -> RequestLabels<'_> {
        let Self { verb, scope, dry_run, names, ends: [group, version, resource] } = self;
        RequestLabels {
            verb,
            group: &names[..*group],
            version: &names[*group..*version],
            resource: &names[*version..*resource],
            subresource: &names[*resource..],
            scope,
            dry_run,
        }
    }
}

impl From<&RequestLabels<'_>> for OwnLabels {
    fn from(labels: &RequestLabels<'_>) -> Self {
        let RequestLabels { verb, scope, dry_run, .. } = *labels;
        Self { verb, scope, dry_run, names: labels.names().concat().into(), ends: labels.ends() }
    }
}

impl PartialEq for OwnLabels {
    fn eq(&self, other: &Self) -> bool {
        self.shown() == other.shown()
    }
}

impl Eq for OwnLabels {}

impl Hash for OwnLabels {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.shown().hash(state);
    }
}

impl Equivalent<OwnLabels> for RequestLabels<'_> {
    fn equivalent(&self, known: &OwnLabels) -> bool {
        let has_names = || {
            let shown = known.shown().names();
            self.names().into_iter().zip(shown).all(|(one, other)| one.is_empty() || one == other)
        };
        self.ends() == known.ends
            && is_same(self.verb, known.verb)
            && is_same(self.scope, known.scope)
            && is_same(self.dry_run, known.dry_run)
            && self.subresource.len() == known.names.len() - known.ends[2]
            && has_names()
    }
}

/// The labels in which the responses of a series differ.
#[derive(Debug, EncodeLabelSet)]
struct AnswerLabels {
    system_client: &'static str,
    code: u16,
}

/// A status code as a label.
#[derive(Debug, EncodeLabelSet)]
pub(super) struct CodeLabel {
    pub(super) code: u16,
}

/// The responses that are counted together: by status code and by system client.
#[derive(Clone, Copy, Debug)]
struct ResponseLabels {
    code: StatusCode,
    system_client: &'static str,
}

/// The number of new series after which series of resources that are no longer served are dropped.
const NEW_SERIES: usize = 1000;

/// Returns true if such a version of a resource (group, version, plural) is served.
type Serves = Box<dyn Fn(&str, &str, &str) -> bool + Send + Sync>;

/// All series. Clones share one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests(Arc<Shared>);

#[derive(Default)]
struct Shared {
    known: RwLock<AllSeries>,
    serves: OnceLock<Serves>,
    deprecations: OnceLock<Deprecations>,
}

#[derive(Debug, Default)]
struct AllSeries {
    series: HashMap<OwnLabels, Arc<Series>>,
    /// The number of series when stale ones were last dropped.
    after_last: usize,
}

/// The counts of one series.
#[derive(Debug)]
pub(super) struct Series {
    /// The number of responses of each kind. One series has few kinds.
    answered: Mutex<Vec<(ResponseLabels, u64)>>,
    length: Length,
    pub(super) further: Further,
}

#[derive(Debug)]
enum Length {
    /// The durations of requests that end.
    Short(Histogram),
    /// The number of watches in flight.
    Long(Gauge),
}

impl Requests {
    /// The series of a request. Requests with the same labels are either all long-running, or none is.
    pub(super) fn series(&self, labels: RequestLabels<'_>, long_running: bool) -> Arc<Series> {
        if let Some(known) = self.0.known.read().series.get(&labels) {
            return known.clone();
        }
        let length = || match long_running {
            true => Length::Long(Gauge::default()),
            false => Length::Short(Histogram::new(DURATION_BUCKETS)),
        };
        let further = || Further::new(&labels, long_running);
        let new = || Arc::new(Series { answered: Mutex::default(), length: length(), further: further() });
        let known = self.0.known.read();
        let is_crowded = known.series.len() >= known.after_last + NEW_SERIES;
        drop(known);
        if is_crowded {
            self.forget_past();
        }
        self.0.known.write().series.entry(OwnLabels::from(&labels)).or_insert_with(new).clone()
    }

    /// Sets the function that returns true for served resources. Until then, every requested resource counts as served.
    pub(super) fn serve(&self, serves: Serves) {
        // The process has one server, which sets the value once.
        let _first = self.0.serves.set(serves);
    }

    /// Sets the function that returns deprecation warnings. Until then, no version counts as deprecated.
    pub(super) fn deprecate(&self, deprecations: Deprecations) {
        let _first = self.0.deprecations.set(deprecations);
    }

    /// Drops the series of resources that are no longer served. Requests wait only while they are removed, not while
    /// they are searched.
    pub(super) fn forget_past(&self) {
        let Some(serves) = self.0.serves.get() else { return };
        let known = self.0.known.read();
        let past: Vec<OwnLabels> =
            known.series.keys().filter(|labels| !is_served(&labels.shown(), serves)).cloned().collect();
        drop(known);
        let mut known = self.0.known.write();
        for labels in past {
            known.series.remove(&labels);
        }
        known.after_last = known.series.len();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.known.read().series.len()
    }

    /// All series, sorted. Copied, since requests must not wait for the encoder.
    fn sorted(&self) -> Vec<(OwnLabels, Arc<Series>)> {
        self.forget_past();
        let known = self.0.known.read();
        let mut all: Vec<_> = known.series.iter().map(|(labels, series)| (labels.clone(), series.clone())).collect();
        drop(known);
        all.sort_unstable_by(|(one, _), (other, _)| one.shown().cmp(&other.shown()));
        all
    }
}

/// Returns true for series of served resources and of paths without a resource.
fn is_served(labels: &RequestLabels<'_>, serves: &Serves) -> bool {
    labels.resource.is_empty() || serves(labels.group, labels.version, labels.resource)
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("known", &self.known).finish_non_exhaustive()
    }
}

impl Series {
    /// The number of long-running requests in flight.
    pub(super) fn running(&self) -> Option<&Gauge> {
        match &self.length {
            Length::Short(_) => None,
            Length::Long(running) => Some(running),
        }
    }

    /// Counts a response that ended this long after the head of its request had arrived. `system_client` is the system
    /// component that sent the request, or empty.
    pub(super) fn answered(&self, code: StatusCode, system_client: &'static str, after: Duration) {
        let is_such = |known: &ResponseLabels| known.code == code && is_same(known.system_client, system_client);
        let mut answered = self.answered.lock();
        match answered.iter_mut().find(|(known, _)| is_such(known)) {
            Some((_, count)) => *count += 1,
            None => answered.push((ResponseLabels { code, system_client }, 1)),
        }
        drop(answered);
        if let Length::Short(durations) = &self.length {
            durations.observe(after.as_secs_f64());
        }
    }
}

impl Collector for Requests {
    // The encoder appends `_total` to counters.
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.sorted();
        let (name, help) = ("apiserver_request", "Requests, by verb, resource, scope and code.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, series) in &all {
            for (ResponseLabels { code, system_client }, count) in series.answered.lock().iter() {
                let labels = (labels.shown(), AnswerLabels { system_client, code: code.as_u16() });
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        let name = "apiserver_request_duration_seconds";
        let help = "Time from the head of a request to the end of its answer.";
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        for (labels, series) in &all {
            if let Length::Short(durations) = &series.length {
                durations.encode(family.encode_family(&labels.shown())?)?;
            }
        }
        let (name, help) = ("apiserver_longrunning_requests", "Watches being served.");
        let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for alike in all.chunk_by(|(one, _), (other, _)| one.shown().of_watches() == other.shown().of_watches()) {
            let [(labels, series), ..] = alike else { continue };
            if series.running().is_some() {
                let running: i64 = alike.iter().filter_map(|(_, series)| series.running()).map(Gauge::get).sum();
                family.encode_family(&labels.shown().of_watches())?.encode_gauge(&running)?;
            }
        }
        let shown: Vec<_> = all.iter().map(|(labels, series)| (labels.shown(), &series.further)).collect();
        further::encode(&mut encoder, &shown, self.0.deprecations.get())
    }
}
