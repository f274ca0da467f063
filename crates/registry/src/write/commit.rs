//! The end of a write: one transaction with the object, its guards (namespace and definition) and its associated
//! writes.
//!
//! The compares are in this order, and the first one that fails decides the reaction:
//! - object: the write starts again from the new object
//! - guard: the guards are read again, and admission and quotas run again, since no other stage depends on the guards
//! - associated write: all stages run again
//!
//! The fence of the store adds a compare that fails if this server has lost its lease.

use std::sync::Arc;

use keelson_cache::{Collection, Entry};
use keelson_codec::stored::{ParsedObject, StoredObject};
use keelson_meta::{ApiError, Revision};
use keelson_storage::{CommitError, Compare, Condition, KeyValue, StoreKey, Transaction, Write};
use keelson_supervision::warn_repeated;

use super::{Change, Effect, Guards, ManagedObject, Staged, WriteRequest, WriteResult};
use super::{read_back, room};
use crate::admission::WriteOptions;
use crate::companions::AssociatedWrites;
use crate::quota::{ChargedWrite, WriteOutcome, too_large_together};
use crate::registry::{Registry, is_too_large, note_store_works, store_error};
use crate::target::Target;

/// The largest number of attempts of a commit whose guards keep changing.
const GUARD_ATTEMPTS: usize = 16;

/// The result of a commit.
pub(super) enum Commit {
    /// The write is committed, or checked in a dry run.
    Done(WriteResult),
    /// Another write changed the object to this state.
    Overtaken(Option<Arc<Entry>>),
    /// The object is unchanged, but another write took a value that an associated write needs.
    TakenByOthers,
}

/// The result of one attempt.
enum Attempt {
    Ended(Commit),
    /// The namespace or the definition has changed.
    GuardsChanged,
    /// The quotas have changed.
    QuotasChanged,
}

/// The content of a write.
pub(super) enum Content {
    Put(ParsedObject),
    Remove(StoredObject),
}

impl Content {
    fn object(&self) -> &StoredObject {
        match self {
            Self::Put(encoded) => encoded.object(),
            Self::Remove(last) => last,
        }
    }

    /// The object as readers get it after the write, if it then has more fields.
    fn completed(&self, target: &Target, collection: &Collection) -> Option<StoredObject> {
        match self {
            Self::Put(encoded) => read_back::completed(target, collection, encoded),
            Self::Remove(_) => None,
        }
    }
}

/// A complete write, except for its guards.
pub(super) struct Plan<'p> {
    pub(super) request: &'p WriteRequest<'p>,
    collection: &'p Arc<Collection>,
    pub(super) live: Option<&'p Arc<Entry>>,
    relative_key: String,
    key: StoreKey,
    pub(super) content: Content,
    /// The object as readers get it after the write, if it then has more fields.
    completed: Option<StoredObject>,
    companions: AssociatedWrites,
}

impl Plan<'_> {
    /// The object in the response.
    fn response_object(&self) -> StoredObject {
        self.completed.as_ref().unwrap_or(self.content.object()).clone()
    }

    fn name(&self) -> &str {
        self.relative_key.rsplit('/').next().unwrap_or_default()
    }

    /// The stored object, if the write would leave it unchanged.
    fn changes_nothing(&self, registry: &Registry) -> Option<WriteResult> {
        let (Content::Put(encoded), Some(live)) = (&self.content, self.live) else { return None };
        let unchanged = |object: &StoredObject| WriteResult::new(object.clone(), Some(live.revision), Effect::Updated);
        let is_current = || {
            let current = registry.current(self.collection.prefix(), self.request.target.storage_kind());
            self.collection.is_current(live, |encoding| current.is_of(encoding))
        };
        if !live.rewritten && *encoded.object() == *live.object() && is_current() {
            return Some(unchanged(encoded.object()));
        }
        // Readers get the same object before and after the write.
        let read = self.completed.as_ref()?;
        (*read == *live.object() && is_current()).then(|| unchanged(read))
    }

    /// Passes the encoded object to the cache as a hint. Not if readers get it with more defaults, or if it was
    /// validated by an older definition.
    fn announce(&self, encoded: &ParsedObject) {
        let is_of_collection =
            self.request.target.stored().is_some_and(|judged_by| Arc::ptr_eq(&judged_by.cached, self.collection));
        if self.completed.is_none() && is_of_collection {
            self.collection.announce(self.key.clone(), encoded.clone());
        }
    }

    /// Drops the managed fields of an object that is too large, as upstream. They can be as large as the rest of the
    /// object. Returns true if there were any.
    fn drop_managed_fields(&mut self) -> bool {
        let Content::Put(encoded) = &self.content else { return false };
        if self.request.keeps_owners {
            return false;
        }
        let (mut object, Some(_)) = encoded.object().decode_apart(Revision::ZERO) else { return false };
        object.remove_meta("resourceVersion");
        self.content = Content::Put(ManagedObject::stored(object).encode(self.request.target));
        self.completed = self.content.completed(self.request.target, self.collection);
        true
    }
}

