//! Reads the state of all servers on a store from one of them: leases, published versions, migrations, and the number
//! of objects in each encoding. That number is a metric, which the cache counts, so no request scans the store.

use std::path::Path;
use std::time::Duration;

use anyhow::anyhow;
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config, Error};
use serde_json::Value;

use super::report::{Answers, Counts, Report};

const VERSIONS: &str = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions";
const MIGRATIONS: &str = "/apis/storagemigration.k8s.io/v1beta1/storageversionmigrations";
/// The path of the servers' leases, and their label.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const SERVERS: &str = "labelSelector=apiserver.kubernetes.io%2Fidentity";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const METRICS: &str = "/metrics";
/// The number of objects in a chunk of a list.
const CHUNK: usize = 500;
/// The number of attempts at a list whose continue token expires.
const ATTEMPTS: usize = 5;
/// The timeout of a request.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client of one of the servers.
pub(super) struct Fleet {
    client: Client,
    server: String,
}

impl Fleet {
    /// Makes a client from a kubeconfig.
    ///
    /// # Errors
    /// When the kubeconfig can't be read or is invalid.
    pub(super) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let reading = |error: &dyn std::error::Error| {
            // The lines after the first are a drawing of the place in the file.
            let why = error.to_string().lines().next().unwrap_or_default().to_owned();
            let file = kubeconfig.display();
            anyhow!("reading {file} (--kubeconfig says which; a server writes one into its --data-dir): {why}")
        };
        let read = Kubeconfig::read_from(kubeconfig).map_err(|error| reading(&error))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        let mut config = config.map_err(|error| reading(&error))?;
        (config.connect_timeout, config.read_timeout) = (Some(PATIENCE), Some(PATIENCE));
        let server = config.cluster_url.to_string();
        Ok(Self { client: Client::try_from(config).map_err(|error| reading(&error))?, server })
    }

    /// Reads the present state.
    ///
    /// # Errors
    /// The server does not answer, or refuses the request.
    pub(super) async fn report(&self) -> anyhow::Result<Report> {
        // The order matters little: the next report shows changes between the requests.
        let versions = self.list(VERSIONS, "").await?;
        let leases = self.list(LEASES, SERVERS).await?;
        let migrations = self.list(MIGRATIONS, "").await?;
        let services = self.list(SERVICES, "").await?;
        let counts = Counts::read(&self.text(METRICS).await.map_err(|error| self.explain(METRICS, &error))?);
        Ok(Report::new(&Answers { versions, leases, migrations, services, counts }))
    }

    /// Lists all objects of a collection, in chunks.
    async fn list(&self, path: &str, selector: &str) -> anyhow::Result<Vec<Value>> {
        let mut last = None;
        for _ in 0..ATTEMPTS {
            match self.walk(path, selector).await {
                Err(Error::Api(status)) if status.code == 410 => last = Some(Error::Api(status)),
                found => return found.map_err(|error| self.explain(path, &error)),
            }
        }
        Err(last.map_or_else(|| anyhow!("{path}: no answer"), |error| self.explain(path, &error)))
    }

    async fn walk(&self, path: &str, selector: &str) -> Result<Vec<Value>, Error> {
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = self.text(&format!("{path}?limit={CHUNK}&continue={token}&{selector}")).await?;
            let mut page: Value = serde_json::from_str(&page).map_err(Error::SerdeError)?;
            if let Some(items) = page["items"].as_array_mut() {
                found.append(items);
            }
            page["metadata"]["continue"].as_str().unwrap_or_default().clone_into(&mut token);
            if token.is_empty() {
                return Ok(found);
            }
        }
    }

    async fn text(&self, path: &str) -> Result<String, Error> {
        let request = Request::get(path).body(Vec::new()).map_err(Error::HttpError)?;
        self.client.request_text(request).await
    }

    /// An error that includes a remedy for the user of the command.
    fn explain(&self, path: &str, error: &Error) -> anyhow::Error {
        let server = &self.server;
        match error {
            Error::Api(status) if status.code == 404 && path == VERSIONS => anyhow!(
                "the server at {server} has no storage versions: its feature gate StorageVersionAPI is off, or it is not a keelson server"
            ),
            Error::Api(status) if status.code == 404 => anyhow!("the server at {server} does not serve {path}"),
            Error::Api(status) => anyhow!("the server at {server} refused to tell of {path}: {}", status.message),
            error => {
                let mut text = format!("a request to the server at {server} failed: {error}");
                let mut cause = std::error::Error::source(error);
                while let Some(next) = cause {
                    let next_text = next.to_string();
                    if !text.ends_with(&next_text) {
                        text = format!("{text}: {next_text}");
                    }
                    cause = next.source();
                }
                anyhow!(text)
            }
        }
    }
}
