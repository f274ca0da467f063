//! Publishes this server's storage versions at the main server: no object is written in an unpublished version.
//!
//! The entries equal those of main servers for their own resources (`keelson_controllers`). They are valid as long as
//! this server's lease (`main_lease.rs`), and are checked at its renewal interval. If the main server does not serve
//! storage versions, nothing is published.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keelson_controllers::{StorageVersionEntry, retry_conflicts};
use keelson_meta::ApiError;
use keelson_registry::Registry;
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::main_server::{MainServer, object};

/// The path of their version.
const VERSION: &str = "/apis/internal.apiserver.k8s.io/v1alpha1";
/// The subresource that the main server must serve.
const STATUS: &str = "storageversions/status";
/// The most immediate attempts to publish after conflicts.
const ATTEMPTS: usize = 8;
/// The delay before a failed publication is retried.
const RETRY: Duration = Duration::from_millis(500);

/// The storage versions of this server.
pub(crate) struct StorageVersions {
    main_server: MainServer,
    registry: Arc<Registry>,
    server_id: String,
    /// The interval between checks of the published entries.
    interval: Duration,
    is_published: watch::Sender<bool>,
}

/// Returns true if a main server serves storage versions.
///
/// # Errors
/// It does not answer.
pub(crate) async fn are_served(main_server: &MainServer) -> Result<bool, ApiError> {
    match main_server.ask(Method::GET, VERSION, None).await {
        Ok(list) => {
            Ok(list["resources"].as_array().is_some_and(|all| all.iter().any(|resource| resource["name"] == STATUS)))
        }
        Err(ApiError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The path of a resource's storage version.
pub(crate) fn path(entry: &StorageVersionEntry) -> String {
    format!("{VERSION}/storageversions/{}", entry.name())
}

impl StorageVersions {
    /// Publishes the storage versions of the server with this ID. Checks them at this interval.
    pub(crate) fn new(main_server: MainServer, registry: Arc<Registry>, server_id: &str, interval: Duration) -> Self {
        let (server_id, is_published) = (server_id.to_owned(), watch::Sender::new(false));
        Self { main_server, registry, server_id, interval, is_published }
    }

    /// True once everything has been published.
    pub(crate) fn is_published(&self) -> watch::Receiver<bool> {
        self.is_published.subscribe()
    }

    /// Publishes once this server's lease is valid, and again whenever the lease or the store's record was lost.
    pub(crate) async fn run(self, mut acknowledged: watch::Receiver<Option<Instant>>) {
        let mut closings = self.registry.encodings_closed();
        loop {
            // The registry holds the sender.
            let Ok(closing) = closings.wait_for(|closings| closings.under_way == 0).await.map(|closings| *closings)
            else {
                return;
            };
            // ORDER: the lease is renewed after the publication was given up. A server that was paused too long may
            // have lost both its record and its lease, and may notice the loss of the record first. Entries published
            // then would be removed while it writes.
            let stands = |renewal: &Option<Instant>| {
                renewal.is_some_and(|begun| closing.ended.is_none_or(|ended| begun >= ended))
            };
            // The lease outlives this task.
            let _ = acknowledged.wait_for(stands).await;
            let wait = match self.publish_all(closing.begun).await {
                Ok(()) => {
                    self.is_published.send_replace(true);
                    self.interval
                }
                Err(error) => {
                    warn_repeated!(""; %error, "publishing storage versions failed; retrying");
                    RETRY
                }
            };
            // The registry holds the sender.
            let _ = tokio::time::timeout(wait, closings.changed()).await;
        }
    }

    /// Publishes all entries, even if one fails. Gates closed meanwhile stay closed.
    async fn publish_all(&self, begun: u64) -> Result<(), ApiError> {
        let mut outcome = Ok(());
        let closings = self.registry.encodings_closed();
        for resource in self.registry.surface().resources() {
            let Some(entry) = StorageVersionEntry::new(&self.server_id, resource) else { continue };
            let (gate, kind) = entry.gate();
            let opening = gate.prepare(kind).await;
            match retry_conflicts(ATTEMPTS, || self.publish(&entry)).await {
                Ok(()) if closings.borrow().begun == begun => gate.open(kind, opening),
                // The version is published again after the lease was renewed.
                Ok(()) => {}
                Err(error) => {
                    gate.note_failure(&error);
                    outcome = Err(error);
                }
            }
        }
        outcome
    }

    async fn publish(&self, entry: &StorageVersionEntry) -> Result<(), ApiError> {
        let all = format!("{VERSION}/storageversions");
        let one = path(entry);
        let found = match self.main_server.ask(Method::GET, &one, None).await {
            Err(ApiError::NotFound { .. }) => {
                self.main_server.ask(Method::POST, &all, Some(&entry.new_object())).await?
            }
            found => found?,
        };
        let mut object = object(found, &one)?;
        if entry.publish_in(&mut object, self.registry.now()) {
            self.main_server.ask(Method::PUT, &format!("{one}/status"), Some(&object.into_value())).await?;
        }
        Ok(())
    }
}
