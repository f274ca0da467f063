//! Fetches the discovery of aggregated servers in the background and keeps it.
//!
//! Every server fetches these documents for itself. It requests each aggregated server separately, once for all its
//! versions, after each change of its APIServices and once a minute. A version without an answer is shown as stale.
//! Fragments change only with their content, so equal responses leave every ETag unchanged.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use keelson_controllers::{Backoff, Outcome, Queue};
use keelson_discovery::{
    DiscoveredResource, Fragment, Freshness, SourceOrder, VersionSource, aggregated_versions, legacy_resources,
};
use keelson_meta::Revision;
use keelson_meta::json::Value;
use keelson_openapi::{ForeignDocument, ForeignPaths};
use keelson_outbound::{ByteBudget, ByteReservation, Outbound, RemoteService, RestClient, RestResponse, cut};
use keelson_supervision::{RepeatLog, warn_repeated};
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use crate::api_service::ApiService;
use crate::api_services::ApiServices;
use crate::availability::FAILED_CHECK;
use crate::openapi::{self, ServerOpenApi};
use crate::requester::{AGGREGATOR, Requester};

/// The log of failed discovery requests.
static SILENT: RepeatLog = RepeatLog::new();

/// The interval between requests to a server whose APIServices do not change, as upstream.
const INTERVAL: Duration = Duration::from_secs(60);
/// The backoff of a server that does not answer.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: INTERVAL };
/// The number of concurrent requests. Each takes a few seconds at the most.
const AT_ONCE: usize = 64;
/// The most bytes of a document: several times the size for a server with thousands of resources.
pub(crate) const DOCUMENT_BYTES: usize = 8 << 20;
/// The most bytes of all kept documents, including those of OpenAPI.
const KEPT_BYTES: usize = 256 << 20;
/// The size in bytes above which documents are parsed on a blocking thread.
pub(crate) const LARGE_BYTES: usize = 64 << 10;
/// The most bytes of an error text. It may quote the document.
const FAULT_BYTES: usize = 4 << 10;

/// The accepted documents, preferred first.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// The identity for requests of the older documents, one for each version.
const LEGACY: Requester = Requester { groups: &[], ..AGGREGATOR };

/// The discovery of aggregated servers.
#[derive(Debug, Default)]
pub struct AggregatedDiscovery {
    generation: u64,
    fragments: BTreeMap<(String, String), Arc<Fragment>>,
    descriptions: BTreeMap<(String, String), Arc<ForeignDocument>>,
    paths: BTreeMap<(String, String), Arc<ForeignPaths>>,
}

impl AggregatedDiscovery {
    /// The generation, which increases with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// One fragment for each version of a group on an aggregated server, including stale ones.
    pub fn fragments(&self) -> impl Iterator<Item = &Arc<Fragment>> {
        self.fragments.values()
    }

    /// The OpenAPI 3 documents of aggregated servers, including unavailable ones.
    pub fn descriptions(&self) -> impl Iterator<Item = &Arc<ForeignDocument>> {
        self.descriptions.values()
    }

    /// The OpenAPI 2 documents of aggregated servers, including unavailable ones.
    pub fn paths(&self) -> impl Iterator<Item = &Arc<ForeignPaths>> {
        self.paths.values()
    }

    /// The sources of all versions, by group and version.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &VersionSource> {
        self.fragments.values().map(|fragment| fragment.source())
    }

    /// The source of a version.
    pub fn version(&self, group: &str, version: &str) -> Option<&VersionSource> {
        self.fragments.get(&(group.to_owned(), version.to_owned())).map(|fragment| fragment.source())
    }
}

/// The last answer of a server.
#[derive(Clone, Default)]
struct ServerDiscovery {
    /// The ETag of its document.
    tag: Option<HeaderValue>,
    document: Arc<ServedVersions>,
    /// The versions without an answer.
    failed: HashSet<(String, String)>,
    /// True if there was no answer at all.
    is_silent: bool,
    /// The revisions of the APIServices at the time of the request.
    asked: HashMap<(String, String), Revision>,
    /// Its OpenAPI documents.
    openapi: Arc<ServerOpenApi>,
}

