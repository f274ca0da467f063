//! The waits of requests for definitions: a request is answered by the newest state of what it asks for.
//!
//! A server learns of a changed definition from its cache, and compiles it in a task. A request that meets a resource or a group whose
//! definitions have changed meanwhile waits here until the change is served. Requests for other resources never wait.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::options::GetOptions;
use keelson_meta::{ApiError, Revision};
use keelson_registry::Target;
use keelson_supervision::warn_repeated;

use crate::extensions::Extensions;

/// The longest wait of a request until a stored definition is served here. Compiling one takes milliseconds.
const CATCH_UP: Duration = Duration::from_secs(5);
/// The longest wait of a request for the documents of a group for a store that may be away.
const STORE_ASKED: Duration = Duration::from_secs(1);
/// The longest wait of a request until the names of a new definition are accepted or refused, which takes one write of its status.
const NAMES_DECIDED: Duration = Duration::from_secs(1);

impl Extensions {
    /// Returns true if a resource is served as its definition in the cache says. A resource whose definition is being deleted is never
    /// current, since another definition may have taken its place in the store.
    ///
    /// Cost: two short locks; nothing for resources that no stored object defines.
    pub fn is_current(&self, target: &Target) -> bool {
        let Some(definition) = target.resource.definition() else { return true };
        if target.resource.refuses_new().is_some() {
            return false;
        }
        let (definitions, served) = (&definition.collection, *self.served_up_to.borrow());
        let is_served = |revision: Revision| revision <= served;
        is_served(definitions.changed_at())
            || definitions.get(&definition.name).is_some_and(|entry| is_served(entry.revision))
    }

    /// Waits until a resource is served as its newest definition says, or no longer served when that is gone. Another server on the
    /// store may have reported the definition as established before this one has served it.
    ///
    /// Cost: a read of the newest definition.
    pub async fn catch_up(self: Arc<Self>, group: String, plural: String) {
        let name = format!("{plural}.{group}");
        let options = GetOptions::default();
        match self.registry.get(&self.definitions, &name, self.client.caller(), &options).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            // The store can't be read, so that nothing newer is known.
            Err(_) => return,
        }
        // ORDER: by that read the cache has every write that was acknowledged before the request.
        self.follow_cache(&name).await;
        self.decide_names(&group, Some(&plural)).await;
    }

    /// Waits until a group is served as the newest definitions in the store say, however many of them there are.
    ///
    /// Cost: a read of the store's newest revision.
    pub async fn catch_up_group(self: Arc<Self>, group: String) {
        // Without the store documents are those of the newest definitions that are known.
        let asked = tokio::time::timeout(STORE_ASKED, self.registry.catch_up_with_store());
        if !matches!(asked.await, Ok(Ok(()))) {
            return;
        }
        self.follow_cache(&group).await;
        self.decide_names(&group, None).await;
    }

    /// Waits until everything is served that definitions in the cache say.
    ///
    /// Cost: two short locks when there is nothing to wait for.
    pub async fn catch_up_with_cache(self: Arc<Self>) {
        self.follow_cache("").await;
    }

    async fn follow_cache(&self, subject: &str) {
        let Ok(wanted) = self.definitions.collection().map(|definitions| definitions.changed_at()) else { return };
        if *self.served_up_to.borrow() >= wanted {
            return;
        }
        let mut served = self.served_up_to.subscribe();
        if tokio::time::timeout(CATCH_UP, served.wait_for(|revision| *revision >= wanted)).await.is_err() {
            warn_repeated!(subject; subject, revision = %wanted, "definitions that are stored are not served yet");
        }
    }

    /// Waits until the names of new definitions are accepted or refused. Accepted definitions are served then.
    async fn decide_names(&self, group: &str, plural: Option<&str>) {
        let mut served = self.served_up_to.subscribe();
        let decided = async { while self.awaits_names(group, plural) && served.changed().await.is_ok() {} };
        // A definition whose status can't be written is not served, and the request is answered so.
        let _ = tokio::time::timeout(NAMES_DECIDED, decided).await;
    }
}
