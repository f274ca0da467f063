//! Deletes pods that no kubelet ends: pods on missing nodes, terminating pods on nodes out of service, and the oldest
//! ended pods above a limit.
//!
//! The cache may receive a new node late, so a missing node gets time to appear. Decisions use the cache, and each
//! deletion requires that the pod has not changed. A pass reads each pod once.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::Entry;
use keelson_meta::json::Value;
use keelson_meta::options::{GetOptions, ListOptions};
use keelson_meta::{ApiError, Object};
use keelson_registry::{Caller, Registry, Target};
use keelson_supervision::{info_repeated, warn_repeated};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// The controller's service account.
const ACCOUNT: &str = "pod-garbage-collector";
/// The time that a node may be missing before its pods are deleted, as in the reference controller.
pub const QUARANTINE: Duration = Duration::from_secs(40);
/// The number of ended pods to keep: the default of the reference controller.
const MAX_ENDED: usize = 12_500;
/// The number of pods deleted concurrently: enough to share commits, few enough to leave room for clients.
const AT_ONCE: usize = 32;
/// The field with a pod's node.
const NODE: &str = "spec.nodeName";
/// The field with a pod's phase.
const PHASE: &str = "status.phase";
/// The taint that an operator sets on nodes that will not come back (KEP-2268).
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";
/// Reason and message for a pod on a missing node.
const NODE_GONE: (&str, &str) = ("DeletionByPodGC", "PodGC: node no longer exists");

/// The controller.
pub struct PodGarbageCollection {
    registry: Arc<Registry>,
    caller: Caller,
    quarantine: Duration,
    pods: Target,
    nodes: Target,
}

/// The missing nodes, each with the time when it was first missing.
type Missing = HashMap<String, Instant>;

impl PodGarbageCollection {
    /// Creates a collector with this quarantine for missing nodes.
    ///
    /// # Errors
    /// 500 when pods or nodes are not served.
    pub fn new(registry: Arc<Registry>, quarantine: Duration) -> Result<Self, ApiError> {
        let (pods, nodes) = (registry.target("", "pods")?, registry.target("", "nodes")?);
        let caller = registry.controller(ACCOUNT);
        Ok(Self { registry, caller, quarantine, pods, nodes })
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let mut missing = Missing::new();
        let passes = async {
            loop {
                // Half the quarantine, so that a node's pods outlast it by half at the most.
                sleep(self.quarantine / 2).await;
                if let Err(error) = self.pass(&mut missing).await {
                    warn_repeated!(""; %error, "garbage collection of pods failed; retrying");
                }
            }
        };
        stopping.run_until_cancelled(passes).await;
    }

    async fn pass(&self, missing: &mut Missing) -> Result<(), ApiError> {
        let nodes: HashMap<String, bool> = self
            .list(&self.nodes)
            .await?
            .iter()
            .map(|node| (node.name().to_owned(), is_out_of_service(node)))
            .collect();
        let pods = self.list(&self.pods).await?;
        self.note_missing(missing, &pods, &nodes);
        let gone = self.gone(missing).await?;
        let lost = pods.iter().filter_map(|pod| {
            let node = pod.field_named(NODE);
            if gone.contains(node) {
                return Some((pod.clone(), true));
            }
            let stuck = nodes.get(node) == Some(&true) && pod.terminating;
            stuck.then(|| (pod.clone(), false))
        });
        let superfluous = self.superfluous(&pods).into_iter().map(|pod| (pod.clone(), false));
        let ends: Vec<_> = lost.chain(superfluous).collect();
        stream::iter(ends)
            .map(|(pod, node_is_gone)| self.end(pod, node_is_gone))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await
    }

    /// Updates the missing nodes, and keeps the time when each was first missing.
    fn note_missing(&self, missing: &mut Missing, pods: &[Arc<Entry>], nodes: &HashMap<String, bool>) {
        let named = pods.iter().map(|pod| pod.field_named(NODE));
        let missed: HashSet<&str> = named.filter(|node| !node.is_empty() && !nodes.contains_key(*node)).collect();
        missing.retain(|node, _| missed.contains(node.as_str()));
        let now = Instant::now();
        for node in missed {
            if !missing.contains_key(node) {
                missing.insert(node.to_owned(), now);
            }
        }
    }

    /// The nodes that have been missing for the whole quarantine and are absent from the store too.
    async fn gone(&self, missing: &Missing) -> Result<HashSet<String>, ApiError> {
        let mut gone = HashSet::new();
        for (node, _) in missing.iter().filter(|(_, since)| since.elapsed() >= self.quarantine) {
            match self.registry.get(&self.nodes, node, &self.caller, &GetOptions::default()).await {
                Err(ApiError::NotFound { .. }) => drop(gone.insert(node.clone())),
                Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(gone)
    }

    /// The oldest ended pods above the limit.
    fn superfluous<'p>(&self, pods: &'p [Arc<Entry>]) -> Vec<&'p Arc<Entry>> {
        let has_ended = |pod: &&Arc<Entry>| matches!(pod.field_named(PHASE), "Succeeded" | "Failed");
        let mut ended: Vec<&Arc<Entry>> = pods.iter().filter(has_ended).collect();
        let Some(too_many) = ended.len().checked_sub(MAX_ENDED).filter(|number| *number > 0) else {
            return Vec::new();
        };
        ended.sort_by_cached_key(|pod| {
            let pod = read(pod);
            (pod.creation_timestamp().unwrap_or_default().to_owned(), pod.name().to_owned())
        });
        ended.truncate(too_many);
        ended
    }

    async fn end(&self, entry: Arc<Entry>, node_is_gone: bool) -> Result<(), ApiError> {
        let condition = node_is_gone.then_some(NODE_GONE);
        let pod = read(&entry);
        let (namespace, name) = (pod.namespace(), pod.name());
        let mut target = self.pods.clone();
        target.namespace = Some(namespace.to_owned());
        match self.registry.end_lost_pod(&target, name, pod.uid(), condition, &self.caller).await {
            Ok(()) => {
                info_repeated!(format_args!("{namespace:?}"); namespace, name, "a pod that no kubelet ends is deleted");
            }
            Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn list(&self, target: &Target) -> Result<Vec<Arc<Entry>>, ApiError> {
        // A list at any revision of the cache will do.
        let options = ListOptions { resource_version_raw: "0".to_owned(), ..ListOptions::default() };
        self.registry.list(target, &self.caller, &options).await?.items.into_entries().await
    }
}

/// Returns true for a node that is not ready and carries the taint `out-of-service`.
fn is_out_of_service(node: &Entry) -> bool {
    let node = read(node);
    let list = |path: [&str; 2]| node.get(&path).and_then(Value::as_array).into_iter().flatten();
    let tainted = list(["spec", "taints"]).any(|taint| taint["key"] == OUT_OF_SERVICE);
    tainted && !list(["status", "conditions"]).any(|known| known["type"] == "Ready" && known["status"] == "True")
}

fn read(entry: &Entry) -> Object {
    entry.object().decode(entry.revision)
}
