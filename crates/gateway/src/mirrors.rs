//! All mirrored resources of a source: they come and go with the source's discovery documents.
//!
//! A resource is served from its mirror once that is loaded. Until then, and if it can't be loaded, its requests are
//! passed through. One resource that fails does not delay the others.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use futures::future::join_all;
use futures::stream;
use keelson_meta::{Object, Revision};
use keelson_registry::ServedApis;
use keelson_supervision::{Backoff, Jitter, warn_repeated};
use tokio::time::{Instant, sleep};

use crate::contribution;
use crate::discovery::{Discovery, Served};
use crate::mirror::{Mirror, Shared};

/// The interval between looks at the discovery documents, which cost two requests with an ETag.
const LOOK: Duration = Duration::from_secs(2);
/// The number of resources that are loaded at the same time.
const LOADS: usize = 8;
/// The waits before another attempt to load a resource.
const AGAIN: Backoff = Backoff { first: Duration::from_secs(2), longest: Duration::from_mins(5) };
/// The waits after failed looks.
const LOOK_AGAIN: Backoff = Backoff { first: Duration::from_millis(500), longest: Duration::from_secs(15) };
/// The time after which the first load of one of several sources no longer holds the gateway back.
const LONGEST_LOAD: Duration = Duration::from_mins(5);
/// The name of the resource with the definitions of custom resources.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// The mirrors that answer requests now.
pub(crate) struct Serving {
    mirrors: HashMap<(String, String), Arc<Mirror>>,
    surface: Arc<ServedApis>,
}

/// All mirrors of a source.
pub(crate) struct Mirrors {
    shared: Shared,
    not_mirrored: BTreeSet<String>,
    serving: ArcSwap<Serving>,
    /// True once each resource of the source was loaded, or could not be loaded.
    is_loaded: AtomicBool,
    /// True while the resources of the source can't be read.
    has_failed: AtomicBool,
    begun: Instant,
}

/// The attempts to load a resource.
struct Attempts {
    count: u32,
    next: Instant,
}

impl Serving {
    fn new(mirrors: HashMap<(String, String), Arc<Mirror>>) -> Self {
        let contributions: Vec<_> = mirrors.values().map(|mirror| mirror.contribution.clone()).collect();
        Self { surface: ServedApis::new(&contributions), mirrors }
    }
}