/// The content of a document, by group and version.
#[derive(Debug, Default)]
struct ServedVersions {
    versions: HashMap<(String, String), Vec<DiscoveredResource>>,
    _reservations: Vec<ByteReservation>,
}

/// Fetches the documents and keeps the fragments made of them.
pub(crate) struct DiscoveryFetcher {
    current: ArcSwap<AggregatedDiscovery>,
    queue: Queue<RemoteService>,
    fetched: Mutex<HashMap<RemoteService, ServerDiscovery>>,
    /// The budget for the kept documents of all servers.
    kept: ByteBudget,
}

impl Default for DiscoveryFetcher {
    fn default() -> Self {
        Self {
            current: ArcSwap::default(),
            queue: Queue::new("aggregator_discovery", BACKOFF),
            fetched: Mutex::default(),
            kept: ByteBudget::new(KEPT_BYTES),
        }
    }
}

impl DiscoveryFetcher {
    pub(crate) fn current(&self) -> Arc<AggregatedDiscovery> {
        self.current.load_full()
    }

    /// Publishes the registered APIServices, and enqueues the servers whose APIServices changed.
    pub(crate) fn update(&self, before: &ApiServices, now: &ApiServices) {
        for (service, remote) in now.remotes() {
            let known = before.get(&service.group, &service.version);
            if known.is_none_or(|known| known.revision != service.revision) {
                self.queue.add(remote.clone());
            }
        }
        let registered: HashSet<&RemoteService> = now.remotes().map(|(_, remote)| remote).collect();
        self.fetched.lock().retain(|remote, _| registered.contains(remote));
        self.publish(now);
    }

    /// Fetches documents until dropped.
    pub(crate) async fn run(&self, outbound: &Outbound, aggregated: impl Fn() -> Arc<ApiServices>) -> Infallible {
        let asking = self.queue.run(AT_ONCE, |remote| self.turn(remote, outbound, &aggregated));
        let again = async {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                aggregated().remotes().for_each(|(_, remote)| self.queue.add(remote.clone()));
            }
        };
        tokio::select! {
            never = asking => never,
            never = again => never,
        }
    }

    async fn turn(
        &self,
        remote: RemoteService,
        outbound: &Outbound,
        aggregated: &impl Fn() -> Arc<ApiServices>,
    ) -> Outcome {
        let versions: Vec<Arc<ApiService>> = aggregated()
            .behind(&remote.namespace, &remote.name)
            .iter()
            .filter(|service| service.remote() == Some(&remote) && may_answer(service))
            .cloned()
            .collect();
        // A server without an address is not requested. Its versions become stale.
        if versions.is_empty() {
            self.publish(&aggregated());
            return Outcome::Done;
        }
        let known = self.fetched.lock().get(&remote).cloned().unwrap_or_default();
        let mut fetched = fetch(&remote, outbound, &versions, &known, &self.kept).await;
        fetched.asked = versions.iter().map(|service| (service.group_version(), service.revision)).collect();
        // A server with an address is requested again after a change of its condition, and at each interval.
        let is_expected = versions.iter().any(|service| service.is_available());
        let outcome = if fetched.is_silent && is_expected { Outcome::Again } else { Outcome::Done };
        // Resources are published at once, with the previous OpenAPI documents until the new ones arrive.
        fetched.openapi = known.openapi;
        self.fetched.lock().insert(remote.clone(), fetched.clone());
        self.publish(&aggregated());
        fetched.openapi = Arc::new(openapi::fetch(&remote, outbound, &versions, &fetched.openapi, &self.kept).await);
        self.fetched.lock().insert(remote, fetched);
        self.publish(&aggregated());
        outcome
    }

    /// Rebuilds the fragments from the fetched documents, if they changed.
    fn publish(&self, now: &ApiServices) {
        // Held until the value is published, so that a newer value is never replaced by an older one.
        let fetched = self.fetched.lock();
        let shown = self.current.load_full();
        let (mut next, mut descriptions, mut paths) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for (service, remote) in now.remotes() {
            let source = source(service, fetched.get(remote));
            let name = service.group_version();
            if let Some(document) = fetched.get(remote).and_then(|fetched| fetched.openapi.document(&name)) {
                descriptions.insert(name.clone(), document.clone());
            }
            if let Some(part) = fetched.get(remote).and_then(|fetched| fetched.openapi.paths(&name)) {
                paths.insert(name.clone(), part.clone());
            }
            let kept = shown.fragments.get(&name).filter(|kept| *kept.source() == source);
            next.insert(name, kept.cloned().unwrap_or_else(|| Fragment::new(source)));
        }
        let is_shown = is_same(&next, &shown.fragments)
            && is_same(&descriptions, &shown.descriptions)
            && is_same(&paths, &shown.paths);
        if !is_shown {
            let generation = shown.generation + 1;
            self.current.store(Arc::new(AggregatedDiscovery { generation, fragments: next, descriptions, paths }));
        }
    }
}

