//! The checks of `/livez`, `/readyz` and `/healthz` of a server. Steps of the bootstrap and background tasks that the reference
//! server has too have its names.
//!
//! A server is live as long as each of its background tasks is. With the store away it stays live: it serves its cache, and a
//! restart would lose that. `/livez` therefore checks no step of the start, and not the store.

use std::sync::Arc;

use keelson_controllers::Progress;
use keelson_http::health::{CheckResult, Health, HealthChecks};
use keelson_supervision::Supervisor;
use tokio_util::sync::CancellationToken;

use crate::controllers::Starting;
use crate::encryption::Encryption;
use crate::probe::LogProbe;

/// The hook that is over when this server has published what it stores.
const PUBLICATION_HOOK: &str = "poststarthook/built-in-resources-storage-version-updater";
/// The check of the store, of whatever kind. A server that fails only this check and those that it includes still answers from its cache.
const STORE: &str = "store";
/// The name of that check for clients of the reference server.
const ETCD: &str = "etcd";
/// The hook that is over when the store has answered.
const STORAGE_READINESS: &str = "poststarthook/storage-readiness";
/// The check that the cache hears from the store.
const CACHE: &str = "informer-sync";

/// The task that goes through the steps of the bootstrap.
const BOOTSTRAP: &str = "bootstrap";

/// Hooks of the reference server, and the background task here that does the work of each. All are at work before the first request
/// is answered; those of which one server on a store does the work of all are well on the others.
const HOOKS: [(&str, &str); 15] = [
    ("poststarthook/generic-apiserver-start-informers", "cache-tail"),
    ("poststarthook/start-apiextensions-informers", "cache-tail"),
    ("poststarthook/start-apiextensions-controllers", "custom-resources"),
    ("poststarthook/crd-informer-synced", "custom-resources"),
    ("poststarthook/priority-and-fairness-config-consumer", "flow-control"),
    ("poststarthook/start-kube-apiserver-identity-lease-controller", "identity"),
    ("poststarthook/start-kube-apiserver-identity-lease-garbage-collector", "server-leases"),
    ("poststarthook/aggregator-reload-proxy-client-cert", "certificates"),
    ("poststarthook/apiservice-registration-controller", "api-services"),
    ("poststarthook/apiservice-discovery-controller", "api-services"),
    ("poststarthook/apiservice-openapi-controller", "api-services"),
    ("poststarthook/apiservice-openapiv3-controller", "api-services"),
    ("poststarthook/apiservice-status-local-available-controller", "api-service-availability"),
    ("poststarthook/apiservice-status-remote-available-controller", "api-service-availability"),
    ("poststarthook/kube-apiserver-autoregistration", "automatic-api-services"),
];

/// The checks of a server over a store and a cache, which say how these are. `refusal` is the reason for which a store that works
/// refuses new data: a server of it is ready, since making room needs it.
pub(crate) fn health(
    supervisor: &Supervisor,
    (store, refusal): (
        impl Fn() -> CheckResult + Send + Sync + 'static,
        impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
    ),
    cache: impl Fn() -> CheckResult + Send + Sync + 'static,
    starting: &Starting,
    (stopping, encryption): (&CancellationToken, Option<&Encryption>),
) -> Health {
    let log = LogProbe::new();
    let shared = HealthChecks::new().add("log", move || log.check());
    let steps = Progress::steps().map(|step| (step, BOOTSTRAP));
    let live = with_hooks(shared.clone(), supervisor, HOOKS.into_iter().chain(steps)).add_tasks(supervisor.clone());
    let store = Arc::new(store);
    let [named_store, etcd, readiness] = [store.clone(), store.clone(), store];
    let well = shared.add(STORE, move || named_store()).add(ETCD, move || etcd()).add_runtime(supervisor.clone());
    let well = well.note(STORE, refusal.clone()).note(ETCD, refusal);
    let well = well.add(CACHE, cache).add(STORAGE_READINESS, move || readiness());
    // The cache hears nothing of a store that is away, and answers all the same.
    let well = [ETCD, CACHE, STORAGE_READINESS].into_iter().fold(well, |well, part| well.including(STORE, part));
    let well = with_hooks(well, supervisor, HOOKS.into_iter());
    let well = Progress::steps().fold(well, |well, step| {
        let bootstrap = starting.bootstrap.clone();
        let done = move || if bootstrap.is_done(step) { Ok(()) } else { Err("not finished".to_owned()) };
        well.add(step, done)
    });
    let well = match starting.publication.clone() {
        Some(publication) => well.add(PUBLICATION_HOOK, move || match publication.pending().as_deref() {
            Some([]) => Ok(()),
            Some(pending) => Err(format!("not finished: these are not published: {}", pending.join(", "))),
            None => Err("not finished".to_owned()),
        }),
        None => well,
    };
    // As upstream has it, a key service that fails is a reason to start anew, too.
    let [live, well] = [live, well].map(|checks| match encryption {
        Some(encryption) => encryption.check(checks),
        None => checks,
    });
    Health::new(live, well, stopping.clone())
}

/// A check for each hook, which fails when the task has died that does its work.
fn with_hooks(
    checks: HealthChecks,
    supervisor: &Supervisor,
    hooks: impl Iterator<Item = (&'static str, &'static str)>,
) -> HealthChecks {
    hooks.fold(checks, |checks, (hook, task)| {
        let supervisor = supervisor.clone();
        checks.add(hook, move || supervisor.failure_of(task).map_or(Ok(()), |failure| Err(failure.to_string())))
    })
}
