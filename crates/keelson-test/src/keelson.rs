//! The handle of a running server, and what a test does with it.
//!
//! Everything but the clock, snapshots and forks goes over the wire, so it works in both forms.

use std::path::{Path, PathBuf};
#[cfg(feature = "embedded")]
use std::time::Duration;

use kube::{Client, Config, CustomResourceExt};
use serde_json::Value;

use crate::background::Background;
use crate::builder::Builder;
#[cfg(feature = "embedded")]
use crate::clock::Clock;
#[cfg(feature = "embedded")]
use crate::embedded::{Embedded, Snapshot};
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::faults::Faults;
use crate::namespace::Namespace;
#[cfg(feature = "process")]
use crate::process::Process;
use crate::user::UserBuilder;
use crate::{definitions, namespace};

/// A running server. It ends when this is dropped, also while the test panics.
///
/// Requests go to the server directly: [`client`](Self::client) is the administrator, who may do everything.
#[derive(Debug)]
pub struct Keelson {
    // ORDER: the background is dropped before the server, so that its work finds the server running or is gone.
    background: Background,
    endpoint: Endpoint,
    /// True where the service account `default` appears in each namespace.
    has_accounts: bool,
    server: Running,
}

/// A server in one of its forms.
enum Running {
    #[cfg(feature = "embedded")]
    Embedded(Box<Embedded>),
    #[cfg(feature = "process")]
    Process(Process),
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            #[cfg(feature = "embedded")]
            Self::Embedded(_) => "Embedded",
            #[cfg(feature = "process")]
            Self::Process(_) => "Process",
        })
    }
}

impl Keelson {
    /// Starts a server with the default settings. It is ready when this returns.
    ///
    /// # Errors
    /// [`Error::Start`], with the reason.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// A server with other settings.
    pub fn builder() -> Builder {
        Builder::default()
    }

    #[cfg(feature = "embedded")]
    pub(crate) async fn embedded(settings: &Builder) -> Result<Self, Error> {
        let (server, kubeconfig) = Embedded::start(settings).await?;
        Self::new(settings, Running::Embedded(Box::new(server)), &kubeconfig).await
    }

    #[cfg(feature = "process")]
    pub(crate) async fn process(settings: &Builder, binary: &Path) -> Result<Self, Error> {
        let (server, kubeconfig) = Process::start(settings, binary).await?;
        Self::new(settings, Running::Process(server), &kubeconfig).await
    }

    async fn new(settings: &Builder, server: Running, kubeconfig: &str) -> Result<Self, Error> {
        Self::of(server, kubeconfig, settings.controllers.is_none()).await
    }

    async fn of(server: Running, kubeconfig: &str, has_accounts: bool) -> Result<Self, Error> {
        let endpoint = Endpoint::from_yaml(kubeconfig).await?;
        Ok(Self { background: Background::default(), endpoint, has_accounts, server })
    }

    /// The address of the server, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// The process of the server, where it is one of its own.
    pub fn pid(&self) -> Option<u32> {
        match &self.server {
            #[cfg(feature = "embedded")]
            Running::Embedded(_) => None,
            #[cfg(feature = "process")]
            Running::Process(server) => Some(server.pid()),
        }
    }

    /// A client of the administrator.
    ///
    /// # Panics
    /// Outside of a tokio runtime, to which each client is bound.
    pub fn client(&self) -> Client {
        self.endpoint.client()
    }

    /// The configuration of the administrator's client, to be changed before a client is made of it.
    pub fn config(&self) -> Config {
        self.endpoint.config().clone()
    }

