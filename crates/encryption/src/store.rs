//! A store that encrypts what it writes to an engine, and decrypts what it reads of it.
//!
//! The encrypting store wraps an engine, so caches, history and watches hold plain values, and the engine never sees
//! one. A value is encrypted once for each commit: the engine finds its own bytes again when an answer was lost. A
//! value that can't be decrypted is handed on as the reason, under [`Seal::UNREADABLE`], and spoils no other.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use futures::StreamExt as _;
use keelson_meta::Revision;
use keelson_storage::{
    CommitError, Committed, KeyValue, RangePage, RangeRequest, Scan, ScanRequest, Seal, Store, StoreError, StoreKey,
    Tail, Transaction, Write,
};

use crate::error::TransformError;
use crate::resources::Resources;
use crate::transformers::{Chain, Place, Transformers};

/// The beginning of all keys, in whose place etcd has the configured prefix.
const ROOT: &str = "/registry";
/// The bytes that are decrypted before other tasks of a thread have their turn.
const TURN: usize = 1 << 20;

/// A store with encryption.
pub struct EncryptedStore {
    store: Arc<dyn Store>,
    sealing: Arc<Sealing>,
}

/// The transformers that encrypt values now.
pub(crate) struct Sealing {
    transformers: ArcSwap<Transformers>,
    resources: Resources,
    /// The prefix that keys have in etcd in the place of [`ROOT`], if it is another.
    prefix: Option<String>,
}

impl EncryptedStore {
    /// An engine behind encryption. `prefix` is the prefix of its keys in etcd: the whole key of etcd is authenticated with a value.
    pub fn new(
        store: Arc<dyn Store>,
        transformers: Arc<Transformers>,
        resources: Resources,
        prefix: Option<String>,
    ) -> Self {
        let prefix = prefix.filter(|prefix| prefix != ROOT);
        Self { store, sealing: Arc::new(Sealing { transformers: ArcSwap::new(transformers), resources, prefix }) }
    }

    pub(crate) fn sealing(&self) -> Arc<Sealing> {
        self.sealing.clone()
    }
}

impl Sealing {
    /// The providers of now.
    pub(crate) fn transformers(&self) -> Arc<Transformers> {
        self.transformers.load_full()
    }

    /// Puts providers in the place of those before, which are returned.
    pub(crate) fn replace(&self, transformers: Arc<Transformers>) -> Arc<Transformers> {
        self.transformers.swap(transformers)
    }

    /// The key as kube-apiserver has it in etcd.
    fn authenticated<'k>(&self, key: &'k str) -> Cow<'k, [u8]> {
        match (&self.prefix, key.strip_prefix(ROOT)) {
            (Some(prefix), Some(below)) => Cow::Owned([prefix.as_bytes(), below.as_bytes()].concat()),
            (None, _) | (Some(_), None) => Cow::Borrowed(key.as_bytes()),
        }
    }

    async fn seal(&self, key: &StoreKey, value: &mut Bytes) -> Result<(), TransformError> {
        let transformers = self.transformers.load_full();
        let Some((chain, resource)) = chain_of(&transformers, &self.resources, key.as_str()) else { return Ok(()) };
        let authenticated = self.authenticated(key.as_str());
        let place = Place { key: &authenticated, resource: &resource };
        *value = chain.seal(std::mem::take(value), place, &transformers).await?;
        Ok(())
    }

    /// Decrypts a value in its place, or puts the reason there for which it can't be.
    async fn open(&self, transformers: &Transformers, key: &StoreKey, value: &mut Bytes, seal: &mut Seal) {
        let Some((chain, resource)) = chain_of(transformers, &self.resources, key.as_str()) else { return };
        let authenticated = self.authenticated(key.as_str());
        let place = Place { key: &authenticated, resource: &resource };
        (*value, *seal) = match chain.open(value, place, transformers.metrics()).await {
            Ok(opened) => opened,
            Err(error) => (error.to_string().into(), Seal::UNREADABLE),
        };
    }

    async fn open_all(&self, entries: &mut [KeyValue]) {
        let (transformers, mut bytes) = (self.transformers.load_full(), 0);
        for KeyValue { key, value, seal, .. } in entries {
            bytes += value.len();
            self.open(&transformers, key, value, seal).await;
            if bytes >= TURN {
                bytes = 0;
                tokio::task::yield_now().await;
            }
        }
    }
}

