//! Objects of aggregated servers, and of kinds that only a peer knows, for the garbage collector. It reads their
//! metadata, watches them and deletes them with the identity of that controller.
//!
//! An object counts as deleted only when its server returns a `Status` that names this object. Any other response, or
//! none, proves nothing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use http::header::{ACCEPT, HeaderMap, HeaderValue};
use http::{Method, Request};
use keelson_controllers::{RemoteAccess, RemoteEvent, RemoteKind, RemoteObject, RemotePage};
use keelson_discovery::{DiscoveredResource, Freshness, VersionSource};
use keelson_meta::error::{ConflictKind, ExpiredKind};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, version_names};
use keelson_outbound::{
    AnswerStream, CallError, ClientConfig, RemoteService, RestClient, RestResponse, Upstream, failure_text, status_of,
};
use keelson_supervision::outcome;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::task::coop::consume_budget;
use tokio::time::{Instant, timeout, timeout_at};

use crate::aggregator::Aggregator;
use crate::api_service::version_path;
use crate::discovery;
use crate::peers::PeerServers;
use crate::requester::{RESPONSE_TIME, Requester};

/// The requester: the garbage collector.
const CONTROLLER: Requester = Requester {
    user: "system:serviceaccount:kube-system:generic-garbage-collector",
    groups: &["system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"],
};
/// The verbs that a followed kind must support.
const VERBS: [&str; 5] = ["delete", "get", "list", "patch", "watch"];
/// The number of objects in a page.
const PAGE: usize = 500;
/// The most bytes of a page.
const PAGE_BYTES: usize = 32 << 20;
/// The most bytes of an object, or of an event with it.
const OBJECT_BYTES: usize = 4 << 20;
/// The duration of a watch.
const WATCH_TIME: Duration = Duration::from_mins(5);
/// The extra time that the server gets to end the watch itself.
const WATCH_GRACE: Duration = Duration::from_secs(30);
/// The preferred media types: metadata only, from servers that support it.
const OBJECT: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// The characters that a path segment or query value keeps unescaped.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The objects of all aggregated servers.
pub struct AggregatedObjects {
    aggregator: Arc<Aggregator>,
    peers: Option<Arc<PeerServers>>,
}

/// The server of a kind.
enum KindServer {
    /// An aggregated server.
    Aggregated(RemoteService),
    /// A peer.
    Peer(Box<ClientConfig>, Arc<Upstream>),
}

impl AggregatedObjects {
    /// Provides access to the objects of registered servers, and of peers if there are any.
    pub fn new(aggregator: Arc<Aggregator>, peers: Option<Arc<PeerServers>>) -> Self {
        Self { aggregator, peers }
    }

    /// The server of a kind.
    ///
    /// # Errors
    /// 503 when it is not available.
    fn keeper(&self, resource: &RemoteKind) -> Result<KindServer, ApiError> {
        let services = self.aggregator.current();
        let RemoteKind { group, version, plural, .. } = resource;
        if let Some((service, remote)) = services.remote(group, version).and_then(|it| Some((it, it.remote()?))) {
            let is_there = service.is_available().then(|| KindServer::Aggregated(remote.clone()));
            return is_there.ok_or_else(|| unavailable(resource, "its server is not available"));
        }
        let of_peer = self.peers.as_ref().and_then(|peers| {
            let known =
                peers.unknown_here().into_iter().find(|it| (&it.group, &*it.resource.plural) == (group, plural));
            Some(KindServer::Peer(Box::new(known?.server), peers.find(group, version, plural)?))
        });
        of_peer.ok_or_else(|| unavailable(resource, "no server has it"))
    }

    fn peer(&self, resource: &RemoteKind) -> Result<(RestClient, String), ApiError> {
        let peer = match self.keeper(resource)? {
            KindServer::Aggregated(remote) => remote.client(self.aggregator.outbound()),
            KindServer::Peer(config, _) => self.aggregator.outbound().client(&config),
        };
        Ok((peer.map_err(|why| unavailable(resource, &why))?, version_path(&resource.group, &resource.version)))
    }

    /// The kinds that only peers know and that can be followed.
    fn of_peers(&self) -> impl Iterator<Item = RemoteKind> {
        let unknown = self.peers.as_ref().map(|peers| peers.unknown_here()).unwrap_or_default();
        let followed = unknown.into_iter().filter(|it| can_be_followed(&it.resource));
        followed.map(|it| resource_of(it.group, it.version, &it.resource))
    }

