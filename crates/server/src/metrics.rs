//! Metrics of the registry, the cache and the stores.
//!
//! Other crates only count. This module has the names, kinds and help texts. `keelson_http` measures requests.

mod access;
mod admission;
mod clients;
mod collections;
mod encryption;
mod further;
mod policies;
mod queues;
mod room;
mod store_requests;

use std::collections::BTreeMap;

use keelson_aggregator::{Aggregator, PeerForwarding, PeerServers};
use keelson_extensions::Regenerations;
use keelson_http::metrics::{HistogramSample, MetricKind, Sample};
use keelson_outbound::{Durations, OutboundStats};
use keelson_registry::{ConversionCacheStats, Registry, RegistryConfig, StoredCollection};
use keelson_schema::ProgramStats;
use keelson_storage_etcd::EtcdStats;
use keelson_storage_sql::PostgresStats;
use keelson_supervision::Supervisor;

pub(crate) use access::{access_samples, issuer_times, read_samples, review_times, token_cache_times};
pub(crate) use admission::{admission_times, manifest_samples, pod_security_samples, webhook_samples, webhook_times};
pub(crate) use clients::{client_histograms, client_samples, egress_samples, egress_times};
pub(crate) use collections::{collection_samples, collection_times};
pub(crate) use encryption::{encryption_samples, encryption_times};
pub(crate) use further::{
    allocation_samples, comparison_times, graph_times, issued_certificate_samples, token_use_samples,
};
pub(crate) use policies::{policy_samples, policy_times};
pub(crate) use queues::{queue_samples, queue_times};
pub(crate) use room::{memory_samples, space_samples};
pub(crate) use store_requests::StoreRequests;

/// The findings of the watchdog.
pub(crate) fn watchdog_samples(supervisor: &Supervisor) -> Vec<Sample> {
    vec![
        gauge(
            "keelson_held_threads",
            "Threads of the runtime that a task or request holds for more than a second",
            supervisor.held_threads().len() as u64,
        ),
        counter(
            "keelson_thread_holds_total",
            "Times that a task or request held a thread of the runtime for more than a second",
            supervisor.holds(),
        ),
    ]
}

/// All samples of one registry and its cache.
pub(crate) fn registry_samples(registry: &Registry) -> Vec<Sample> {
    let mut samples = stored_objects(registry);
    samples.extend(stored_encodings(registry));
    samples.extend(views(registry));
    let stats = registry.cache().stats();
    samples.extend(room::packing_samples(&stats.packing));
    let counters = registry.counters();
    let newest = registry.newest_reads();
    let collections = registry.cache().collections();
    let sum = |number: fn(&keelson_cache::CollectionStats) -> usize| -> u64 {
        collections.iter().map(|collection| number(&collection.stats()) as u64).sum()
    };
    samples.extend([
        counter("keelson_lists_from_cache_total", "Lists answered from the cache", counters.lists_from_cache()),
        counter(
            "keelson_lists_from_store_total",
            "Lists read from the history of the store, past that of the cache",
            counters.lists_from_store(),
        ),
        counter(
            "keelson_snapshots_rebuilt_total",
            "Snapshots of the past that were rebuilt from the history of the cache",
            stats.snapshots_rebuilt,
        ),
        counter(
            "keelson_write_retries_total",
            "Writes that were applied again because the object had changed",
            counters.write_retries(),
        ),
        counter("keelson_cache_events_total", "Changes applied to the cache", stats.events),
        counter("keelson_cache_undecodable_total", "Stored values that are not objects", stats.undecodable),
        counter("keelson_cache_tail_restarts_total", "Restarts of the tail of the store", stats.tail_restarts),
        counter("keelson_cache_reloads_total", "Reloads of the cache", stats.reloads),
        counter("keelson_cache_checks_total", "Collections of the cache compared with the store", stats.checks),
        counter(
            "keelson_cache_repairs_total",
            "Collections that differed from the store and were loaded again (report a value above 0)",
            stats.repairs,
        ),
        gauge("keelson_cache_lag_revisions", "Revisions of the store that the cache does not have yet", stats.lag),
        counter("keelson_store_revision_requests_total", "Reads of the newest revision of the store", newest.asked),
        counter(
            "keelson_store_revision_requests_shared_total",
            "Reads that shared the request for the newest revision with another read",
            newest.shared,
        ),
        gauge("keelson_cache_history_bytes", "Bytes of the history in the cache", stats.history_bytes),
        gauge(
            "keelson_cache_revision",
            "The newest revision whose writes are all in the cache",
            registry.cache().watermark().get(),
        ),
        gauge("keelson_cache_watchers", "Watches that follow the cache", sum(|stats| stats.watchers)),
        gauge("keelson_cache_history_events", "Changes that the cache remembers", sum(|stats| stats.events)),
    ]);
    samples.extend(migrations(registry));
    samples.extend(conversions_kept(registry.surfaces().kept().stats()));
    samples
}

