//! The end of a write: one transaction of the object, the state of its namespace, and what is written together with it.
//!
//! The object's own compare stands first, that of its namespace second, those of its companions behind them. Only the first
//! sends the write back to its proposal; the others are planned anew here, since nothing in the proposal hangs on them.
//! Whether this server may write at all is compared by the store's fence.

use std::sync::Arc;

use keelson_cache::{Collection, Entry};
use keelson_codec::stored::{Checked, StoredObject};
use keelson_meta::ApiError;
use keelson_storage::{CommitError, Compare, Condition, KeyValue, StoreKey, Transaction, Write};

use super::{Change, Effect, Guards, ManagedObject, WriteRequest, Written};
use crate::companions::{Companions, has_companions};
use crate::registry::{Registry, store_error};
use crate::target::Target;

/// How often a commit is planned anew because the namespace, or what is needed besides, changed in between.
const PLAN_ATTEMPTS: usize = 16;

/// How a commit ended.
pub(super) enum Commit {
    /// It is done, or rehearsed.
    Done(Written),
    /// The object is no longer as it was; this is how somebody left it.
    Overtaken(Option<Arc<Entry>>),
}

/// How one attempt ended.
enum Attempt {
    Ended(Commit),
    /// The namespace is no longer as it was, or somebody else took what was to be written together with the object.
    PlanAgain,
}

/// What is written.
enum Content {
    Put(Checked),
    Remove(StoredObject),
}

/// What is put, on its way to an attempt. An object without companions is encoded at once and let go of, while the
/// processor still has it at hand, and not after the wait for the store.
enum Put {
    Alone(Checked),
    Accompanied(ManagedObject),
}

impl Put {
    fn new(target: &Target, put: ManagedObject) -> Self {
        if has_companions(target) { Self::Accompanied(put) } else { Self::Alone(put.encode(target)) }
    }
}

/// A write of which all is known but its companions.
struct Plan<'p> {
    request: &'p WriteRequest<'p>,
    collection: Arc<Collection>,
    live: Option<&'p Arc<Entry>>,
    relative_key: String,
    key: StoreKey,
}

impl Registry {
    /// Commits a change of an object that is `live`, or rehearses it.
    ///
    /// # Errors
    /// 404 and 403 when its namespace is gone or going, 422 when the object asks for what it can't have besides, 503 when what
    /// it depends on keeps changing or the store is away.
    pub(super) async fn commit(
        &self,
        request: &WriteRequest<'_>,
        live: Option<&Arc<Entry>>,
        change: Change,
    ) -> Result<Commit, ApiError> {
        let (put, mut guards, live) = match change {
            Change::Keep(object, revision) => {
                return Ok(Commit::Done(Written::new(object, Some(revision), Effect::Updated)));
            }
            Change::Remove(last) => return self.commit_removal(request, live, last).await,
            Change::Create { new, guards } => (new, guards, None),
            Change::Put(next) => (next, Guards::default(), live),
        };
        let name = if live.is_none() { put.object.name().to_owned() } else { request.name.to_owned() };
        let plan = self.plan(request, live, &name)?;
        let mut proposed = Put::new(request.target, put);
        for attempt in 0..PLAN_ATTEMPTS {
            let (encoded, companions) = match &mut proposed {
                Put::Alone(encoded) => (encoded.clone(), Companions::default()),
                Put::Accompanied(put) => {
                    // Each attempt starts from what was proposed, not from what the last one could not get.
                    let mut object = put.object.clone();
                    let companions = self.accompany(request.target, live, Some(&mut object), attempt).await?;
                    let completed = ManagedObject::new(object, put.managed_fields.clone());
                    (completed.encode(request.target), companions)
                }
            };
            if let Some(live) = live.filter(|live| !live.rewritten)
                && encoded.object().bytes() == live.object.bytes()
            {
                let same = Written::new(encoded.into_object(), Some(live.revision), Effect::Updated);
                return Ok(Commit::Done(same));
            }
            match self.attempt(&plan, Content::Put(encoded), &guards, companions).await? {
                Attempt::Ended(commit) => return Ok(commit),
                Attempt::PlanAgain => {
                    // The plan is made from the cache, so let it see what changed.
                    self.catch_up().await?;
                    if live.is_none() {
                        guards = self.guards(request.target, &name).await?;
                    }
                }
            }
        }
        Err(unsettled())
    }

