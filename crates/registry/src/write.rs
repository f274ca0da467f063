//! The compare-and-set loop that every change of an existing object goes through.
//!
//! Whoever keeps losing the race for an object queues for it, so that with many writers each gets its turn and none is
//! told of a conflict that it did not ask to be told of.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use keelson_cache::Entry;
use keelson_codec::stored::{Checked, StoredObject};
use keelson_meta::error::ConflictKind;
use keelson_meta::{ApiError, Object, Revision};
use keelson_storage::{CommitError, Compare, Condition, StoreKey, Transaction, Write};

use tokio::sync::{Mutex, MutexGuard};

use crate::registry::{Registry, store_error};
use crate::target::Target;

/// How often a change is applied anew when others keep changing the object under it.
const CHANGE_ATTEMPTS: usize = 32;
/// How many of these are made before queueing: a change that names a revision is refused in the second, without a wait.
const ATTEMPTS_BEFORE_QUEUE: usize = 2;
/// How many queues there are. Objects that share one wait for each other, which is harmless and rare.
const QUEUES: usize = 64;

/// Where those wait who keep losing the race for an object.
pub(crate) struct Queues([Mutex<()>; QUEUES]);

impl Default for Queues {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::new(())))
    }
}

impl Queues {
    async fn turn(&self, key: &StoreKey) -> MutexGuard<'_, ()> {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.0[hasher.finish() as usize % QUEUES].lock().await
    }
}

/// An object as it now stands.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its canonical bytes.
    pub object: StoredObject,
    /// Its revision; `None` for what was only created in a dry run.
    pub revision: Option<Revision>,
    /// What the client should be warned of.
    pub warnings: Vec<String>,
}

impl Written {
    pub(crate) fn new(object: StoredObject, revision: Option<Revision>) -> Self {
        Self { object, revision, warnings: Vec::new() }
    }
}

/// An object as it shall be stored.
pub(crate) struct Draft {
    pub(crate) object: Object,
    /// `metadata.managedFields` as text, where the object does not have it.
    pub(crate) managed: Option<String>,
}

impl Draft {
    pub(crate) fn encode(&self) -> Checked {
        Checked::encode_with(&self.object, self.managed.as_deref())
    }
}

impl From<Object> for Draft {
    fn from(object: Object) -> Self {
        Self { object, managed: None }
    }
}

/// What a change makes of an object.
pub(crate) enum Change {
    /// This is how it shall be.
    Put(Draft),
    /// It shall go, and this is what it was at last, as the client is shown it.
    Remove(StoredObject),
}

impl Change {
    /// What shall be put.
    fn put(&mut self) -> Option<&mut Object> {
        match self {
            Self::Put(draft) => Some(&mut draft.object),
            Self::Remove(_) => None,
        }
    }
}

impl Registry {
    /// Applies `change` to the newest state of the object and commits the result. When somebody else was faster, the
    /// change is applied again to what they left, so it must decide itself whether that is a conflict.
    ///
    /// A change that changes nothing writes nothing and keeps the revision, unless the store lacks what was added on the
    /// way out of it.
    ///
    /// # Errors
    /// 404 when there is no such object, whatever `change` returns, and 409 when the object never holds still.
    pub(crate) async fn change(
        &self,
        target: &Target,
        name: &str,
        dry_run: bool,
        mut change: impl FnMut(&Arc<Entry>) -> Result<Change, ApiError>,
    ) -> Result<Written, ApiError> {
        let key = target.relative_key(name);
        let collection = self.collection(target)?;
        let store_key = StoreKey::new(format!("{}{key}", collection.prefix()));
        let missing = || ApiError::NotFound { resource: target.group_resource(), name: name.to_owned() };
        let mut current = self.newest(target, &key).await?.ok_or_else(missing)?;
        let mut turn = None;
        for attempt in 1..=CHANGE_ATTEMPTS {
            let mut changed = change(&current)?;
            let companions = self.accompany(target, Some(&current), changed.put(), attempt - 1).await?;
            let (write, object, encoded) = match changed {
                Change::Remove(last) => (Write::Delete { key: store_key.clone() }, last, None),
                Change::Put(draft) => {
                    let encoded = draft.encode();
                    let object = encoded.object().clone();
                    if object.bytes() == current.object.bytes() && !current.rewritten {
                        return Ok(Written::new(object, Some(current.revision)));
                    }
                    let value = object.bytes().clone();
                    let put = Write::Put { key: store_key.clone(), value, expires: self.expiry(target) };
                    (put, object, Some(encoded))
                }
            };
            if dry_run {
                self.rehearse(companions).await?;
                return Ok(Written::new(object, Some(current.revision)));
            }
            let removed = encoded.is_none();
            if let Some(encoded) = encoded {
                collection.announce(encoded);
            }
            let mut transaction = Transaction {
                compares: vec![Compare { key: store_key.clone(), condition: Condition::At(current.revision) }],
                writes: vec![write],
            };
            companions.join(&mut transaction);
            match self.store().commit(transaction).await {
                Ok(committed) => {
                    let revision = if removed { Some(current.revision) } else { committed.revisions.first().copied() };
                    return Ok(Written::new(object, revision));
                }
                Err(CommitError::Store(error)) => return Err(store_error(error)),
                // The object is as it was: somebody else took what was to be written together with it.
                Err(CommitError::Compare { index: index @ 1.., .. }) => {
                    companions.lost(index - 1)?;
                    self.catch_up().await?;
                }
                Err(CommitError::Compare { current: newer, .. }) => {
                    self.counters().count_write_retry();
                    let newer = if attempt >= ATTEMPTS_BEFORE_QUEUE && turn.is_none() {
                        turn = Some(self.queues.turn(&store_key).await);
                        // Those ahead in the queue have changed it since.
                        self.store().get(&store_key).await.map_err(store_error)?
                    } else {
                        newer
                    };
                    let newer = newer.ok_or_else(missing)?;
                    current = collection.decode(&newer).map_err(|error| self.corrupt(&store_key, &error))?;
                }
            }
        }
        Err(modified(target, name))
    }
}

/// 409: somebody else changed the object.
pub(crate) fn modified(target: &Target, name: &str) -> ApiError {
    ApiError::Conflict {
        resource: target.group_resource(),
        name: name.to_owned(),
        message: Box::new(ConflictKind::Modified),
    }
}