    /// Sends a change of an object to its server.
    async fn change<'a, F: Future<Output = Result<RestResponse, CallError>> + Send>(
        &'a self,
        resource: &'a RemoteKind,
        key: &'a str,
        send: impl FnOnce(RestClient, String) -> F + Send + 'a,
    ) -> Result<(), ApiError> {
        let (peer, version) = self.peer(resource)?;
        let answer = send(peer, path_of(resource, &version, key)).await;
        accepted(resource, Some(key), answer).map(|_| ())
    }

    async fn page(&self, resource: &RemoteKind, token: &str) -> Result<RemotePage, ApiError> {
        let (peer, version) = self.peer(resource)?;
        let rest = if token.is_empty() { String::new() } else { format!("&continue={}", encoded(token)) };
        let path = format!("{version}/{}?limit={PAGE}{rest}", resource.plural);
        let answer = CONTROLLER.get(&peer, &path, Some(LIST), HeaderMap::new(), PAGE_BYTES).await;
        let answer = accepted(resource, None, answer)?;
        let kind = resource.clone();
        let page = discovery::read(answer, move |list, _| page_of(&kind, list)).await;
        page.map_err(|why| unavailable(resource, &why))
    }

    async fn watch_from(
        &self,
        resource: &RemoteKind,
        resource_version: &str,
    ) -> Result<BoxStream<'static, Result<RemoteEvent, ApiError>>, ApiError> {
        let upstream = match self.keeper(resource)? {
            KindServer::Aggregated(remote) => self.aggregator.outbound().upstream(&remote),
            KindServer::Peer(_, upstream) => upstream,
        };
        let uri = format!(
            "https://{}{}/{}?watch=true&allowWatchBookmarks=true&resourceVersion={}&timeoutSeconds={}",
            upstream.authority(),
            version_path(&resource.group, &resource.version),
            resource.plural,
            encoded(resource_version),
            WATCH_TIME.as_secs(),
        );
        let uri = uri.parse().map_err(|_| unavailable(resource, "its path is none"))?;
        let (mut parts, ()) = Request::new(()).into_parts();
        (parts.method, parts.uri) = (Method::GET, uri);
        parts.headers = CONTROLLER.headers(HeaderMap::new());
        parts.headers.insert(ACCEPT, HeaderValue::from_static(OBJECT));
        let sent = timeout(RESPONSE_TIME, upstream.open(parts)).await;
        let sent = sent.map_err(|_| unavailable(resource, "a watch does not begin"))?;
        let body = match sent.map_err(|error| unavailable(resource, &error.to_string()))? {
            (200, body) => body,
            (410, _) => return Err(expired()),
            (status, _) => return Err(unavailable(resource, &format!("the watch failed with status {status}"))),
        };
        let until = Instant::now() + WATCH_TIME + WATCH_GRACE;
        let watch = Watch { resource: resource.clone(), body, line: BytesMut::new(), until };
        let events = stream::unfold(Some(watch), |watch| async {
            let mut watch = watch?;
            match watch.next().await {
                Ok(event) => event.map(|event| (Ok(event), Some(watch))),
                Err(error) => Some((Err(error), None)),
            }
        });
        Ok(events.boxed())
    }

    async fn object(&self, resource: &RemoteKind, key: &str) -> Result<RemoteObject, ApiError> {
        let (peer, version) = self.peer(resource)?;
        let path = path_of(resource, &version, key);
        let answer = CONTROLLER.get(&peer, &path, Some(OBJECT), HeaderMap::new(), OBJECT_BYTES).await;
        let answer = accepted(resource, Some(key), answer)?;
        let kind = resource.clone();
        let object = discovery::read(answer, move |object, _| {
            RemoteObject::read(&kind, &object["metadata"]).ok_or_else(|| "the answer is not an object".to_owned())
        });
        let object = object.await.map_err(|why| unavailable(resource, &why))?;
        if *object.key != *key {
            return Err(unavailable(resource, "the answer is another object"));
        }
        Ok(object)
    }
}

impl RemoteAccess for AggregatedObjects {
    fn generation(&self) -> u64 {
        // Each of them only increases.
        let of_peers = self.peers.as_ref().map_or(0, |peers| peers.generation());
        self.aggregator.current().generation() + self.aggregator.discovery().generation() + of_peers
    }