    async fn commit_removal(
        &self,
        request: &WriteRequest<'_>,
        live: Option<&Arc<Entry>>,
        last: StoredObject,
    ) -> Result<Commit, ApiError> {
        let plan = self.plan(request, live, request.name)?;
        for attempt in 0..PLAN_ATTEMPTS {
            let companions = self.accompany(request.target, live, None, attempt).await?;
            match self.attempt(&plan, Content::Remove(last.clone()), &Guards::default(), companions).await? {
                Attempt::Ended(commit) => return Ok(commit),
                Attempt::PlanAgain => self.catch_up().await?,
            }
        }
        Err(unsettled())
    }

    fn plan<'p>(
        &'p self,
        request: &'p WriteRequest<'p>,
        live: Option<&'p Arc<Entry>>,
        name: &str,
    ) -> Result<Plan<'p>, ApiError> {
        let collection = self.collection(request.target)?;
        let relative_key = request.target.relative_key(name);
        let key = StoreKey::new(format!("{}{relative_key}", collection.prefix()));
        Ok(Plan { request, collection, live, relative_key, key })
    }

    async fn attempt(
        &self,
        plan: &Plan<'_>,
        content: Content,
        guards: &Guards,
        companions: Companions,
    ) -> Result<Attempt, ApiError> {
        let Plan { request, collection, live, .. } = plan;
        if request.is_dry_run() {
            return self.rehearse_commit(plan, content, companions).await.map(Attempt::Ended);
        }
        let key = plan.key.clone();
        let condition = live.map_or(Condition::Absent, |live| Condition::At(live.revision));
        let mut compares = vec![Compare { key: key.clone(), condition }];
        compares.extend(guards.compares());
        let own = compares.len();
        let (write, object) = match content {
            Content::Remove(last) => (Write::Delete { key }, last),
            Content::Put(encoded) => {
                let object = encoded.object().clone();
                collection.announce(key.clone(), encoded);
                (Write::Put { key, value: object.bytes().clone(), expires: self.expiry(request.target) }, object)
            }
        };
        let removes = matches!(write, Write::Delete { .. });
        let mut transaction = Transaction { compares, writes: vec![write] };
        companions.join(&mut transaction);
        match self.store().commit(transaction).await {
            Ok(committed) => {
                let revision =
                    if removes { live.map(|live| live.revision) } else { committed.revisions.first().copied() };
                Ok(Attempt::Ended(Commit::Done(Written::new(object, revision, effect(live.is_none(), removes)))))
            }
            Err(CommitError::Store(error)) => Err(store_error(error)),
            Err(CommitError::Compare { index: 0, current }) => {
                let newer = match current.map(|newer| self.decode(collection, &newer)).transpose() {
                    // A name is taken, too, by what can't be read.
                    Err(_) if live.is_none() => return Err(taken(request.target, &plan.relative_key)),
                    newer => newer?,
                };
                Ok(Attempt::Ended(Commit::Overtaken(newer)))
            }
            Err(CommitError::Compare { index, .. }) if index < own => Ok(Attempt::PlanAgain),
            // The object is as it was: somebody else took what was to be written together with it.
            Err(CommitError::Compare { index, .. }) => companions.lost(index - own).map(|()| Attempt::PlanAgain),
        }
    }

    async fn rehearse_commit(
        &self,
        plan: &Plan<'_>,
        content: Content,
        companions: Companions,
    ) -> Result<Commit, ApiError> {
        if plan.live.is_none()
            && let Some(taken) = self.newest(plan.request.target, &plan.relative_key).await?
        {
            return Ok(Commit::Overtaken(Some(taken)));
        }
        self.rehearse(companions).await?;
        let (object, removes) = match content {
            Content::Put(encoded) => (encoded.into_object(), false),
            Content::Remove(last) => (last, true),
        };
        let revision = plan.live.map(|live| live.revision);
        Ok(Commit::Done(Written::new(object, revision, effect(plan.live.is_none(), removes))))
    }

    /// An object as the store has it.
    ///
    /// # Errors
    /// 500 when it can't be read.
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

/// 503: the client may try again.
fn unsettled() -> ApiError {
    ApiError::ServiceUnavailable {
        message: "what the object depends on keeps changing, please try again".to_owned(),
        retry_after_seconds: Some(1),
    }
}

/// 409: there is an object of this name.
fn taken(target: &Target, key: &str) -> ApiError {
    let name = key.rsplit_once('/').map_or(key, |(_, name)| name);
    ApiError::AlreadyExists { resource: target.group_resource(), name: name.to_owned(), is_going: false }
}
