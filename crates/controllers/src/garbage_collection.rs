//! Deletes objects whose owners are gone, and carries out what a deletion asked for its dependents: background, foreground
//! or orphan (`propagationPolicy`).
//!
//! An index says who might have to be looked at ([`graph`]); what happens to an object is decided only on the newest state
//! of it and of its owners, and done on the condition that it still is that object. So a late index delays a decision and
//! never makes a wrong one, and every step can be taken again after a failure or a restart.

mod graph;
mod metadata;
mod owners;

use std::collections::HashSet;
use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::TooOld;
use keelson_meta::metadata_rules::{FINALIZER_FOREGROUND, FINALIZER_ORPHAN};
use keelson_meta::options::{DeleteOptions, GetOptions, Preconditions, PropagationPolicy};
use keelson_meta::{ApiError, Revision};
use keelson_registry::{Caller, Registry, Surface, Target};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::queue::{Backoff, Outcome, Queue};
use graph::{Dependent, Graph, ObjectId};
use metadata::{Metadata, OwnerReference};
use owners::{Location, find_owner, target_of};

/// Its service account.
const ACCOUNT: &str = "generic-garbage-collector";
/// How many objects are worked on at once: enough to share commits, few enough to leave room for clients.
const AT_ONCE: usize = 32;
/// How long an object that could not be dealt with is left alone before it is looked at again.
const BACKOFF: Backoff = Backoff { first: Duration::from_millis(50), longest: Duration::from_mins(1) };
/// How long events gather after some were looked at: a look asks every collection, which costs as much as many events.
const REST: Duration = Duration::from_millis(10);
/// How long after a failure the collections are loaded anew.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

/// The controller.
pub struct GarbageCollection {
    registry: Arc<Registry>,
    caller: Caller,
    graph: Mutex<Graph>,
    queue: Queue<ObjectId>,
}

/// What is known of the owner that a reference names.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    /// It exists, or can't be known not to.
    Present,
    /// It does not exist.
    Gone,
    /// It is being deleted and waits for its dependents to go first.
    Waiting,
}

impl GarbageCollection {
    /// A collector over a registry.
    pub fn new(registry: Arc<Registry>) -> Self {
        let caller = registry.controller(ACCOUNT);
        Self { registry, caller, graph: Mutex::default(), queue: Queue::new(BACKOFF) }
    }

    /// Runs until the server stops.
    pub async fn run(self, stopping: CancellationToken) {
        let collect = self.queue.run(AT_ONCE, |id| self.turn(id));
        tokio::select! {
            () = stopping.cancelled() => {}
            never = self.follow() => match never {},
            never = collect => match never {},
        }
    }

    /// Keeps the index as new as the cache, over what is served.
    async fn follow(&self) -> Infallible {
        let mut changes = self.registry.surfaces().changes();
        loop {
            changes.mark_unchanged();
            let mut surface = self.registry.surface();
            match Graph::load(&surface).await {
                Ok((graph, visits)) => {
                    *self.graph.lock() = graph;
                    visits.into_iter().for_each(|id| self.queue.add(id));
                    let overtaken = loop {
                        match self.follow_on(&mut surface, &mut changes).await {
                            Ok(()) => tokio::time::sleep(REST).await,
                            Err(overtaken) => break overtaken,
                        }
                    };
                    tracing::warn!(error = %overtaken, "garbage collection has missed events and loads everything anew");
                }
                Err(error) => {
                    tracing::warn!(%error, "garbage collection could not load and tries again");
                    tokio::time::sleep(LOAD_AGAIN).await;
                }
            }
        }
    }

    /// Waits for events, or for resources that come and go, and takes them in.
    async fn follow_on(&self, surface: &mut Arc<Surface>, changes: &mut watch::Receiver<u64>) -> Result<(), TooOld> {
        tokio::select! {
            biased;
            // The sender lives as long as the registry.
            _ = changes.changed() => {
                *surface = self.registry.surface();
                let mut graph = std::mem::take(&mut *self.graph.lock());
                let followed = graph.follow(surface).await;
                *self.graph.lock() = graph;
                followed?.into_iter().for_each(|id| self.queue.add(id));
                Ok(())
            }
            polled = poll_fn(|context| self.graph.lock().poll(surface, context, &self.queue)) => polled,
        }
    }

    async fn turn(&self, id: ObjectId) -> Outcome {
        match self.visit(&id).await {
            Ok(()) | Err(ApiError::NotFound { .. }) => Outcome::Done,
            // Somebody was faster; what they left is looked at.
            Err(ApiError::Conflict { .. }) => Outcome::Again,
            Err(error) => {
                tracing::warn!(key = %id.key, %error, "garbage collection of an object failed and is tried again");
                Outcome::Again
            }
        }
    }

    /// Does what has to be done about an object now.
    async fn visit(&self, id: &ObjectId) -> Result<(), ApiError> {
        let Some(target) = target_of(&self.registry.surface(), id) else { return Ok(()) };
        let entry = self.registry.get(&target, id.name(), &self.caller, &GetOptions::default()).await?;
        let object = Visited { id, target, metadata: Metadata::read(&entry), revision: entry.revision };
        if object.metadata.holds(FINALIZER_ORPHAN) {
            return self.orphan_dependents(&object).await;
        }
        if object.metadata.holds(FINALIZER_FOREGROUND) {
            return self.delete_dependents(&object).await;
        }
        if object.metadata.is_deleted() || object.metadata.owners().is_empty() {
            return Ok(());
        }
        self.judge(&object).await
    }