type ByVersion<T> = BTreeMap<(String, String), Arc<T>>;

fn is_same<T>(new: &ByVersion<T>, old: &ByVersion<T>) -> bool {
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.0 == old.0 && Arc::ptr_eq(new.1, old.1))
}

/// Returns true for a version whose server is available, or fails its check but may still serve discovery.
fn may_answer(service: &ApiService) -> bool {
    service.is_available() || service.condition.as_ref().is_some_and(|condition| condition.reason == FAILED_CHECK)
}

/// The source of a version for discovery.
fn source(service: &ApiService, fetched: Option<&ServerDiscovery>) -> VersionSource {
    let name = service.group_version();
    let is_fresh =
        |it: &ServerDiscovery| service.is_available() || it.asked.get(&name).is_some_and(|at| *at == service.revision);
    let fetched = fetched.filter(|it| is_fresh(it) && !it.is_silent && !it.failed.contains(&name));
    VersionSource {
        group: service.group.clone().into(),
        version: service.version.clone().into(),
        group_priority: service.group_priority,
        version_priority: service.version_priority,
        order: SourceOrder::Aggregated,
        freshness: if fetched.is_some() { Freshness::Current } else { Freshness::Stale },
        resources: fetched.and_then(|fetched| fetched.document.versions.get(&name).cloned()).unwrap_or_default(),
    }
}

/// Fetches the discovery of a server. Tries its endpoints in turn until one answers.
async fn fetch(
    remote: &RemoteService,
    outbound: &Outbound,
    versions: &[Arc<ApiService>],
    known: &ServerDiscovery,
    kept: &ByteBudget,
) -> ServerDiscovery {
    let why = match remote.clients(outbound) {
        Ok(clients) => {
            let mut failed = String::new();
            for client in clients {
                match of_peer(&client, versions, known, kept).await {
                    Ok(fetched) => {
                        if let Some(due) = SILENT.worked(remote) {
                            let (service, repeats) = (remote.to_string(), due.repeats);
                            tracing::info!(service, repeats, "an aggregated server answers discovery requests again");
                        }
                        return fetched;
                    }
                    Err(why) => failed = why,
                }
            }
            failed
        }
        Err(why) => why,
    };
    // A server without an available version is not logged: its conditions already report the failure.
    let is_expected = versions.iter().any(|service| service.is_available());
    if let Some(due) = is_expected.then(|| SILENT.failed(remote)).flatten() {
        let (service, repeats) = (remote.to_string(), due.repeats);
        tracing::warn!(service, repeats, why, "an aggregated server does not answer discovery requests");
    }
    ServerDiscovery { is_silent: true, ..ServerDiscovery::default() }
}