impl Registry {
    /// Commits a change of an object of this collection that is `live`, or checks it in a dry run.
    ///
    /// # Errors
    /// - 404 and 403 if the namespace is gone or being deleted
    /// - 422 if an associated write cannot get a requested value
    /// - 503 if the object's dependencies keep changing, or if the store is away
    pub(super) async fn commit(
        &self,
        request: &WriteRequest<'_>,
        collection: &Arc<Collection>,
        live: Option<&Arc<Entry>>,
        staged: Staged,
    ) -> Result<Commit, ApiError> {
        let Staged { change, companions } = staged;
        let mut name = request.name.to_owned();
        let (content, mut guards, live) = match change {
            Change::Keep(object, revision) => {
                return Ok(Commit::Done(WriteResult::new(object, Some(revision), Effect::Updated)));
            }
            Change::Remove(last) => (Content::Remove(last), Guards::default(), live),
            Change::Put(next) => (Content::Put(next.encode(request.target)), Guards::default(), live),
            Change::Create { new, guards } => {
                new.object.name().clone_into(&mut name);
                (Content::Put(new.encode(request.target)), guards, None)
            }
        };
        let completed = content.completed(request.target, collection);
        let relative_key = request.target.relative_key(&name);
        let key = StoreKey::new(format!("{}{relative_key}", collection.prefix()));
        let mut plan = Plan { request, collection, live, relative_key, key, content, completed, companions };
        for _ in 0..GUARD_ATTEMPTS {
            if let Some(written) = plan.changes_nothing(self) {
                return Ok(Commit::Done(written));
            }
            let attempt = match self.attempt(&plan, &guards).await {
                Err(error) if is_too_large(&error) && plan.drop_managed_fields() => continue,
                attempt => attempt?,
            };
            match attempt {
                Attempt::Ended(commit) => return Ok(commit),
                // Guards and quotas are read from the cache, so the cache must have the change.
                Attempt::GuardsChanged | Attempt::QuotasChanged if live.is_none() => {
                    self.catch_up().await?;
                    guards = self.guards(request.target, &name).await?;
                    self.judge_again(&mut plan).await?;
                }
                Attempt::GuardsChanged => self.catch_up().await?,
                Attempt::QuotasChanged => return Ok(Commit::TakenByOthers),
            }
        }
        Err(unsettled())
    }

    /// Runs admission and quotas again for a new object after its namespace or a quota has changed, since the decisions
    /// may change too.
    async fn judge_again(&self, plan: &mut Plan<'_>) -> Result<(), ApiError> {
        let Content::Put(encoded) = &plan.content else { return Ok(()) };
        let mut object = encoded.object().decode(Revision::ZERO);
        object.remove_meta("resourceVersion");
        let new = ManagedObject::stored(object);
        self.admit_again(plan.request, &new).await?;
        let charged = ChargedWrite::new(plan.request.target, None, &new.object);
        plan.companions.charge(self.charges(charged).await?);
        Ok(())
    }

