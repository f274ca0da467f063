//! Publishes this server's storage versions: for each stored resource, the version that it writes.
//!
//! ORDER: the gate of a collection opens for a version only after that version is published. Until then this server
//! can't write in it. After a new registration the server publishes again, since its entries may have been removed. It
//! watches the objects, restores missing or wrong entries, and removes its entries for resources that are no longer
//! stored.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupResource, GroupVersionKind};
use keelson_registry::{Registry, ServedApis, ServedResource, Target};
use keelson_storage::Compare;
use keelson_supervision::warn_repeated;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::agreement::{ServerEntry, publish, servers, withdraw};
use super::entry::{entry, name_of, new_object, resource_of, stored};
use super::states::StorageStates;
use super::{target, update_status, update_status_if};
use crate::client::{Client, SERVER_MANAGER};
use crate::conflicts::retry_conflicts;
use crate::follow::follow;
use crate::queue::{Backoff, Outcome, Queue};

/// The number of resources published concurrently: enough for a few commits to hold them all.
const AT_ONCE: usize = 64;
/// The most immediate attempts of a publication after conflicts.
const ATTEMPTS: usize = 8;
/// The backoff of a failed publication.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(5) };

/// Publishes this server's storage versions.
pub struct StorageVersionPublication {
    registry: Arc<Registry>,
    client: Client,
    /// The collection of all storage versions.
    versions: Target,
    states: StorageStates,
    server_id: String,
    queue: Queue<GroupResource>,
    progress: Arc<Publication>,
}

/// The progress of the first publication.
pub struct Publication {
    state: watch::Sender<State>,
}

#[derive(Default)]
struct State {
    has_begun: bool,
    /// Resources that have not been published and had no attempt yet.
    untried: HashSet<GroupResource>,
    /// Resources that are not published, so this server can't write them yet.
    pending: HashSet<GroupResource>,
}

impl Publication {
    /// The resources that this server can't write yet because they are not published; `None` until they are known.
    pub fn pending(&self) -> Option<Vec<String>> {
        let state = self.state.borrow();
        let mut names: Vec<String> = state.pending.iter().map(ToString::to_string).collect();
        names.sort_unstable();
        state.has_begun.then_some(names)
    }

    /// Waits until each resource has had one attempt.
    pub async fn tried(&self) {
        // The sender is in `self`, so waiting can't end otherwise.
        let _ = self.state.subscribe().wait_for(|state| state.has_begun && state.untried.is_empty()).await;
    }

    /// Records the resources to publish, on the first call only.
    fn begin(&self, resources: &[GroupResource]) {
        self.state.send_if_modified(|state| {
            if state.has_begun {
                return false;
            }
            let all: HashSet<GroupResource> = resources.iter().cloned().collect();
            *state = State { has_begun: true, untried: all.clone(), pending: all };
            true
        });
    }

    fn note(&self, resource: &GroupResource, is_published: bool) {
        self.state.send_if_modified(|state| {
            let was_untried = state.untried.remove(resource);
            let was_pending = is_published && state.pending.remove(resource);
            was_untried || was_pending
        });
    }
}

impl StorageVersionPublication {
    /// Creates the publication of the server of this name.
    ///
    /// # Errors
    /// 500 when storage versions are not served.
    pub fn new(registry: Arc<Registry>, server_id: &str) -> Result<Self, ApiError> {
        let client = Client::of_upkeep(registry.clone(), SERVER_MANAGER);
        let versions = target(&client)?;
        let progress = Arc::new(Publication { state: watch::Sender::default() });
        let (server_id, queue) = (server_id.to_owned(), Queue::new("storage_version_publication", BACKOFF));
        let states = StorageStates::new(registry.clone(), client.clone());
        Ok(Self { registry, client, versions, states, server_id, queue, progress })
    }

    /// Returns the progress.
    pub fn progress(&self) -> Arc<Publication> {
        self.progress.clone()
    }

