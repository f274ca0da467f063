//! Deletes namespace contents on other servers, for the controller that empties namespaces: on aggregated servers, and
//! on peers of another release with kinds that this server does not know.
//!
//! Each namespaced kind that supports deletion is deleted on its server, with the identity of that controller. The
//! versions of a server without a discovery document are reported as unknown, and delay every namespace deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use http::HeaderMap;
use keelson_controllers::{Content, RemainingObjects, RemoteNamespaceContent};
use keelson_discovery::{DiscoveredResource, Freshness, VersionSource};
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, GroupResource, version_names};
use keelson_outbound::{ClientConfig, RemoteService, RestClient, RestResponse, failure_text};

use crate::aggregator::Aggregator;
use crate::api_service::version_path;
use crate::discovery;
use crate::peers::{PeerResource, PeerServers};
use crate::requester::Requester;

/// The requester: the namespace controller.
const CONTROLLER: Requester = Requester {
    user: "system:serviceaccount:kube-system:namespace-controller",
    groups: &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
};
/// The number of objects in a page.
const CHUNK: usize = 500;
/// The number of concurrent deletions on a server that does not support the deletion of collections.
const DELETES_AT_ONCE: usize = 16;
/// The most bytes of a response.
const ANSWER_BYTES: usize = 32 << 20;
/// The preferred media type: metadata only, from servers that support it.
const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Namespace contents on all other servers.
pub struct RemoteContents {
    aggregator: Arc<Aggregator>,
    peers: Option<Arc<PeerServers>>,
}

impl RemoteContents {
    /// Creates the contents of registered servers, and of peers if there are any.
    pub fn new(aggregator: Arc<Aggregator>, peers: Option<Arc<PeerServers>>) -> Self {
        Self { aggregator, peers }
    }
}

impl RemoteNamespaceContent for RemoteContents {
    fn contents(&self) -> Vec<Box<dyn Content>> {
        let (aggregated, discovered) = (self.aggregator.current(), self.aggregator.discovery());
        let mut versions: Vec<&VersionSource> = discovered.versions().collect();
        versions.sort_by(|a, b| {
            let by_priority = b.version_priority.cmp(&a.version_priority);
            by_priority.then_with(|| version_names::compare(&a.version, &b.version))
        });
        let mut known = BTreeSet::new();
        let mut contents: Vec<Box<dyn Content>> = Vec::new();
        for version in versions {
            let Some(service) = aggregated.remote(&version.group, &version.version) else { continue };
            let Some(remote) = service.remote() else { continue };
            for resource in version.resources.iter().filter(|resource| is_deleted(resource)) {
                let name = GroupResource { group: version.group.to_string(), resource: resource.plural.to_string() };
                // Each kind is deleted in one of its versions.
                if known.insert((name.group.clone(), name.resource.clone())) {
                    contents.push(Box::new(RemoteContent {
                        aggregator: self.aggregator.clone(),
                        server: Server::Aggregated(remote.clone()),
                        version_path: service.path(),
                        deletes_collections: can(resource, "deletecollection"),
                        name,
                    }));
                }
            }
        }
        for found in self.peers.iter().flat_map(|peers| peers.unknown_here()) {
            let PeerResource { group, version, resource, server } = found;
            let name = GroupResource { group, resource: resource.plural.to_string() };
            if is_deleted(&resource) && known.insert((name.group.clone(), name.resource.clone())) {
                contents.push(Box::new(RemoteContent {
                    aggregator: self.aggregator.clone(),
                    server: Server::Peer(server),
                    version_path: version_path(&name.group, &version),
                    deletes_collections: can(&resource, "deletecollection"),
                    name,
                }));
            }
        }
        contents
    }

    fn undiscovered(&self) -> Vec<String> {
        let discovered = self.aggregator.discovery();
        let stale = discovered.versions().filter(|version| version.freshness == Freshness::Stale);
        stale.map(|version| format!("{}/{}", version.group, version.version)).collect()
    }
}

fn can(resource: &DiscoveredResource, verb: &str) -> bool {
    resource.verbs.iter().any(|known| known == verb)
}

/// Returns true if objects of a kind must be deleted with their namespace.
fn is_deleted(resource: &DiscoveredResource) -> bool {
    resource.is_namespaced() && can(resource, "delete") && can(resource, "list")
}

