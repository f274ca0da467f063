//! The settings of a server: types, storage, hooks, address and names.
//!
//! A program calls these methods, and `server.rs` starts the server.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use keelson_access::PkiOptions;
use keelson_meta::Random;
use keelson_meta::names::dns_subdomain_faults;
use keelson_registry::Admission;
use kube::{Client, CustomResourceExt, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::signal::unix::{SignalKind, signal};

use crate::admission::{AdmissionHook, HookPlugin};
use crate::external::{Computed, ComputedOnRead, External, Kept, ObjectStore};
use crate::server::RunningApiServer;
use crate::storage::Storage;

/// An aggregated API server. [`ApiServer::builder`] creates one.
///
/// ```no_run
/// use keelson_apiserver::ApiServer;
/// use kube::CustomResource;
/// use schemars::JsonSchema;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
/// #[kube(group = "wardle.example.com", version = "v1", kind = "Flunder", namespaced)]
/// struct FlunderSpec {
///     reference: Option<String>,
/// }
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// ApiServer::builder().resource::<Flunder>().serving_name("flunders.default.svc").serve().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ApiServer;

impl ApiServer {
    /// A builder without resources, with storage in memory, on port 8443 of all addresses.
    pub fn builder() -> ApiServerBuilder {
        ApiServerBuilder {
            definitions: Vec::new(),
            external: Vec::new(),
            storage: Storage::Memory,
            hooks: Vec::new(),
            listen: SocketAddr::from(([0, 0, 0, 0], 8443)),
            data_dir: None,
            pki: PkiOptions::default(),
            main_server: None,
            history: Duration::from_mins(5),
            server_id: None,
            lease: Duration::from_mins(1),
            publishes_storage_versions: true,
        }
    }
}

/// The reason why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// When the server has no resources, or one of them can't be served.
    #[error("{0}")]
    Resource(String),
    /// The store can't be opened or read.
    #[error("the store: {0}")]
    Storage(String),
    /// There is no usable serving certificate.
    #[error("certificates: {0}")]
    Certificates(String),
    /// The main server can't be reached, or does not publish its front proxy's authorities.
    #[error("the main API server: {0}")]
    MainServer(String),
    /// The address is in use, or belongs to another host.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        source: std::io::Error,
    },
}

/// The reason why [`ApiServerBuilder::serve`] ended unexpectedly.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// An essential task has died.
    #[error(transparent)]
    Failed(#[from] keelson_supervision::Failure),
    /// Signals can't be received.
    #[error("signals: {0}")]
    Signals(std::io::Error),
}

/// The settings of a server.
#[must_use]
pub struct ApiServerBuilder {
    pub(crate) definitions: Vec<CustomResourceDefinition>,
    /// Resources whose objects the program keeps or computes itself.
    pub(crate) external: Vec<(CustomResourceDefinition, Arc<dyn External>)>,
    pub(crate) storage: Storage,
    pub(crate) hooks: Vec<Arc<dyn Admission>>,
    pub(crate) listen: SocketAddr,
    pub(crate) data_dir: Option<PathBuf>,
    pub(crate) pki: PkiOptions,
    pub(crate) main_server: Option<Client>,
    pub(crate) history: Duration,
    pub(crate) server_id: Option<String>,
    pub(crate) lease: Duration,
    pub(crate) publishes_storage_versions: bool,
}

impl ApiServerBuilder {
    /// Serves a type. `#[derive(CustomResource)]` of `kube` defines its group, version, names, scope, columns and
    /// subresources. `#[derive(JsonSchema)]` of `schemars` defines its schema, which validates, defaults, prunes and
    /// documents objects.
    pub fn resource<K: CustomResourceExt>(self) -> Self {
        self.definition(K::crd())
    }

    /// Serves a definition like that of a custom resource: with several versions (`kube::core::crd::merge_crds`), or
    /// not derived. Its versions may differ only in name.
    pub fn definition(mut self, definition: CustomResourceDefinition) -> Self {
        self.definitions.push(definition);
        self
    }