    fn serves(&self, group: &str, version: &str) -> bool {
        self.aggregator.current().remote(group, version).is_some()
            || self.of_peers().any(|it| (&*it.group, &*it.version) == (group, version))
    }

    fn is_silent(&self, group: &str, version: &str) -> bool {
        let discovered = self.aggregator.discovery();
        let is_current = discovered.version(group, version).is_some_and(|it| it.freshness == Freshness::Current);
        self.aggregator.current().remote(group, version).is_some() && !is_current
    }

    fn resources(&self) -> Vec<RemoteKind> {
        let (services, discovered) = (self.aggregator.current(), self.aggregator.discovery());
        let mut versions: Vec<&VersionSource> = discovered.versions().collect();
        versions.sort_by(|a, b| {
            let by_priority = b.version_priority.cmp(&a.version_priority);
            by_priority.then_with(|| version_names::compare(&a.version, &b.version))
        });
        let mut known = HashSet::new();
        let mut resources = Vec::new();
        for version in versions.into_iter().filter(|it| services.remote(&it.group, &it.version).is_some()) {
            for resource in version.resources.iter().filter(|resource| can_be_followed(resource)) {
                // Each kind is followed in one of its versions.
                if known.insert((version.group.to_string(), resource.plural.to_string())) {
                    resources.push(resource_of(version.group.to_string(), version.version.to_string(), resource));
                }
            }
        }
        resources.extend(self.of_peers());
        resources
    }

    fn list<'a>(&'a self, resource: &'a RemoteKind, token: &'a str) -> BoxFuture<'a, Result<RemotePage, ApiError>> {
        Box::pin(self.page(resource, token))
    }

    fn watch<'a>(
        &'a self,
        resource: &'a RemoteKind,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<RemoteEvent, ApiError>>, ApiError>> {
        Box::pin(self.watch_from(resource, resource_version))
    }

    fn get<'a>(&'a self, resource: &'a RemoteKind, key: &'a str) -> BoxFuture<'a, Result<RemoteObject, ApiError>> {
        Box::pin(self.object(resource, key))
    }

    fn delete<'a>(
        &'a self,
        resource: &'a RemoteKind,
        key: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.change(resource, key, |peer, path| async move {
            CONTROLLER.delete(&peer, &path, &options, OBJECT_BYTES).await
        }))
    }

    fn patch<'a>(
        &'a self,
        resource: &'a RemoteKind,
        key: &'a str,
        patch: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(self.change(resource, key, |peer, path| async move {
            CONTROLLER.patch(&peer, &path, &patch, OBJECT_BYTES).await
        }))
    }
}

/// Returns true if a kind supports all needed verbs.
fn can_be_followed(resource: &DiscoveredResource) -> bool {
    VERBS.iter().all(|wanted| resource.verbs.iter().any(|verb| *verb == *wanted))
}

fn resource_of(group: String, version: String, resource: &DiscoveredResource) -> RemoteKind {
    RemoteKind {
        group,
        version,
        plural: resource.plural.to_string(),
        kind: resource.kind.kind.to_string(),
        is_namespaced: resource.is_namespaced(),
    }
}

/// A running watch.
struct Watch {
    resource: RemoteKind,
    body: AnswerStream,
    /// The received part of the next line.
    line: BytesMut,
    until: Instant,
}

impl Watch {
    /// The next event; `None` when the watch has ended.
    async fn next(&mut self) -> Result<Option<RemoteEvent>, ApiError> {
        loop {
            // A server that always has another event must not hold the thread.
            consume_budget().await;
            let Some(line) = self.next_line().await? else { return Ok(None) };
            let resource = self.resource.clone();
            let event = if line.len() > discovery::LARGE_BYTES {
                outcome(keelson_supervision::spawn_blocking(move || event_of(&resource, &line))).await
            } else {
                event_of(&resource, &line)
            };
            if let Some(event) = event? {
                return Ok(Some(event));
            }
        }
    }

    async fn next_line(&mut self) -> Result<Option<Bytes>, ApiError> {
        let mut seen = 0;
        loop {
            if let Some(end) = self.line[seen..].iter().position(|byte| *byte == b'\n') {
                return Ok(Some(self.line.split_to(seen + end + 1).freeze()));
            }
            seen = self.line.len();
            if seen > OBJECT_BYTES {
                return Err(unavailable(&self.resource, "an event is too large"));
            }
            match timeout_at(self.until, self.body.data()).await {
                Ok(Ok(Some(data))) => self.line.extend_from_slice(&data),
                Ok(Err(why)) => return Err(unavailable(&self.resource, &why)),
                Ok(Ok(None)) | Err(_) => return Ok(None),
            }
        }
    }
}

