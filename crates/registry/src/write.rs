//! The engine of all writes: a write is a value that proposes a change.
//!
//! An [`UpdateFn`] gets the newest state of an object, or its absence, and returns the new state, again after each
//! conflict. This module has the loop and the deadline, `stages` the steps in order, and `commit` the transaction. A
//! write that keeps losing the race for an object queues for it. Each of many writers therefore gets its turn, and no
//! client gets a conflict that it did not ask for.
//!
//! A write may be dropped at any point: it has happened whole or not at all, and holds nothing afterwards.

mod commit;
mod growth;
mod managed_fields;
mod queues;
mod read_back;
mod room;
mod stages;

use async_trait::async_trait;
use commit::{Commit, unsettled};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_codec::stored::StoredObject;
use keelson_meta::error::ConflictKind;
use keelson_meta::{ApiError, Object, Revision};
use keelson_storage::{Compare, StoreKey};

use crate::admission::{Operation, WriteOptions};
use crate::caller::Caller;
use crate::companions::AssociatedWrites;
use crate::registry::{Registry, store_error};
use crate::target::Target;
pub(crate) use growth::Growth;
pub(crate) use managed_fields::Live;
pub use managed_fields::ManagedObject;
pub(crate) use queues::Queues;

/// The number of proposals of a write whose object keeps changing.
const ATTEMPTS: usize = 32;
/// The number of attempts before queueing. A change with a resourceVersion is refused in the second, without a wait.
const ATTEMPTS_BEFORE_QUEUE: usize = 2;
/// The number of attempts to allocate something after a conflict with another write.
const CHOICES: usize = 16;

/// The state of an object after a write.
#[derive(Clone, Debug)]
pub struct WriteResult {
    /// Its canonical bytes.
    pub object: StoredObject,
    /// The revision of the object; `None` for an object that exists only in a dry run.
    pub revision: Option<Revision>,
    /// The effect of the write.
    pub effect: Effect,
}

/// The effect of a write on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The object is new.
    Created,
    /// The object was changed, or the write had no effect.
    Updated,
    /// The object was deleted. Its last state is returned.
    Removed,
}

impl WriteResult {
    fn new(object: StoredObject, revision: Option<Revision>, effect: Effect) -> Self {
        Self { object, revision, effect }
    }
}

/// The parts of a write that do not depend on the object.
pub struct WriteRequest<'w> {
    /// The endpoint.
    pub target: &'w Target,
    /// The name of the object. Empty if it will be generated.
    pub name: &'w str,
    /// The caller.
    pub caller: &'w Caller,
    /// The options of the request.
    pub options: WriteOptions<'w>,
    /// True for an object that is deleted with its collection, so that the request does not name it.
    pub of_collection: bool,
    /// Further compares of the transaction.
    pub conditions: Vec<Compare>,
    /// True for a write that fails if the object is too large with its managed fields. Other writes drop these fields
    /// then.
    pub keeps_owners: bool,
}

impl<'w> WriteRequest<'w> {
    /// A write of one object without further conditions.
    pub fn new(target: &'w Target, name: &'w str, caller: &'w Caller, options: WriteOptions<'w>) -> Self {
        Self { target, name, caller, options, of_collection: false, conditions: Vec::new(), keeps_owners: false }
    }
}

/// A write as a value.
#[async_trait]
pub(crate) trait UpdateFn: Send {
    /// Returns true if the write creates a missing object. Otherwise a missing object is an error.
    fn makes(&self) -> bool {
        false
    }

    /// Returns true if the write expects a free name, so that the object is not read first.
    fn expects_absence(&self) -> bool {
        false
    }

    /// The new state of an object that is `live`, or of a free name (`None`). After a conflict it is called again, and
    /// decides if the conflict is an error for the client. It is also called again for an unchanged object after a
    /// conflict of an associated write.
    async fn propose<'s>(&'s mut self, registry: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError>;
}

/// The proposed state of an object.
pub(crate) enum Update {
    /// A new object, in the version of the request.
    New(Object, Ownership),
    /// Other content, in the version of the request.
    Content { live: Live, next: Object, ownership: Ownership },
    /// A change by the server itself, in the stored version. Admission sees it as this operation. Admission does not
    /// run for `None`: the change is part of a request that was admitted as a whole.
    Change(Change, Option<Operation>),
}

/// The owners of the fields of a proposal.
pub(crate) enum Ownership {
    /// The field manager owns the fields that it changes. The owners are still to be computed.
    Track,
    /// The owners are known: `metadata.managedFields` as text, if there are any.
    Known(Option<String>),
}

/// The change of an object, in the stored version.
pub(crate) enum Change {
    /// Creates the object, if its guards hold.
    Create { new: ManagedObject, guards: Guards },
    /// Replaces the object by this one.
    Put(ManagedObject),
    /// Deletes the object. The client gets this last state.
    Remove(StoredObject),
    /// Keeps the object, and writes nothing.
    Keep(StoredObject, Revision),
}

