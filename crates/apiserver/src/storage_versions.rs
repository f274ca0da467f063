//! The publication of this server's storage versions at the main server: nothing is written in a version that is not published there.
//!
//! What is published is what main servers publish of their own resources (`keelson_controllers`). It stands as long as the lease of this
//! server does (`main_lease.rs`), and is looked after as often as that is renewed. A main server that has no such objects is told nothing.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use keelson_controllers::{StorageVersionEntry, retry_conflicts};
use keelson_meta::{ApiError, Object};
use keelson_registry::Registry;
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::main_server::MainServer;

/// The version of their group.
const VERSION: &str = "/apis/internal.apiserver.k8s.io/v1alpha1";
/// What has to be served for anything to be published.
const STATUS: &str = "storageversions/status";
/// How often a publication is tried at once when others write the same object.
const ATTEMPTS: usize = 8;
/// How soon a publication is tried again that failed.
const RETRY: Duration = Duration::from_millis(500);

/// The storage versions of this server.
pub(crate) struct StorageVersions {
    main_server: MainServer,
    registry: Arc<Registry>,
    server_id: String,
    /// How often it is looked whether what was published is still there.
    interval: Duration,
    is_published: watch::Sender<bool>,
}

/// Whether a main server has such objects.
///
/// # Errors
/// When it does not say.
pub(crate) async fn are_served(main_server: &MainServer) -> Result<bool, ApiError> {
    match main_server.ask(Method::GET, VERSION, None).await {
        Ok(list) => {
            Ok(list["resources"].as_array().is_some_and(|all| all.iter().any(|resource| resource["name"] == STATUS)))
        }
        Err(ApiError::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Where what is published of a resource is.
pub(crate) fn path(entry: &StorageVersionEntry) -> String {
    format!("{VERSION}/storageversions/{}", entry.name())
}

impl StorageVersions {
    /// Those of the server of this name, which are looked after so often.
    pub(crate) fn new(main_server: MainServer, registry: Arc<Registry>, server_id: &str, interval: Duration) -> Self {
        let (server_id, is_published) = (server_id.to_owned(), watch::Sender::new(false));
        Self { main_server, registry, server_id, interval, is_published }
    }

    /// Tells whether everything was published once.
    pub(crate) fn is_published(&self) -> watch::Receiver<bool> {
        self.is_published.subscribe()
    }

    /// Publishes as soon as the lease of this server stands, and again whenever that or its record in the store was lost.
    pub(crate) async fn run(self, mut acknowledged: watch::Receiver<Option<Instant>>) {
        let mut closings = self.registry.encodings_closed();
        loop {
            // The registry holds the sender.
            let Ok(closing) = closings.wait_for(|closings| closings.under_way == 0).await.map(|closings| *closings)
            else {
                return;
            };
            // ORDER: the lease is renewed after what was published was given up. A server that was away too long may have lost both its
            // record and its lease and hear of the record first; what it published then would be taken away while it writes.
            let stands = |renewal: &Option<Instant>| {
                renewal.is_some_and(|begun| closing.ended.is_none_or(|ended| begun >= ended))
            };
            // The lease outlives this.
            let _ = acknowledged.wait_for(stands).await;
            let wait = match self.publish_all(closing.begun).await {
                Ok(()) => {
                    self.is_published.send_replace(true);
                    self.interval
                }
                Err(error) => {
                    warn_repeated!(""; %error, "storage versions could not be published; trying again");
                    RETRY
                }
            };
            // The registry holds the sender.
            let _ = tokio::time::timeout(wait, closings.changed()).await;
        }
    }

    /// All of them, of which one that fails keeps no other from being published. Nothing is opened that was closed meanwhile.
    async fn publish_all(&self, begun: u64) -> Result<(), ApiError> {
        let mut outcome = Ok(());
        let closings = self.registry.encodings_closed();
        for resource in self.registry.surface().resources() {
            let Some(entry) = StorageVersionEntry::of(&self.server_id, resource) else { continue };
            let (gate, kind) = entry.gate();
            let opening = gate.prepare(kind).await;
            match retry_conflicts(ATTEMPTS, || self.publish(&entry)).await {
                Ok(()) if closings.borrow().begun == begun => gate.open(kind, opening),
                // It is published anew when the lease was renewed.
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
        let no_object = || ApiError::Internal(format!("what the main server has at {one} is no object"));
        let mut object = Object::from_value(found).ok_or_else(no_object)?;
        if entry.publish_in(&mut object, self.registry.now()) {
            self.main_server.ask(Method::PUT, &format!("{one}/status"), Some(&object.into_value())).await?;
        }
        Ok(())
    }
}
