//! The connection to a webhook. Its files are a kubeconfig, and the certificates, keys and tokens that the kubeconfig
//! names.
//!
//! All files are reloaded when one of them changes. If they are invalid, for example a certificate without its new key,
//! the previous version stays in force. Running requests keep their connection.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Method;
use keelson_access::FileChanges;
use keelson_outbound::{CallError, Effect, Outbound, RestClient, RestRequest, RestResponse};

use super::endpoint::WebhookEndpoint;
use crate::document::ConfigurationError;

/// A webhook that can be called.
pub struct WebhookConnection {
    file: PathBuf,
    /// The timeout of a request.
    time: Duration,
    outbound: Arc<Outbound>,
    current: ArcSwap<Connected>,
}

struct Connected {
    endpoint: WebhookEndpoint,
    client: RestClient,
}

impl WebhookConnection {
    /// Creates a connection from a kubeconfig. Does not connect yet.
    ///
    /// # Errors
    /// The kubeconfig, or a file that it names, is invalid.
    pub fn of_file(file: &Path, time: Duration, outbound: &Arc<Outbound>) -> Result<Self, ConfigurationError> {
        let current = ArcSwap::from_pointee(Connected::to(WebhookEndpoint::read(file)?, file, outbound)?);
        Ok(Self { file: file.to_owned(), time, outbound: outbound.clone(), current })
    }

    /// Posts JSON and reads a response of at most `response_bytes`.
    ///
    /// # Errors
    /// The response was not complete before the timeout, or the call failed.
    pub async fn post(&self, body: Bytes, response_bytes: usize) -> Result<RestResponse, CallError> {
        let current = self.current.load_full();
        let request = RestRequest {
            method: Method::POST,
            path: current.endpoint.path(self.time),
            headers: current.endpoint.headers(),
            body,
            // Repeating a call is safe. Reviews have no side effects. Audit events are delivered at least once, and
            // receivers identify repeats by auditID and stage.
            effect: Effect::Idempotent,
            time: self.time,
            response_bytes,
        };
        current.client.send(request).await
    }

    /// Reloads the files after changes. Never returns.
    pub async fn follow(&self) {
        loop {
            let files = self.current.load().endpoint.files().to_vec();
            let mut changes = FileChanges::of_all(files.clone()).await;
            // The files may have changed since the last read, and the kubeconfig may name other files now.
            self.read_again().await;
            if self.current.load().endpoint.files() == files {
                changes.changed().await;
            }
        }
    }

    async fn read_again(&self) {
        let file = self.file.clone();
        let read = keelson_supervision::spawn_blocking(move || WebhookEndpoint::read(&file)).await;
        let next = match read.map_err(|error| ConfigurationError::Unusable(error.to_string())).and_then(|read| read) {
            Ok(same) if same == self.current.load().endpoint => return,
            Ok(endpoint) => Connected::to(endpoint, &self.file, &self.outbound),
            Err(error) => Err(error),
        };
        match next {
            Ok(next) => {
                tracing::info!(file = %self.file.display(), "the files of a webhook were read again");
                self.current.store(Arc::new(next));
            }
            Err(error) => tracing::error!(%error, "the files of a webhook are kept as they were before"),
        }
    }
}

impl Connected {
    fn to(endpoint: WebhookEndpoint, file: &Path, outbound: &Outbound) -> Result<Self, ConfigurationError> {
        let client = endpoint.connect(outbound);
        let client = client.map_err(|why| ConfigurationError::Unusable(format!("{}: {why}", file.display())))?;
        Ok(Self { endpoint, client })
    }
}

impl std::fmt::Debug for WebhookConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WebhookConnection").field("file", &self.file).finish_non_exhaustive()
    }
}