    /// Takes the references to an object off its dependents, and then the finalizer off it.
    async fn orphan_dependents(&self, owner: &Visited<'_>) -> Result<(), ApiError> {
        let dependents = self.dependents(owner)?;
        stream::iter(dependents)
            .map(|dependent| self.remove_owner(dependent.id, &owner.metadata.uid))
            .buffer_unordered(AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.remove_finalizer(owner, FINALIZER_ORPHAN).await
    }

    async fn remove_owner(&self, id: ObjectId, owner: &str) -> Result<(), ApiError> {
        let Some(target) = target_of(&self.registry.surface(), &id) else { return Ok(()) };
        let removed = async {
            let entry = self.registry.get(&target, id.name(), &self.caller, &GetOptions::default()).await?;
            let uid = Metadata::read(&entry).uid;
            self.registry.remove_owners(&target, id.name(), &uid, &[owner.to_owned()], &self.caller).await
        };
        match removed.await {
            Err(ApiError::NotFound { .. }) => Ok(()),
            other => other,
        }
    }

    /// Has the dependents of an object looked at, and takes the finalizer off it once none is left that blocks it. The index
    /// sends it here again when that is so.
    async fn delete_dependents(&self, owner: &Visited<'_>) -> Result<(), ApiError> {
        let dependents = self.dependents(owner)?;
        let blocked = dependents.iter().any(|dependent| dependent.blocks);
        for dependent in dependents {
            self.queue.add(dependent.id);
        }
        if blocked { Ok(()) } else { self.remove_finalizer(owner, FINALIZER_FOREGROUND).await }
    }

    async fn remove_finalizer(&self, object: &Visited<'_>, finalizer: &str) -> Result<(), ApiError> {
        let uid = &object.metadata.uid;
        self.registry.remove_finalizer(&object.target, object.id.name(), uid, finalizer, &self.caller).await
    }

    /// Decides about an object by its owners: it stays while it has one, and goes with the last.
    async fn judge(&self, object: &Visited<'_>) -> Result<(), ApiError> {
        let mut present = false;
        let mut waiting = false;
        let mut removed = Vec::new();
        for reference in object.metadata.owners() {
            match self.look_up(reference, object.id).await? {
                Owner::Present => present = true,
                Owner::Gone => removed.push(reference.uid.to_string()),
                Owner::Waiting => {
                    waiting = true;
                    removed.push(reference.uid.to_string());
                }
            }
        }
        let (target, name, uid) = (&object.target, object.id.name(), &object.metadata.uid);
        if present {
            return match removed.as_slice() {
                [] => Ok(()),
                removed => self.registry.remove_owners(target, name, uid, removed, &self.caller).await,
            };
        }
        let policy = match waiting {
            true => self.policy_below_waiting(object).await?,
            false => None,
        };
        self.delete(object, policy).await
    }

    /// What the deletion of an object does to its dependents when its owner waits for it: they go first as well. In a circle
    /// everybody would wait for everybody, so there the object no longer blocks its owners.
    async fn policy_below_waiting(&self, object: &Visited<'_>) -> Result<Option<PropagationPolicy>, ApiError> {
        let dependents = self.dependents(object)?;
        let circular = {
            let graph = self.graph.lock();
            let waiting: HashSet<&ObjectId> = graph.waiting().collect();
            dependents.iter().any(|dependent| waiting.contains(&dependent.id))
        };
        if circular {
            self.registry.unblock_owners(&object.target, object.id.name(), &object.metadata.uid, &self.caller).await?;
        }
        Ok((!dependents.is_empty()).then_some(PropagationPolicy::Foreground))
    }

    fn dependents(&self, owner: &Visited<'_>) -> Result<Vec<Dependent>, ApiError> {
        self.graph.lock().dependents(&self.registry.surface(), &owner.metadata.uid, &self.queue)
    }

    /// Deletes an object, if it still is what was judged.
    async fn delete(&self, object: &Visited<'_>, policy: Option<PropagationPolicy>) -> Result<(), ApiError> {
        let finalizers = object.metadata.finalizers();
        let asked = |finalizer: &str| finalizers.iter().any(|held| held == finalizer);
        let policy = policy.unwrap_or(match () {
            () if asked(FINALIZER_ORPHAN) => PropagationPolicy::Orphan,
            () if asked(FINALIZER_FOREGROUND) => PropagationPolicy::Foreground,
            () => PropagationPolicy::Background,
        });
        let preconditions = Preconditions {
            uid: Some(object.metadata.uid.to_string()),
            resource_version: Some(object.revision.get().to_string()),
        };
        let options = DeleteOptions { preconditions, propagation_policy: Some(policy), ..DeleteOptions::default() };
        self.registry.delete(&object.target, object.id.name(), &self.caller, &options).await.map(|_| ())
    }

    /// Looks for an owner where it must be, and whether what is there is the one that is meant.
    async fn look_up(&self, reference: &OwnerReference<'_>, dependent: &ObjectId) -> Result<Owner, ApiError> {
        let Some(id) = find_owner(&self.registry.surface(), reference, dependent).map(Location::id) else {
            return Ok(Owner::Present);
        };
        let Some(target) = target_of(&self.registry.surface(), &id) else { return Ok(Owner::Present) };
        let entry = match self.registry.get(&target, id.name(), &self.caller, &GetOptions::default()).await {
            Err(ApiError::NotFound { .. }) => return Ok(Owner::Gone),
            found => found?,
        };
        let owner = Metadata::read(&entry);
        Ok(match () {
            () if owner.uid != reference.uid => Owner::Gone,
            () if owner.holds(FINALIZER_FOREGROUND) => Owner::Waiting,
            () => Owner::Present,
        })
    }
}

/// An object and its newest state.
struct Visited<'a> {
    id: &'a ObjectId,
    target: Target,
    metadata: Metadata<'a>,
    revision: Revision,
}
