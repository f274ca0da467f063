//! Fetches the discovery of aggregated servers in the background, and keeps what each of them serves.
//!
//! Every server does so for itself, each aggregated server on its own and once for all its versions: whenever something about its APIServices
//! changes, and once a minute. What is shown of a version that can't be had is that there is one, and that it is stale. The fragments
//! change only when what is shown of them does, so that equal answers leave every tag as it was.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH};
use keelson_controllers::{Backoff, Outcome, Queue};
use keelson_discovery::{
    DiscoveredResource, Fragment, Freshness, SourceOrder, VersionSource, aggregated_versions, legacy_resources,
};
use keelson_meta::json::Value;
use keelson_openapi::ForeignDocument;
use keelson_outbound::{Answer, Outbound, Peer};
use parking_lot::Mutex;
use tokio::time::MissedTickBehavior;

use crate::aggregated::Aggregated;
use crate::api_service::{ApiService, RemoteService};
use crate::asking::{AGGREGATOR, Asker};
use crate::describing::{self, Described};

/// How often a server is asked again of which nothing has changed, as upstream has it.
const INTERVAL: Duration = Duration::from_secs(60);
/// Those that fail are asked again after the interval, or when they are available again.
const BACKOFF: Backoff = Backoff { first: INTERVAL, longest: INTERVAL };
/// How many servers are asked at once. Each takes a few seconds at the most.
const AT_ONCE: usize = 64;
/// How many bytes a document may have: a few times what a server with thousands of resources has.
const DOCUMENT_BYTES: usize = 8 << 20;
/// Larger documents are read on a thread of their own.
const LARGE_BYTES: usize = 64 << 10;

/// The documents that are asked for, the better one first.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// In whose name the older document is asked for.
const LEGACY: Asker = Asker { groups: &[], ..AGGREGATOR };

/// What aggregated servers serve, as discovery shows it.
#[derive(Debug, Default)]
pub struct Discovered {
    generation: u64,
    fragments: BTreeMap<(String, String), Arc<Fragment>>,
    descriptions: BTreeMap<(String, String), Arc<ForeignDocument>>,
}

impl Discovered {
    /// Which one it is: the number goes up with each change.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// One fragment for each version of a group that an aggregated server serves, stale ones included.
    pub fn fragments(&self) -> impl Iterator<Item = &Arc<Fragment>> {
        self.fragments.values()
    }

    /// What aggregated servers published of their versions in OpenAPI, those that are away included.
    pub fn descriptions(&self) -> impl Iterator<Item = &Arc<ForeignDocument>> {
        self.descriptions.values()
    }

    /// What is known of all versions, by group and version.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &VersionSource> {
        self.fragments.values().map(|fragment| fragment.source())
    }

    /// What is known of a version.
    pub fn version(&self, group: &str, version: &str) -> Option<&VersionSource> {
        self.fragments.get(&(group.to_owned(), version.to_owned())).map(|fragment| fragment.source())
    }
}

/// What a server answered last.
#[derive(Clone, Default)]
struct Fetched {
    /// The tag of its document.
    tag: Option<HeaderValue>,
    /// The document, by group and version.
    document: Arc<HashMap<(String, String), Vec<DiscoveredResource>>>,
    /// The versions of which nothing is known.
    failed: HashSet<(String, String)>,
    /// Whether nothing is known at all.
    is_silent: bool,
    /// What it published in OpenAPI.
    described: Arc<Described>,
}

/// Keeps the fragments.
pub(crate) struct Discovering {
    current: ArcSwap<Discovered>,
    queue: Queue<RemoteService>,
    fetched: Mutex<HashMap<RemoteService, Arc<Fetched>>>,
}

impl Default for Discovering {
    fn default() -> Self {
        Self { current: ArcSwap::default(), queue: Queue::new(BACKOFF), fetched: Mutex::default() }
    }
}

impl Discovering {
    pub(crate) fn current(&self) -> Arc<Discovered> {
        self.current.load_full()
    }

