//! One mirrored resource: a cache that its list and watch feed, and a registry that answers reads from the cache.
//!
//! The cache has one collection, so its watermark is the revision that this resource's watch has reached. A cache of
//! several resources would be as old as the oldest of their watches.

use std::sync::Arc;
use std::time::Duration;

use keelson_access::Authorizer;
use keelson_cache::{Cache, CacheConfig, CollectionSpec, Packing};
use keelson_codec::FieldPath;
use keelson_http::handlers::ResourceHandlers;
use keelson_meta::{Clock, Random};
use keelson_registry::{BuiltinKinds, Registry, RegistryConfig, ResourceRegistration, Target};
use keelson_resources::Collection;
use keelson_storage::Store;
use keelson_supervision::Supervisor;

use crate::copy::{ResourceCopy, SourceCopy};
use crate::discovery::Served;
use crate::objects::MirroredKind;
use crate::progress::Progress;
use crate::source::Source;
use crate::upstream_store::UpstreamStore;

/// The longest time that a read waits for the revision that its request names.
const REVISION_WAIT: Duration = Duration::from_secs(3);

/// The longest time in which a copied state must reach the newest one.
const CATCH_UP_TIME: Duration = Duration::from_secs(60);
/// The limit of a resource's history in bytes.
const HISTORY_BYTES: u64 = 64 << 20;
/// The limit of a large resource's uncompressed objects in bytes.
const PLAIN_BYTES: u64 = 64 << 20;
/// The limit of a resource's kept query views in bytes.
const VIEW_BYTES: u64 = 64 << 20;

/// The parts that all mirrors share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) source: Arc<Source>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) supervisor: Supervisor,
    pub(crate) registry: RegistryConfig,
    /// The durable copy of the mirrors.
    pub(crate) copy: SourceCopy,
}

/// A mirrored resource.
pub(crate) struct Mirror {
    pub(crate) served: Served,
    pub(crate) contribution: ResourceRegistration,
    /// The uid and generation of its definition at the source.
    pub(crate) definition: Option<(String, i64)>,
    pub(crate) progress: Arc<Progress>,
    prefix: String,
    copy: Arc<ResourceCopy>,
    cache: Arc<Cache>,
    registry: Arc<Registry>,
    handlers: ResourceHandlers,
}

/// The one kind of a registry.
struct SingleRegistration(ResourceRegistration);

impl BuiltinKinds for SingleRegistration {
    fn contributions(&self, _: &RegistryConfig) -> Vec<ResourceRegistration> {
        vec![self.0.clone()]
    }
}

impl Mirror {
    /// Loads the resource, and follows it from then on.
    ///
    /// # Errors
    /// The source does not list it or does not watch it.
    pub(crate) async fn start(
        shared: &Shared,
        served: Served,
        contribution: ResourceRegistration,
        definition: Option<(String, i64)>,
    ) -> Result<Self, String> {
        let layouts = Collection::all([contribution.resource()].into_iter());
        let Some(layout) = layouts.first() else { return Err("its objects are not stored".to_owned()) };
        let (prefix, kind) = (layout.key_prefix(), contribution.resource().gvk(&served.version));
        let mirrored =
            MirroredKind { kind, namespaced: served.namespaced, path: served.path(), prefix: prefix.clone() };
        let progress = Arc::new(Progress::new());
        // The source serves its objects in another form when their definition changes, without events.
        let form = format!("{} {} {definition:?}", served.kind, served.namespaced);
        let copy = Arc::new(shared.copy.resource(&served, &prefix, form));
        let (fed, read) = UpstreamStore::views(shared.source.clone(), mirrored, progress.clone(), copy.clone());
        let spec = CollectionSpec {
            prefix: prefix.clone(),
            fields: layout.paths.iter().map(|path| FieldPath::parse(path)).collect(),
            dispatch: layout.dispatch,
            // Objects are served as the source sends them.
            complete: None,
            typed_items: !crate::contribution::is_builtin(&served),
        };
        let config = CacheConfig {
            supervisor: shared.supervisor.clone(),
            history_bytes: HISTORY_BYTES,
            view_bytes: VIEW_BYTES,
            packing: Packing { plain_bytes: PLAIN_BYTES, ..Packing::default() },
            ..CacheConfig::new(shared.clock.clone())
        };
        let is_copied = copy.mark().await.is_some();
        let cache = match Cache::start(Arc::new(fed), vec![spec], config).await {
            Ok(cache) => cache,
            Err(error) => {
                copy.stop(false).await;
                return Err(error.to_string());
            }
        };
        // A copied state has any age, so it is not served before the changes that came after it.
        let newest = *progress.wanted().borrow();
        if is_copied && cache.wait_for(newest, CATCH_UP_TIME).await.is_err() {
            cache.remove(std::slice::from_ref(&prefix)).await;
            copy.stop(true).await;
            return Err("its watch does not reach the newest state from its copy, so it will be listed".to_owned());
        }
        let config = RegistryConfig { revision_wait: REVISION_WAIT, ..shared.registry.clone() };
        let store: Arc<dyn Store> = Arc::new(read);
        let kinds = Arc::new(SingleRegistration(contribution.clone()));
        let registry = Registry::new(kinds, store, cache.clone(), shared.clock.clone(), shared.random.clone(), config);
        let registry = Arc::new(registry.with_authorizer(shared.authorizer.clone()));
        let handlers = ResourceHandlers::new(registry.clone());
        Ok(Self { served, contribution, definition, progress, prefix, copy, cache, registry, handlers })
    }

    /// The handlers of its reads.
    pub(crate) fn handlers(&self) -> &ResourceHandlers {
        &self.handlers
    }

    /// The registry of its objects.
    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }

    /// A request's target in this mirror.
    pub(crate) fn target(&self, target: &Target) -> Option<Target> {
        let Served { group, version, plural, .. } = &self.served;
        let own = self.registry.surface().lookup(group, version, plural)?;
        Some(Target { namespace: target.namespace.clone(), name: target.name.clone(), ..own })
    }

    /// Completes the durable copy.
    pub(crate) async fn complete_copy(&self) {
        self.copy.stop(false).await;
    }

    /// Ends its watches. Reads in progress end with the last state.
    pub(crate) async fn close(&self) {
        self.cache.remove(std::slice::from_ref(&self.prefix)).await;
        self.copy.stop(self.progress.is_restored()).await;
    }
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("served", &self.served).finish_non_exhaustive()
    }
}
