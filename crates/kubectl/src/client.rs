//! The server of a kubeconfig, and its responses.
//!
//! The caller interprets a response.

use anyhow::{Context as _, anyhow, bail};
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use keelson_meta::json::Value;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::args::Get;

/// A server.
pub(crate) struct Server {
    client: Client,
    /// The namespace of the context.
    pub(crate) namespace: String,
}

/// A response of the server.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Server {
    /// The server of a kubeconfig.
    ///
    /// # Errors
    /// When there is no kubeconfig, or it can't be read.
    pub(crate) async fn new(get: &Get) -> anyhow::Result<Self> {
        let options = KubeConfigOptions { context: get.context.clone(), ..KubeConfigOptions::default() };
        let kubeconfig = match &get.kubeconfig {
            Some(file) => Kubeconfig::read_from(file).with_context(|| format!("reading {}", file.display()))?,
            None => Kubeconfig::read().context("reading the kubeconfig")?,
        };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.context("reading the kubeconfig")?;
        let namespace = config.default_namespace.clone();
        Ok(Self { client: Client::try_from(config)?, namespace })
    }

    /// Sends a GET request for a path.
    ///
    /// # Errors
    /// When the server does not respond, or its response can't be read.
    pub(crate) async fn ask(&self, path: &str, accept: &str) -> anyhow::Result<Answer> {
        let request = Request::get(path).header(header::ACCEPT, accept).body(Body::from(Vec::new()))?;
        let response = self.client.send(request).await.with_context(|| format!("asking for {path}"))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.with_context(|| format!("reading the answer for {path}"))?.to_bytes();
        let parsed = keelson_codec::json::parse(&body).map(|parsed| parsed.value);
        match parsed {
            Ok(body) => Ok(Answer { status: head.status, headers: head.headers, body }),
            Err(_) if !head.status.is_success() => {
                let text = String::from_utf8_lossy(&body).trim().to_owned();
                Ok(Answer { status: head.status, headers: head.headers, body: Value::from(text) })
            }
            Err(error) => bail!("the answer for {path} is not JSON: {error}"),
        }
    }
}

impl Answer {
    /// Returns a successful response.
    ///
    /// # Errors
    /// The server's error, in kubectl's form.
    pub(crate) fn success(self) -> anyhow::Result<Self> {
        if self.status.is_success() {
            return Ok(self);
        }
        let message = self.body["message"].as_str().or(self.body.as_str()).unwrap_or_default();
        match self.body["reason"].as_str() {
            Some(reason) => Err(anyhow!("Error from server ({reason}): {message}")),
            None => Err(anyhow!("Error from server: {} {message}", self.status)),
        }
    }

    /// The number in a header.
    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.headers.get(name)?.to_str().ok()?.parse().ok()
    }
}