impl Mirrors {
    pub(crate) fn new(shared: Shared, not_mirrored: BTreeSet<String>) -> Arc<Self> {
        let serving = ArcSwap::from_pointee(Serving::new(HashMap::new()));
        let (is_loaded, has_failed) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { shared, not_mirrored, serving, is_loaded, has_failed, begun: Instant::now() })
    }

    /// The mirror of a resource in this version, if it is loaded.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Mirror>> {
        let serving = self.serving.load();
        let mirror = serving.mirrors.get(&(group.to_owned(), plural.to_owned()))?;
        (mirror.served.version == version && !mirror.progress.is_restored()).then(|| mirror.clone())
    }

    /// The resources that are served from mirrors.
    pub(crate) fn surface(&self) -> Arc<ServedApis> {
        self.serving.load().surface.clone()
    }

    /// The name of the source.
    pub(crate) fn source(&self) -> &str {
        &self.shared.source.name
    }

    /// Returns true once each resource of the source was loaded, or could not be loaded.
    pub(crate) fn is_loaded(&self) -> bool {
        self.is_loaded.load(Ordering::Relaxed)
    }

    /// Returns true while the resources of the source can't be read.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Returns true unless the first load is going on. It may fail, or have no end.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_loaded() || self.has_failed() || self.begun.elapsed() > LONGEST_LOAD
    }

    /// Completes the durable copies of all mirrors, before the gateway ends.
    pub(crate) async fn complete_copies(&self) {
        let mirrors = self.serving.load().mirrors.clone();
        join_all(mirrors.values().map(|mirror| mirror.complete_copy())).await;
    }

    /// Follows the source. Never returns.
    pub(crate) async fn follow(self: Arc<Self>) {
        let mut discovery = Discovery::default();
        let mut attempts = HashMap::new();
        let (mut failures, mut jitter) = (0, Jitter::default());
        loop {
            match self.look(&mut discovery, &mut attempts).await {
                Ok(()) => {
                    failures = 0;
                    self.has_failed.store(false, Ordering::Relaxed);
                    sleep(jitter.spread(LOOK)).await;
                }
                Err(error) => {
                    warn_repeated!(&self.shared.source.name; source = self.shared.source.name, error, "the resources of the source can't be read");
                    self.has_failed.store(true, Ordering::Relaxed);
                    sleep(jitter.spread(LOOK_AGAIN.after(failures))).await;
                    failures += 1;
                }
            }
        }
    }

    async fn look(&self, discovery: &mut Discovery, attempts: &mut HashMap<String, Attempts>) -> Result<(), String> {
        if self.serving.load().mirrors.is_empty() {
            // ORDER: before a mirror reads its copy.
            self.shared.copy.check_cluster(&self.shared.source).await?;
        }
        if discovery.read(&self.shared.source).await.map_err(|fault| fault.to_string())? {
            self.shared.source.read_version().await.map_err(|fault| fault.to_string())?;
        }
        let mut wanted = discovery.resources();
        wanted.retain(|served| !self.not_mirrored.contains(&served.name()));
        self.drop_gone(&wanted).await?;
        // The definitions come first, since the columns of custom resources are in them.
        let is_definitions = |served: &Served| (&*served.group, &*served.plural) == DEFINITIONS;
        let (definitions, others): (Vec<_>, Vec<_>) = wanted.into_iter().partition(is_definitions);
        self.load(definitions, attempts).await;
        self.load(others, attempts).await;
        self.is_loaded.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Stops mirrors whose resource is gone or has changed, or whose source went back to an earlier state.
    async fn drop_gone(&self, wanted: &[Served]) -> Result<(), String> {
        let wanted: HashSet<(&str, &str, &str, &str, bool)> = wanted.iter().map(identity).collect();
        let mut kept = self.serving.load().mirrors.clone();
        // All have revisions of one source, and not each one sees that they went back. ORDER: no copy has a writer when
        // the cluster is checked.
        if kept.values().any(|mirror| mirror.progress.is_restored()) {
            kept.values().for_each(|mirror| mirror.progress.set_restored());
        }
        let mut dropped = Vec::new();
        kept.retain(|_, mirror| {
            let is_kept = wanted.contains(&identity(&mirror.served))
                && !mirror.progress.is_restored()
                && (mirror.definition.is_none()
                    || self.definition(&mirror.served).map(|known| known.0) == mirror.definition);
            if !is_kept {
                dropped.push(mirror.clone());
            }
            is_kept
        });
        if dropped.is_empty() {
            return Ok(());
        }
        // ORDER: requests no longer find a mirror before its watches end.
        self.serving.store(Arc::new(Serving::new(kept)));
        let is_restored = dropped.iter().any(|mirror| mirror.progress.is_restored());
        for mirror in dropped {
            tracing::info!(source = self.shared.source.name, resource = mirror.served.name(), "a mirror was dropped");
            mirror.close().await;
        }
        if is_restored { self.shared.copy.check_cluster(&self.shared.source).await } else { Ok(()) }
    }

    /// Loads the resources that have no mirror yet.
    async fn load(&self, wanted: Vec<Served>, attempts: &mut HashMap<String, Attempts>) {
        let known = self.serving.load().mirrors.clone();
        let is_due = |served: &Served| {
            !known.contains_key(&(served.group.clone(), served.plural.clone()))
                && attempts.get(&served.name()).is_none_or(|attempts| attempts.next <= Instant::now())
        };
        let due: Vec<Served> = wanted.into_iter().filter(is_due).collect();
        let mut loading = stream::iter(due.into_iter().map(|served| async move {
            let loaded = self.start(served.clone()).await;
            (served, loaded)
        }))
        .buffer_unordered(LOADS);
        while let Some((served, loaded)) = loading.next().await {
            let (source, resource) = (&self.shared.source.name, served.name());
            match loaded {
                Ok(mirror) => {
                    tracing::debug!(source, resource, "a resource is mirrored");
                    attempts.remove(&resource);
                    let mut mirrors = self.serving.load().mirrors.clone();
                    mirrors.insert((served.group, served.plural), Arc::new(mirror));
                    self.serving.store(Arc::new(Serving::new(mirrors)));
                }
                Err(error) => {
                    let count = attempts.get(&resource).map_or(0, |attempts| attempts.count + 1);
                    let wait = Jitter::default().spread(AGAIN.after(count));
                    tracing::warn!(
                        source,
                        resource,
                        error,
                        ?wait,
                        "a resource can't be mirrored; its requests are passed through"
                    );
                    attempts.insert(resource, Attempts { count, next: Instant::now() + wait });
                }
            }
        }
    }

    async fn start(&self, served: Served) -> Result<Mirror, String> {
        let definition = if contribution::is_builtin(&served) { None } else { self.definition(&served) };
        let contribution = contribution::resource_registration(&served, definition.as_ref().map(|(_, object)| object));
        Mirror::start(&self.shared, served, contribution, definition.map(|(version, _)| version)).await
    }

    /// The definition of a custom resource, with its uid and generation. `None` if there is none, or it is not mirrored.
    fn definition(&self, served: &Served) -> Option<((String, i64), Object)> {
        let (group, plural) = DEFINITIONS;
        let serving = self.serving.load();
        let registry = serving.mirrors.get(&(group.to_owned(), plural.to_owned()))?.registry();
        let collection = registry.collection(&registry.target(group, plural).ok()?).ok()?;
        let entry = collection.get(&format!("{}.{}", served.plural, served.group))?;
        let object = entry.object().decode(Revision::ZERO);
        Some(((object.uid().to_owned(), object.generation().unwrap_or_default()), object))
    }
}

/// The properties of a resource that its mirror depends on.
fn identity(served: &Served) -> (&str, &str, &str, &str, bool) {
    let Served { group, version, plural, kind, namespaced } = served;
    (group, version, plural, kind, *namespaced)
}

impl std::fmt::Debug for Mirrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirrors").field("source", &self.shared.source).finish_non_exhaustive()
    }
}