/// A server with objects.
enum Server {
    Aggregated(RemoteService),
    Peer(ClientConfig),
}

/// One kind on one server.
struct RemoteContent {
    aggregator: Arc<Aggregator>,
    server: Server,
    version_path: String,
    deletes_collections: bool,
    name: GroupResource,
}

impl Content for RemoteContent {
    fn resource(&self) -> GroupResource {
        self.name.clone()
    }

    fn empty<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<RemainingObjects, ApiError>> {
        Box::pin(async move {
            let outbound = self.aggregator.outbound();
            let peer = match &self.server {
                Server::Aggregated(service) => service.client(outbound),
                Server::Peer(config) => outbound.client(config),
            };
            let peer = peer.map_err(|why| self.failed(&why))?;
            let path = format!("{}/namespaces/{namespace}/{}", self.version_path, self.name.resource);
            let found = self.list(&peer, &path).await?;
            if found.is_empty() {
                return Ok(RemainingObjects::default());
            }
            // All objects of the namespace are deleted, so no dependent is kept for another owner.
            let options = json!({ "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background" });
            if self.deletes_collections {
                self.delete(&peer, &path, &options).await?;
            } else {
                let held = found.iter().filter(|object| object["metadata"]["deletionTimestamp"].is_null());
                let names = held.map(|object| object["metadata"]["name"].as_str().unwrap_or_default());
                let paths: Vec<String> = names.map(|name| format!("{path}/{name}")).collect();
                let (peer, options) = (&peer, &options);
                stream::iter(paths)
                    .map(|path| async move { self.delete(peer, &path, options).await })
                    .buffer_unordered(DELETES_AT_ONCE)
                    .try_collect::<()>()
                    .await?;
            }
            Ok(count(&self.list(&peer, &path).await?))
        })
    }
}

impl RemoteContent {
    /// Lists the first page of objects at a path. One page is enough to report that something is left.
    async fn list(&self, peer: &RestClient, path: &str) -> Result<Vec<Value>, ApiError> {
        let path = format!("{path}?limit={CHUNK}");
        let answer = CONTROLLER.get(peer, &path, Some(METADATA), HeaderMap::new(), ANSWER_BYTES).await;
        let answer = self.accepted(answer.map_err(|error| self.failed(&error.to_string()))?)?;
        let Some(answer) = answer else { return Ok(Vec::new()) };
        discovery::read(answer, |list, _| items_of(list)).await.map_err(|why| self.failed(&why))
    }

    async fn delete(&self, peer: &RestClient, path: &str, options: &Value) -> Result<(), ApiError> {
        let answer = CONTROLLER.delete(peer, path, options, ANSWER_BYTES).await;
        self.accepted(answer.map_err(|error| self.failed(&error.to_string()))?).map(|_| ())
    }

    /// Returns a successful response; `None` after a 404.
    fn accepted(&self, answer: RestResponse) -> Result<Option<RestResponse>, ApiError> {
        match answer.status {
            200..300 => Ok(Some(answer)),
            404 | 405 => Ok(None),
            _ => Err(self.failed(&failure_text(&answer).unwrap_or_default())),
        }
    }

    fn failed(&self, why: &str) -> ApiError {
        ApiError::Internal(format!("{}: {why}", self.name))
    }
}

/// The metadata of a list's items. A list that has no items but a continue token is an error, since it may have
/// content.
fn items_of(list: &Value) -> Result<Vec<Value>, String> {
    let goes_on = list["metadata"]["continue"].as_str().is_some_and(|token| !token.is_empty());
    match list.get("items") {
        Some(Value::Array(items)) if !items.is_empty() => {
            Ok(items.iter().map(|item| json!({ "metadata": item["metadata"] })).collect())
        }
        Some(Value::Null | Value::Array(_)) if goes_on => Err("the list has no items, but a continue token".to_owned()),
        Some(Value::Null | Value::Array(_)) => Ok(Vec::new()),
        _ => Err("the answer is not a list".to_owned()),
    }
}

fn count(objects: &[Value]) -> RemainingObjects {
    let mut finalizers: BTreeMap<String, usize> = BTreeMap::new();
    for object in objects {
        let held = object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        held.for_each(|finalizer| *finalizers.entry(finalizer.to_owned()).or_default() += 1);
    }
    RemainingObjects { objects: objects.len(), finalizers }
}
