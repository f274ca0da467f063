//! Owners and dependents that aggregated servers and peers serve, as hints for the garbage collector.
//!
//! They say which objects to look at, as the index of local objects does, and are as old as the last answer of a server. Whether an
//! object is gone is asked of its server before anything is deleted, and a server that does not answer has lost nothing.

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

/// How many requests about objects of one kind on another server are under way at once: one that hangs keeps no others waiting.
const REQUESTS_FOR_KIND: usize = 8;

/// Other servers that have objects.
pub trait ObjectsElsewhere: Send + Sync {
    /// Goes up whenever what follows may have changed.
    fn generation(&self) -> u64;

    /// Whether a version of a group is another server's, reachable or not.
    fn serves(&self, group: &str, version: &str) -> bool;

    /// Whether the server of a version does not say now what it has.
    fn is_silent(&self, group: &str, version: &str) -> bool;

    /// The kinds that servers say they have, whose objects can be listed, watched, read, changed and deleted.
    fn resources(&self) -> Vec<ResourceElsewhere>;

    /// A page of all objects of a kind, behind the one that this token names.
    fn list<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        token: &'a str,
    ) -> BoxFuture<'a, Result<PageElsewhere, ApiError>>;

    /// What happens to them from a version on.
    fn watch<'a>(
        &'a self,
        resource: &'a ResourceElsewhere,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<EventElsewhere, ApiError>>, ApiError>>;

    /// One object as it is now. 404 only when its server has said that there is none of this name.
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

/// A kind that another server has, in the version in which it is asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceElsewhere {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name.
    pub plural: String,
    /// The kind of its objects.
    pub kind: String,
    /// Whether they are in namespaces.
    pub is_namespaced: bool,
}

impl ResourceElsewhere {
    /// Its name.
    pub fn name(&self) -> GroupResource {
        GroupResource { group: self.group.clone(), resource: self.plural.clone() }
    }
}

/// A part of a list.
#[derive(Debug)]
pub struct PageElsewhere {
    /// The objects.
    pub objects: Vec<ObjectElsewhere>,
    /// The version of the list.
    pub resource_version: String,
    /// Where the next page begins; empty behind the last.
    pub token: String,
}

/// What a watch tells.
#[derive(Debug)]
pub enum EventElsewhere {
    /// An object is so.
    Is(ObjectElsewhere),
    /// An object is gone that was so last.
    Gone(ObjectElsewhere),
    /// Everything up to this version was told.
    UpTo(String),
}

/// What is known of an object that another server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectElsewhere {
    /// `<namespace>/<name>`, or `<name>` where objects have no namespace.
    pub key: Arc<str>,
    /// Its uid.
    pub uid: String,
    /// Its version.
    pub resource_version: String,
    /// Whether it is being deleted.
    pub is_deleted: bool,
    /// Its finalizers.
    pub finalizers: Vec<String>,
    /// Its owners as they are written; `None` where it has none.
    pub references: Option<Box<str>>,
}

impl ObjectElsewhere {
    /// Reads the metadata of an object; `None` when that is no object of this kind.
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

    /// Whether it has no owners and is not being deleted.
    pub(super) fn is_free(&self) -> bool {
        !self.is_deleted && self.references.is_none()
    }

    /// Its owners with all that is said of them.
    pub(super) fn owner_list(&self) -> Vec<Value> {
        self.references.as_deref().and_then(|list| from_str(list).ok()).unwrap_or_default()
    }

    /// A merge patch of its metadata, for this very object as it was read.
    pub(super) fn patch(&self, field: &str, list: Vec<Value>) -> Value {
        let list = if list.is_empty() { Value::Null } else { Value::Array(list) };
        json!({ "metadata": { "uid": self.uid, "resourceVersion": self.resource_version, field: list } })
    }
}

/// The number of a kind that another server has: given out when it is first known, and never again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NumberElsewhere(u32);

/// See the head of the module.
pub(super) struct Elsewhere {
    servers: Option<Arc<dyn ObjectsElsewhere>>,
    known: Mutex<RemoteObjects>,
    /// How many objects are in lists that are being read.
    listing: AtomicUsize,
    /// Told when there are changes to take in.
    changed: Notify,
}

/// Where an owner must be as far as other servers are concerned.
pub(super) enum PlaceElsewhere {
    /// The version is none of theirs.
    NotTheirs,
    /// It is, and which kind is meant is not known.
    Unknown,
    /// Among the objects of this kind, which are in namespaces or not.
    Kind(NumberElsewhere, bool),
}

/// A kind on another server, while a request about its objects may be under way.
pub(super) struct Access<'a> {
    pub(super) servers: &'a dyn ObjectsElsewhere,
    pub(super) resource: Arc<ResourceElsewhere>,
    _permit: OwnedSemaphorePermit,
}

impl Elsewhere {
    /// These servers, or none.
    pub(super) fn new(servers: Option<Arc<dyn ObjectsElsewhere>>) -> Self {
        Self { servers, known: Mutex::default(), listing: AtomicUsize::new(0), changed: Notify::new() }
    }

    /// Where the owner that a reference names must be. A version that another server has is asked for there alone, so that a kind of this
    /// server with the same name is never taken for it.
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

    /// An object as it was known last.
    pub(super) fn object(&self, number: NumberElsewhere, key: &str) -> Option<Arc<ObjectElsewhere>> {
        self.known.lock().collections.get(&number)?.objects.get(key).cloned()
    }

    /// All that is known; what changes from then on is told by [`changes`](Self::changes).
    pub(super) fn all(&self) -> Vec<(NumberElsewhere, Arc<ObjectElsewhere>)> {
        let mut known = self.known.lock();
        known.changes.clear();
        let of = |(number, collection): (&NumberElsewhere, &KnownCollection)| {
            let number = *number;
            collection.objects.values().map(move |object| (number, object.clone())).collect::<Vec<_>>()
        };
        known.collections.iter().flat_map(of).collect()
    }

    /// The next changes, up to so many.
    pub(super) fn changes(&self, most: usize) -> Vec<Change> {
        let mut known = self.known.lock();
        let most = most.min(known.changes.len());
        known.changes.drain(..most).collect()
    }

    /// Waits until there are changes.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Has whoever waits look for changes once more.
    pub(super) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// A kind, to ask its server about objects; `None` when nobody has it any more.
    ///
    /// # Errors
    /// 503 when as many requests about it as there may be are under way.
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