/// Fetches discovery from one endpoint, in the aggregated or the older format.
async fn of_peer(
    client: &RestClient,
    versions: &[Arc<ApiService>],
    known: &ServerDiscovery,
    kept: &ByteBudget,
) -> Result<ServerDiscovery, String> {
    let mut headers = HeaderMap::new();
    if let Some(tag) = known.tag.clone() {
        headers.insert(IF_NONE_MATCH, tag);
    }
    let answer = AGGREGATOR.get(client, "/apis", Some(ACCEPT), headers, DOCUMENT_BYTES).await;
    let answer = answer.map_err(|error| error.to_string())?;
    match answer.status {
        503 => Err("its answer is 503".to_owned()),
        304 => {
            let document = if known.tag.is_some() { known.document.clone() } else { Arc::default() };
            Ok(ServerDiscovery { tag: known.tag.clone(), document, ..ServerDiscovery::default() })
        }
        200 if is_aggregated(&answer.content_type) => {
            let tag = answer.headers.get(ETAG).cloned();
            let reservation = kept.hold(answer.body.len())?;
            let versions = read(answer, |value, _| aggregated_versions(value)).await?;
            let document = Arc::new(ServedVersions { versions, _reservations: vec![reservation] });
            Ok(ServerDiscovery { tag, document, ..ServerDiscovery::default() })
        }
        _ => Ok(by_version(client, versions, kept).await),
    }
}

/// Fetches the older documents, one for each version.
async fn by_version(client: &RestClient, versions: &[Arc<ApiService>], kept: &ByteBudget) -> ServerDiscovery {
    let mut fetched = ServerDiscovery::default();
    let asked = versions.iter().map(|service| async move {
        let answer =
            LEGACY.get(client, &service.path(), Some("application/json"), HeaderMap::new(), DOCUMENT_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("its answer is {}", answer.status));
        }
        let reservation = kept.hold(answer.body.len())?;
        Ok((read(answer, |value, _| legacy_resources(value)).await?, reservation))
    });
    let answers = futures::future::join_all(asked).await;
    let mut document = ServedVersions::default();
    for (service, answer) in versions.iter().zip(answers) {
        let name = service.group_version();
        match answer {
            Ok((resources, reservation)) => {
                document.versions.insert(name, resources);
                document._reservations.push(reservation);
            }
            Err(why) => {
                warn_repeated!(&service.name; name = service.name, why, "an aggregated server does not answer discovery requests");
                fetched.failed.insert(name);
            }
        }
    }
    fetched.document = Arc::new(document);
    fetched
}

/// Returns true for the media type of aggregated discovery.
pub(crate) fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next();
    let parameters: HashMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let is = |name: &str, values: &[&str]| parameters.get(name).is_some_and(|value| values.contains(value));
    media == Some("application/json")
        && is("g", &["apidiscovery.k8s.io"])
        && is("v", &["v2", "v2beta1"])
        && is("as", &["APIGroupDiscoveryList"])
}

/// Parses a response, on a blocking thread if it is large.
pub(crate) async fn read<T: Send + 'static>(
    answer: RestResponse,
    of: impl Fn(&Value, &Bytes) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let is_large = answer.body.len() > LARGE_BYTES;
    let read = move || {
        let read = value(&answer.body).and_then(|value| of(&value, &answer.body));
        read.map_err(|why| cut(&why, FAULT_BYTES).to_owned())
    };
    if is_large { keelson_supervision::outcome(keelson_supervision::spawn_blocking(read)).await } else { read() }
}

/// Parses JSON, or YAML, which upstream accepts too.
fn value(body: &[u8]) -> Result<Value, String> {
    match keelson_codec::json::parse(body) {
        Ok(parsed) => Ok(parsed.value),
        Err(error) => match keelson_codec::yaml::parse(body) {
            Ok(parsed) if parsed.value.is_object() => Ok(parsed.value),
            _ => Err(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::is_aggregated;

    #[test]
    fn an_aggregated_document_is_known_by_its_media_type() {
        let check = |text: &str, expected: bool| assert_eq!(is_aggregated(text), expected, "{text}");
        check("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", true);
        check("application/json; as=APIGroupDiscoveryList; v=v2beta1; g=apidiscovery.k8s.io", true);
        check("application/json;g=apidiscovery.k8s.io;v=v3;as=APIGroupDiscoveryList", false);
        check("application/json", false);
        check("", false);
    }
}