/// The views in the cache.
fn views(registry: &Registry) -> [Sample; 2] {
    let stats = registry.cache().stats();
    [
        gauge("keelson_cache_views", "Sorted and filtered lists of queries in the cache", stats.views as u64),
        gauge(
            "keelson_cache_view_bytes",
            "Bytes of the sorted and filtered lists, without the objects",
            stats.view_bytes,
        ),
    ]
}

/// The numbers of objects read and rewritten by migrations.
fn migrations(registry: &Registry) -> [Sample; 2] {
    let counters = registry.counters();
    let (pages, objects) = (counters.stale_pages(), counters.rewrites());
    [
        counter("keelson_migration_pages_total", "Pages of collections that migrations read", pages),
        counter(
            "keelson_migration_objects_total",
            "Objects that migrations wrote in the agreed storage version",
            objects,
        ),
    ]
}

/// The compiled expressions of definitions.
pub(crate) fn program_samples(stats: ProgramStats) -> Vec<Sample> {
    vec![
        gauge(
            "keelson_cel_programs_bytes",
            "Estimated bytes of the compiled expressions of definitions that are kept",
            stats.bytes as u64,
        ),
        gauge("keelson_cel_programs_schemas", "Schemas whose compiled expressions are kept", stats.schemas as u64),
        counter(
            "keelson_cel_programs_compiled_total",
            "Compilations of the expressions of a schema, at the first validation of an object",
            stats.compiled,
        ),
    ]
}

/// The changes of definitions that change OpenAPI documents. Upstream's names of these counts do not end in `_total`,
/// as counters must, so they are exposed as gauges.
pub(crate) fn regeneration_samples(regenerations: &Regenerations) -> Vec<Sample> {
    let help = "Changes of definitions that change the OpenAPI document of version 2, by definition and reason";
    let definitions = regenerations.definitions().into_iter().map(|((definition, reason), count)| Sample {
        labels: vec![("crd", definition), ("reason", reason.as_str().to_owned())],
        ..gauge("apiextensions_openapi_v2_regeneration_count", help, count.get())
    });
    let help = "Changes of definitions that change an OpenAPI document of version 3, by version, definition and reason";
    let versions = regenerations.versions().into_iter().map(|(of, count)| Sample {
        labels: vec![
            ("group", of.group),
            ("version", of.version),
            ("crd", of.definition),
            ("reason", of.reason.as_str().to_owned()),
        ],
        ..gauge("apiextensions_openapi_v3_regeneration_count", help, count.get())
    });
    definitions.chain(versions).collect()
}

/// The size of the conversion cache, and its hits.
fn conversions_kept(kept: ConversionCacheStats) -> [Sample; 4] {
    [
        gauge(
            "keelson_converted_bytes",
            "Bytes of objects and their conversions in the cache of conversions",
            kept.bytes as u64,
        ),
        gauge("keelson_converted_objects", "Objects in the cache of conversions", kept.objects as u64),
        counter(
            "keelson_conversion_webhook_objects_total",
            "Objects that were sent to conversion webhooks",
            kept.asked,
        ),
        counter(
            "keelson_conversion_cache_hits_total",
            "Objects whose conversion was cached or shared with another request",
            kept.spared,
        ),
    ]
}

/// The durations of conversion webhooks, under upstream's name.
pub(crate) fn conversion_times(stats: &OutboundStats) -> Vec<HistogramSample> {
    let histogram = |name, help, labels, took: Durations| HistogramSample {
        name,
        help,
        labels,
        sum: took.sum,
        count: took.count,
        buckets: took.ends.iter().copied().zip(took.counts).collect(),
    };
    let by_definition = stats.by_definition().into_iter().map(|(definition, key, took)| {
        let labels = vec![
            ("crd_name", definition),
            ("from_version", key.from),
            ("to_version", key.to),
            ("succeeded", key.succeeded.to_string()),
        ];
        let help = "Duration of conversions by the webhook of a definition, in seconds";
        histogram("apiserver_crd_conversion_webhook_duration_seconds", help, labels, took)
    });
    let by_result = stats.by_result().into_iter().map(|((result, failure), took)| {
        let labels = vec![("result", result.to_owned()), ("failure_type", failure.to_owned())];
        let help = "Duration of requests to conversion webhooks, in seconds";
        histogram("apiserver_conversion_webhook_duration_seconds", help, labels, took)
    });
    by_definition.chain(by_result).collect()
}

