//! The handle of a running server.
//!
//! Everything except for the clock and snapshots uses requests over TLS, so it works with both forms of a
//! server.

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

/// A running server. Dropping the handle ends the server, also while the test panics.
///
/// [`client`](Self::client) returns a client of the administrator, who has all rights. It connects to the server
/// directly.
#[derive(Debug)]
pub struct Keelson {
    // ORDER: the background is dropped before the server, so its tasks never run without the server.
    background: Background,
    endpoint: Endpoint,
    /// True if a controller creates the service account `default` in each namespace.
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
    /// Starts a server with the default settings and waits until it is ready.
    ///
    /// # Errors
    /// [`Error::Start`], with the reason.
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// A builder for a server with other settings.
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
        Self::from_running(server, kubeconfig, settings.controllers.is_none()).await
    }

    async fn from_running(server: Running, kubeconfig: &str, has_accounts: bool) -> Result<Self, Error> {
        let endpoint = Endpoint::from_yaml(kubeconfig).await?;
        Ok(Self { background: Background::default(), endpoint, has_accounts, server })
    }

    /// The address of the server, `https://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.endpoint.url()
    }

    /// The process id of the server, if it is a child process.
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

    /// The configuration of the administrator's client, for changes before a client is made from it.
    pub fn config(&self) -> Config {
        self.endpoint.config().clone()
    }

    /// The path of the administrator's kubeconfig, for other programs. The first call writes the file, and dropping
    /// this handle removes it.
    ///
    /// # Errors
    /// [`Error::Io`] when it can't be written.
    pub fn kubeconfig(&self) -> Result<PathBuf, Error> {
        self.endpoint.file().map(Path::to_owned)
    }

    /// A user that has only the rights added to the builder. Await the builder for the [`User`](crate::User).
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

    /// Installs the definition of a custom resource type, and waits until it is established. Replaces a definition of
    /// the same name.
    ///
    /// # Errors
    /// [`Error::Request`] if the server rejects it, [`Error::Late`] if it is not established before the timeout.
    pub async fn install<K: CustomResourceExt>(&self) -> Result<(), Error> {
        let definition = serde_json::to_value(K::crd());
        let definition = definition.map_err(|error| Error::Argument(format!("{}: {error}", K::crd_name())))?;
        self.install_definitions([definition]).await
    }

    /// Installs definitions, for example from YAML files, and waits until all of them are established.
    ///
    /// # Errors
    /// The errors of [`install`](Self::install).
    pub async fn install_definitions(&self, definitions: impl IntoIterator<Item = Value>) -> Result<(), Error> {
        definitions::install(&self.client(), definitions.into_iter().collect()).await
    }

    /// Creates a namespace with a unique name. Dropping the value deletes the namespace.
    ///
    /// # Errors
    /// [`Error::Request`] if the server rejects it.
    pub async fn namespace(&self) -> Result<Namespace<'_>, Error> {
        namespace::create(self, self.has_accounts).await
    }

    /// Opens another address of this server, at which a test can make requests fail. The server's own address is not
    /// affected.
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
    #[cfg_attr(not(feature = "process"), expect(unused_variables, reason = "only a process can lack it"))]
    fn in_process(&self, what: &'static str) -> Result<&Embedded, Error> {
        match &self.server {
            Running::Embedded(server) => Ok(server),
            #[cfg(feature = "process")]
            Running::Process(_) => Err(Error::NeedsEmbedded(what)),
        }
    }

    /// The clock of the server, for code under test that compares times with the server's.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn clock(&self) -> Result<&Clock, Error> {
        Ok(&self.in_process("a clock")?.clock)
    }

    /// Moves the clock of the server forward, and removes the objects whose time to live has then ended, such as
    /// events. Tokens and certificates expire by this clock. The intervals of controllers do not change.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub async fn advance(&self, by: Duration) -> Result<(), Error> {
        self.in_process("a clock")?.advance(by).await
    }

    /// Takes a snapshot of all objects of the server. The cost does not depend on their number.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(self.in_process("a snapshot")?.snapshot())
    }

    /// Restores a snapshot. Clients see ordinary changes: objects that differ are updated, created or deleted. They get
    /// their old uids, and new resource versions, which never decrease.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub fn restore(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.in_process("a restore")?.restore(snapshot);
        Ok(())
    }

    /// Starts another server in the process of this one, on its own port, with the objects of this one. Neither server
    /// sees later changes of the other. The fork accepts the same credentials: users and tokens of this server.
    ///
    /// The history of the fork begins at its start, so a watch can't resume there from an earlier resource version.
    ///
    /// # Errors
    /// [`Error::Start`], for example if the limit of forks of a child process is reached.
    pub async fn fork(&self) -> Result<Self, Error> {
        let (server, kubeconfig) = match &self.server {
            #[cfg(feature = "embedded")]
            Running::Embedded(server) => {
                let (fork, kubeconfig) = server.fork().await?;
                (Running::Embedded(Box::new(fork)), kubeconfig)
            }
            #[cfg(feature = "process")]
            Running::Process(server) => {
                let (fork, kubeconfig) = server.fork().await?;
                (Running::Process(fork), kubeconfig)
            }
        };
        Self::from_running(server, &kubeconfig, self.has_accounts).await
    }

    /// Starts a fork with the objects of an earlier snapshot of this server or of one of its forks.
    ///
    /// # Errors
    /// [`Error::NeedsEmbedded`] for a server that is a process.
    #[cfg(feature = "embedded")]
    pub async fn fork_from(&self, snapshot: &Snapshot) -> Result<Self, Error> {
        let (server, kubeconfig) = self.in_process("a fork of a snapshot")?.fork_from(snapshot).await?;
        Self::from_running(Running::Embedded(Box::new(server)), &kubeconfig, self.has_accounts).await
    }

    /// Ends the server. Dropping the handle also does this, but blocks the thread meanwhile.
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
