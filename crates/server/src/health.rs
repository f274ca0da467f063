//! The checks of `/livez`, `/readyz` and `/healthz`. Bootstrap steps and background tasks that kube-apiserver has too
//! have its check names.
//!
//! A server is live while all of its background tasks run. It stays live while the store is unreachable, since it
//! serves its cache, and a restart would lose that. `/livez` therefore checks neither the store nor steps of the start.

use std::sync::Arc;

use keelson_controllers::Progress;
use keelson_http::health::{CheckResult, Health, HealthChecks};
use keelson_supervision::Supervisor;
use tokio_util::sync::CancellationToken;

use crate::controllers::Starting;
use crate::encryption::Encryption;
use crate::probe::LogProbe;

/// The check that passes after this server has published its storage versions.
const PUBLICATION_HOOK: &str = "poststarthook/built-in-resources-storage-version-updater";
/// The check of the store, for any engine. A server that fails only this check and those that it includes still answers
/// from its cache.
const STORE: &str = "store";
/// The store check under the name that clients of kube-apiserver use.
const ETCD: &str = "etcd";
/// The check that passes after the store has answered.
const STORAGE_READINESS: &str = "poststarthook/storage-readiness";
/// The check that the cache receives events from the store.
const CACHE: &str = "informer-sync";

/// The task that runs the steps of the bootstrap.
const BOOTSTRAP: &str = "bootstrap";

/// Hooks of kube-apiserver, with the background task here that does the same work. All tasks run before the first
/// request is answered. If a task works in only one server on the store, its check passes in the others.
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

/// The checks of a server. `store` and `cache` return the results for these. `refusal` returns the reason why a working
/// store refuses new data. Such a server is ready, since freeing space needs it.
pub(crate) fn health(
    supervisor: &Supervisor,
    (store, refusal): (
        impl Fn() -> CheckResult + Send + Sync + 'static,
        impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
    ),
    cache: impl Fn() -> CheckResult + Send + Sync + 'static,
    starting: &Starting,
    (ending, encryption): (&CancellationToken, Option<&Encryption>),
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
    // The cache gets no events from an unreachable store, but still answers reads.
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
    // As upstream, a failing key service also makes the server not live.
    let [live, well] = [live, well].map(|checks| match encryption {
        Some(encryption) => encryption.check(checks),
        None => checks,
    });
    Health::new(live, well, ending.clone())
}

/// Adds a check for each hook, which fails if the hook's task has died.
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