/// The numbers of calls of conversion webhooks, under upstream's name.
pub(crate) fn conversion_samples(stats: &OutboundStats) -> Vec<Sample> {
    let by_result = stats.by_result().into_iter();
    by_result
        .map(|((result, failure), took)| {
            let help = "Requests to conversion webhooks, by result and kind of failure";
            let labels = vec![("result", result.to_owned()), ("failure_type", failure.to_owned())];
            Sample { labels, ..counter("apiserver_conversion_webhook_request_total", help, took.count) }
        })
        .collect()
}

/// The unavailable APIServices, and the number of times that each became unavailable, with upstream's names.
pub(crate) fn aggregation_samples(aggregator: &Aggregator) -> Vec<Sample> {
    let current = aggregator.current();
    let mut services: Vec<_> = current.services().collect();
    services.sort_by(|a, b| a.name.cmp(&b.name));
    let help = "1 if an APIService is unavailable, by its name";
    let now = services.into_iter().map(|service| Sample {
        labels: vec![("name", service.name.clone())],
        ..gauge("aggregator_unavailable_apiservice", help, u64::from(!service.is_available()))
    });
    let help = "Times that an APIService became unavailable, by its name and the reason";
    let losses = aggregator.losses().into_iter().map(|((name, reason), times)| Sample {
        labels: vec![("name", name), ("reason", reason)],
        ..counter("aggregator_unavailable_apiservice_total", help, times)
    });
    now.chain(losses).collect()
}

/// The requests that peers answered, and the number of failed discovery requests to peers, with upstream's names.
pub(crate) fn peer_samples(peers: &PeerServers) -> Vec<Sample> {
    let help = "Requests for resources that only a peer serves, by resource and the code of the answer";
    let rerouted = peers.rerouted().into_iter().map(|(PeerForwarding { group, version, resource, code }, times)| {
        let labels = vec![("code", code.to_string()), ("group", group), ("resource", resource), ("version", version)];
        Sample { labels, ..counter("apiserver_rerouted_request_total", help, times) }
    });
    let help = "Failed reads of the discovery document of a peer";
    let failures = counter("apiserver_peer_discovery_sync_errors_total", help, peers.failures());
    rerouted.chain([failures]).collect()
}

/// The counts of calls to PostgreSQL.
pub(crate) fn postgres_samples(stats: PostgresStats) -> Vec<Sample> {
    vec![
        room::full(stats.refusing),
        counter(
            "keelson_postgres_refused_total",
            "Groups of transactions that PostgreSQL refused because it is full or read-only",
            stats.refused,
        ),
        counter(
            "keelson_postgres_connections_total",
            "Connections to PostgreSQL that were made, the first ones included",
            stats.connections,
        ),
        counter(
            "keelson_postgres_retries_total",
            "Questions and commits that were sent to PostgreSQL again, since they had no effect",
            stats.retries,
        ),
        counter("keelson_postgres_commits_total", "Groups of transactions that PostgreSQL committed", stats.groups),
        counter(
            "keelson_postgres_transactions_total",
            "Transactions in the groups that PostgreSQL committed",
            stats.transactions,
        ),
        counter(
            "keelson_postgres_commits_unknown_total",
            "Groups with an unknown outcome because the connection to PostgreSQL broke during the commit",
            stats.unknown,
        ),
        counter(
            "keelson_postgres_losses_total",
            "Losses of acknowledged commits in PostgreSQL that this server was the first to detect",
            stats.losses,
        ),
        counter(
            "keelson_postgres_history_exchanges_total",
            "Switches of this server to another history after a loss or a restore, so that its clients list again",
            stats.exchanges,
        ),
    ]
}

