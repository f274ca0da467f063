//! Registry verbs as controllers use them: get, list, create, delete, and update of an object that was read.
//!
//! Every update states the revision that was read, so a controller never overwrites a change that it has not read.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::Entry;
use keelson_meta::json::Value;
use keelson_meta::label_selector::LabelSelector;
use keelson_meta::options::{
    CreateOptions, DeleteOptions, FieldValidation, GetOptions, ListOptions, Preconditions, PropagationPolicy,
    UpdateOptions,
};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Caller, Registry, Target, WriteResult, accept};
use keelson_storage::Compare;

/// The number of objects in a chunk of a list.
const CHUNK: usize = 500;
/// The most times that an expired list starts again.
const LISTS: usize = 4;
/// The number of concurrent deletes while a collection is emptied: enough to share commits, few enough to leave room
/// for clients.
const DELETES_AT_ONCE: usize = 32;
/// The time limit of one cleanup at shutdown.
const CLEAN_UP_TIME: Duration = Duration::from_secs(2);

/// The verbs, with the identity of one controller.
#[derive(Clone)]
pub struct Client {
    registry: Arc<Registry>,
    caller: Caller,
}

/// The field manager of the server's own writes, as in kube-apiserver.
pub const SERVER_MANAGER: &str = "kube-apiserver";
/// The field manager of controllers that belong to kube-controller-manager upstream, unless they use apply.
pub(crate) const CONTROLLER_MANAGER: &str = "kube-controller-manager";

/// An object with the revision that wrote it.
#[derive(Clone, Debug)]
pub struct RevisedObject {
    /// The object.
    pub object: Object,
    /// The revision.
    pub revision: Revision,
}

/// A write that has been committed. Most callers ignore the stored object, so it is decoded on request.
#[derive(Debug)]
pub struct Change(WriteResult);

impl Change {
    /// Decodes the object as stored.
    pub fn read(&self) -> RevisedObject {
        let revision = self.0.revision.unwrap_or(Revision::ZERO);
        RevisedObject { object: self.0.object.decode(revision), revision }
    }
}

impl Client {
    /// A client for the server itself with this field manager.
    pub fn of_server(registry: Arc<Registry>, manager: &'static str) -> Self {
        Self { registry, caller: Caller::server().managing(manager) }
    }

    /// A client for the server's own upkeep ([`Caller::upkeep`]): writes of objects that it needs to become ready, or
    /// to remain known to other servers.
    pub fn of_upkeep(registry: Arc<Registry>, manager: &'static str) -> Self {
        Self { registry, caller: Caller::upkeep().managing(manager) }
    }

    /// A client for a controller with this service account and field manager.
    pub fn of_controller(registry: Arc<Registry>, account: &str, manager: &'static str) -> Self {
        let caller = registry.controller(account).managing(manager);
        Self { registry, caller }
    }