    /// Publishes stored resources now and after each change, until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let (mut changes, mut closings) = (self.registry.surfaces().changes(), self.registry.encodings_closed());
        let following = async {
            let mut last = Arc::default();
            loop {
                changes.mark_unchanged();
                let surface = self.registry.surface();
                self.look(&surface, &last);
                last = surface;
                // The senders live in the registry, so they outlive this loop.
                tokio::select! {
                    _ = changes.changed() => {}
                    _ = closings.changed() => last = Arc::default(),
                }
            }
        };
        let (caller, all) = (self.client.caller(), FieldSelector::default());
        let published = follow(&self.registry, caller, &self.versions, all, |version| self.check(version));
        let work = self.queue.run(AT_ONCE, |resource| self.turn(resource));
        tokio::select! {
            () = stopping.cancelled() => {}
            () = following => {}
            never = published => match never {},
            never = work => match never {},
        }
    }

    /// Enqueues the resources to publish: those that changed or whose gate is closed. Also enqueues the resources that
    /// are no longer stored, so that their entries are removed.
    fn look(&self, surface: &ServedApis, last: &ServedApis) {
        let mut closed = Vec::new();
        for group in surface.changed_groups(last) {
            for served in surface.resources_of(group) {
                let Some((gate, kind)) = stored(served) else { continue };
                if !gate.is_open_for(kind) {
                    closed.push(served.group_resource());
                } else if last.resource(group, &served.resource().plural).is_some_and(|last| self.differs(served, last))
                {
                    self.queue.add(served.group_resource());
                }
            }
            for gone in last.resources_of(group) {
                if surface.resource(group, &gone.resource().plural).and_then(|served| stored(served)).is_none()
                    && let Some((gate, _)) = stored(gone)
                {
                    // Should the server store it again later, it must publish first.
                    gate.close();
                    self.queue.add(gone.group_resource());
                }
            }
        }
        self.progress.begin(&closed);
        closed.into_iter().for_each(|resource| self.queue.add(resource));
    }

    /// Returns true if the resource's entry has changed.
    fn differs(&self, served: &Arc<ServedResource>, before: &Arc<ServedResource>) -> bool {
        let entry = |served| stored(served).map(|(_, kind)| entry(&self.server_id, served, kind));
        !Arc::ptr_eq(served, before) && entry(served) != entry(before)
    }

    /// Enqueues the resource of a storage version that was changed or deleted, if this server's entry in it is wrong.
    fn check(&self, version: &Entry) {
        let Some(resource) = resource_of(version.name()) else { return };
        let surface = self.registry.surface();
        let served = surface.resource(&resource.group, &resource.resource);
        let is_right = match served.and_then(|served| Some((served, stored(served)?))) {
            // The gate is closed, so the publication is already under way.
            Some((_, (gate, kind))) if !gate.is_open_for(kind) => true,
            Some((served, (_, kind))) => self.versions.collection().is_ok_and(|versions| {
                let key = self.versions.relative_key(version.name());
                versions.get(&key).is_some_and(|found| {
                    let mut found = found.object().decode(found.revision);
                    !publish(&mut found, &entry(&self.server_id, served, kind), self.client.now())
                })
            }),
            None => servers(&version.object().decode(version.revision)).all(|server| server != self.server_id),
        };
        if !is_right {
            self.queue.add(resource);
        }
    }

    async fn turn(&self, resource: GroupResource) -> Outcome {
        let surface = self.registry.surface();
        let served = surface.resource(&resource.group, &resource.resource);
        let Some((served, (gate, kind))) = served.and_then(|served| Some((served, stored(served)?))) else {
            let withdrawn = self.withdraw(&resource).await;
            return self.done(&resource, withdrawn);
        };
        let opening = gate.prepare(kind).await;
        let entry = entry(&self.server_id, served, kind);
        let mut published = self.publish(served, kind, &entry).await;
        // ORDER: after the publication, since the published entry keeps other servers from removing the version from
        // the state.
        if published.is_ok() {
            published = self.states.add(&resource, kind).await;
        }
        match &published {
            Ok(()) => gate.open(kind, opening),
            Err(error) => gate.note_failure(error),
        }
        self.done(&resource, published)
    }

    fn done(&self, resource: &GroupResource, result: Result<(), ApiError>) -> Outcome {
        self.progress.note(resource, result.is_ok());
        let Err(error) = result else { return Outcome::Done };
        warn_repeated!(resource; %resource, %error, "publishing a storage version failed; retrying");
        Outcome::Again
    }

    async fn publish(
        &self,
        served: &ServedResource,
        kind: &GroupVersionKind,
        own: &ServerEntry,
    ) -> Result<(), ApiError> {
        let name = name_of(&served.group_resource());
        // ORDER: the transaction that publishes a version requires that the definition lists it. A version leaves the
        // list only while the servers agree on another one, so no server writes a version that is no longer listed.
        let conditions = || served.definition().map(|definition| definition.lists(&kind.version)).transpose();
        let mut stands = conditions()?;
        for _ in 0..ATTEMPTS {
            match retry_conflicts(ATTEMPTS, || self.try_publish(&name, own, stands.clone())).await {
                Err(ApiError::ServiceUnavailable { .. }) if stands.is_some() => stands = conditions()?,
                settled => return settled,
            }
        }
        self.try_publish(&name, own, stands).await
    }

    async fn try_publish(&self, name: &str, own: &ServerEntry, stands: Option<Compare>) -> Result<(), ApiError> {
        let conditions = stands.into_iter().collect();
        let Some(mut found) = self.client.get(&self.versions, name).await? else {
            let mut object = new_object(name);
            publish(&mut object, own, self.client.now());
            return self.client.create_while(&self.versions, Value::Object(object.0), conditions).await.map(drop);
        };
        if publish(&mut found.object, own, self.client.now()) {
            update_status_if(&self.client, &self.versions, found.object, conditions).await?;
        }
        Ok(())
    }

    /// Removes this server's entry for a resource. `collection` deletes the object once it has no entries.
    async fn withdraw(&self, resource: &GroupResource) -> Result<(), ApiError> {
        let Some(mut found) = self.client.get(&self.versions, &name_of(resource)).await? else { return Ok(()) };
        let is_own = |server: &str| server == self.server_id;
        if servers(&found.object).any(is_own) && withdraw(&mut found.object, is_own, self.client.now()) {
            update_status(&self.client, &self.versions, found.object).await?;
        }
        Ok(())
    }
}
