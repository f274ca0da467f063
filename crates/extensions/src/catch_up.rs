//! Lets requests wait for definitions, so that each sees the newest state of its resource.
//!
//! A server receives a changed definition through its cache and compiles it in a task. A request for a resource or
//! group whose definitions have changed waits here until the change is served. Requests for other resources never wait.

use std::sync::Arc;
use std::time::Duration;

use keelson_meta::options::GetOptions;
use keelson_meta::{ApiError, Revision};
use keelson_registry::Target;
use keelson_supervision::warn_repeated;

use crate::extensions::Extensions;

/// The maximum wait of a request until a stored definition is served here. Compiling one takes milliseconds.
const CATCH_UP: Duration = Duration::from_secs(5);
/// The maximum wait of a request for a group's documents for a store that may be unavailable.
const STORE_ASKED: Duration = Duration::from_secs(1);
/// The maximum wait of a request until the names of a new definition are accepted or refused, which takes one write of
/// its status.
const NAMES_DECIDED: Duration = Duration::from_secs(1);

impl Extensions {
    /// Returns true if a resource is served by its definition in the cache. A resource whose definition is being
    /// deleted is never current, since another one may have replaced it in the store.
    ///
    /// Cost: two short locks, and nothing for resources without a stored definition.
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

    /// Waits until a resource is served by its newest definition, or is no longer served if that was deleted. Another
    /// server on the store may have established the definition before this one served it.
    ///
    /// Cost: a read of the newest definition.
    pub async fn catch_up(self: Arc<Self>, group: String, plural: String) {
        let name = format!("{plural}.{group}");
        let options = GetOptions::default();
        match self.registry.get(&self.definitions, &name, self.client.caller(), &options).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => {}
            // The store is not readable, so no newer state is known.
            Err(_) => return,
        }
        // ORDER: after that read the cache has every write that was acknowledged before the request.
        self.follow_cache(&name).await;
        self.decide_names(&group, Some(&plural)).await;
    }

    /// Waits until a group is served by the newest definitions in the store, whatever their number.
    ///
    /// Cost: a read of the store's newest revision.
    pub async fn catch_up_group(self: Arc<Self>, group: String) {
        // Without the store, documents show the newest known definitions.
        let asked = tokio::time::timeout(STORE_ASKED, self.registry.catch_up_with_store());
        if !matches!(asked.await, Ok(Ok(()))) {
            return;
        }
        self.follow_cache(&group).await;
        self.decide_names(&group, None).await;
    }

    /// Waits until all definitions in the cache are served.
    ///
    /// Cost: two short locks if nothing is pending.
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
            warn_repeated!(subject; subject, revision = %wanted, "stored definitions are not served yet");
        }
    }

    /// Waits until the names of new definitions are accepted or refused. Accepted definitions are then served.
    async fn decide_names(&self, group: &str, plural: Option<&str>) {
        let mut served = self.served_up_to.subscribe();
        let decided = async { while self.awaits_names(group, plural) && served.changed().await.is_ok() {} };
        // A definition whose status can't be written is not served, and the response reflects that.
        let _ = tokio::time::timeout(NAMES_DECIDED, decided).await;
    }
}