/// The event of a line, if it has one.
fn event_of(resource: &RemoteKind, line: &[u8]) -> Result<Option<RemoteEvent>, ApiError> {
    let parsed = keelson_codec::json::parse(line).map_err(|_| unavailable(resource, "an event is not JSON"))?;
    let (event, object) = (&parsed.value, &parsed.value["object"]);
    let read = || {
        let read = RemoteObject::read(resource, &object["metadata"]);
        read.ok_or_else(|| unavailable(resource, "an event is about no object"))
    };
    match event["type"].as_str() {
        Some("ADDED" | "MODIFIED") => Ok(Some(RemoteEvent::Is(read()?))),
        Some("DELETED") => Ok(Some(RemoteEvent::Gone(read()?))),
        Some("BOOKMARK") => {
            let version = object["metadata"]["resourceVersion"].as_str().filter(|version| !version.is_empty());
            Ok(version.map(|version| RemoteEvent::UpTo(version.to_owned())))
        }
        Some("ERROR") if object["code"] == 410 => Err(expired()),
        _ => Err(unavailable(resource, "a watch has failed")),
    }
}

fn encoded(text: &str) -> impl std::fmt::Display {
    utf8_percent_encode(text, PLAIN)
}

fn path_of(resource: &RemoteKind, version: &str, key: &str) -> String {
    let (namespace, name) = key.split_once('/').map_or((None, key), |(namespace, name)| (Some(namespace), name));
    let below = namespace.map(|namespace| format!("namespaces/{}/", encoded(namespace))).unwrap_or_default();
    format!("{version}/{below}{}/{}", resource.plural, encoded(name))
}

/// The objects of a page. One invalid object fails the whole list, since a skipped object would look like a deleted
/// one.
fn page_of(resource: &RemoteKind, list: &Value) -> Result<RemotePage, String> {
    let items = match list.get("items") {
        Some(Value::Array(items)) => items.as_slice(),
        Some(Value::Null) => &[],
        _ => return Err("the answer is not a list".to_owned()),
    };
    let objects = items.iter().map(|item| RemoteObject::read(resource, &item["metadata"])).collect::<Option<_>>();
    let text = |field: &str| list["metadata"][field].as_str().unwrap_or_default().to_owned();
    Ok(RemotePage {
        objects: objects.ok_or("an item of the list is not an object of this kind")?,
        resource_version: text("resourceVersion"),
        token: text("continue"),
    })
}

/// Returns a successful response. A 404 counts only if its body names the object.
fn accepted(
    resource: &RemoteKind,
    key: Option<&str>,
    answer: Result<RestResponse, CallError>,
) -> Result<RestResponse, ApiError> {
    let answer = answer.map_err(|error| match error {
        // The caller reads the object again before it retries the change.
        CallError::Unknown(why) => ApiError::Timeout(format!("{}: {why}", resource.name())),
        error => unavailable(resource, &error.to_string()),
    })?;
    let name = key.map(|key| key.rsplit_once('/').map_or(key, |(_, name)| name));
    match (answer.status, name) {
        (200..300, _) => Ok(answer),
        (404, Some(name)) if says_missing(&answer.body, name) => {
            Err(ApiError::NotFound { resource: resource.name(), name: name.to_owned() })
        }
        (409, Some(name)) => Err(ApiError::Conflict {
            resource: resource.name(),
            name: name.to_owned(),
            message: Box::new(ConflictKind::Modified),
        }),
        (410, None) => Err(expired()),
        _ => Err(unavailable(resource, &failure_text(&answer).unwrap_or_default())),
    }
}

/// Returns true if a body is a `Status` which says that the object with this name does not exist.
fn says_missing(body: &[u8], name: &str) -> bool {
    status_of(body).is_some_and(|status| {
        status["kind"] == "Status" && status["reason"] == "NotFound" && status["details"]["name"] == name
    })
}

fn expired() -> ApiError {
    ApiError::Expired { message: ExpiredKind::ListRevision, continue_token: None }
}

fn unavailable(resource: &RemoteKind, why: &str) -> ApiError {
    ApiError::ServiceUnavailable { message: format!("{}: {why}", resource.name()), retry_after_seconds: None }
}