/// The counts of calls to etcd.
pub(crate) fn etcd_samples(stats: EtcdStats) -> Vec<Sample> {
    vec![
        room::full(stats.full),
        counter("keelson_etcd_retries_total", "Retries of calls to etcd", stats.retries),
        counter("keelson_etcd_failovers_total", "Switches to another member of etcd", stats.failovers),
        counter(
            "keelson_etcd_logins_total",
            "Fetches of a token for the user of etcd, the first included",
            stats.logins,
        ),
        counter(
            "keelson_etcd_watches_opened_total",
            "Watches of etcd that were opened, the first ones included",
            stats.watches_opened,
        ),
        counter("keelson_etcd_watches_broken_total", "Watches of etcd that broke or fell silent", stats.watches_broken),
        counter(
            "keelson_etcd_progress_requests_total",
            "Requests to etcd for the progress of a watch",
            stats.progress_requests,
        ),
        counter(
            "keelson_etcd_progress_writes_total",
            "Writes of a key to get an event from an etcd whose progress notifications are unreliable",
            stats.ticks,
        ),
    ]
}

/// The name of this server, for dashboards with several servers.
pub(crate) fn server_info(server_id: &str) -> Sample {
    let labels = vec![("server_id", server_id.to_owned()), ("version", env!("CARGO_PKG_VERSION").to_owned())];
    Sample { labels, ..sample("keelson_server_info", "The name and version of this server", MetricKind::Gauge, 1) }
}

/// The feature gates of kube-apiserver's release, and `APIListChunking`, which newer releases no longer have.
pub(crate) fn feature_gates(config: &RegistryConfig) -> Vec<Sample> {
    let all = config.gates.all().map(|(name, stage, is_on)| match name {
        "StorageVersionAPI" => (name, stage.label(), config.storage_version_api),
        _ => (name, stage.label(), is_on),
    });
    // The gate of a stable feature has an empty stage.
    let gates = all.chain([("APIListChunking", "", config.chunking)]);
    let sample = |(name, stage, is_on): (&str, &str, bool)| Sample {
        labels: vec![("name", name.to_owned()), ("stage", stage.to_owned())],
        ..gauge("kubernetes_feature_enabled", "1 if a feature is on, by name and stage", u64::from(is_on))
    };
    gates.map(sample).collect()
}

/// The numbers of stored objects, with the metric names of older and of newer Kubernetes releases.
fn stored_objects(registry: &Registry) -> Vec<Sample> {
    let surface = registry.surface();
    let counts: Vec<_> = surface
        .collections()
        .filter_map(|collection| Some((collection.layout.resources.first()?, collection.cached.len() as u64)))
        .collect();
    let by_name = counts.iter().map(|(resource, objects)| Sample {
        labels: vec![("resource", resource.group_resource().to_string())],
        ..gauge("apiserver_storage_objects", "Stored objects, by resource", *objects)
    });
    let by_group = counts.iter().map(|(resource, objects)| Sample {
        labels: vec![("group", resource.group.to_string()), ("resource", resource.plural.to_string())],
        ..gauge("apiserver_resource_objects", "Stored objects, by group and resource", *objects)
    });
    by_name.chain(by_group).collect()
}

/// The number of objects stored in each encoding.
fn stored_encodings(registry: &Registry) -> Vec<Sample> {
    let surface = registry.surface();
    let of = |collection: &StoredCollection| {
        let resource = collection.layout.resources.first().map(|resource| resource.group_resource().to_string());
        // Objects with several keys have one encoding.
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for (encoding, objects) in collection.encodings() {
            *counts.entry(encoding.to_string()).or_default() += objects;
        }
        let sample = |resource: String, encoding: String, objects: usize| Sample {
            labels: vec![("resource", resource), ("encoding", encoding)],
            ..gauge("keelson_stored_encodings", "Stored objects, by resource and how they are encoded", objects as u64)
        };
        let encodings = counts.into_iter().zip(std::iter::repeat(resource));
        encodings
            .filter_map(|((encoding, objects), resource)| Some(sample(resource?, encoding, objects)))
            .collect::<Vec<_>>()
    };
    surface.collections().flat_map(|collection| of(collection)).collect()
}

fn counter(name: &'static str, help: &'static str, value: u64) -> Sample {
    sample(name, help, MetricKind::Counter, value)
}

fn gauge(name: &'static str, help: &'static str, value: u64) -> Sample {
    sample(name, help, MetricKind::Gauge, value)
}

fn sample(name: &'static str, help: &'static str, kind: MetricKind, value: u64) -> Sample {
    // Metrics are floating point numbers, so counts above 2^53 are rounded.
    Sample { name, help, kind, labels: Vec::new(), value: value as f64 }
}
