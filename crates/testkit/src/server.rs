//! A whole server in this process, on a free port of the loopback address.
//!
//! Certificates, kubeconfig and store are in a temporary directory that is removed with the server, so tests can run in
//! parallel.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::Release;
use keelson_server::{AdmissionPlugins, Config, RunningServer, Server, StoreConfig, Switches, catalogue_of};
use keelson_storage::Store;
use tempfile::TempDir;

use crate::Endpoint;

/// The controllers in a test's server. Omitted are those that add objects to every namespace, count quotas, or rewrite
/// objects in another encoding. So a test finds only its own unchanged objects.
pub const CONTROLLERS: &str = "*,-resourcequota-controller,-root-ca-certificate-publisher-controller,\
                               -serviceaccount-controller,-storage-version-migrator-controller,\
                               -validatingadmissionpolicy-status-controller";

/// The release of kube-apiserver whose responses and documents the records of the tests have.
pub const RECORDED_RELEASE: Release = Release::V1_36;

/// The variable with which the caches of all servers compress every object at once.
const PACKED: &str = "KEELSON_TEST_PACKED";

/// The settings of a server.
pub struct TestServerBuilder {
    config: Config,
    directory: TempDir,
}

impl TestServerBuilder {
    /// Stores objects in SQLite, so that they survive a [`TestServer::restart`]; in memory by default.
    #[must_use]
    pub fn sqlite(mut self) -> Self {
        self.config.store = StoreConfig::Sqlite(self.directory.path().to_path_buf());
        self
    }

    /// The directory for its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// Uses this store. Other servers may share it, and it outlives them.
    #[must_use]
    pub fn shared_store(mut self, store: Arc<dyn Store>) -> Self {
        self.config.store = StoreConfig::Shared(store);
        self
    }

    /// Sets the time for which past revisions can be read.
    #[must_use]
    pub fn history(mut self, history: Duration) -> Self {
        self.config.history = history;
        self
    }

    /// Has the API of [`RECORDED_RELEASE`], for tests that compare responses with records.
    #[must_use]
    pub fn recorded(self) -> Self {
        self.emulating(RECORDED_RELEASE)
    }

    /// Has the API of a release, with its feature gates at their defaults. Comes before settings that name versions.
    #[must_use]
    pub fn emulating(mut self, release: Release) -> Self {
        self.config.registry.emulate(release);
        self
    }

    /// Serves all built-in versions of the release, including alpha and beta, except for ClusterTrustBundles, which
    /// kube-apiserver serves in these versions only with a feature gate.
    ///
    /// # Panics
    /// Never: the names of the versions are known.
    #[must_use]
    pub fn every_version(mut self) -> Self {
        let release = self.config.registry.release();
        let mut settings = vec!["api/all=true", "certificates.k8s.io/v1beta1=false"];
        if release < Release::V1_37 {
            settings.push("certificates.k8s.io/v1alpha1=false");
        }
        self.config.registry.serve(catalogue_of(release), &settings).expect("known versions");
        self
    }

    /// Changes any other setting.
    #[must_use]
    pub fn configure(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts the server and waits until it is ready.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start(self) -> TestServer {
        self.try_start().await.unwrap_or_else(|error| panic!("the server did not start: {error}"))
    }

    /// Starts a server whose bootstrap objects can't be created. The server answers when this returns, but may not be
    /// ready.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start_unready(self) -> TestServer {
        let started = listen(&self.config).await.map_err(|error| format!("{error:#}"));
        let (running, endpoint) = started.unwrap_or_else(|error| panic!("the server did not start: {error}"));
        TestServer { running: Some(running), endpoint, config: self.config, directory: self.directory }
    }

    /// Starts the server.
    ///
    /// # Errors
    /// When the server does not start. The text is the message for operators.
    pub async fn try_start(self) -> Result<TestServer, String> {
        let (running, endpoint) = start(&self.config).await.map_err(|error| format!("{error:#}"))?;
        Ok(TestServer { running: Some(running), endpoint, config: self.config, directory: self.directory })
    }
}

/// A running server, which derefs to its [`Endpoint`].
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
    /// A server with default settings, in memory.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start() -> Self {
        Self::builder().start().await
    }

    /// A builder for a server. Its controllers are [`CONTROLLERS`] unless set.
    ///
    /// # Panics
    /// Temporary files can't be created.
    pub fn builder() -> TestServerBuilder {
        let directory = TempDir::new().expect("a temporary directory can be made");
        let mut config = Config {
            bind: SocketAddr::from(([127, 0, 0, 1], 0)),
            store: StoreConfig::Memory,
            data_dir: Some(directory.path().to_path_buf()),
            controllers: Switches::parse(CONTROLLERS.split(',')).expect("they exist"),
            // Pods without a service account would wait for an account that no controller creates.
            admission: AdmissionPlugins::new(Vec::new(), vec!["ServiceAccount".to_owned()]).expect("it exists"),
            ..Config::default()
        };
        if std::env::var_os(PACKED).is_some() {
            let packing = &mut config.packing;
            (packing.from_objects, packing.from_bytes, packing.least_bytes) = (1, 1, 1);
            (packing.plain_bytes, packing.at_once) = (0, true);
        }
        TestServerBuilder { config, directory }
    }

    /// The directory with its store, certificates and kubeconfig.
    pub fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    /// The server itself, for access other than by requests.
    ///
    /// # Panics
    /// It was stopped.
    pub fn running(&self) -> &RunningServer {
        self.running.as_ref().expect("it was not stopped")
    }

    /// Stops it as an operator would, and waits for the end.
    pub async fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown().await;
        }
    }

    /// Waits until an essential task has failed, and returns the message for operators.
    pub async fn failed(&self) -> String {
        match &self.running {
            Some(running) => running.failed().await.to_string(),
            None => std::future::pending().await,
        }
    }

    /// Changes the settings for its next start.
    pub fn change(&mut self, change: impl FnOnce(&mut Config)) {
        change(&mut self.config);
    }

    /// Restarts it on the same data and address.
    ///
    /// # Panics
    /// It does not start again.
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
