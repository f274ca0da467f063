//! Objects that a program keeps or computes by itself, and what it has to tell the server of them.
//!
//! The server keeps a copy in memory, from which it answers in the ways of any other resource: in chunks, selected, as Tables, to
//! watches. `mirror.rs` keeps the copy; this is what a program writes, and how the server asks it without knowing its types.

use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use keelson_meta::Object;
use kube::Resource;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::admission::{typed, untyped};

/// Where an object is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace; `None` of an object in none.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// Why a store of a program's own did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFault {
    /// The object is not in the version that was expected. Nothing was written.
    #[error("the object is in another version")]
    Conflict,
    /// It can't be done now. Nothing was written; clients are told 503 and may try again.
    #[error("{0}")]
    Unavailable(String),
}

/// A store of objects that a program writes itself: four functions.
///
/// Each object that it gives says its version in `metadata.resourceVersion`: any text that changes with every write of it. Clients
/// never see it. [`conformance`](crate::conformance) checks what is asked for here.
#[async_trait]
pub trait ObjectStore<K>: Send + Sync + 'static {
    /// An object, as it is after every write that was acknowledged; `None` where there is none.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn get(&self, key: &ObjectKey) -> Result<Option<K>, StoreFault>;

    /// All objects, of all namespaces, in any order.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn list(&self) -> Result<Vec<K>, StoreFault>;

    /// Tells where objects have changed from this moment on, whoever has written them; too often does no harm. When the stream ends,
    /// all objects are listed again and a new one is asked for.
    fn watch(&self) -> BoxStream<'static, ObjectKey>;

    /// Writes an object that is in the version `expected`, or that is not there (`None`): to `new`, or deletes it (`None`). Returns its
    /// new version; that of an object that is gone nobody looks at.
    ///
    /// # Errors
    /// [`StoreFault::Conflict`] when it is in another version, and [`StoreFault::Unavailable`]. Nothing was written then.
    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<&K>) -> Result<String, StoreFault>;
}

/// Objects that are computed when they are read, and that nobody writes.
#[async_trait]
pub trait Computed<K>: Send + Sync + 'static {
    /// An object as it is now; `None` where there is none.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn get(&self, key: &ObjectKey) -> Result<Option<K>, StoreFault>;

    /// All objects as they are now, of all namespaces, in any order.
    ///
    /// # Errors
    /// [`StoreFault::Unavailable`].
    async fn list(&self) -> Result<Vec<K>, StoreFault>;
}

/// Objects of somebody else, whatever their type.
#[async_trait]
pub(crate) trait External: Send + Sync {
    async fn get(&self, key: &ObjectKey) -> Result<Option<Object>, StoreFault>;

    async fn list(&self) -> Result<Vec<Object>, StoreFault>;

    /// Whether nobody tells of changes, so that it has to be asked before each read.
    fn is_computed(&self) -> bool;

    /// Where objects have changed from now on.
    fn watch(&self) -> BoxStream<'static, ObjectKey>;

    async fn write(&self, key: &ObjectKey, expected: Option<&str>, new: Option<Object>) -> Result<String, StoreFault>;
}

/// What a program keeps, as the server asks it.
pub(crate) struct Kept<K, S> {
    store: S,
    of: std::marker::PhantomData<fn() -> K>,
}

/// What a program computes, as the server asks it.
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
        Err(StoreFault::Unavailable("what is computed can't be written".to_owned()))
    }
}

fn as_object<K: Resource<DynamicType = ()> + Serialize>(typed: &K) -> Result<Object, StoreFault> {
    untyped(typed).map_err(|error| unreadable(&error))
}

fn unreadable(error: &keelson_meta::ApiError) -> StoreFault {
    StoreFault::Unavailable(error.status().message)
}