    /// The registry.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The identity that the verbs use.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Resolves the collection of a resource, in a namespace or in none.
    ///
    /// # Errors
    /// 500 when the resource is not served.
    pub fn collection(
        &self,
        group: &str,
        version: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<Target, ApiError> {
        collection(&self.registry, group, version, plural, namespace)
    }

    /// The time.
    pub fn now(&self) -> SystemTime {
        self.registry.now()
    }

    /// Returns the object of this name at the newest revision; `None` when there is none.
    ///
    /// # Errors
    /// Errors of the verb.
    pub async fn get(&self, target: &Target, name: &str) -> Result<Option<RevisedObject>, ApiError> {
        match self.registry.get(target, name, &self.caller, &GetOptions::default()).await {
            Ok(entry) => Ok(Some(read(&entry))),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns all objects that the selector matches. Reads in chunks, and starts again a few times when the list
    /// expires.
    ///
    /// # Errors
    /// Errors of the verb.
    pub async fn list(&self, target: &Target, label_selector: LabelSelector) -> Result<Vec<RevisedObject>, ApiError> {
        let mut options = ListOptions { label_selector, limit: NonZeroUsize::new(CHUNK), ..ListOptions::default() };
        let (mut found, mut begun) = (Vec::new(), 1);
        loop {
            let page = match self.registry.list(target, &self.caller, &options).await {
                Err(ApiError::Expired { .. }) if options.continue_token.is_some() && begun < LISTS => {
                    begun += 1;
                    found.clear();
                    options.continue_token = None;
                    continue;
                }
                page => page?,
            };
            found.extend(page.items.into_entries().await?.iter().map(|entry| read(entry)));
            // A chunk takes some 10 ms of decoding.
            tokio::task::yield_now().await;
            options.continue_token = page.continue_token;
            if options.continue_token.is_none() {
                return Ok(found);
            }
        }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Errors of the verb.
    pub async fn create(&self, target: &Target, object: Value) -> Result<Change, ApiError> {
        self.create_while(target, object, Vec::new()).await
    }

    /// Creates an object if the conditions hold. The write's transaction compares them.
    ///
    /// # Errors
    /// Errors of the verb, and 503 when a condition does not hold.
    pub(crate) async fn create_while(
        &self,
        target: &Target,
        object: Value,
        conditions: Vec<Compare>,
    ) -> Result<Change, ApiError> {
        let object = accept(target, object, &[], FieldValidation::Strict, self.caller.warnings())?;
        let options = CreateOptions::default();
        self.registry.create_while(target, object, &self.caller, &options, conditions).await.map(Change)
    }

    /// Replaces an object that was read.
    ///
    /// # Errors
    /// Errors of the verb: 409 when the object has changed since.
    pub async fn update(&self, target: &Target, object: Object) -> Result<Change, ApiError> {
        self.update_while(target, object, Vec::new()).await
    }

    /// Replaces an object if the conditions hold. The write's transaction compares them.
    ///
    /// # Errors
    /// Errors of an update, and 503 when a condition does not hold.
    pub(crate) async fn update_while(
        &self,
        target: &Target,
        object: Object,
        conditions: Vec<Compare>,
    ) -> Result<Change, ApiError> {
        let name = object.name().to_owned();
        let object = accept(target, object.into_value(), &[], FieldValidation::Strict, self.caller.warnings())?;
        let options = UpdateOptions::default();
        self.registry.update_while(target, &name, object, &self.caller, &options, conditions).await.map(Change)
    }

    /// Deletes all objects of a collection. Returns the objects that remain, for example because a finalizer holds
    /// them.
    ///
    /// # Errors
    /// Errors of the verbs. Objects deleted before an error stay deleted.
    pub async fn empty(&self, target: &Target) -> Result<Vec<Arc<Entry>>, ApiError> {
        let found = self.entries(target).await?;
        if found.is_empty() {
            return Ok(found);
        }
        stream::iter(found.into_iter().filter(|entry| !entry.terminating))
            .map(|entry| self.delete_entry(target, entry))
            .buffer_unordered(DELETES_AT_ONCE)
            .try_collect::<()>()
            .await?;
        self.entries(target).await
    }

    async fn entries(&self, target: &Target) -> Result<Vec<Arc<Entry>>, ApiError> {
        self.registry.list(target, &self.caller, &ListOptions::default()).await?.items.into_entries().await
    }

    async fn delete_entry(&self, target: &Target, entry: Arc<Entry>) -> Result<(), ApiError> {
        let target = target.clone().in_namespace(entry.namespace());
        // All objects of the collection are deleted, so no dependent is kept for another owner.
        let propagation_policy = Some(PropagationPolicy::Background);
        let options = DeleteOptions { propagation_policy, ..DeleteOptions::default() };
        match self.registry.delete(&target, entry.name(), &self.caller, &options).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Deletes an object if it has not changed since it was read. It is not an error if the object no longer exists.
    ///
    /// # Errors
    /// Errors of the verb: 409 when the object has changed.
    pub async fn delete(&self, target: &Target, read: &RevisedObject) -> Result<(), ApiError> {
        let preconditions = Preconditions {
            uid: Some(read.object.uid().to_owned()),
            resource_version: Some(read.revision.to_string()),
        };
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match self.registry.delete(target, read.object.name(), &self.caller, &options).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// Resolves the collection of a resource, in a namespace or in none.
///
/// # Errors
/// 500 when the resource is not served.
pub(crate) fn collection(
    registry: &Registry,
    group: &str,
    version: &str,
    plural: &str,
    namespace: Option<&str>,
) -> Result<Target, ApiError> {
    let found = registry.surface().lookup_stored(group, version, plural);
    let found = found.ok_or_else(|| ApiError::Internal(format!("{plural} are not served in {group}/{version}")))?;
    Ok(found.in_namespace(namespace))
}

/// Removes the objects of a server that stops, within [`CLEAN_UP_TIME`]: an unreachable store must not keep a server
/// from stopping. `left_behind` is the log message for a failure.
pub(crate) async fn clean_up(act: impl Future<Output = Result<(), ApiError>>, left_behind: &str) {
    match tokio::time::timeout(CLEAN_UP_TIME, act).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "{left_behind}"),
        Err(_) => tracing::warn!("{left_behind}: no answer in {CLEAN_UP_TIME:?}"),
    }
}

fn read(entry: &Entry) -> RevisedObject {
    RevisedObject { object: entry.object().decode(entry.revision), revision: entry.revision }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn clean_up_with_a_silent_store_has_a_timeout() {
        let begun = tokio::time::Instant::now();
        clean_up(std::future::pending(), "it was not given up").await;
        assert_eq!(begun.elapsed(), CLEAN_UP_TIME);
    }
}
