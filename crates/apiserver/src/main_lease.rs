//! The lease by which the main server knows that this one lives: what this server has published there stands as long as the lease does.
//!
//! It is a Lease in `kube-system` with a label of its own, so that nobody takes this server for a main one. A server whose lease is gone,
//! or was not renewed in time, writes nothing until it is there again and everything is published anew.

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

/// Where the leases of servers are.
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// How long a server that stops tries to take its lease with it.
const LEAVING_TIME: std::time::Duration = std::time::Duration::from_secs(2);

/// The lease of this server.
pub(crate) struct MainLease {
    main_server: MainServer,
    registry: Arc<Registry>,
    server_id: String,
    holder: String,
    terms: Terms,
    /// When it was written last, if it stands.
    renewed: Option<Instant>,
    /// When the last renewal began that was acknowledged.
    acknowledged: watch::Sender<Option<Instant>>,
}

impl MainLease {
    /// That of the server of this name; `holder` tells its processes apart.
    pub(crate) fn new(
        main_server: MainServer,
        registry: Arc<Registry>,
        (server_id, holder): (&str, String),
        terms: Terms,
    ) -> Self {
        let (server_id, acknowledged) = (server_id.to_owned(), watch::Sender::new(None));
        Self { main_server, registry, server_id, holder, terms, renewed: None, acknowledged }
    }

    /// Tells when the last renewal began that was acknowledged: the lease stood at some time since then.
    pub(crate) fn acknowledged(&self) -> watch::Receiver<Option<Instant>> {
        self.acknowledged.subscribe()
    }

    /// Renews it until the server stops.
    pub(crate) async fn run(mut self, stopping: CancellationToken) -> Self {
        tokio::select! {
            () = stopping.cancelled() => {}
            () = self.keep() => {}
        }
        self
    }

    /// Deletes it, so that what was published goes at once.
    pub(crate) async fn leave(self) {
        if self.renewed.is_none() {
            return;
        }
        let path = self.path();
        let deleted = self.main_server.ask(Method::DELETE, &path, None);
        if !matches!(tokio::time::timeout(LEAVING_TIME, deleted).await, Ok(Ok(_))) {
            tracing::warn!(server_id = self.server_id, "the lease of this server was left behind; it ends by itself");
        }
    }

    async fn keep(&mut self) {
        let mut closings = self.registry.encodings_closed();
        loop {
            closings.mark_unchanged();
            match self.renew().await {
                Ok(()) => drop(self.acknowledged.send_replace(self.renewed)),
                Err(error) => {
                    warn_repeated!(&self.server_id; server_id = self.server_id, %error, "the lease of this server was not renewed; it is tried again");
                    self.judge().await;
                }
            }
            // Who publishes anew waits for a renewal. The registry holds the sender.
            let _ = tokio::time::timeout(self.terms.interval, closings.changed()).await;
        }
    }

    /// Has nothing written any more under a lease that has ended.
    async fn judge(&mut self) {
        if self.renewed.is_some_and(|renewed| renewed.elapsed() >= self.terms.duration) {
            self.lost("it was not renewed in time").await;
        }
    }

    async fn lost(&mut self, why: &str) {
        tracing::error!(
            server_id = self.server_id,
            why,
            "this server lost its lease at the main server; it publishes anew"
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
                    self.lost("it is another's").await;
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

    /// It stands longer than this server writes without having renewed it, and than its record in a store that it shares.
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
