//! Deletes objects whose owners no longer exist, and applies the `propagationPolicy` of a deletion to the dependents:
//! background, foreground or orphan.
//!
//! An index finds the objects to check ([`graph`]). The collector then reads the newest state of an object and of its
//! owners. Each write requires that the object has not changed since. So a stale index delays a deletion but never
//! causes a wrong one, and every step can be repeated after a failure or a restart. Separate workers handle objects of
//! other servers ([`elsewhere`]) and leave them alone while these servers do not answer.

mod elsewhere;
mod graph;
mod invalid_owners;
mod metadata;
mod objects;
mod owners;

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::TooOld;
use keelson_meta::ApiError;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use keelson_meta::options::PropagationPolicy;
use keelson_registry::{Burst, Registry, ServedApis};
use keelson_supervision::{Pace, warn_repeated};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::queue::{Backoff, Outcome, Queue};
use elsewhere::RemoteKnowledge;
pub use elsewhere::{RemoteAccess, RemoteEvent, RemoteKind, RemoteObject, RemotePage};
use graph::{CollectionPlace, Dependent, Graph, ObjectId, Visits};
use invalid_owners::InvalidOwners;
use metadata::{Metadata, OwnerReference};
use objects::{Objects, VisitedObject};
use owners::{Location, OwnerLookup, find_owner, is_out_of_reach};

/// The controller's service account.
const ACCOUNT: &str = "generic-garbage-collector";
/// The number of objects processed concurrently: enough to share commits, few enough to leave room for clients.
const AT_ONCE: usize = 32;
/// The number of objects processed concurrently that need requests to other servers.
const AT_ONCE_ELSEWHERE: usize = 64;
/// The backoff for an object after a failure.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_mins(1) };
/// The backoff for objects that need other servers. Its maximum bounds the delay after such a server becomes available
/// again.
const BACKOFF_ELSEWHERE: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_secs(15) };
/// The pause after a pass, which gathers events for the next. A wakeup costs as much as processing many events.
const REST: Duration = Duration::from_millis(10);
/// The number of passes without a pause after a quiet period: as many as a new resource causes.
const LOOKS_AT_ONCE: u32 = 8;
/// The time without events that makes a quiet period.
const SILENCE: Duration = Duration::from_millis(50);
/// The backoff before the collections are loaded again, after a failure or missed events.
const LOAD_AGAIN: Backoff = Backoff { first: Duration::from_millis(100), longest: Duration::from_secs(10) };

/// The controller.
pub struct GarbageCollection {
    objects: Objects,
    graph: Mutex<Graph>,
    visits: Visits,
    invalid_owners: InvalidOwners,
}

/// The state of the owner that a reference names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// The owner exists, or its absence can't be proven.
    Present,
    /// The owner does not exist.
    Gone,
    /// The owner is being deleted and waits for its dependents.
    Waiting,
}

/// The kind of worker that processes an object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Worker {
    /// Sends no requests to other servers. Hands objects that need such requests to the other workers.
    Here,
    /// Sends requests to other servers, and may wait for them.
    Elsewhere,
}

