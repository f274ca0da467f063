//! The known owners and dependents on aggregated servers and peers, from which the garbage collector finds objects to
//! check.
//!
//! Like the index of local objects, this data may be out of date: it is as old as the server's last response. Before a
//! deletion the collector asks the object's server whether the object exists. A server that does not answer counts as
//! having all its objects.

mod follow;
mod known;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use keelson_meta::json::{Value, json};
use keelson_meta::{ApiError, GroupResource, GroupVersion};
use parking_lot::Mutex;
use serde_json::from_str;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub(super) use known::Change;
use known::{KnownCollection, RemoteObjects};

use super::metadata::OwnerReference;

/// The number of concurrent requests for one kind on another server. The limit keeps a server that hangs from delaying
/// others.
const REQUESTS_FOR_KIND: usize = 8;

/// Access to objects of other servers.
pub trait ObjectsElsewhere: Send + Sync {
    /// A counter that increases when the results of the other methods may have changed.
    fn generation(&self) -> u64;

    /// Returns true if another server serves a version of a group, even if that server can't be reached now.
    fn serves(&self, group: &str, version: &str) -> bool;

    /// Returns true while the server of a version does not report its resources.
    fn is_silent(&self, group: &str, version: &str) -> bool;

    /// The kinds of other servers that support the verbs list, watch, get, patch and delete.
    fn resources(&self) -> Vec<ResourceElsewhere>;

    /// Returns a page of all objects of a kind, after the object that the token names.
    fn list<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        token: &'a str,
    ) -> BoxFuture<'a, Result<PageElsewhere, ApiError>>;

    /// Watches a kind from this resource version on.
    fn watch<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<EventElsewhere, ApiError>>, ApiError>>;

    /// Returns one object in its current state. Returns 404 only after its server has confirmed that the object does
    /// not exist.
    fn get<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        key: &'a str,
    ) -> BoxFuture<'a, Result<ObjectElsewhere, ApiError>>;

    /// Deletes an object.
    fn delete<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        key: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Changes an object by a merge patch.
    fn patch<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        key: &'a str,
        patch: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;
}

/// A kind on another server, in the version used for requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ResourceElsewhere {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub plural: String,
    /// The kind of its objects.
    pub kind: String,
    /// True for objects with namespaces.
    pub is_namespaced: bool,
}

impl ResourceElsewhere {
    /// The group and plural name.
    pub fn name(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct PageElsewhere {
    /// The objects.
    pub objects: Vec<ObjectElsewhere>,
    /// The version of the list.
    pub resource_version: String,
    /// The token of the next page; empty after the last.
    pub token: String,
}

/// An event of a watch.
#[derive(Debug)]
pub enum EventElsewhere {
    /// An object was created or changed.
    Is(ObjectElsewhere),
    /// An object was deleted, with its last state.
    Gone(ObjectElsewhere),
    /// All events up to this version have been sent.
    UpTo(String),
}

/// The known metadata of an object on another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectElsewhere {
    /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
    pub key: Arc<str>,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// True while the object is being deleted.
    pub is_deleted: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its owner references as JSON; `None` where it has none.
    pub references: Option<Box<str>>,
}

impl ObjectElsewhere {
    /// Reads the metadata of an object; `None` when it is not an object of this kind.
    pub fn read(resource: &ResourceElsewhere, metadata: &Value) -> Option<Self> {
        let text = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
        let name = text("name").filter(|name| !name.contains('/'))?;
        let key = match (resource.is_namespaced, text("namespace")) {
            (true, Some(namespace)) if !namespace.contains('/') => format!("{namespace}/{name}"),
            (true, _) => return None,
            (false, _) => name.to_owned(),
        };
        let finalizers = metadata["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let references = &metadata["ownerReferences"];
        Some(Self {
            key: key.into(),
            uid: text("uid")?.to_owned(),
            resource_version: text("resourceVersion").unwrap_or_default().to_owned(),
            is_deleted: !metadata["deletionTimestamp"].is_null(),
            finalizers: finalizers.map(str::to_owned).collect(),
            references: references.is_array().then(|| references.to_string().into()),
        })
    }

    /// Returns true if the object has no owners and is not being deleted.
    pub(super) fn is_free(&self) -> bool {
        !self.is_deleted && self.references.is_none()
    }

    /// Its owner references as JSON values, with all their fields.
    pub(super) fn owner_list(&self) -> Vec<Value> {
        self.references.as_deref().and_then(|list| from_str(list).ok()).unwrap_or_default()
    }

    /// A merge patch that replaces a list in the metadata, and applies only to this state of the object.
    pub(super) fn patch(&self, field: &str, list: Vec<Value>) -> Value {
        let list = if list.is_empty() { Value::Null } else { Value::Array(list) };
        json!({ "metadata": { "uid": self.uid, "resourceVersion": self.resource_version, field: list } })
    }
}

/// The number of a kind on another server. Assigned when the kind is first seen, and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NumberElsewhere(u32);

/// The known objects of other servers.
pub(super) struct Elsewhere {
    servers: Option<Arc<dyn ObjectsElsewhere>>,
    known: Mutex<RemoteObjects>,
    /// The number of objects in lists that are still being read.
    listing: AtomicUsize,
    /// Notified after changes.
    changed: Notify,
}

/// The result of looking up an owner's kind on other servers.
pub(super) enum PlaceElsewhere {
    /// No other server serves the version.
    NotTheirs,
    /// Another server serves the version, but the kind is unknown.
    Unknown,
    /// A known kind. The flag is true if its objects have namespaces.
    Kind(NumberElsewhere, bool),
}

/// A kind on another server, with a permit for one request.
pub(super) struct Access<'a> {
    pub(super) servers: &'a dyn ObjectsElsewhere,
    pub(super) resource: Arc<ResourceElsewhere>,
    _permit: OwnedSemaphorePermit,
}

impl Elsewhere {
    /// Creates the state for these servers; `None` if there are none.
    pub(super) fn new(servers: Option<Arc<dyn ObjectsElsewhere>>) -> Self {
        Self { servers, known: Mutex::default(), listing: AtomicUsize::new(0), changed: Notify::new() }
    }

