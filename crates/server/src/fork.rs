//! Forks: servers in this process that begin with the objects of another server, whose store is in memory.
//!
//! A fork has its own store, cache, controllers and port. It shares unchanged objects, compiled schemas and documents
//! with its origin, and has the same keys and certificates, so that credentials of the origin are valid there. Neither
//! sees later writes of the other.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_access::pki::Pki;
use keelson_cache::CacheState;
use keelson_extensions::{Extensions, InheritedDefinitions};
use keelson_http::pages::{Documentation, InheritedDocuments};
use keelson_registry::Registry;
use keelson_storage::memory::{MemorySnapshot, MemoryStore};

use crate::audit::AuditConfig;
use crate::config::Config;
use crate::server::{RunningServer, Server};
use crate::store::StoreConfig;

/// The longest wait until the cache of the origin has the newest write, which takes microseconds. A fork then loads its
/// store.
const CACHE_PATIENCE: Duration = Duration::from_secs(1);

/// The parts of a running server that its forks begin with. It does not keep the server running.
#[derive(Clone)]
pub struct ForkOrigin {
    config: Config,
    store: MemoryStore,
    pki: Pki,
    registry: Weak<Registry>,
    extensions: Weak<Extensions>,
    documentation: Weak<Documentation>,
}

/// The values that a fork shares with its origin, all of the state of one revision.
pub struct Inherited {
    pub(crate) cache: CacheState,
    pub(crate) definitions: InheritedDefinitions,
    pub(crate) documents: InheritedDocuments,
}

impl ForkOrigin {
    /// The origin of forks of a server with this configuration. `None` if its store is not in memory.
    pub(crate) fn new(
        config: &Config,
        pki: &Pki,
        (registry, extensions, documentation): (&Arc<Registry>, &Arc<Extensions>, &Arc<Documentation>),
    ) -> Option<Self> {
        let StoreConfig::InMemory(store) = &config.store else { return None };
        Some(Self {
            config: config.clone(),
            store: store.clone(),
            pki: pki.clone(),
            registry: Arc::downgrade(registry),
            extensions: Arc::downgrade(extensions),
            documentation: Arc::downgrade(documentation),
        })
    }

    /// The store of the origin.
    pub const fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// The configuration of a fork with the objects of a snapshot, on a free port of the same address. A fork writes no
    /// audit log, since the origin has its files open.
    pub fn config_at(&self, snapshot: &MemorySnapshot) -> Config {
        Config {
            bind: SocketAddr::new(self.config.bind.ip(), 0),
            store: StoreConfig::InMemory(MemoryStore::from_snapshot(snapshot)),
            data_dir: None,
            made_pki: Some(self.pki.clone()),
            bootstrapped: true,
            audit: AuditConfig::default(),
            ..self.config.clone()
        }
    }

    /// The configuration of a fork with the current objects. The fork shares the caches of a running origin, so that
    /// its start does not depend on the number of objects.
    pub async fn config_now(&self) -> Config {
        // ORDER: definitions before the snapshot. The fork applies definitions that are newer in the snapshot, and could
        // not undo newer ones.
        let definitions = match self.extensions.upgrade() {
            Some(extensions) => Some(extensions.inheritable().await),
            None => None,
        };
        let snapshot = self.store.snapshot();
        let inherited = match definitions {
            Some(definitions) => self.inherited(&snapshot, definitions).await,
            None => None,
        };
        Config { inherited, ..self.config_at(&snapshot) }
    }

    async fn inherited(&self, snapshot: &MemorySnapshot, definitions: InheritedDefinitions) -> Option<Arc<Inherited>> {
        let (registry, documentation) = (self.registry.upgrade()?, self.documentation.upgrade()?);
        let mut cache = registry.cache().state_at(snapshot.revision(), CACHE_PATIENCE).await.ok()?;
        // A resource with a converter is served anew, since the converter calls webhooks by the services of its server.
        let resources = || definitions.apis().resources().filter(|resource| resource.converter().is_none());
        let prefixes: HashSet<String> =
            resources().filter_map(|resource| Some(resource.stored()?.layout.key_prefix())).collect();
        cache.retain(|prefix| prefixes.contains(prefix));
        let is_whole = {
            let known: HashSet<&str> = cache.prefixes().collect();
            let mut builtin =
                resources().filter(|resource| resource.is_builtin()).filter_map(|resource| resource.stored());
            builtin.all(|stored| known.contains(&*stored.layout.key_prefix()))
        };
        if !is_whole {
            return None;
        }
        let documents = documentation.inheritable(definitions.apis());
        Some(Arc::new(Inherited { cache, definitions, documents }))
    }

    /// Starts a fork with the current objects of the origin. Returns once it answers requests.
    ///
    /// # Errors
    /// The errors of [`Server::start`].
    pub fn fork(&self) -> BoxFuture<'_, anyhow::Result<RunningServer>> {
        Box::pin(async { Server::start(self.config_now().await).await })
    }
}
