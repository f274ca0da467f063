//! The registry: the store, the cache, the surface, the clock and the source of random numbers, which every verb uses.
//!
//! Each verb is a method of the registry, in a file of its own. The registry also has the counters for metrics, and
//! maps errors of the store to errors for clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use keelson_access::{Authorizer, PrivilegedGroup};
use keelson_cache::{Cache, Collection, Entry};
use keelson_codec::stored::DecodeError;
use keelson_meta::{ApiError, Clock, GroupResource, Random, Revision};
use keelson_resources::Text;
use keelson_storage::{Store, StoreError, StoreKey};
use keelson_supervision::{RepeatLog, error_repeated, warn_repeated};

use crate::admission::AdmissionChain;
use crate::caller::Caller;
use crate::config::RegistryConfig;
use crate::list::Rests;
use crate::newest::{Newest, NewestReads};
use crate::quota::QuotaBatchers;
use crate::surface::{ApiRegistrations, ResourceRegistration, ServedApis};
use crate::target::Target;
use crate::write::{Growth, Queues};

/// The longest time that a request waits for a collection that is being replaced. Replacing takes milliseconds, even
/// together with thousands of others.
const REPLACED_AFTER: Duration = Duration::from_secs(5);

/// The generic verbs over all resources of one server.
pub struct Registry {
    store: Arc<dyn Store>,
    cache: Arc<Cache>,
    surfaces: ApiRegistrations,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) config: RegistryConfig,
    pub(crate) queues: Queues,
    pub(crate) desks: QuotaBatchers,
    pub(crate) rests: Rests,
    pub(crate) growth: Growth,
    newest: Newest,
    counters: Counters,
    kinds: Option<Arc<dyn BuiltinKinds>>,
    authorizer: Arc<dyn Authorizer>,
    admission: AdmissionChain,
}

/// The kinds that are part of the program.
pub trait BuiltinKinds: Send + Sync {
    /// The resources as they are served and stored with this configuration, in the order of discovery.
    fn contributions(&self, config: &RegistryConfig) -> Vec<ResourceRegistration>;
}

/// Counters for metrics: lists by their source, retried writes, and rewritten objects.
#[derive(Debug, Default)]
pub struct Counters {
    lists_from_cache: AtomicU64,
    lists_from_store: AtomicU64,
    write_retries: AtomicU64,
    stale_pages: AtomicU64,
    rewrites: AtomicU64,
}

impl Registry {
    /// A registry of these built-in kinds, over a store and the cache that follows it.
    pub fn new(
        kinds: Arc<dyn BuiltinKinds>,
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        config: RegistryConfig,
    ) -> Self {
        let surfaces = ApiRegistrations::builtin(&kinds.contributions(&config), cache.clone(), &config);
        Self { kinds: Some(kinds), ..Self::over(surfaces, store, cache, clock, random, config) }
    }

    /// A registry of a fork, which begins with the resources of another server with the same configuration.
    pub fn forked(
        kinds: Arc<dyn BuiltinKinds>,
        origin: &ServedApis,
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        config: RegistryConfig,
    ) -> Self {
        let surfaces = ApiRegistrations::forked(origin, cache.clone(), &config);
        Self { kinds: Some(kinds), ..Self::over(surfaces, store, cache, clock, random, config) }
    }

    /// A registry that serves nothing yet, not even namespaces. It is for aggregated servers: the main server has the
    /// namespaces of their objects.
    pub fn without_builtin(
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        config: RegistryConfig,
    ) -> Self {
        Self::over(ApiRegistrations::empty(cache.clone(), &config), store, cache, clock, random, config)
    }

    fn over(
        surfaces: ApiRegistrations,
        store: Arc<dyn Store>,
        cache: Arc<Cache>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        config: RegistryConfig,
    ) -> Self {
        let newest = Newest::new(store.clone(), config.store_wait);
        Self {
            store,
            cache,
            surfaces,
            clock,
            random,
            config,
            queues: Queues::default(),
            desks: QuotaBatchers::default(),
            rests: Rests::default(),
            growth: Growth::default(),
            newest,
            counters: Counters::default(),
            kinds: None,
            authorizer: Arc::new(PrivilegedGroup),
            admission: AdmissionChain::default(),
        }
    }