    /// Looks up the kind of the owner that a reference names. If another server serves the version, the kind is looked
    /// up only there: a local kind of that name is a different kind.
    pub(super) fn place(&self, reference: &OwnerReference<'_>, is_served_here: bool) -> PlaceElsewhere {
        let Some(servers) = &self.servers else { return PlaceElsewhere::NotTheirs };
        let Some((group, version)) = GroupVersion::split(&reference.api_version) else {
            return PlaceElsewhere::NotTheirs;
        };
        let is_theirs = servers.serves(group, version);
        if is_served_here && !is_theirs {
            return PlaceElsewhere::NotTheirs;
        }
        match self.known.lock().by_kind(group, &reference.kind) {
            Some((number, collection)) => PlaceElsewhere::Kind(number, collection.resource.is_namespaced),
            None if is_theirs => PlaceElsewhere::Unknown,
            None => PlaceElsewhere::NotTheirs,
        }
    }

    /// The last known state of an object.
    pub(super) fn object(&self, number: NumberElsewhere, key: &str) -> Option<Arc<ObjectElsewhere>> {
        self.known.lock().collections.get(&number)?.objects.get(key).cloned()
    }

    /// All known objects. Later changes come from [`changes`](Self::changes).
    pub(super) fn all(&self) -> Vec<(NumberElsewhere, Arc<ObjectElsewhere>)> {
        let mut known = self.known.lock();
        known.changes.clear();
        let of = |(number, collection): (&NumberElsewhere, &KnownCollection)| {
            let number = *number;
            collection.objects.values().map(move |object| (number, object.clone())).collect::<Vec<_>>()
        };
        known.collections.iter().flat_map(of).collect()
    }

    /// The next changes, at most `most`.
    pub(super) fn changes(&self, most: usize) -> Vec<Change> {
        let mut known = self.known.lock();
        let most = most.min(known.changes.len());
        known.changes.drain(..most).collect()
    }

    /// Waits until there are changes.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Wakes the waiting task again, even without a change.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// Returns a kind with a permit for one request to its server; `None` when no server has the kind any more.
    ///
    /// # Errors
    /// 503 when the limit of concurrent requests for the kind is reached.
    pub(super) fn access(&self, number: NumberElsewhere) -> Result<Option<Access<'_>>, ApiError> {
        let Some(servers) = self.servers.as_deref() else { return Ok(None) };
        let known = self.known.lock();
        let Some(collection) = known.collections.get(&number) else { return Ok(None) };
        let permit = collection.permits.clone().try_acquire_owned().map_err(|_| ApiError::ServiceUnavailable {
            message: format!("as many requests about {} as there may be are under way", collection.resource.name()),
            retry_after_seconds: None,
        })?;
        Ok(Some(Access { servers, resource: collection.resource.clone(), _permit: permit }))
    }
}

fn permits() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(REQUESTS_FOR_KIND))
}

/// Objects by their keys.
type Objects = HashMap<Arc<str>, Arc<ObjectElsewhere>>;
