//! The kinds of objects that a namespace can hold, and the deletion of each.
//!
//! Objects are deleted through the registry, so finalizers and grace periods apply. The objects that are left after a
//! pass are counted for the conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::{ApiError, GroupResource};
use keelson_registry::{ServedApis, Target};
use keelson_resources::Verb;

use crate::client::Client;

/// A kind of namespace content, stored here or elsewhere.
pub trait Content: Send + Sync {
    /// The resource.
    fn resource(&self) -> GroupResource;

    /// Deletes all objects in a namespace. Returns the number of those that remain, for example because a finalizer
    /// holds them.
    ///
    /// # Errors
    /// Errors of reading or deleting.
    fn empty<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<RemainingObjects, ApiError>>;
}

/// Namespace content on other servers, which may be unavailable.
pub trait RemoteNamespaceContent: Send + Sync {
    /// The kinds that are known now.
    fn contents(&self) -> Vec<Box<dyn Content>>;

    /// The versions whose resources are unknown now, in the form `GROUP/VERSION`.
    fn undiscovered(&self) -> Vec<String>;
}

/// The objects of one kind that are left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemainingObjects {
    /// The number of objects.
    pub objects: usize,
    /// The number of objects that each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
}

/// A collection that this server stores.
struct Collection {
    client: Client,
    /// The objects of all namespaces.
    target: Target,
}

/// All served collections, each once. Collections whose objects use others come first, such as pods, which use claims.
pub(super) fn of_surface(surface: &Arc<ServedApis>, client: &Client) -> Vec<Box<dyn Content>> {
    let stored = surface.collections().filter(|collection| collection.is_namespaced());
    let deletable = |target: &Target| target.version.allows(Verb::DeleteCollection);
    let mut targets: Vec<Target> =
        stored.filter_map(|collection| surface.stored_target(collection)).filter(deletable).collect();
    targets.sort_by_key(|target| (!target.resource.holds_others, target.resource.group_resource()));
    let content = |target| Box::new(Collection { client: client.clone(), target }) as Box<dyn Content>;
    targets.into_iter().map(content).collect()
}

impl Content for Collection {
    fn resource(&self) -> GroupResource {
        self.target.group_resource()
    }

    fn empty<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<RemainingObjects, ApiError>> {
        Box::pin(async move {
            let target = Target { namespace: Some(namespace.to_owned()), ..self.target.clone() };
            Ok(count(&self.client.empty(&target).await?))
        })
    }
}

fn count(entries: &[Arc<Entry>]) -> RemainingObjects {
    let mut left = RemainingObjects { objects: entries.len(), ..RemainingObjects::default() };
    for entry in entries {
        for finalizer in entry.object().decode(entry.revision).finalizers() {
            *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    left
}