    /// Changes the storage versions of all built-in resources at once. Resources that are not named get their default.
    /// Stored objects stay as they are until they are written again.
    pub async fn store_builtin_as(&self, storage_versions: Vec<(GroupResource, Text)>) {
        let config = RegistryConfig { storage_versions, ..self.config.clone() };
        let contributions = self.kinds.as_ref().map(|kinds| kinds.contributions(&config)).unwrap_or_default();
        self.surfaces.store_builtin(contributions).await;
    }

    /// Sets the authorizer of controllers, and of each caller that gets [`Registry::authorizer`].
    #[must_use]
    pub fn with_authorizer(self, authorizer: Arc<dyn Authorizer>) -> Self {
        Self { authorizer, ..self }
    }

    /// Sets the admission plugins.
    #[must_use]
    pub fn with_admission(self, admission: AdmissionChain) -> Self {
        Self { admission, ..self }
    }

    /// The admission plugins, which change and validate writes.
    pub fn admission(&self) -> &AdmissionChain {
        &self.admission
    }

    /// The authorizer of controllers.
    pub fn authorizer(&self) -> &Arc<dyn Authorizer> {
        &self.authorizer
    }

    /// The controller of this name as a caller.
    pub fn controller(&self, account: &str) -> Caller {
        Caller::controller(account, self.authorizer.clone())
    }

    /// The cache that reads are answered from.
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// The current surface: everything that is served now.
    pub fn surface(&self) -> Arc<ServedApis> {
        self.surfaces.current()
    }

    /// The current surface, and the changes of it.
    pub fn surfaces(&self) -> &ApiRegistrations {
        &self.surfaces
    }

    /// The target of a resource that is always served, in its preferred version: all of its objects.
    ///
    /// # Errors
    /// 500 if the resource is not served.
    pub fn target(&self, group: &str, plural: &str) -> Result<Target, ApiError> {
        self.surface().target(group, plural)
    }

    /// The store that writes go to.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Its settings.
    pub fn config(&self) -> &RegistryConfig {
        &self.config
    }

    /// Its source of random numbers.
    pub fn random(&self) -> &dyn Random {
        &*self.random
    }

    /// The time.
    pub fn now(&self) -> SystemTime {
        self.clock.now()
    }

    /// The time at which an object of the target that is written now expires; `None` for never.
    pub(crate) fn expiry(&self, target: &Target) -> Option<SystemTime> {
        target.resource.lifetime.map(|lifetime| self.now() + lifetime)
    }

    /// The number of reads of the store's newest revision.
    pub fn newest_reads(&self) -> NewestReads {
        self.newest.stats()
    }

    /// Counters for metrics.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The stored collection of the target's resource, as it is served at this moment. A caller that uses it for long
    /// must expect its removal. A removed collection no longer follows the store, so the one that has replaced it is
    /// returned instead.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 503 while its collection is being replaced.
    pub fn collection(&self, target: &Target) -> Result<Arc<Collection>, ApiError> {
        if let Some(stored) = target.stored()
            && !stored.cached.is_removed()
        {
            return Ok(stored.cached.clone());
        }
        // The target may come from a surface that only describes resources. The current surface then has the
        // collection.
        let surface = self.surface();
        let served = surface.resource(&target.resource.group, &target.resource.plural);
        match (served.and_then(|served| served.stored()), target.stored()) {
            (Some(stored), _) if !stored.cached.is_removed() => Ok(stored.cached.clone()),
            (Some(_), _) => Err(being_replaced(target)),
            // The resource is no longer served. A request that still has it gets its last state.
            (None, Some(last)) => Ok(last.cached.clone()),
            (None, None) => Err(ApiError::MethodNotAllowed),
        }
    }

