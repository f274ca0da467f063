//! Objects that a program keeps or computes itself, and the traits for them.
//!
//! The server keeps a copy in memory and serves it like any other resource: in chunks, selected, as Tables, in watches.
//! `mirror.rs` keeps the copy. This module has the traits for programs, and the server's untyped access.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use keelson_meta::Object;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admission::{typed, untyped};

/// The key of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// The namespace. `None` for an object without one.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

/// The failure of a program's store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The object is not in the expected version. Nothing was written.
    #[error("the object is in another version")]
    Conflict,
    /// The store is unavailable. Nothing was written; clients get 503 and may try again.
    #[error("{0}")]
    Unavailable(String),
}

/// A program's own store of objects: four functions.
///
/// Each returned object has its version in `metadata.resourceVersion`: any text that changes with every write. Clients
/// never see it. [`conformance`](crate::conformance) checks this contract.
#[async_trait]
pub trait ObjectStore<K>: Send + Sync + 'static {
    /// Returns an object as of all acknowledged writes. `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn get(&self, key: &ObjectKey) -> Result<Option<K>, StoreFault>;

    /// All objects, of all namespaces, in any order.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn list(&self) -> Result<Vec<K>, StoreFault>;

    /// Yields the keys of objects changed from now on by any writer; extra keys do no harm. When the stream ends, all
    /// objects are listed again and a new stream is opened.
    fn watch(&self) -> BoxStream<'static, ObjectKey>;

    /// Writes an object that is in the version `expected`, or absent (`None`): to `new`, or deletes it (`None`).
    /// Returns its new version, which is ignored for a deletion.
    ///
    /// # Errors
    /// [`StoreFault::Conflict`] when it is in another version, and [`StoreFault::Unavailable`]. Nothing was written
    /// then.
    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<&K>) -> Result<String, StoreFault>;
}

/// Read-only objects that are computed on each read.
#[async_trait]
pub trait Computed<K>: Send + Sync + 'static {
    /// Returns the current object. `None` if it does not exist.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn get(&self, key: &ObjectKey) -> Result<Option<K>, StoreFault>;

    /// Returns all objects as of now, of all namespaces, in any order.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn list(&self) -> Result<Vec<K>, StoreFault>;
}

/// Untyped access to objects of a program.
#[async_trait]
pub(crate) trait External: Send + Sync {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreFault>;

    async fn list(&self) -> Result<Vec<Object>, StoreFault>;

    /// Returns true if there are no notifications, so that each read must compute the objects.
    fn is_computed(&self) -> bool;

    /// Yields the keys of objects changed from now on.
    fn watch(&self) -> BoxStream<'static, ObjectKey>;

    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<Object>) -> Result<String, StoreFault>;
}

/// Untyped access to a program's store.
pub(crate) struct Kept<K, S> {
    store: S,
    of: std::marker::PhantomData<fn() -> K>,
}

/// Untyped access to computed objects.
pub(crate) struct ComputedOnRead<K, S> {
    source: S,
    of: std::marker::PhantomData<fn() -> K>,
}

impl<K, S> Kept<K, S> {
    pub(crate) fn new(store: S) -> Self {
        Self { store, of: std::marker::PhantomData }
    }
}

impl<K, S> ComputedOnRead<K, S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, of: std::marker::PhantomData }
    }
}

#[async_trait]
impl<K, S> External for Kept<K, S>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Send + Sync + 'static,
    S: ObjectStore<K>,
{
    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreFault> {
        self.store.get(key).await?.as_ref().map(as_object).transpose()
    }

    async fn list(&self) -> Result<Vec<Object>, StoreFault> {
        self.store.list().await?.iter().map(as_object).collect()
    }

    fn is_computed(&self) -> bool {
        false
    }

    fn watch(&self) -> BoxStream<'static, ObjectKey> {
        self.store.watch()
    }

    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<Object>) -> Result<String, StoreFault> {
        let new: Option<K> = new.as_ref().map(typed).transpose().map_err(|error| unreadable(&error))?;
        self.store.write(key, expected, new.as_ref()).await
    }
}

#[async_trait]
impl<K, S> External for ComputedOnRead<K, S>
where
    K: Resource<DynamicType = ()> + Serialize + Send + Sync + 'static,
    S: Computed<K>,
{
    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreFault> {
        self.source.get(key).await?.as_ref().map(as_object).transpose()
    }

    async fn list(&self) -> Result<Vec<Object>, StoreFault> {
        self.source.list().await?.iter().map(as_object).collect()
    }

    fn is_computed(&self) -> bool {
        true
    }

    fn watch(&self) -> BoxStream<'static, ObjectKey> {
        futures::stream::pending().boxed()
    }

    async fn write(&self, _: &ObjectKey, _: Option<&str>, _: Option<Object>) -> Result<String, StoreFault> {
        Err(StoreFault::Unavailable("computed objects can't be written".to_owned()))
    }
}

fn as_object<K: Resource<DynamicType = ()> + Serialize>(typed: &K) -> Result<Object, StoreFault> {
    untyped(typed).map_err(|error| unreadable(&error))
}

fn unreadable(error: &keelson_meta::ApiError) -> StoreFault {
    StoreFault::Unavailable(error.status().message)
}
