//! A whole server in this process, on a free port of the loopback address.
//!
//! Certificates, kubeconfig and store live in a temporary directory that goes with the server, so tests run side by side.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keelson_server::{AdmissionPlugins, Config, RunningServer, Server, StoreConfig, Switches, catalogue};
use keelson_storage::Store;
use tempfile::TempDir;

use crate::Endpoint;

/// The controllers that run in a test's server: all but those that put objects into every namespace, the one that counts quotas, and the
/// one that writes anew what is stored in another encoding, so that a test finds what it has made, as it has made it, and nothing else.
pub const CONTROLLERS: &str = "*,-resourcequota-controller,-root-ca-certificate-publisher-controller,\
                               -serviceaccount-controller,-storage-version-migrator-controller,\
                               -validatingadmissionpolicy-status-controller";

/// What to start.
pub struct TestServerBuilder {
    config: Config,
    directory: TempDir,
}

impl TestServerBuilder {
    /// Keeps the objects in SQLite, so that they survive a [`TestServer::restart`]; memory otherwise.
    #[must_use]
    pub fn sqlite(mut self) -> Self {
        self.config.store = StoreConfig::Sqlite(self.directory.path().to_path_buf());
        self
    }

    /// The directory that will hold its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Keeps the objects in this store, which other servers may share and which outlives them all.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.config.store = StoreConfig::Shared(store);
        self
    }

    /// How long the past can be read.
    #[must_use]
    pub fn history(mut self, history: Duration) -> Self {
        self.config.history = history;
        self
    }

    /// Serves all built-in versions, alpha and beta ones too, but for those of trust bundles, which the reference server serves only
    /// behind a feature gate.
    ///
    /// # Panics
    /// Never: the names of the versions are known.
    #[must_use]
    pub fn every_version(mut self) -> Self {
        let settings = ["api/all=true", "certificates.k8s.io/v1beta1=false", "certificates.k8s.io/v1alpha1=false"];
        self.config.registry.serve(catalogue(), &settings).expect("known versions");
        self
    }

    /// Any other setting.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts it; it is ready when this returns.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start(self) -> TestServer {
        self.try_start().await.unwrap_or_else(|error| panic!("the server did not start: {error}"))
    }

    /// Starts it where what every cluster has can't be made: it answers when this returns, and may not be ready.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start_unready(self) -> TestServer {
        let started = listen(&self.config).await.map_err(|error| format!("{error:#}"));
        let (running, endpoint) = started.unwrap_or_else(|error| panic!("the server did not start: {error}"));
        TestServer { running: Some(running), endpoint, config: self.config, directory: self.directory }
    }

    /// Starts it. The error has the text that an operator sees.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn try_start(self) -> Result<TestServer, String> {
        let (running, endpoint) = start(&self.config).await.map_err(|error| format!("{error:#}"))?;
        Ok(TestServer { running: Some(running), endpoint, config: self.config, directory: self.directory })
    }
}

/// A running server, reached as an [`Endpoint`].
pub struct TestServer {
    running: Option<RunningServer>,
    endpoint: Endpoint,
    config: Config,
    directory: TempDir,
}

impl Deref for TestServer {
    type Target = Endpoint;

    fn deref(&self) -> &Endpoint {
        &self.endpoint
    }
}

impl TestServer {
    /// A server with the default settings, in memory.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A server with settings of one's own. Its controllers are [`CONTROLLERS`] unless they are set.
    ///
    /// # Panics
    /// When there is no room for temporary files.
    pub fn builder() -> TestServerBuilder {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let config = Config {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: StoreConfig::Memory,
            data_dir: Some(directory.path().to_path_buf()),
            controllers: Switches::parse(CONTROLLERS.split(',')).expect("they exist"),
            // Pods that name no account would wait for one that no controller makes.
            admission: AdmissionPlugins::new(Vec::new(), vec!["ServiceAccount".to_owned()]).expect("it exists"),
            ..Config::default()
        };
        TestServerBuilder { config, directory }
    }

    /// The directory that holds its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The server itself, for what is not reached over the wire.
    ///
    /// # Panics
    /// When it was stopped.
    pub fn running(&self) -> &RunningServer {
        self.running.as_ref().expect("it was not stopped")
    }

    /// Stops it as an operator would, and returns when it has ended.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await;
        }
    }

    /// Waits until something has died that the server can't do without, and tells what the operator is told.
    pub async fn failed(&self) -> String {
        match &self.running {
            Some(running) => running.failed().await.to_string(),
            None => std::future::pending().await,
        }
    }

    /// Changes its settings; they hold from its next start on.
    pub fn change(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Stops it and starts it again on the same data and the same address.
    ///
    /// # Panics
    /// When it does not start again.
    pub async fn restart(&mut self) {
        let address = self.running.as_ref().map(RunningServer::addr);
        self.stop().await;
        self.config.bind = address.unwrap_or(self.config.bind);
        let (running, endpoint) =
            start(&self.config).await.unwrap_or_else(|error| panic!("the server did not start: {error:#}"));
        self.running = Some(running);
        self.endpoint = endpoint;
    }
}

async fn start(config: &Config) -> anyhow::Result<(RunningServer, Endpoint)> {
    let (running, endpoint) = listen(config).await?;
    running.bootstrapped().await;
    Ok((running, endpoint))
}

async fn listen(config: &Config) -> anyhow::Result<(RunningServer, Endpoint)> {
    let running = Server::start(config.clone()).await?;
    let kubeconfig = running.kubeconfig().expect("the builder gave the server a data directory");
    let endpoint = Endpoint::from_kubeconfig(kubeconfig).await.unwrap_or_else(|error| panic!("{error:#}"));
    Ok((running, endpoint))
}