    /// As [`collection`](Self::collection), but waits while the collection is being replaced after a change of its
    /// definition.
    ///
    /// Cost: that of [`collection`](Self::collection), unless it has to wait.
    ///
    /// # Errors
    /// 405 for a resource that is not stored, 503 if the wait takes longer than [`REPLACED_AFTER`].
    pub(crate) async fn settled_collection(&self, target: &Target) -> Result<Arc<Collection>, ApiError> {
        match self.collection(target) {
            Err(ApiError::ServiceUnavailable { .. }) => {}
            found => return found,
        }
        // ORDER: this subscribes to changes before the next look, so that none is missed.
        let mut changes = self.surfaces.changes();
        let settled = async {
            loop {
                match self.collection(target) {
                    Err(ApiError::ServiceUnavailable { .. }) if changes.changed().await.is_ok() => {}
                    found => return found,
                }
            }
        };
        tokio::time::timeout(REPLACED_AFTER, settled).await.unwrap_or_else(|_| Err(being_replaced(target)))
    }

    /// The store's newest revision: at least that of every write that was acknowledged, by any server, before this
    /// call.
    ///
    /// # Errors
    /// 503 if the store does not return it within twice [`RegistryConfig::store_wait`].
    pub(crate) async fn newest_revision(&self) -> Result<Revision, ApiError> {
        let newest = self.newest.ask().await?;
        self.cache.heard_of(newest);
        Ok(newest)
    }

    /// Waits until the cache shows every write that was acknowledged before this call, by any server.
    ///
    /// # Errors
    /// 503 if the store does not return its newest revision, or if the cache does not reach it in time. It is not 504:
    /// the client named no revision that it could correct.
    pub async fn catch_up(&self) -> Result<(), ApiError> {
        let newest = self.newest_revision().await?;
        self.cache.wait_for(newest, self.config.revision_wait).await.map_err(|behind| {
            warn_repeated!(""; %newest, reached = %behind.current, "the cache is behind the store");
            ApiError::ServiceUnavailable {
                message: "the server is behind its store, please try again later".to_owned(),
                retry_after_seconds: Some(1),
            }
        })
    }

    /// Waits until the cache has reached a revision.
    ///
    /// # Errors
    /// 504 if it does not within [`RegistryConfig::revision_wait`].
    pub(crate) async fn wait_for(&self, revision: Revision) -> Result<(), ApiError> {
        self.cache.wait_for(revision, self.config.revision_wait).await.map_err(|behind| ApiError::RevisionTooLarge {
            requested: revision,
            current: behind.current,
            retry: true,
        })
    }

    /// The newest state of one object, as of a moment after this call began.
    pub(crate) async fn newest(&self, target: &Target, key: &str) -> Result<Option<Arc<Entry>>, ApiError> {
        self.catch_up().await?;
        let collection = self.settled_collection(target).await?;
        let entry = collection.get(key);
        if entry.is_none() {
            refuse_unreadable(&collection, target, key)?;
        }
        Ok(entry)
    }

    /// The error for stored bytes that are not an object. The log has the key, the error for the client does not.
    pub(crate) fn corrupt(&self, key: &StoreKey, error: &DecodeError) -> ApiError {
        error_repeated!(key; %key, %error, "a stored object can't be read");
        match error {
            DecodeError::Encrypted | DecodeError::Sealed(_) => ApiError::Internal(error.to_string()),
            _ => ApiError::Internal("a stored object can't be read".to_owned()),
        }
    }
}

impl Counters {
    /// Lists that were answered from the cache.
    pub fn lists_from_cache(&self) -> u64 {
        self.lists_from_cache.load(Ordering::Relaxed)
    }

    /// Lists that were read from the store because the cache no longer knew their revision.
    pub fn lists_from_store(&self) -> u64 {
        self.lists_from_store.load(Ordering::Relaxed)
    }

    /// Writes that were tried again because the object had changed in between.
    pub fn write_retries(&self) -> u64 {
        self.write_retries.load(Ordering::Relaxed)
    }

    /// The number of pages of collections that were searched for objects in an outdated encoding.
    pub fn stale_pages(&self) -> u64 {
        self.stale_pages.load(Ordering::Relaxed)
    }

    /// The number of objects that were rewritten.
    pub fn rewrites(&self) -> u64 {
        self.rewrites.load(Ordering::Relaxed)
    }