/// The providers of a key, and the resource of its objects.
fn chain_of<'t>(transformers: &'t Transformers, resources: &Resources, key: &str) -> Option<(&'t Arc<Chain>, String)> {
    let (group, resource) = resources.resource(key)?;
    let chain = transformers.chain(group, resource)?;
    let named = if group.is_empty() { resource.to_owned() } else { format!("{resource}.{group}") };
    Some((chain, named))
}

#[async_trait]
impl Store for EncryptedStore {
    async fn commit(&self, mut transaction: Transaction) -> Result<Committed, CommitError> {
        for write in &mut transaction.writes {
            if let Write::Put { key, value, .. } = write {
                let sealed = self.sealing.seal(key, value).await;
                sealed.map_err(|error| StoreError::Unsealed(error.to_string()))?;
            }
        }
        match self.store.commit(transaction).await {
            Err(CommitError::Compare { index, current: Some(mut current) }) => {
                self.sealing.open_all(std::slice::from_mut(&mut current)).await;
                Err(CommitError::Compare { index, current: Some(current) })
            }
            done => done,
        }
    }

    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError> {
        let mut found = self.store.get(key).await?;
        self.sealing.open_all(found.as_mut_slice()).await;
        Ok(found)
    }

    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError> {
        let mut page = self.store.range(request).await?;
        self.sealing.open_all(&mut page.entries).await;
        Ok(page)
    }

    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        let sealing = self.sealing.clone();
        let pages = self.store.scan(request)?.then(move |page| {
            let sealing = sealing.clone();
            async move {
                let mut entries = page?;
                sealing.open_all(&mut entries).await;
                Ok(entries)
            }
        });
        Some(pages.boxed())
    }

    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError> {
        self.store.count(request).await
    }

    fn seal(&self, key: &str) -> Seal {
        let transformers = self.sealing.transformers.load();
        let resource = self.sealing.resources.resource(key);
        let chain = resource.and_then(|(group, resource)| transformers.chain(group, resource));
        chain.map_or(Seal::PLAIN, |chain| chain.seal_now())
    }

    async fn current_revision(&self) -> Result<Revision, StoreError> {
        self.store.current_revision().await
    }

    fn known_revision(&self) -> Option<Revision> {
        self.store.known_revision()
    }

    async fn oldest_revision(&self) -> Result<Revision, StoreError> {
        self.store.oldest_revision().await
    }

    async fn tail(&self, after: Revision) -> Result<Tail, StoreError> {
        let (tail, sealing) = (self.store.tail(after).await?, self.sealing.clone());
        let opened = tail.then(move |batch| {
            let sealing = sealing.clone();
            async move {
                let mut batch = batch?;
                let transformers = sealing.transformers();
                for event in &mut batch.events {
                    if let Some(value) = &mut event.value {
                        sealing.open(&transformers, &event.key, value, &mut event.seal).await;
                    }
                }
                Ok(batch)
            }
        });
        Ok(opened.boxed())
    }

    async fn compact(&self, oldest: Revision) -> Result<(), StoreError> {
        self.store.compact(oldest).await
    }

    async fn crowded(&self) -> Revision {
        self.store.crowded().await
    }

    fn history_limit(&self) -> Option<u64> {
        self.store.history_limit()
    }

    fn free_bytes(&self) -> Option<u64> {
        self.store.free_bytes()
    }

    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError> {
        self.store.expire(now).await
    }

    async fn verify(&self) -> Result<(), StoreError> {
        self.store.verify().await
    }

    fn refusal(&self) -> Option<String> {
        self.store.refusal()
    }

    async fn check(&self) -> Result<(), StoreError> {
        self.store.check().await
    }
}
