//! This server's lease at the main server. Everything published there is valid as long as the lease.
//!
//! The lease of an aggregated server is a Lease in `kube-system`. Its label differs from the label of kube-apiserver's
//! leases, so that clients do not count the server as a kube-apiserver. After the lease expired or was deleted, the
//! server writes nothing until it has renewed the lease and published everything again.

use std::sync::Arc;

use http::Method;
use keelson_meta::ApiError;
use keelson_meta::clock::rfc3339_micro;
use keelson_meta::json::{Value, json};
use keelson_registry::Registry;
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::main_server::MainServer;
use crate::membership::Terms;

/// The path of the servers' leases.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// The time limit for deleting the lease at shutdown.
const LEAVING_TIME: std::time::Duration = std::time::Duration::from_secs(2);

/// The lease of this server.
pub(crate) struct MainLease {
    main_server: MainServer,
    registry: Arc<Registry>,
    server_id: String,
    holder: String,
    terms: Terms,
    /// The time of the last write, while the lease is valid.
    renewed: Option<Instant>,
    /// The start of the last acknowledged renewal.
    acknowledged: watch::Sender<Option<Instant>>,
}

impl MainLease {
    /// The lease of the server of this name; `holder` identifies the process.
    pub(crate) fn new(
        main_server: MainServer,
        registry: Arc<Registry>,
        (server_id, holder): (&str, String),
        terms: Terms,
    ) -> Self {
        let (server_id, acknowledged) = (server_id.to_owned(), watch::Sender::new(None));
        Self { main_server, registry, server_id, holder, terms, renewed: None, acknowledged }
    }

    /// The start of the last acknowledged renewal: the lease was valid at some time since then.
    pub(crate) fn acknowledged(&self) -> watch::Receiver<Option<Instant>> {
        self.acknowledged.subscribe()
    }

    /// Renews the lease until the server stops.
    pub(crate) async fn run(mut self, stopping: CancellationToken) -> Self {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.keep() => {}
        }
        self
    }

    /// Deletes the lease, which voids everything published at once.
    pub(crate) async fn leave(self) {
        if self.renewed.is_none() {
            return;
        }
        let path = self.path();
        let deleted = self.main_server.ask(Method::DELETE, &path, None);
        if !matches!(tokio::time::timeout(LEAVING_TIME, deleted).await, Ok(Ok(_))) {
            tracing::warn!(server_id = self.server_id, "deleting the lease of this server failed; it expires");
        }
    }

    async fn keep(&mut self) {
        let mut closings = self.registry.encodings_closed();
        loop {
            closings.mark_unchanged();
            match self.renew().await {
                Ok(()) => drop(self.acknowledged.send_replace(self.renewed)),
                Err(error) => {
                    warn_repeated!(&self.server_id; server_id = self.server_id, %error, "renewing the lease of this server failed; retrying");
                    self.judge().await;
                }
            }
            // The publication waits for a renewal. The registry holds the sender.
            let _ = tokio::time::timeout(self.terms.interval, closings.changed()).await;
        }
    }

    /// Stops all writes once the lease has expired.
    async fn judge(&mut self) {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() >= self.terms.duration) {
            self.lost("the lease was not renewed in time").await;
        }
    }

    async fn lost(&mut self, why: &str) {
        tracing::error!(
            server_id = self.server_id,
            why,
            "this server lost its lease at the main server and publishes again"
        );
        self.renewed = None;
        self.registry.close_encodings().await;
    }

    async fn renew(&mut self) -> Result<(), ApiError> {
        self.judge().await;
        let begun = Instant::now();
        let path = self.path();
        match self.main_server.ask(Method::GET, &path, None).await {
            Ok(mut found) => {
                if self.renewed.is_some() && found["spec"]["holderIdentity"] != *self.holder {
                    self.lost("another server holds the lease").await;
                }
                let lease = self.lease();
                found["metadata"]["labels"] = lease["metadata"]["labels"].clone();
                found["spec"] = lease["spec"].clone();
                self.main_server.ask(Method::PUT, &path, Some(&found)).await?;
            }
            Err(ApiError::NotFound { .. }) => {
                if self.renewed.is_some() {
                    self.lost("it was deleted").await;
                }
                self.main_server.ask(Method::POST, LEASES, Some(&self.lease())).await?;
            }
            Err(error) => return Err(error),
        }
        self.renewed = Some(begun);
        Ok(())
    }

    fn path(&self) -> String {
        format!("{LEASES}/{}", self.server_id)
    }

    /// The Lease object. Its duration exceeds the time that this server writes without a renewal, and that of its
    /// record in a shared store.
    fn lease(&self) -> Value {
        let duration = self.terms.duration + self.terms.interval;
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.server_id,
                "namespace": "kube-system",
                "labels": { keelson_controllers::IDENTITY_LABEL: keelson_controllers::AGGREGATED_IDENTITY },
            },
            "spec": {
                "holderIdentity": self.holder,
                "leaseDurationSeconds": duration.as_secs().max(1),
                "renewTime": rfc3339_micro(self.registry.now()),
            },
        })
    }
}
