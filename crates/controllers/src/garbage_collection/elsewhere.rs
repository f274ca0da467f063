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
pub trait RemoteAccess: Send + Sync {
    /// A counter that increases when the results of the other methods may have changed.
    fn generation(&self) -> u64;

    /// Returns true if another server serves a version of a group, even if that server can't be reached now.
    fn serves(&self, group: &str, version: &str) -> bool;

    /// Returns true while the server of a version does not report its resources.
    fn is_silent(&self, group: &str, version: &str) -> bool;

    /// The kinds of other servers that support the verbs list, watch, get, patch and delete.
    fn resources(&self) -> Vec<RemoteKind>;

    /// Returns a page of all objects of a kind, after the object that the token names.
    fn list<'a>(&'a self, resource: &'a RemoteKind, token: &'a str) -> BoxFuture<'a, Result<RemotePage, ApiError>>;

    /// Watches a kind from this resource version on.
    fn watch<'a>(
        &'a self,
        resource: &'a RemoteKind,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<RemoteEvent, ApiError>>, ApiError>>;

    /// Returns one object in its current state. Returns 404 only after its server has confirmed that the object does
    /// not exist.
    fn get<'a>(&'a self, resource: &'a RemoteKind, key: &'a str) -> BoxFuture<'a, Result<RemoteObject, ApiError>>;

    /// Deletes an object.
    fn delete<'a>(
        &'a self,
        resource: &'a RemoteKind,
        key: &'a str,
        options: Value,
    ) -> BoxFuture<'a, Result<(), ApiError>>;

    /// Changes an object by a merge patch.
    fn patch<'a>(&'a self, resource: &'a RemoteKind, key: &'a str, patch: Value)
    -> BoxFuture<'a, Result<(), ApiError>>;
}

/// A kind on another server, in the version used for requests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RemoteKind {
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

impl RemoteKind {
    /// The group and plural name.
    pub fn name(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }
}

/// A page of a list.
#[derive(Debug)]
pub struct RemotePage {
    /// The objects.
    pub objects: Vec<RemoteObject>,
    /// The version of the list.
    pub resource_version: String,
    /// The token of the next page; empty after the last.
    pub token: String,
}

/// An event of a watch.
#[derive(Debug)]
pub enum RemoteEvent {
    /// An object was created or changed.
    Is(RemoteObject),
    /// An object was deleted, with its last state.
    Gone(RemoteObject),
    /// All events up to this version have been sent.
    UpTo(String),
}

/// The known metadata of an object on another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteObject {
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
    /// The owner references of the object as JSON; `None` if it has none.
    pub references: Option<Box<str>>,
}

impl RemoteObject {
    /// Reads the metadata of an object; `None` when it is not an object of this kind.
    pub fn read(resource: &RemoteKind, metadata: &Value) -> Option<Self> {
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

    /// The owner references of the object as JSON values, with all their fields.
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
pub(super) struct RemoteKindNumber(u32);

/// The known objects of other servers.
pub(super) struct RemoteKnowledge {
    servers: Option<Arc<dyn RemoteAccess>>,
    known: Mutex<RemoteObjects>,
    /// The number of objects in lists that are still being read.
    listing: AtomicUsize,
    /// Notified after changes.
    changed: Notify,
}

/// The result of looking up an owner's kind on other servers.
pub(super) enum RemoteLookup {
    /// No other server serves the version.
    NotTheirs,
    /// Another server serves the version, but the kind is unknown.
    Unknown,
    /// A known kind. The flag is true if its objects have namespaces.
    Kind(RemoteKindNumber, bool),
}

/// A kind on another server, with a permit for one request.
pub(super) struct Access<'a> {
    pub(super) servers: &'a dyn RemoteAccess,
    pub(super) resource: Arc<RemoteKind>,
    _permit: OwnedSemaphorePermit,
}

impl RemoteKnowledge {
    /// Creates the state for these servers; `None` if there are none.
    pub(super) fn new(servers: Option<Arc<dyn RemoteAccess>>) -> Self {
        Self { servers, known: Mutex::default(), listing: AtomicUsize::new(0), changed: Notify::new() }
    }

    /// Looks up the kind of the owner that a reference names. If another server serves the version, the kind is looked
    /// up only there: a local kind of that name is a different kind.
    pub(super) fn place(&self, reference: &OwnerReference<'_>, is_served_here: bool) -> RemoteLookup {
        let Some(servers) = &self.servers else { return RemoteLookup::NotTheirs };
        let Some((group, version)) = GroupVersion::split(&reference.api_version) else {
            return RemoteLookup::NotTheirs;
        };
        let is_theirs = servers.serves(group, version);
        if is_served_here && !is_theirs {
            return RemoteLookup::NotTheirs;
        }
        match self.known.lock().by_kind(group, &reference.kind) {
            Some((number, collection)) => RemoteLookup::Kind(number, collection.resource.is_namespaced),
            None if is_theirs => RemoteLookup::Unknown,
            None => RemoteLookup::NotTheirs,
        }
    }

    /// The last known state of an object.
    pub(super) fn object(&self, number: RemoteKindNumber, key: &str) -> Option<Arc<RemoteObject>> {
        self.known.lock().collections.get(&number)?.objects.get(key).cloned()
    }

    /// All known objects. Later changes come from [`changes`](Self::changes).
    pub(super) fn all(&self) -> Vec<(RemoteKindNumber, Arc<RemoteObject>)> {
        let mut known = self.known.lock();
        known.changes.clear();
        let of = |(number, collection): (&RemoteKindNumber, &KnownCollection)| {
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
    pub(super) fn access(&self, number: RemoteKindNumber) -> Result<Option<Access<'_>>, ApiError> {
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
type Objects = HashMap<Arc<str>, Arc<RemoteObject>>;