impl GarbageCollection {
    /// Creates a collector over a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        Self::over(registry, RemoteKnowledge::new(None))
    }

    /// Creates a collector over a registry and the objects of other servers.
    pub fn with_elsewhere(registry: Arc<Registry>, servers: Arc<dyn RemoteAccess>) -> Self {
        Self::over(registry, RemoteKnowledge::new(Some(servers)))
    }

    fn over(registry: Arc<Registry>, elsewhere: RemoteKnowledge) -> Self {
        let caller = registry.controller(ACCOUNT);
        let invalid_owners = InvalidOwners::new(registry.clone(), ACCOUNT);
        Self {
            objects: Objects { registry, caller, elsewhere: Arc::new(elsewhere) },
            graph: Mutex::default(),
            visits: Visits {
                here: Queue::new("garbage_collector_attempt_to_delete", BACKOFF),
                elsewhere: Queue::new("garbage_collector_attempt_to_delete_elsewhere", BACKOFF_ELSEWHERE),
            },
            invalid_owners,
        }
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(self.run_until(stopping))
    }

    async fn run_until(self, stopping: CancellationToken) {
        let collect = self.visits.here.run(AT_ONCE, |id| self.turn(id, Worker::Here));
        let collect_elsewhere = self.visits.elsewhere.run(AT_ONCE_ELSEWHERE, |id| self.turn(id, Worker::Elsewhere));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = self.follow() => match never {},
            never = self.objects.elsewhere.follow() => match never {},
            never = collect => match never {},
            never = collect_elsewhere => match never {},
            never = self.invalid_owners.run() => match never {},
        }
    }

    /// Applies the cache's events to the index, for all served resources.
    async fn follow(&self) -> Infallible {
        let mut changes = self.objects.registry.surfaces().changes();
        let mut pace = Pace::new(LOAD_AGAIN);
        loop {
            pace.turn().await;
            changes.mark_unchanged();
            let mut surface = self.objects.registry.surface();
            match Graph::load(self.world(&surface)).await {
                Ok((graph, visits)) => {
                    *self.graph.lock() = graph;
                    visits.into_iter().for_each(|id| self.visits.add(id));
                    self.objects.elsewhere.look_again();
                    let mut at_once = Burst::new(LOOKS_AT_ONCE, SILENCE);
                    let overtaken = loop {
                        match self.follow_on(&mut surface, &mut changes).await {
                            Ok(()) if at_once.takes(Instant::now()) => {}
                            Ok(()) => tokio::time::sleep(REST).await,
                            Err(overtaken) => break overtaken,
                        }
                    };
                    warn_repeated!(""; error = %overtaken, "garbage collection missed events and reloads its index");
                }
                Err(error) => {
                    warn_repeated!(""; %error, "garbage collection could not load and tries again");
                }
            }
        }
    }

    /// Processes the next events: changes of objects, of the served resources, or of objects on other servers.
    async fn follow_on(&self, surface: &mut Arc<ServedApis>, changes: &mut watch::Receiver<u64>) -> Result<(), TooOld> {
        tokio::select! {
            biased;
            // The sender lives as long as the registry.
            _ = changes.changed() => {
                *surface = self.objects.registry.surface();
                let mut graph = std::mem::take(&mut *self.graph.lock());
                let followed = graph.follow(self.world(surface)).await;
                *self.graph.lock() = graph;
                self.objects.elsewhere.look_again();
                followed?.into_iter().for_each(|id| self.visits.add(id));
                Ok(())
            }
            () = self.objects.elsewhere.changed() => {
                if self.graph.lock().take_elsewhere(self.world(surface), &self.visits) {
                    self.objects.elsewhere.look_again();
                }
                Ok(())
            }
            polled = poll_fn(|context| self.graph.lock().poll(self.world(surface), context, &self.visits)) => polled,
        }
    }

    fn world<'a>(&'a self, surface: &'a Arc<ServedApis>) -> OwnerLookup<'a> {
        OwnerLookup { surface, elsewhere: &self.objects.elsewhere }
    }

    async fn turn(&self, id: ObjectId, worker: Worker) -> Outcome {
        match self.visit(&id, worker).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            // Another writer changed the object first. Its new state is processed again.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            // The condition of the server's APIServices already reports that it is unavailable.
            Err(error @ ApiError::ServiceUnavailable { .. }) if worker == Worker::Elsewhere => {
                tracing::debug!(key = %id.key, %error, "garbage collection waits for another server");
                Outcome::Again
            }
            Err(error) => {
                warn_repeated!(&id.key; key = %id.key, %error, "garbage collection of an object failed; retrying");
                Outcome::Again
            }
        }
    }

    /// Processes an object in its current state.
    async fn visit(&self, id: &ObjectId, worker: Worker) -> Result<(), ApiError> {
        let Some(object) = self.objects.get(id).await? else { return Ok(()) };
        let metadata = object.metadata();
        let [orphans, waits] = [FINALIZER_ORPHAN, FINALIZER_FOREGROUND].map(|finalizer| metadata.holds(finalizer));
        if orphans || waits {
            let dependents = self.dependents(&object)?;
            let is_elsewhere = |dependent: &Dependent| matches!(dependent.id.collection, CollectionPlace::Elsewhere(_));
            if orphans && worker == Worker::Here && dependents.iter().any(is_elsewhere) {
                self.visits.elsewhere.add(id.clone());
                return Ok(());
            }
            return match orphans {
                true => self.orphan_dependents(&object, dependents).await,
                false => self.delete_dependents(&object, dependents).await,
            };
        }
        if metadata.is_deleted() || metadata.owners().is_empty() {
            return Ok(());
        }
        if worker == Worker::Here && metadata.owners().iter().any(|owner| self.is_elsewhere(owner, id)) {
            self.visits.elsewhere.add(id.clone());
            return Ok(());
        }
        self.judge(&object, &metadata).await
    }

    /// Returns true if the owner that a reference names is an object of another server.
    fn is_elsewhere(&self, reference: &OwnerReference<'_>, dependent: &ObjectId) -> bool {
        let surface = self.objects.registry.surface();
        let place = find_owner(self.world(&surface), reference, dependent).map(Location::id);
        place.is_some_and(|id| matches!(id.collection, CollectionPlace::Elsewhere(_)))
    }

    /// Removes the owner references to an object from its dependents, then the finalizer from the object.
    async fn orphan_dependents(&self, owner: &VisitedObject, dependents: Vec<Dependent>) -> Result<(), ApiError> {
        let uid = owner.metadata().uid.to_string();
        stream::iter(dependents)
            .map(|dependent| self.remove_owner(dependent.id, &owner.id, &uid))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.objects.remove_finalizer(owner, FINALIZER_ORPHAN).await
    }

    async fn remove_owner(&self, dependent: ObjectId, owner: &ObjectId, uid: &str) -> Result<(), ApiError> {
        let removed = async {
            let Some(object) = self.objects.get(&dependent).await? else { return Ok(()) };
            if !self.may_be_owner(&object.metadata(), &dependent, owner, uid) {
                return Ok(());
            }
            self.objects.remove_owners(&object, &[uid.to_owned()]).await
        };
        match removed.await {
            Err(ApiError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Returns true if an object with this uid may be an owner of another. Another server can report any uid for its
    /// objects, so the reference must also name the object's kind, namespace and name.
    fn may_be_owner(&self, dependent: &Metadata<'_>, id: &ObjectId, owner: &ObjectId, uid: &str) -> bool {
        let surface = self.objects.registry.surface();
        let leads = |reference: &OwnerReference<'_>| {
            let place = find_owner(self.world(&surface), reference, id);
            reference.uid == uid && place.is_some_and(|place| place.is_of(owner))
        };
        matches!(owner.collection, CollectionPlace::Here(_)) || dependent.owners().iter().any(leads)
    }

    /// Enqueues the dependents of an object, and removes its finalizer if no blocking dependent is left. When the last
    /// one is deleted, the index enqueues the object again.
    ///
    /// Dependents that wait for dependents of their own, and the object itself, are skipped. As upstream, objects that
    /// block each other in a cycle therefore stay until a client removes a finalizer or reference.
    async fn delete_dependents(&self, owner: &VisitedObject, dependents: Vec<Dependent>) -> Result<(), ApiError> {
        let blocked = dependents.iter().any(|dependent| dependent.blocks);
        {
            let graph = self.graph.lock();
            let is_stuck = |id: &ObjectId| *id == owner.id || graph.is_waiting(id);
            for dependent in dependents.into_iter().filter(|dependent| !is_stuck(&dependent.id)) {
                self.visits.add(dependent.id);
            }
        }
        if blocked { Ok(()) } else { self.objects.remove_finalizer(owner, FINALIZER_FOREGROUND).await }
    }

    /// Decides about an object by its owners: it stays while one of them exists, and is deleted once none does.
    async fn judge(&self, object: &VisitedObject, metadata: &Metadata<'_>) -> Result<(), ApiError> {
        let mut present = false;
        let mut waiting = false;
        let mut removed = Vec::new();
        for reference in metadata.owners() {
            match self.look_up(reference, &object.id).await? {
                Owner::Present => {
                    present = true;
                    self.check_reach(reference, object, metadata);
                }
                Owner::Gone => {
                    removed.push(reference.uid.to_string());
                    let surface = self.objects.registry.surface();
                    self.invalid_owners.check(self.world(&surface), reference, &object.id, &metadata.uid);
                }
                Owner::Waiting => {
                    waiting = true;
                    removed.push(reference.uid.to_string());
                }
            }
        }
        if present {
            return match removed.as_slice() {
                [] => Ok(()),
                removed => self.objects.remove_owners(object, removed).await,
            };
        }
        let policy = match waiting {
            true => self.policy_below_waiting(object).await?,
            false => None,
        };
        self.delete(object, metadata, policy).await
    }

    /// The propagation policy for an object whose owner waits for it: foreground if it has dependents. In a cycle of
    /// waiting objects, the object stops blocking its owners, since otherwise each would wait for the next.
    async fn policy_below_waiting(&self, object: &VisitedObject) -> Result<Option<PropagationPolicy>, ApiError> {
        let dependents = self.dependents(object)?;
        let circular = {
            let graph = self.graph.lock();
            dependents.iter().any(|dependent| graph.is_waiting(&dependent.id))
        };
        if circular {
            self.objects.unblock_owners(object).await?;
        }
        Ok((!dependents.is_empty()).then_some(PropagationPolicy::Foreground))
    }

    /// Reports a reference from an object without a namespace to an owner in a namespace.
    fn check_reach(&self, reference: &OwnerReference<'_>, object: &VisitedObject, metadata: &Metadata<'_>) {
        let surface = self.objects.registry.surface();
        let world = self.world(&surface);
        if is_out_of_reach(world, reference, &object.id) {
            self.invalid_owners.check(world, reference, &object.id, &metadata.uid);
        }
    }

    fn dependents(&self, owner: &VisitedObject) -> Result<Vec<Dependent>, ApiError> {
        let surface = self.objects.registry.surface();
        self.graph.lock().dependents(self.world(&surface), &owner.metadata().uid, &self.visits)
    }

    /// Deletes an object if it has not changed since the decision to delete it.
    async fn delete(
        &self,
        object: &VisitedObject,
        metadata: &Metadata<'_>,
        policy: Option<PropagationPolicy>,
    ) -> Result<(), ApiError> {
        let finalizers = metadata.finalizers();
        let asked = |finalizer: &str| finalizers.iter().any(|held| held == finalizer);
        let policy = policy.unwrap_or(match () {
            () if asked(FINALIZER_ORPHAN) => PropagationPolicy::Orphan,
            () if asked(FINALIZER_FOREGROUND) => PropagationPolicy::Foreground,
            () => PropagationPolicy::Background,
        });
        self.objects.delete(object, policy).await
    }

    /// Reads the object that the reference names, and compares its uid with the reference's.
    async fn look_up(&self, reference: &OwnerReference<'_>, dependent: &ObjectId) -> Result<Owner, ApiError> {
        let id = {
            let surface = self.objects.registry.surface();
            find_owner(self.world(&surface), reference, dependent).map(Location::id)
        };
        let Some(id) = id else { return Ok(Owner::Present) };
        let owner = match self.objects.get(&id).await {
            Err(ApiError::NotFound { .. }) => return Ok(Owner::Gone),
            found => found?,
        };
        let Some(owner) = owner else { return Ok(Owner::Present) };
        let owner = owner.metadata();
        Ok(match () {
            () if owner.uid != reference.uid => Owner::Gone,
            () if owner.holds(FINALIZER_FOREGROUND) => Owner::Waiting,
            () => Owner::Present,
        })
    }
}
