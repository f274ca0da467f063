//! The settings of a server: types, where objects are kept, hooks, address and names.
//!
//! This is what a program writes; `server.rs` makes a running server of it.

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

use crate::admission::{AdmissionHook, Hooked};
use crate::external::{Computed, ComputedOnRead, External, Kept, ObjectStore};
use crate::server::RunningApiServer;
use crate::storage::Storage;

/// An aggregated API server; [`ApiServer::builder`] makes one.
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
    /// A server of nothing, in memory, on port 8443 of all addresses.
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

/// Why a server does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// It has no resources, or one of them can't be served.
    #[error("{0}")]
    Resource(String),
    /// The store can't be opened or read.
    #[error("the store: {0}")]
    Storage(String),
    /// There is no usable serving certificate.
    #[error("certificates: {0}")]
    Certificates(String),
    /// The main server can't be reached, or does not say how its front proxy is known.
    #[error("the main API server: {0}")]
    MainServer(String),
    /// The address is taken, or is none of this host.
    #[error("listening on {address}: {source}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why [`ApiServerBuilder::serve`] came to an end that nobody asked for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// It did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// Something has died that the server can't do without.
    #[error(transparent)]
    Failed(#[from] keelson_supervision::Failure),
    /// The process can't be told of signals.
    #[error("signals: {0}")]
    Signals(std::io::Error),
}

/// The settings of a server.
#[must_use]
pub struct ApiServerBuilder {
    pub(crate) definitions: Vec<CustomResourceDefinition>,
    /// Those whose objects the program keeps or computes by itself.
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
    /// Serves a type: `#[derive(CustomResource)]` of `kube` says its group, version, names, scope, columns and subresources,
    /// `#[derive(JsonSchema)]` of `schemars` its schema, by which objects are judged, filled in, pruned and described.
    pub fn resource<K: CustomResourceExt>(self) -> Self {
        self.definition(K::crd())
    }

    /// Serves what a definition says, as a custom resource would be: one of several versions (`kube::core::crd::merge_crds`), or one
    /// that was not derived. Its versions differ by name alone.
    pub fn definition(mut self, definition: CustomResourceDefinition) -> Self {
        self.definitions.push(definition);
        self
    }

    /// Serves a type whose objects are in a store of the program's own. The server answers from a copy in memory, which it keeps as the
    /// store tells it, and what clients write goes to the store first. Such a server keeps no other objects than in memory.
    pub fn resource_in<K>(mut self, store: impl ObjectStore<K>) -> Self
    where
        K: CustomResourceExt + Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.external.push((K::crd(), Arc::new(Kept::<K, _>::new(store))));
        self
    }

    /// Serves a type whose objects are computed when they are read, and that nobody writes: it can be got, listed and watched. Who
    /// watches is told every other second what is different. Such a server keeps no other objects than in memory.
    pub fn computed<K>(mut self, source: impl Computed<K>) -> Self
    where
        K: CustomResourceExt + Resource<DynamicType = ()> + Serialize + Send + Sync + 'static,
    {
        self.external.push((K::crd(), Arc::new(ComputedOnRead::<K, _>::new(source))));
        self
    }

    /// Keeps objects there; in memory unless it is said.
    pub fn storage(mut self, storage: Storage) -> Self {
        self.storage = storage;
        self
    }

    /// Has a hook change and judge what is written of a type, behind those that were named before.
    pub fn admission<K>(mut self, hook: impl AdmissionHook<K>) -> Self
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.hooks.push(Arc::new(Hooked::<K, _>::new(hook)));
        self
    }

    /// Listens there; port 0 is any free one.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.listen = address;
        self
    }

    /// Keeps the serving certificate and its authority in `pki` of this directory, where they are made at the first start. Without
    /// one they last as long as the process. `pki/ca.crt` is what the `caBundle` of an APIService holds.
    pub fn data_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(directory.into());
        self
    }

    /// Has the serving certificate answer to this name or address too. The main server calls a service `NAME.NAMESPACE.svc`.
    pub fn serving_name(mut self, name: impl Into<String>) -> Self {
        self.pki.extra_names.push(name.into());
        self
    }

    /// Serves with a certificate and a key of one's own, which are files in PEM.
    pub fn serving_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.pki.serving = Some((certificate.into(), key.into()));
        self
    }

    /// Asks this main server who clients are and what they may do. Without one it is found as kubectl finds it: by `KUBECONFIG`,
    /// `~/.kube/config`, or the service account of the pod.
    pub fn main_server(mut self, client: Client) -> Self {
        self.main_server = Some(client);
        self
    }

    /// How long the past can be read: lists that continue, watches that resume. Five minutes unless it is said.
    pub fn history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// The name of this server, a DNS subdomain that no other server has: its lease in `kube-system` of the main server has it, and its
    /// record in a store that is shared. Each process has one of its own unless it is said. A process of the same name takes another's
    /// place.
    pub fn server_id(mut self, name: impl Into<String>) -> Self {
        self.server_id = Some(name.into());
        self
    }

    /// How long this server may go on without having renewed its lease, a minute unless it is said. After that it writes nothing before
    /// it has registered anew: others take it for dead.
    pub fn lease(mut self, duration: Duration) -> Self {
        self.lease = duration;
        self
    }

    /// Does not tell the main server in which versions objects are stored, for which the account of this server needs more rights: to
    /// write `storageversions` and their status, and leases in `kube-system`. A main server that has no such objects is told nothing
    /// anyway.
    pub fn without_storage_versions(mut self) -> Self {
        self.publishes_storage_versions = false;
        self
    }

    /// The same with a name of its own, unless it has one.
    ///
    /// # Errors
    /// When the name that it has is none.
    pub(crate) fn with_server_id(mut self, random: &dyn Random) -> Result<Self, StartError> {
        let name = self.server_id.get_or_insert_with(|| format!("aggregated-{}", random.uuid()));
        let faults = dns_subdomain_faults(name);
        match faults.first() {
            None => Ok(self),
            Some(fault) => Err(StartError::Resource(format!("the server can't be called {name:?}: {fault}"))),
        }
    }

    /// Starts the server, which answers requests when this returns.
    ///
    /// # Errors
    /// When the store can't be opened, the main server can't be reached within a minute, a resource can't be served, or the address
    /// is taken.
    pub async fn start(self) -> Result<RunningApiServer, StartError> {
        RunningApiServer::start(self).await
    }

    /// Serves until the process is told to end (SIGTERM, SIGINT), and stops in order.
    ///
    /// # Errors
    /// When it does not start, or something dies that it can't do without.
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