    async fn attempt(&self, plan: &Plan<'_>, guards: &Guards) -> Result<Attempt, ApiError> {
        let Plan { request, collection, live, companions, .. } = plan;
        if request.caller.is_dry_run() {
            return self.rehearse_commit(plan).await.map(Attempt::Ended);
        }
        let relief = room::relief(plan);
        self.check_growth(plan, relief)?;
        let key = plan.key.clone();
        let condition = live.map_or(Condition::Absent, |live| Condition::At(live.revision));
        let mut compares = vec![Compare { key: key.clone(), condition }];
        compares.extend(guards.compares());
        compares.extend(request.conditions.iter().cloned());
        let own = compares.len();
        let object = plan.response_object();
        let write = match &plan.content {
            Content::Remove(_) => Write::Delete { key },
            Content::Put(encoded) => {
                let value = encoded.object().bytes();
                plan.announce(encoded);
                Write::Put { key, value, expires: self.expiry(request.target) }
            }
        };
        let removes = matches!(write, Write::Delete { .. });
        let mut transaction = Transaction { compares, writes: vec![write], relief };
        companions.join(&mut transaction);
        let committed = match (companions.charges(), request.target.namespace.as_deref()) {
            ([], _) | (_, None) => self.store().commit(transaction).await,
            (charges, Some(namespace)) => match self.settle(namespace, transaction, charges).await? {
                WriteOutcome::Done(committed) => Ok(committed),
                WriteOutcome::Lost(compare) => Err(compare),
                WriteOutcome::Overtaken => return Ok(Attempt::QuotasChanged),
                WriteOutcome::TooLargeTogether => {
                    return Err(too_large_together(request.target, plan.name(), charges.len()));
                }
            },
        };
        match committed {
            Ok(committed) => {
                note_store_works();
                self.note_growth(plan);
                self.count_update(plan);
                if let Some(newest) = committed.revisions.last()
                    && request.target.strategy().write.counts_at_once()
                {
                    self.count_at_once(*newest).await;
                }
                // As upstream, a deletion returns its revision, and an update that deletes returns the old revision.
                let goes_by_update = removes && !matches!(request.options, WriteOptions::Delete(_));
                let revision = match live {
                    Some(live) if goes_by_update => Some(live.revision),
                    _ => committed.revisions.first().copied(),
                };
                Ok(Attempt::Ended(Commit::Done(WriteResult::new(object, revision, effect(live.is_none(), removes)))))
            }
            Err(CommitError::Store(error)) => Err(store_error(error)),
            Err(CommitError::Compare { index: 0, current }) => {
                let newer = match current.map(|newer| self.decode(collection, &newer)).transpose() {
                    // An unreadable value also takes its name.
                    Err(_) if live.is_none() => return Err(already_exists(request.target, &plan.relative_key)),
                    newer => newer?,
                };
                Ok(Attempt::Ended(Commit::Overtaken(newer)))
            }
            Err(CommitError::Compare { index, .. }) if index < own => Ok(Attempt::GuardsChanged),
            Err(CommitError::Compare { index, .. }) => {
                companions.lost(index - own).map(|()| Attempt::Ended(Commit::TakenByOthers))
            }
        }
    }

    /// Counts an update for the metrics of its kind.
    fn count_update(&self, plan: &Plan<'_>) {
        let (Some(live), Content::Put(encoded)) = (plan.live, &plan.content) else { return };
        let strategy = plan.request.target.strategy().update;
        if strategy.counts_updates(plan.request.target.subresource_name().unwrap_or_default()) {
            strategy.count_update(&live.object().decode(Revision::ZERO), &encoded.object().decode(Revision::ZERO));
        }
    }

    /// Waits until a write is in the cache, for kinds that decide about rights and other writes. The write is
    /// committed, so the client gets a success even if the wait takes too long.
    async fn count_at_once(&self, revision: Revision) {
        if let Err(behind) = self.cache().wait_for(revision, self.config.revision_wait).await {
            warn_repeated!(""; %revision, reached = %behind.current, "a new rule takes effect later: the cache is behind the store");
        }
    }

    async fn rehearse_commit(&self, plan: &Plan<'_>) -> Result<Commit, ApiError> {
        if plan.live.is_none()
            && let Some(taken) = self.newest(plan.request.target, &plan.relative_key).await?
        {
            return Ok(Commit::Overtaken(Some(taken)));
        }
        self.rehearse(&plan.companions).await?;
        let revision = plan.live.map(|live| live.revision);
        let effect = effect(plan.live.is_none(), matches!(plan.content, Content::Remove(_)));
        Ok(Commit::Done(WriteResult::new(plan.response_object(), revision, effect)))
    }

    /// Decodes an object from the store.
    ///
    /// # Errors
    /// 500 if the object cannot be read.
    pub(super) fn decode(&self, collection: &Collection, stored: &KeyValue) -> Result<Arc<Entry>, ApiError> {
        collection.decode(stored).map_err(|error| self.corrupt(&stored.key, &error))
    }
}

fn effect(creates: bool, removes: bool) -> Effect {
    match (creates, removes) {
        (true, _) => Effect::Created,
        (false, true) => Effect::Removed,
        (false, false) => Effect::Updated,
    }
}

/// 503: the client may retry.
pub(super) fn unsettled() -> ApiError {
    ApiError::ServiceUnavailable {
        message: "objects that this write depends on keep changing, please try again".to_owned(),
        retry_after_seconds: Some(1),
    }
}

/// 409: an object with this name exists.
fn already_exists(target: &Target, key: &str) -> ApiError {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    ApiError::AlreadyExists { resource: target.group_resource(), name: name.to_owned(), is_going: false }
}