    pub(crate) fn count_list_from_cache(&self) {
        self.lists_from_cache.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_list_from_store(&self) {
        self.lists_from_store.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_write_retry(&self) {
        self.write_retries.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_stale_page(&self) {
        self.stale_pages.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_rewrite(&self) {
        self.rewrites.fetch_add(1, Ordering::Relaxed);
    }
}

/// Refuses a key whose stored value cannot be read. Such an object is hidden and yet not absent: a client must not
/// delete or create anything because the object seems to be absent.
///
/// # Errors
/// 500 if the key has such a value.
pub(crate) fn refuse_unreadable(collection: &Collection, target: &Target, key: &str) -> Result<(), ApiError> {
    match collection.unreadable(key) {
        None => Ok(()),
        Some(error @ (DecodeError::Encrypted | DecodeError::Sealed(_))) => Err(ApiError::Internal(error.to_string())),
        Some(error) => Err(ApiError::Internal(format!(
            "the stored value of {} {key:?} can't be read: {error}",
            target.group_resource()
        ))),
    }
}

/// 503: nothing was done, and the client may retry.
fn being_replaced(target: &Target) -> ApiError {
    ApiError::ServiceUnavailable {
        message: format!("{} are being reloaded, please try again", target.group_resource()),
        retry_after_seconds: Some(1),
    }
}

/// The times that the store did not answer, or refused a write.
static STORE_FAILURES: RepeatLog = RepeatLog::new();

/// Records that the store accepted a write.
///
/// Cost: one atomic read while the store works.
pub(crate) fn note_store_works() {
    if let Some(due) = STORE_FAILURES.worked("") {
        tracing::info!(repeats = due.repeats, "the store is available again");
    }
}

/// etcd's words for a write that is too large.
const ETCD_TOO_LARGE: &str = "etcdserver: request is too large";

/// Returns true for the error of a write that is too large for the store.
pub fn is_too_large(error: &ApiError) -> bool {
    let is_etcds = matches!(error, ApiError::Unclassified(message) if message == ETCD_TOO_LARGE);
    is_etcds || matches!(error, ApiError::ObjectTooLarge { .. })
}

/// The error for the client when the store fails. The log has the cause.
pub fn store_error(error: StoreError) -> ApiError {
    match error {
        StoreError::Future { requested, current } => ApiError::RevisionTooLarge { requested, current, retry: true },
        StoreError::Compacted { .. } => {
            ApiError::Expired { message: keelson_meta::error::ExpiredKind::ListRevision, continue_token: None }
        }
        StoreError::Unavailable(cause) | StoreError::ReadOnly(cause) => {
            if let Some(due) = STORE_FAILURES.failed("") {
                tracing::warn!(%cause, repeats = due.repeats, "the store is unavailable");
            }
            ApiError::ServiceUnavailable {
                message: "the store is unavailable, please try again later".to_owned(),
                retry_after_seconds: Some(1),
            }
        }
        // No time for a retry is set: clients would repeat the write by themselves, and it may have happened.
        StoreError::Unknown(cause) => {
            warn_repeated!(""; %cause, "the outcome of a write is unknown");
            ApiError::Timeout("the store has not said whether the write took effect".to_owned())
        }
        // The engine has logged it once. No time for a retry is set: clients would repeat the write before there is
        // space.
        StoreError::Full(why) => ApiError::InsufficientStorage(format!("the store is full: {why}")),
        StoreError::EtcdFull(_) => ApiError::Unclassified("etcdserver: mvcc: database space exceeded".to_owned()),
        StoreError::AboveLimit { bytes, limit, .. } => ApiError::ObjectTooLarge { bytes, limit },
        // As kube-apiserver, this returns etcd's words, which clients know.
        StoreError::TooLarge(cause) => {
            warn_repeated!(""; %cause, "a write was refused for its size");
            ApiError::Unclassified(ETCD_TOO_LARGE.to_owned())
        }
        // The name is the client's.
        unstorable @ StoreError::Unstorable(_) => ApiError::BadRequest(unstorable.to_string()),
        StoreError::Unsealed(cause) => {
            error_repeated!(""; %cause, "encrypting a value failed");
            ApiError::Internal(cause)
        }
        StoreError::Corrupt(cause) => {
            error_repeated!(""; %cause, "the store is damaged");
            ApiError::Internal("the store is damaged".to_owned())
        }
    }
}