    /// Serves a type whose objects are in a store of the program's own. Reads use a copy in memory that follows the
    /// store, and writes go to the store first. Such a server keeps other objects only in memory.
    pub fn resource_in<K>(mut self, store: impl ObjectStore<K>) -> Self
    where
        K: CustomResourceExt + Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.external.push((K::crd(), Arc::new(Kept::<K, _>::new(store))));
        self
    }

    /// Serves a read-only type whose objects are computed on each read. It supports get, list and watch; a watch gets
    /// changes every other second. Such a server keeps other objects only in memory.
    pub fn computed<K>(mut self, source: impl Computed<K>) -> Self
    where
        K: CustomResourceExt + Resource<DynamicType = ()> + Serialize + Send + Sync + 'static,
    {
        self.external.push((K::crd(), Arc::new(ComputedOnRead::<K, _>::new(source))));
        self
    }

    /// Sets the storage. The default is memory.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Adds an admission hook for a type, after those added before.
    pub fn admission<K>(mut self, hook: impl AdmissionHook<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.hooks.push(Arc::new(HookPlugin::<K, _>::new(hook)));
        self
    }

    /// Sets the address. Port 0 selects any free port.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Keeps the serving certificate and its authority in `pki` of this directory, and creates them at the first start.
    /// By default they live as long as the process. `pki/ca.crt` is the `caBundle` of an APIService.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Adds a name or address to the serving certificate. The main server calls a service by `NAME.NAMESPACE.svc`.
    pub fn serving_name(mut self, name: impl Into<String>) -> Self {
        self.pki.extra_names.push(name.into());
        self
    }

    /// Uses this serving certificate and key: PEM files.
    pub fn serving_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.pki.serving = Some((certificate.into(), key.into()));
        self
    }

    /// Sets the main server for authentication and authorization. By default it is found as kubectl finds it: by
    /// `KUBECONFIG`, `~/.kube/config`, or the service account of the pod.
    pub fn main_server(mut self, client: Client) -> Self {
        self.main_server = Some(client);
        self
    }

    /// Sets how long past revisions can be read, for lists that continue and watches that resume. Five minutes by
    /// default.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// Sets the unique name of this server, a DNS subdomain. It names the server's lease in `kube-system` of the main
    /// server, and its record in a shared store. By default each process has its own. A new process replaces an earlier
    /// one of the same name.
    pub fn server_id(mut self, name: impl Into<String>) -> Self {
        self.server_id = Some(name.into());
        self
    }

    /// Sets how long this server may write without a renewal of its lease; a minute by default. After that it must
    /// register again, since others consider it dead.
    pub fn lease(mut self, duration: Duration) -> Self {
        self.lease = duration;
        self
    }

    /// Does not publish storage versions at the main server. Publishing needs more rights for this server's account:
    /// write access to `storageversions` and their status, and to leases in `kube-system`. If the main server does not
    /// serve these objects, nothing is published anyway.
    pub fn without_storage_versions(mut self) -> Self {
        self.publishes_storage_versions = false;
        self
    }

    /// Sets a generated name, unless there is one.
    ///
    /// # Errors
    /// The name is not valid.
    pub(crate) fn with_server_id(mut self, random: &dyn Random) -> Result<Self, StartError> {
        let name = self.server_id.get_or_insert_with(|| format!("aggregated-{}", random.uuid()));
        let faults = dns_subdomain_faults(name);
        match faults.first() {
            None => Ok(self),
            Some(fault) => Err(StartError::Resource(format!("the server can't be called {name:?}: {fault}"))),
        }
    }

    /// Starts the server. It answers requests when this returns.
    ///
    /// # Errors
    /// The store can't be opened, the main server can't be reached within a minute, a resource can't be served, or the
    /// address is in use.
    pub async fn start(self) -> Result<RunningApiServer, StartError> {
        RunningApiServer::start(self).await
    }

    /// Serves until SIGTERM or SIGINT, then shuts down.
    ///
    /// # Errors
    /// The server does not start, or an essential task dies.
    pub async fn serve(self) -> Result<(), ServeError> {
        let told = |kind| signal(kind).map_err(ServeError::Signals);
        let (mut terminate, mut interrupt) = (told(SignalKind::terminate())?, told(SignalKind::interrupt())?);
        let server = self.start().await?;
        let outcome = tokio::select! {
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
            failure = server.failed() => Err(failure.into()),
        };
        server.shutdown().await;
        outcome
    }
}

impl std::fmt::Debug for ApiServerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServerBuilder").field("listen", &self.listen).finish_non_exhaustive()
    }
}
