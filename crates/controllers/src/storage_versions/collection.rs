//! Removes the storage version entries of dead servers, and objects without entries.
//!
//! A server is dead when its identity lease does not exist; an error while reading the lease proves nothing. ORDER: the
//! transaction that removes entries requires that the leases are still absent. Otherwise a server that comes back could
//! find its entry still present, not write it again, and lose it then. The entries of a server whose lease says that it
//! publishes nothing are removed too.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::{ApiError, Object};
use keelson_registry::{Registry, Target};
use keelson_storage::{Compare, Condition};
use keelson_supervision::warn_repeated;
use tokio_util::sync::CancellationToken;

use super::agreement::{is_published, servers, withdraw};
use super::{target, update_status_if};
use crate::client::{Client, RevisedObject};
use crate::follow::follow;
use crate::identity::{AGGREGATED_IDENTITY, IDENTITY_LABEL, IDENTITY_VALUE, UNPUBLISHED_ANNOTATION, identity_key};
use crate::leases;
use crate::queue::{Backoff, Outcome, Queue};

/// The field manager, as in kube-apiserver.
const MANAGER: &str = "storage-version-garbage-collector";
/// The number of objects processed concurrently: enough to share commits, few enough to leave room for clients.
const AT_ONCE: usize = 16;
/// The backoff of an object after a failed write or lookup.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(30) };

/// The controller.
pub struct StorageVersionCollection {
    registry: Arc<Registry>,
    client: Client,
    versions: Target,
    leases: Target,
    queue: Queue<WorkItem>,
}

/// The lease labels of servers that publish: main servers, and the aggregated servers to which they forward requests.
const IDENTITIES: [(&str, &str); 2] = [(IDENTITY_LABEL, IDENTITY_VALUE), (IDENTITY_LABEL, AGGREGATED_IDENTITY)];

/// The state of a server's lease.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LeaseState {
    /// The lease exists, and the server publishes its storage versions.
    Publishes,
    /// The lease exists, and the server publishes nothing.
    Unpublished,
    /// The lease does not exist.
    Gone,
}

/// The objects to process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum WorkItem {
    /// One object.
    At(String),
    /// All objects, after a server died or stopped publishing.
    AtAll,
}

impl StorageVersionCollection {
    /// Creates a controller over a registry.
    ///
    /// # Errors
    /// 500 when storage versions or leases are not served.
    pub fn new(registry: Arc<Registry>) -> Result<Self, ApiError> {
        let client = Client::of_controller(registry.clone(), MANAGER, MANAGER);
        let (versions, leases) = (target(&client)?, leases::collection(&client)?);
        Ok(Self { registry, client, versions, leases, queue: Queue::new("storage_version_garbage_collector", BACKOFF) })
    }

    /// Runs until cancelled.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let caller = self.client.caller();
        let all = FieldSelector::default;
        let versions = follow(&self.registry, caller, &self.versions, all(), |version| {
            self.queue.add(WorkItem::At(version.name().to_owned()));
        });
        // The state of each followed lease is looked up, since most events are renewals.
        let leases = follow(&self.registry, caller, &self.leases, all(), |lease| {
            if self.standing_here(lease.name()) != LeaseState::Publishes {
                self.queue.add(WorkItem::AtAll);
            }
        });
        let work = self.queue.run(AT_ONCE, |look| self.turn(look));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = versions => match never {},
            never = leases => match never {},
            never = work => match never {},
        }
    }

    /// The state of a server's lease in this server's cache. The cache is updated before an event arrives.
    fn standing_here(&self, name: &str) -> LeaseState {
        let Ok(leases) = self.leases.collection() else { return LeaseState::Publishes };
        match leases.get(&self.leases.relative_key(name)) {
            Some(lease) => standing(Some(&lease.object().decode(lease.revision))),
            None => LeaseState::Gone,
        }
    }

    async fn turn(&self, look: WorkItem) -> Outcome {
        let done = match &look {
            WorkItem::At(name) => self.collect(name).await,
            WorkItem::AtAll => self.look_at_all().await,
        };
        match done {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            // Another writer changed the object first. Its new state is processed again.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                warn_repeated!(""; ?look, %error, "deleting the entries of stopped servers failed; retrying");
                Outcome::Again
            }
        }
    }

    async fn look_at_all(&self) -> Result<(), ApiError> {
        let mut standings: HashMap<String, LeaseState> = HashMap::new();
        for RevisedObject { object, .. } in self.client.list(&self.versions, LabelSelector::everything()).await? {
            for server in servers(&object) {
                if !standings.contains_key(server) {
                    let found = self.standing(server).await?;
                    if found != LeaseState::Publishes {
                        tracing::info!(server, "deleting the entries of a server that stopped or publishes none");
                    }
                    standings.insert(server.to_owned(), found);
                }
            }
            if servers(&object).any(|server| standings.get(server) != Some(&LeaseState::Publishes)) {
                self.queue.add(WorkItem::At(object.name().to_owned()));
            }
        }
        Ok(())
    }

    async fn collect(&self, name: &str) -> Result<(), ApiError> {
        let Some(mut found) = self.client.get(&self.versions, name).await? else { return Ok(()) };
        let (mut void, mut absent) = (Vec::new(), Vec::new());
        for server in servers(&found.object) {
            match self.standing(server).await? {
                LeaseState::Publishes => continue,
                LeaseState::Unpublished => {}
                LeaseState::Gone => absent.push(Compare { key: identity_key(server), condition: Condition::Absent }),
            }
            void.push(server.to_owned());
        }
        if !void.is_empty()
            && withdraw(&mut found.object, |server| void.iter().any(|it| it == server), self.client.now())
        {
            found = update_status_if(&self.client, &self.versions, found.object, absent).await?;
            tracing::debug!(storage_version = name, servers = ?void, "deleted the entries of stopped servers");
        }
        // An object in which no server ever published was created by a client, so it stays.
        if is_published(&found.object) && servers(&found.object).next().is_none() {
            self.client.delete(&self.versions, &found).await?;
        }
        Ok(())
    }

    async fn standing(&self, server: &str) -> Result<LeaseState, ApiError> {
        let lease = self.client.get(&self.leases, server).await?;
        Ok(standing(lease.as_ref().map(|lease| &lease.object)))
    }
}

/// The state that the lease of a server implies.
fn standing(lease: Option<&Object>) -> LeaseState {
    match lease {
        Some(lease) if !lease.labels().any(|label| IDENTITIES.contains(&label)) => LeaseState::Gone,
        Some(lease) if lease.annotations().any(|(name, _)| name == UNPUBLISHED_ANNOTATION) => LeaseState::Unpublished,
        Some(_) => LeaseState::Publishes,
        None => LeaseState::Gone,
    }
}
