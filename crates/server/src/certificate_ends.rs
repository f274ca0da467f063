//! Warns before certificates expire: in a metric at any time, and in the log once a day in the last thirty days.
//!
//! The log names a certificate that the server renews by itself only if the renewal failed. Objects contain
//! certificates of other servers (`caBundle` of webhooks, APIServices and definitions). For each object the certificate
//! that expires first counts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use keelson_access::CertificateEnd;
use keelson_access::pki::{ending_within, first_end};
use keelson_aggregator::Aggregator;
use keelson_controllers::{Client, SERVER_MANAGER};
use keelson_http::metrics::{MetricKind, Sample};
use keelson_meta::clock::rfc3339;
use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::keys::LiveKeys;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The interval at which objects are checked.
const LOOK: Duration = Duration::from_mins(30);
/// The interval of checks for a due log line.
const TICK: Duration = Duration::from_secs(5);
/// The log names a certificate from this time before its expiry on.
const NAMED_BEFORE: Duration = DAY.saturating_mul(30);
/// As [`NAMED_BEFORE`], for a certificate that the server should have renewed long before.
const RENEWED_BEFORE: Duration = DAY.saturating_mul(14);
/// The maximum number of objects with a sample in the metrics, those that expire first.
const MOST_OBJECTS: usize = 100;
/// The maximum number of certificates in one log line.
const MOST_NAMED: usize = 20;

/// The objects with certificates, except APIServices: group, plural, and a function that returns the bundles of an
/// object.
type Holder = (&'static str, &'static str, fn(&Object) -> Vec<&Value>);
const HOLDERS: [Holder; 3] = [
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations", of_webhooks),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", of_webhooks),
    ("apiextensions.k8s.io", "customresourcedefinitions", of_definition),
];

/// The expiry times of all certificates that matter to a server.
pub(crate) struct CertificateEnds {
    keys: Arc<LiveKeys>,
    aggregator: Arc<Aggregator>,
    client: Client,
    /// The expiry times of certificates in objects, earliest first.
    of_objects: ArcSwap<Vec<CertificateEnd>>,
}

impl CertificateEnds {
    pub(crate) fn new(keys: Arc<LiveKeys>, aggregator: &Arc<Aggregator>, registry: &Arc<Registry>) -> Arc<Self> {
        let client = Client::of_server(registry.clone(), SERVER_MANAGER);
        Arc::new(Self { keys, aggregator: aggregator.clone(), client, of_objects: ArcSwap::default() })
    }

    /// Checks objects and writes to the log until the server stops.
    pub(crate) async fn run(self: Arc<Self>, stopping: CancellationToken) {
        let _: Option<()> = stopping.run_until_cancelled_owned(self.keep_up()).await;
    }

    async fn keep_up(self: Arc<Self>) {
        let mut looked: Option<tokio::time::Instant> = None;
        let mut named: Option<SystemTime> = None;
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                looked = Some(tokio::time::Instant::now());
                self.clone().look().await;
            }
            let now = self.client.now();
            let is_due = named.is_none_or(|named| now.duration_since(named).map_or(true, |since| since >= DAY));
            if is_due && self.name(now) {
                named = Some(now);
            }
        }
    }

    /// Checks the objects with certificates. It may decode many definitions, so it runs on no thread that serves
    /// requests.
    async fn look(self: Arc<Self>) {
        let looked = keelson_supervision::spawn_heavy(async move {
            let found = self.read_all().await;
            found.map(|found| self.of_objects.store(Arc::new(found)))
        });
        if let Ok(Err(error)) = looked.await {
            tracing::debug!(%error, "reading the certificates in objects failed");
        }
    }

    async fn read_all(&self) -> Result<Vec<CertificateEnd>, ApiError> {
        let mut ends = Vec::new();
        let current = self.aggregator.current();
        for (service, remote) in current.remotes() {
            ends.extend(end(
                format!("apiservices/{}", service.name),
                first_end(&String::from_utf8_lossy(&remote.ca_bundle)),
            ));
        }
        for (group, plural, bundles) in HOLDERS {
            let target = self.client.collection(group, "v1", plural, None)?;
            for stored in self.client.list(&target, LabelSelector::default()).await? {
                let bundles = bundles(&stored.object).into_iter().filter_map(Value::as_str);
                let decoded = bundles.filter_map(|bundle| BASE64.decode(bundle).ok());
                let first = decoded.filter_map(|pem| first_end(&String::from_utf8_lossy(&pem))).min();
                ends.extend(end(format!("{plural}/{}", stored.object.name()), first));
            }
        }
        ends.sort_by_key(|end| end.not_after);
        Ok(ends)
    }

    /// Logs the certificates that expire soon. Returns true if there are any.
    fn name(&self, now: SystemTime) -> bool {
        let of_objects = self.of_objects.load();
        let mut ends = self.keys.ends();
        ends.extend(of_objects.iter().cloned());
        let soon = ending_within(&ends, NAMED_BEFORE, now);
        let soon: Vec<_> = soon.iter().filter(|end| !end.is_renewed || end.not_after < now + RENEWED_BEFORE).collect();
        let shown = |end: &&CertificateEnd| match end.not_after.duration_since(now) {
            Ok(left) => format!("{} in {} days ({})", end.name, left.as_secs() / DAY.as_secs(), rfc3339(end.not_after)),
            Err(_) => format!("{} has ended ({})", end.name, rfc3339(end.not_after)),
        };
        let shown: Vec<String> = soon.iter().take(MOST_NAMED).map(shown).collect();
        if !shown.is_empty() {
            let (count, certificates) = (soon.len(), shown.join(", "));
            tracing::warn!(
                count,
                certificates,
                "certificates end soon and were not renewed; replace those of files and of objects"
            );
        }
        !shown.is_empty()
    }

    /// The metric with expiry times.
    pub(crate) fn samples(&self) -> Vec<Sample> {
        let of_objects = self.of_objects.load();
        let ends = self.keys.ends().into_iter().chain(of_objects.iter().take(MOST_OBJECTS).cloned());
        let sample = |end: CertificateEnd| Sample {
            name: "keelson_certificate_expiration_timestamp_seconds",
            help: "When a certificate ends, in seconds since 1970: of the server, and the first one in each of the objects that end first",
            kind: MetricKind::Gauge,
            labels: vec![("certificate", end.name)],
            value: end.not_after.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        };
        ends.map(sample).collect()
    }
}

fn end(name: String, not_after: Option<SystemTime>) -> Option<CertificateEnd> {
    Some(CertificateEnd { name, not_after: not_after?, is_renewed: false })
}

fn of_webhooks(object: &Object) -> Vec<&Value> {
    let webhooks = object.get(&["webhooks"]).and_then(Value::as_array).into_iter().flatten();
    webhooks.map(|webhook| &webhook["clientConfig"]["caBundle"]).collect()
}

fn of_definition(object: &Object) -> Vec<&Value> {
    object.get(&["spec", "conversion", "webhook", "clientConfig", "caBundle"]).into_iter().collect()
}