    /// The path of the administrator's kubeconfig, for programs other than the test. The file is written at the first call, and removed
    /// with this handle.
    ///
    /// # Errors
    /// [`Error::Io`] when it can't be written.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.endpoint.file().map(Path::to_owned)
    }

    /// A user with no rights but those that the builder adds. Await the builder for the [`User`](crate::User).
    ///
    /// ```
    /// # use keelson_test::Keelson;
    /// # async fn a_test() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = Keelson::start().await?;
    /// let developer = server.user("dev").can("get,list", "pods").in_namespace("default").await?;
    /// assert!(developer.client().list_core_api_versions().await.is_ok());
    /// # Ok(()) }
    /// # tokio::runtime::Runtime::new().unwrap().block_on(a_test()).unwrap();
    /// ```
    pub fn user(&self, name: &str) -> UserBuilder<'_> {
        UserBuilder::new(&self.endpoint, name)
    }

    /// Installs the definition of a custom resource type, and waits until it is established. A definition of the name is replaced.
    ///
    /// # Errors
    /// [`Error::Request`] when the server refuses it, [`Error::Late`] when it is not established in time.
    pub async fn install<K: CustomResourceExt>(&self) -> Result<(), Error> {
        let definition = serde_json::to_value(K::crd());
        let definition = definition.map_err(|error| Error::Argument(format!("{}: {error}", K::crd_name())))?;
        self.install_definitions([definition]).await
    }

    /// Installs definitions, such as those of YAML files, and waits until all are established.
    ///
    /// # Errors
    /// As those of [`install`](Self::install).
    pub async fn install_definitions(&self, definitions: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        definitions::install(&self.client(), definitions.into_iter().collect()).await
    }

    /// A fresh namespace with a name of its own, which is deleted when the value is dropped.
    ///
    /// # Errors
    /// [`Error::Request`] when the server refuses it.
    pub async fn namespace(&self) -> Result<Namespace<'_>, Error> {
        namespace::create(self, self.has_accounts).await
    }

    /// Another address of this server, at which requests fail on request. The server itself is not affected.
    ///
    /// # Errors
    /// [`Error::Io`] when no port can be opened.
    pub async fn faults(&self) -> Result<Faults, Error> {
        Faults::start(self).await
    }

    pub(crate) const fn background(&self) -> &Background {
        &self.background
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    #[cfg(feature = "embedded")]
    fn in_process(&self, what: &'static str) -> Result<&Embedded, Error> {
        match &self.server {
            Running::Embedded(server) => Ok(server),
            #[cfg(feature = "process")]
            Running::Process(_) => Err(Error::NeedsEmbedded(what)),
        }
    }

    /// The clock of the server, for the code under test that compares times with it.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn clock(&self) -> Result<&Clock, Error> {
        Ok(&self.in_process("a clock")?.clock)
    }

    /// Moves the clock of the server forward, and removes the objects whose time to live has ended by then, such as events. Tokens and
    /// certificates expire by it. Intervals of controllers are not shortened.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        self.in_process("a clock")?.advance(by).await
    }

    /// The objects of the server at this moment, all of them. The cost does not grow with their number.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.in_process("a snapshot")?.snapshot())
    }

    /// Goes back to a snapshot. Clients see ordinary changes: objects that differ are updated, created or deleted, with their old
    /// uids and with new resource versions, which never go back.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.in_process("a restore")?.restore(snapshot);
        Ok(())
    }

    /// Another server in this process that begins with the objects of this one, on a port of its own. Neither sees later changes of
    /// the other. Credentials are the same: users and tokens of this server are valid there.
    ///
    /// The history of the fork begins with it, so a watch can't resume there from an earlier resource version.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub async fn fork(&self) -> Result<Self, Error> {
        let snapshot = self.snapshot()?;
        self.fork_from(&snapshot).await
    }

    /// A fork that begins with an earlier snapshot of this server, or of one of its forks.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub async fn fork_from(&self, snapshot: &Snapshot) -> Result<Self, Error> {
        let (server, kubeconfig) = self.in_process("a fork")?.fork(snapshot).await?;
        Self::of(Running::Embedded(Box::new(server)), &kubeconfig, self.has_accounts).await
    }

    /// Ends the server. Dropping the handle does the same and holds its thread meanwhile.
    pub async fn stop(self) {
        drop(self.background);
        match self.server {
            #[cfg(feature = "embedded")]
            Running::Embedded(server) => server.stop().await,
            #[cfg(feature = "process")]
            Running::Process(server) => drop(server),
        }
    }
}
