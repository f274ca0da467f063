//! The connection data of a server: its address, its authority, and the credentials of one user.
//!
//! It is a kubeconfig, from which clients and files are made. The requests of this crate itself use
//! [`Endpoint::request`].

use std::path::Path;
use std::sync::OnceLock;

use http::{Method, Request};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::error::Error;

/// A reachable server and the credentials of one user.
#[derive(Debug)]
pub(crate) struct Endpoint {
    kubeconfig: Kubeconfig,
    config: Config,
    /// The kubeconfig file, which is written on request. Dropping this value removes it.
    file: OnceLock<NamedTempFile>,
}

impl Endpoint {
    pub(crate) async fn from_yaml(text: &str) -> Result<Self, Error> {
        let unusable = |error: kube::config::KubeconfigError| Error::Start(format!("its kubeconfig: {error}"));
        Self::new(Kubeconfig::from_yaml(text).map_err(unusable)?).await
    }

    async fn new(kubeconfig: Kubeconfig) -> Result<Self, Error> {
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await;
        let mut config = config.map_err(|error| Error::Start(format!("its kubeconfig: {error}")))?;
        // Loopback needs no proxy, and a watch may have no events for a long time.
        (config.proxy_url, config.read_timeout) = (None, None);
        Ok(Self { kubeconfig, config, file: OnceLock::new() })
    }

    /// The connection data of this server with other credentials.
    pub(crate) async fn with_credentials(&self, name: &str, credentials: AuthInfo) -> Result<Self, Error> {
        let mut kubeconfig = self.kubeconfig.clone();
        for user in &mut kubeconfig.auth_infos {
            (user.name, user.auth_info) = (name.to_owned(), Some(credentials.clone()));
        }
        for context in kubeconfig.contexts.iter_mut().filter_map(|named| named.context.as_mut()) {
            context.user = Some(name.to_owned());
        }
        Self::new(kubeconfig).await
    }

    /// The connection data of another server with these credentials.
    pub(crate) async fn at(&self, url: &str, authority: Option<String>) -> Result<Self, Error> {
        let mut kubeconfig = self.kubeconfig.clone();
        for cluster in kubeconfig.clusters.iter_mut().filter_map(|named| named.cluster.as_mut()) {
            cluster.server = Some(url.to_owned());
            if let Some(authority) = &authority {
                cluster.certificate_authority_data = Some(authority.clone());
            }
        }
        Self::new(kubeconfig).await
    }

    pub(crate) fn url(&self) -> String {
        self.config.cluster_url.to_string().trim_end_matches('/').to_owned()
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn client(&self) -> Client {
        // The constructor has already rejected unusable credentials.
        Client::try_from(self.config.clone()).expect("the credentials of a test server are usable")
    }

    /// A client that sends each request once, for requests whose failures the test must see.
    pub(crate) fn client_without_retries(&self) -> Client {
        let mut config = self.config.clone();
        config.default_retry = false;
        Client::try_from(config).expect("the credentials of a test server are usable")
    }

    /// The path of the kubeconfig file. The first call writes it.
    pub(crate) fn file(&self) -> Result<&Path, Error> {
        if let Some(file) = self.file.get() {
            return Ok(file.path());
        }
        let write = || {
            let mut file = tempfile::Builder::new().prefix("keelson-test-").suffix(".kubeconfig").tempfile()?;
            serde_json::to_writer(&mut file, &self.kubeconfig)?;
            Ok(file)
        };
        let file = write().map_err(Error::io("writing the kubeconfig"))?;
        Ok(self.file.get_or_init(|| file).path())
    }

    /// Sends a request and returns the object of the response. `action` describes the request in errors.
    pub(crate) async fn request(
        client: &Client,
        action: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, Error> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let bytes = body.map(Value::to_string).unwrap_or_default().into_bytes();
        let request = Request::builder().method(method).uri(path).header("content-type", kind).body(bytes);
        let request = request.map_err(kube::Error::HttpError).map_err(Error::request(action))?;
        client.request(request).await.map_err(Error::request(action))
    }
}