/// A change after all stages, and its associated writes.
pub(crate) struct Staged {
    pub(crate) change: Change,
    pub(crate) companions: AssociatedWrites,
}

/// The conditions of a create: the namespace of the object, and the definition of its resource, are unchanged.
#[derive(Clone, Default)]
pub(crate) struct Guards {
    pub(crate) namespace: Option<Compare>,
    pub(crate) definition: Option<Compare>,
}

impl Guards {
    /// All conditions.
    fn compares(&self) -> impl Iterator<Item = Compare> {
        self.namespace.iter().chain(&self.definition).cloned()
    }
}

impl Registry {
    /// The conditions for creating an object with this name, or with a name that begins so.
    ///
    /// # Errors
    /// 404 and 403 if the namespace or the definition is gone or being deleted.
    pub(crate) async fn guards(&self, target: &Target, name: &str) -> Result<Guards, ApiError> {
        let namespace = self.namespace_guard(target, name).await?;
        let definition = target.resource.definition().map(|definition| definition.guard(target, name)).transpose()?;
        Ok(Guards { namespace, definition })
    }
}

/// The live object, for a proposal that creates none.
///
/// # Errors
/// 500 without a live object, which the engine never passes to such a proposal.
pub(crate) fn existing(live: Option<&Entry>) -> Result<&Entry, ApiError> {
    live.ok_or_else(|| ApiError::Internal("a write that makes no object was shown none".to_owned()))
}

/// A change of an existing object, as a function of its present state.
pub(crate) struct Edit<'f>(Box<EditFn<'f>>);

type EditFn<'f> = dyn FnMut(&Registry, &Entry) -> Result<Update, ApiError> + Send + 'f;

impl<'f> Edit<'f> {
    pub(crate) fn new(edit: impl FnMut(&Registry, &Entry) -> Result<Update, ApiError> + Send + 'f) -> Self {
        Self(Box::new(edit))
    }
}

#[async_trait]
impl UpdateFn for Edit<'_> {
    async fn propose<'s>(&'s mut self, registry: &'s Registry, live: Option<&'s Entry>) -> Result<Update, ApiError> {
        (self.0)(registry, existing(live)?)
    }
}

impl Registry {
    /// Commits the proposal for the newest state of the object, and again after each conflict.
    ///
    /// A change without a difference writes nothing and keeps the revision, unless the stored object lacks fields that
    /// decoding added.
    ///
    /// # Errors
    /// - 404 if the object does not exist and the write creates none
    /// - 409 if it keeps changing
    /// - 504 at the caller's deadline; a commit under way may still take effect
    /// - the errors of the proposal and the stages
    pub(crate) fn write<'w>(
        &'w self,
        request: &'w WriteRequest<'w>,
        proposal: &'w mut dyn UpdateFn,
    ) -> BoxFuture<'w, Result<WriteResult, ApiError>> {
        // Boxed, as all long calls from other crates. The body of an async function is compiled into each unit of each
        // crate that polls it, and this one is the largest.
        request.caller.in_time(self.write_until_done(request, proposal)).boxed()
    }

    async fn write_until_done(
        &self,
        request: &WriteRequest<'_>,
        proposal: &mut dyn UpdateFn,
    ) -> Result<WriteResult, ApiError> {
        let WriteRequest { target, name, .. } = *request;
        let collection = self.settled_collection(target).await?;
        let _entered = self.enter(target).await?;
        let key = target.relative_key(name);
        let mut live = if proposal.expects_absence() { None } else { self.newest(target, &key).await? };
        let (mut turn, mut choices) = (None, 0);
        for attempt in 1..=ATTEMPTS {
            if live.is_none() && !proposal.makes() {
                return Err(ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() });
            }
            let proposed = proposal.propose(self, live.as_deref()).await?;
            let staged = self.take_through_stages(request, live.as_deref(), proposed, choices).await?;
            let creates = matches!(staged.change, Change::Create { .. });
            live = match self.commit(request, &collection, live.as_ref(), staged).await? {
                Commit::Done(written) => return Ok(written),
                Commit::Overtaken(newer) => newer,
                Commit::TakenByOthers if choices < CHOICES => {
                    // Free values are looked up in the cache, so it must have all writes.
                    self.catch_up().await?;
                    choices += 1;
                    continue;
                }
                Commit::TakenByOthers => return Err(unsettled()),
            };
            if creates {
                continue;
            }
            self.counters().count_write_retry();
            if attempt >= ATTEMPTS_BEFORE_QUEUE && turn.is_none() {
                let key = StoreKey::new(format!("{}{key}", collection.prefix()));
                turn = Some(self.queues.turn(&key).await);
                // Writes ahead in the queue have changed the object since.
                let newer = self.store().get(&key).await.map_err(store_error)?;
                live = newer.map(|newer| self.decode(&collection, &newer)).transpose()?;
            }
        }
        Err(modified(target, name))
    }
}

/// 409: another write changed the object.
pub(crate) fn modified(target: &Target, name: &str) -> ApiError {
    ApiError::Conflict {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: Box::new(ConflictKind::Modified),
    }
}
