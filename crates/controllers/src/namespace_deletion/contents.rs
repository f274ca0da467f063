//! The kinds of objects that a namespace can hold, and how a namespace is emptied of each.
//!
//! Deletions go through the registry, so finalizers and grace periods hold; what is left after a pass is counted for the conditions.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cache::Entry;
use keelson_meta::{ApiError, GroupResource};
use keelson_registry::{Surface, Target};
use keelson_resources::Verb;

use crate::client::Client;

/// One kind of what namespaces hold, wherever it is kept.
pub trait Content: Send + Sync {
    /// Its resource.
    fn resource(&self) -> GroupResource;

    /// Deletes all of it in a namespace that nobody holds; what is left afterwards.
    ///
    /// # Errors
    /// When it can't be read, or something can't be deleted.
    fn empty<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Left, ApiError>>;
}

/// What namespaces hold that other servers keep, which may be away.
pub trait Elsewhere: Send + Sync {
    /// The kinds of it that are known now.
    fn contents(&self) -> Vec<Box<dyn Content>>;

    /// The versions of groups of which nothing is known now, in the form `GROUP/VERSION`.
    fn undiscovered(&self) -> Vec<String>;
}

/// What is left of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Left {
    /// How many objects.
    pub objects: usize,
    /// How many of them each finalizer holds.
    pub finalizers: BTreeMap<String, usize>,
}

/// A stored collection.
struct Collection {
    client: Client,
    /// Its target, in no namespace.
    target: Target,
}

/// Each collection that is served now once, first those whose objects hold on to the rest.
pub(super) fn of_surface(surface: &Arc<Surface>, client: &Client) -> Vec<Box<dyn Content>> {
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

    fn empty<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<Left, ApiError>> {
        Box::pin(async move {
            let target = Target { namespace: Some(namespace.to_owned()), ..self.target.clone() };
            Ok(count(&self.client.empty(&target).await?))
        })
    }
}

fn count(entries: &[Arc<Entry>]) -> Left {
    let mut left = Left { objects: entries.len(), ..Left::default() };
    for entry in entries {
        for finalizer in entry.object.decode(entry.revision).finalizers() {
            *left.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
    left
}