    /// Shows what is registered now, and asks those anew of whom something has changed.
    pub(crate) fn take_in(&self, before: &Aggregated, now: &Aggregated) {
        let is_new = |service: &&Arc<ApiService>| {
            before.of(&service.group, &service.version).is_none_or(|known| known.revision != service.revision)
        };
        for service in now.services().filter(is_new) {
            if let Some(remote) = service.remote() {
                self.queue.add(remote.clone());
            }
        }
        let registered: HashSet<&RemoteService> = now.services().filter_map(|service| service.remote()).collect();
        self.fetched.lock().retain(|remote, _| registered.contains(remote));
        self.publish(now);
    }

    /// Asks servers for as long as it is polled.
    pub(crate) async fn run(&self, outbound: &Outbound, aggregated: impl Fn() -> Arc<Aggregated>) -> Infallible {
        let asking = self.queue.run(AT_ONCE, |remote| self.turn(remote, outbound, &aggregated));
        let again = async {
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                aggregated()
                    .services()
                    .filter_map(|service| service.remote())
                    .for_each(|it| self.queue.add(it.clone()));
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
        aggregated: &impl Fn() -> Arc<Aggregated>,
    ) -> Outcome {
        let versions: Vec<Arc<ApiService>> = aggregated()
            .services()
            .filter(|service| service.remote() == Some(&remote) && service.is_available())
            .cloned()
            .collect();
        let known = self.fetched.lock().get(&remote).cloned();
        // A server that nobody reaches is not asked: its versions are stale by that.
        if !versions.is_empty() {
            let described = known.as_ref().map(|known| known.described.clone()).unwrap_or_default();
            let fetched = Fetched { described, ..fetch(&remote, outbound, &versions, known.as_deref()).await };
            let next = Fetched { described: Arc::default(), ..fetched.clone() };
            let described = fetched.described.clone();
            self.fetched.lock().insert(remote.clone(), Arc::new(fetched));
            self.publish(&aggregated());
            let described = Arc::new(describing::fetch(&remote, outbound, &versions, &described).await);
            self.fetched.lock().insert(remote, Arc::new(Fetched { described, ..next }));
        }
        self.publish(&aggregated());
        Outcome::Done
    }

    /// Makes the fragments of what is known, if they are not those that are shown.
    fn publish(&self, now: &Aggregated) {
        // Held to the end, so that what is shown never goes back.
        let fetched = self.fetched.lock();
        let shown = self.current.load_full();
        let (mut next, mut descriptions) = (BTreeMap::new(), BTreeMap::new());
        for service in now.services() {
            let Some(remote) = service.remote() else { continue };
            let source = source(service, fetched.get(remote).map(|fetched| &**fetched));
            let name = (service.group.clone(), service.version.clone());
            if let Some(document) = fetched.get(remote).and_then(|fetched| fetched.described.document(&name)) {
                descriptions.insert(name.clone(), document.clone());
            }
            let kept = shown.fragments.get(&name).filter(|kept| *kept.source() == source);
            next.insert(name, kept.cloned().unwrap_or_else(|| Fragment::new(source)));
        }
        if !(is_same(&next, &shown.fragments) && is_same(&descriptions, &shown.descriptions)) {
            let generation = shown.generation + 1;
            self.current.store(Arc::new(Discovered { generation, fragments: next, descriptions }));
        }
    }
}

type ByVersion<T> = BTreeMap<(String, String), Arc<T>>;

fn is_same<T>(new: &ByVersion<T>, old: &ByVersion<T>) -> bool {
    new.len() == old.len() && new.iter().zip(old).all(|(new, old)| new.0 == old.0 && Arc::ptr_eq(new.1, old.1))
}

/// What is shown of a version.
fn source(service: &ApiService, fetched: Option<&Fetched>) -> VersionSource {
    let name = (service.group.clone(), service.version.clone());
    let fetched = fetched.filter(|it| service.is_available() && !it.is_silent && !it.failed.contains(&name));
    VersionSource {
        group: service.group.clone().into(),
        version: service.version.clone().into(),
        group_priority: service.group_priority,
        version_priority: service.version_priority,
        order: SourceOrder::Aggregated,
        freshness: if fetched.is_some() { Freshness::Current } else { Freshness::Stale },
        resources: fetched.and_then(|fetched| fetched.document.get(&name).cloned()).unwrap_or_default(),
    }
}

/// What a server says that it serves, by whichever document it has.
async fn fetch(
    remote: &RemoteService,
    outbound: &Outbound,
    versions: &[Arc<ApiService>],
    known: Option<&Fetched>,
) -> Fetched {
    let failed = |why: String| {
        tracing::warn!(service = remote.to_string(), why, "an aggregated server does not say what it serves");
        Fetched { is_silent: true, ..Fetched::default() }
    };
    let peer = match remote.peers(outbound) {
        Ok(peers) => peers.into_iter().next(),
        Err(why) => return failed(why),
    };
    let Some(peer) = peer else { return failed("there is no address".to_owned()) };
    let mut headers = HeaderMap::new();
    if let Some(tag) = known.and_then(|known| known.tag.clone()) {
        headers.insert(IF_NONE_MATCH, tag);
    }
    let answer = match AGGREGATOR.get(&peer, "/apis", Some(ACCEPT), headers, DOCUMENT_BYTES).await {
        Ok(answer) => answer,
        Err(error) => return failed(error.to_string()),
    };
    match answer.status {
        503 => failed("its answer is 503".to_owned()),
        304 => {
            let known = known.filter(|known| known.tag.is_some());
            Fetched {
                tag: known.and_then(|known| known.tag.clone()),
                document: known.map(|known| known.document.clone()).unwrap_or_default(),
                ..Fetched::default()
            }
        }
        200 if is_aggregated(&answer.content_type) => {
            let tag = answer.headers.get(ETAG).cloned();
            match read(answer, aggregated_versions).await {
                Ok(document) => Fetched { tag, document: Arc::new(document), ..Fetched::default() },
                Err(why) => failed(why),
            }
        }
        _ => by_version(&peer, versions).await,
    }
}

/// The same by the older documents, one for each version.
async fn by_version(peer: &Peer, versions: &[Arc<ApiService>]) -> Fetched {
    let mut fetched = Fetched::default();
    let asked = versions.iter().map(|service| async move {
        let answer =
            LEGACY.get(peer, &service.path(), Some("application/json"), HeaderMap::new(), DOCUMENT_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        if answer.status != 200 {
            return Err(format!("its answer is {}", answer.status));
        }
        read(answer, legacy_resources).await
    });
    let answers = futures::future::join_all(asked).await;
    let mut document = HashMap::new();
    for (service, answer) in versions.iter().zip(answers) {
        let name = (service.group.clone(), service.version.clone());
        match answer {
            Ok(resources) => drop(document.insert(name, resources)),
            Err(why) => {
                tracing::warn!(name = service.name, why, "an aggregated server does not say what it serves");
                fetched.failed.insert(name);
            }
        }
    }
    fetched.document = Arc::new(document);
    fetched
}

/// Whether a media type is that of an aggregated document.
fn is_aggregated(content_type: &str) -> bool {
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next();
    let parameters: HashMap<&str, &str> = parts.filter_map(|part| part.split_once('=')).collect();
    let is = |name: &str, values: &[&str]| parameters.get(name).is_some_and(|value| values.contains(value));
    media == Some("application/json")
        && is("g", &["apidiscovery.k8s.io"])
        && is("v", &["v2", "v2beta1"])
        && is("as", &["APIGroupDiscoveryList"])
}

/// What a document says. It is read where that keeps nobody waiting.
pub(crate) async fn read<T: Send + 'static>(
    answer: Answer,
    of: impl Fn(&Value) -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let is_large = answer.body.len() > LARGE_BYTES;
    let read = move || of(&value(&answer.body)?);
    if is_large { keelson_supervision::outcome(tokio::task::spawn_blocking(read)).await } else { read() }
}

/// JSON, or YAML, which upstream reads too.
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
