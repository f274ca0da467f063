//! Has the current surface, and builds the next one when resources are added or removed.
//!
//! ORDER: a collection is in the cache before a surface names it, and leaves the cache after the surface that names it
//! is no longer current. Requests that still hold an older surface then find a collection that has ended.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use hashbrown::HashMap;
use keelson_cache::{AddError, Cache, Collection as CachedCollection};
use keelson_meta::GroupResource;
use keelson_resources::{Collection, Text};
use keelson_supervision::outcome;
use tokio::sync::{Mutex, watch};

use super::ServedApis;
use super::contribution::{ResourceRegistration, collection_spec};
use super::served::{CollectionId, ServedResource, StoredCollection};
use crate::config::RegistryConfig;
use crate::encodings::EncodingGates;
use crate::kept::ConversionCache;

/// The current surface of one server.
#[derive(Clone)]
pub struct ApiRegistrations(Arc<Shared>);

struct Shared {
    current: ArcSwap<ServedApis>,
    /// Held during a change, so that changes run one after another.
    changing: Mutex<()>,
    generation: watch::Sender<u64>,
    ids: AtomicU32,
    cache: Arc<Cache>,
    /// The conversion cache of all resources with a converter.
    kept: Arc<ConversionCache>,
    /// The gates of the collections.
    gates: EncodingGates,
}

/// The reason why resources cannot be served.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum RegistrationError {
    /// Another resource has the same name, kind or storage prefix.
    #[error("{0} can't be served: another resource has its name, its kind or its prefix in the store")]
    Taken(GroupResource),
    /// The cache could not load their collections, for this reason.
    #[error("their objects can't be loaded: {0}")]
    Cache(String),
}

impl ApiRegistrations {
    /// A surface of these built-in resources, over a cache that has their collections.
    ///
    /// # Panics
    /// The cache was started without the collection of one of them.
    pub fn builtin(contributions: &[ResourceRegistration], cache: Arc<Cache>, config: &RegistryConfig) -> Self {
        let surfaces = Shared::new(cache, gates(config));
        let mut surface = ServedApis::default();
        for layout in layouts(contributions) {
            let cached = surfaces.cache.collection(&layout.key_prefix());
            let cached = cached.expect("the cache is started with the collections of all built-in resources");
            surface.put_collection(surfaces.stored(layout, cached));
        }
        contributions.iter().for_each(|contribution| surface.put(contribution.served()));
        surfaces.current.store(Arc::new(surface));
        Self(Arc::new(surfaces))
    }

    /// The surface of a fork: the resources of another server that have a collection in this cache, with the compiled
    /// schemas. Its generation is the same, so that documents of the other server's surface describe it too, if no
    /// resource is missing.
    pub fn forked(origin: &ServedApis, cache: Arc<Cache>, config: &RegistryConfig) -> Self {
        let surfaces = Shared::new(cache, gates(config));
        let mut surface = ServedApis { generation: origin.generation, ..ServedApis::default() };
        for stored in origin.collections.values() {
            let Some(cached) = surfaces.cache.collection(&stored.layout.key_prefix()) else { continue };
            let gate = surfaces.gates.gate(&stored.layout.prefix);
            let forked = StoredCollection { id: stored.id, layout: stored.layout.clone(), cached, gate };
            surfaces.ids.fetch_max(stored.id.0 + 1, Ordering::Relaxed);
            surface.put_collection(Arc::new(forked));
        }
        let defined = |prefix: &str| surfaces.cache.collection(prefix);
        let forked: Vec<ServedResource> = {
            let stored = |prefix: &str| surface.collections.get(prefix).cloned();
            origin.resources().filter_map(|resource| resource.forked(stored, defined)).collect()
        };
        forked.into_iter().for_each(|served| surface.insert(Arc::new(served)));
        surfaces.generation.send_replace(surface.generation);
        surfaces.current.store(Arc::new(surface));
        Self(Arc::new(surfaces))
    }

    /// A surface without resources.
    pub fn empty(cache: Arc<Cache>, config: &RegistryConfig) -> Self {
        Self(Arc::new(Shared::new(cache, gates(config))))
    }

    /// The current surface.
    ///
    /// Cost: one atomic increment.
    pub fn current(&self) -> Arc<ServedApis> {
        self.0.current.load_full()
    }

    /// The conversion cache.
    pub fn kept(&self) -> &ConversionCache {
        &self.0.kept
    }

    /// The gates of the collections.
    pub(crate) fn gates(&self) -> &EncodingGates {
        &self.0.gates
    }

    /// Returns a receiver of the generation of each new surface.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.generation.subscribe()
    }

    /// Serves these resources in one swap, and replaces those of the same names. Objects keep their collection in the
    /// store if the prefix is the same. A change that has begun is completed even if the caller is cancelled.
    ///
    /// # Errors
    /// When another resource has the name, kind or storage prefix of a new one, or two new ones share one. Then nothing
    /// is changed.
    ///
    /// # Panics
    /// The change panics.
    pub async fn put(&self, contributions: Vec<ResourceRegistration>) -> Result<Arc<ServedApis>, RegistrationError> {
        self.exchange(Vec::new(), contributions).await
    }

    /// Serves these resources, and stops serving the `gone` ones, in one swap. A resource in both is replaced, and its
    /// watches end.
    ///
    /// # Errors
    /// As for [`ApiRegistrations::put`].
    ///
    /// # Panics
    /// The change panics.
    pub async fn exchange(
        &self,
        gone: Vec<GroupResource>,
        contributions: Vec<ResourceRegistration>,
    ) -> Result<Arc<ServedApis>, RegistrationError> {
        let shared = self.0.clone();
        outcome(tokio::spawn(async move { shared.exchange(&gone, contributions).await })).await
    }

    /// Changes the storage versions of built-in resources to those of these contributions, in one swap. Stored objects
    /// stay as they are until they are written again.
    ///
    /// # Panics
    /// The change panics.
    pub async fn store_builtin(&self, contributions: Vec<ResourceRegistration>) -> Arc<ServedApis> {
        let shared = self.0.clone();
        outcome(tokio::spawn(async move { shared.store_builtin(&contributions).await })).await
    }

    /// Stops serving these resources, except built-in ones. Their objects stay in the store. A change that has begun is
    /// completed even if the caller is cancelled.
    ///
    /// # Panics
    /// The change panics.
    pub async fn remove(&self, resources: &[GroupResource]) -> Arc<ServedApis> {
        let (shared, resources) = (self.0.clone(), resources.to_vec());
        outcome(tokio::spawn(async move { shared.remove(&resources).await })).await
    }
}

/// The gates of collections: closed until their versions are published, or open.
fn gates(config: &RegistryConfig) -> EncodingGates {
    if config.publishes_encodings { EncodingGates::published() } else { EncodingGates::default() }
}

impl Shared {
    fn new(cache: Arc<Cache>, gates: EncodingGates) -> Self {
        Self {
            gates,
            current: ArcSwap::from_pointee(ServedApis::default()),
            changing: Mutex::new(()),
            generation: watch::Sender::new(0),
            ids: AtomicU32::new(0),
            cache,
            kept: Arc::default(),
        }
    }

    async fn exchange(
        &self,
        gone: &[GroupResource],
        contributions: Vec<ResourceRegistration>,
    ) -> Result<Arc<ServedApis>, RegistrationError> {
        let _changing = self.changing.lock().await;
        let mut next = ServedApis::clone(&self.current.load());
        let gone = next.take_out(gone);
        let mut replaced = Vec::new();
        for contribution in &contributions {
            replaced.extend(next.remove(contribution.resource()));
        }
        next.check_free(&contributions)?;
        if let Some(builtin) = replaced.iter().find(|served| served.is_builtin()) {
            return Err(RegistrationError::Taken(builtin.group_resource()));
        }
        // None of these is decoded like a removed resource.
        let anew: HashSet<Text> =
            gone.iter().filter_map(|served| served.stored()).map(|stored| stored.layout.prefix.clone()).collect();
        replaced.extend(gone);
        for stored in self.collections_for(&contributions, &replaced, &anew).await? {
            next.put_collection(stored);
        }
        contributions.iter().for_each(|contribution| next.put(contribution.served().kept_in(&self.kept)));
        let gone = replaced.iter().filter_map(|served| served.stored());
        let gone = gone.filter(|stored| !next.collections.contains_key(&stored.layout.prefix));
        let ended: Vec<String> = gone.map(|stored| stored.layout.key_prefix()).collect();
        let next = self.publish(next);
        self.cache.remove(&ended).await;
        Ok(next)
    }

    /// The collections of these contributions: existing ones if objects are decoded as before, and otherwise new ones.
    /// As upstream, every other change of a definition makes a new one, so that watches of the old resource end.
    /// Collections at the prefixes of `anew` are new too.
    ///
    /// # Errors
    /// The cache cannot add them. It then keeps its previous collections.
    async fn collections_for(
        &self,
        contributions: &[ResourceRegistration],
        replaced: &[Arc<ServedResource>],
        anew: &HashSet<Text>,
    ) -> Result<Vec<Arc<StoredCollection>>, RegistrationError> {
        let before: HashMap<Text, (&Arc<StoredCollection>, &Arc<ServedResource>)> = replaced
            .iter()
            .filter_map(|served| Some((served.stored()?, served)))
            .map(|(stored, served)| (stored.layout.prefix.clone(), (stored, served)))
            .collect();
        let by_place: HashMap<&str, &ResourceRegistration> = contributions
            .iter()
            .filter_map(|contribution| Some((&**contribution.resource().storage_prefix()?, contribution)))
            .collect();
        let layouts = layouts(contributions);
        let mut found = Vec::with_capacity(layouts.len());
        let (mut added, mut relaid) = (Vec::new(), Vec::new());
        for layout in layouts {
            let contribution = by_place.get(&*layout.prefix);
            match before.get(&layout.prefix) {
                Some((known, served))
                    if !anew.contains(&layout.prefix)
                        && same_layout(known, &layout)
                        && contribution.is_none_or(|contribution| contribution.is_read_like(served)) =>
                {
                    found.push(Arc::new(StoredCollection { layout: Arc::new(layout), ..(***known).clone() }));
                }
                Some(_) => relaid.push(layout),
                None => added.push(layout),
            }
        }
        let completion = |layout: &Collection| by_place.get(&*layout.prefix)?.completion();
        let spec = |layout: &Collection| collection_spec(layout, completion(layout));
        let specs = |layouts: &[Collection]| layouts.iter().map(spec).collect::<Vec<_>>();
        let failed = |error: AddError| RegistrationError::Cache(error.to_string());
        let new = if added.is_empty() { Vec::new() } else { self.cache.add(specs(&added)).await.map_err(failed)? };
        let again = if relaid.is_empty() { Ok(Vec::new()) } else { self.cache.replace(specs(&relaid)).await };
        let again = match again {
            Ok(again) => again,
            Err(error) => {
                let prefixes: Vec<String> = added.iter().map(Collection::key_prefix).collect();
                self.cache.remove(&prefixes).await;
                return Err(failed(error));
            }
        };
        let layouts = added.into_iter().chain(relaid);
        found.extend(layouts.zip(new.into_iter().chain(again)).map(|(layout, cached)| self.stored(layout, cached)));
        Ok(found)
    }

    async fn store_builtin(&self, contributions: &[ResourceRegistration]) -> Arc<ServedApis> {
        let _changing = self.changing.lock().await;
        let current = self.current.load_full();
        let mut next = ServedApis::clone(&current);
        let mut is_changed = false;
        for contribution in contributions {
            let (resource, served) = (contribution.resource(), contribution.served());
            let known = current.resource(&resource.group, &resource.plural);
            if known.is_some_and(|known| known.storage_kind() != served.storage_kind()) {
                next.put(served);
                is_changed = true;
            }
        }
        if is_changed { self.publish(next) } else { current }
    }

    async fn remove(&self, resources: &[GroupResource]) -> Arc<ServedApis> {
        let _changing = self.changing.lock().await;
        let mut next = ServedApis::clone(&self.current.load());
        let removed = next.take_out(resources);
        let ended: Vec<String> =
            removed.iter().filter_map(|served| served.stored()).map(|stored| stored.layout.key_prefix()).collect();
        let next = self.publish(next);
        self.cache.remove(&ended).await;
        next
    }

    fn publish(&self, mut next: ServedApis) -> Arc<ServedApis> {
        next.generation += 1;
        let next = Arc::new(next);
        self.current.store(next.clone());
        self.generation.send_replace(next.generation);
        next
    }

    fn stored(&self, layout: Collection, cached: Arc<CachedCollection>) -> Arc<StoredCollection> {
        let id = CollectionId(self.ids.fetch_add(1, Ordering::Relaxed));
        let gate = self.gates.gate(&layout.prefix);
        Arc::new(StoredCollection { id, layout: Arc::new(layout), cached, gate })
    }
}

impl ServedApis {
    fn put_collection(&mut self, stored: Arc<StoredCollection>) {
        self.by_id.insert(stored.id, stored.clone());
        self.collections.insert(stored.layout.prefix.clone(), stored);
    }

    /// Adds a resource whose collection exists already.
    fn put(&mut self, served: ServedResource) {
        let stored = served.storage_prefix().and_then(|prefix| self.collections.get(prefix)).cloned();
        let served = match stored {
            Some(stored) => served.with_collection(stored),
            None => served,
        };
        self.insert(Arc::new(served));
    }

    /// Removes and returns these resources, except built-in ones.
    fn take_out(&mut self, resources: &[GroupResource]) -> Vec<Arc<ServedResource>> {
        let mut taken = Vec::new();
        for GroupResource { group, resource } in resources {
            if let Some(served) = self.resource(group, resource).filter(|served| !served.is_builtin()).cloned() {
                taken.extend(self.remove(&served));
            }
        }
        taken
    }

    /// Checks that no served resource, and no two of these, share a name, a kind or a storage prefix.
    fn check_free(&self, contributions: &[ResourceRegistration]) -> Result<(), RegistrationError> {
        let (mut names, mut kinds, mut places) = (HashSet::new(), HashSet::new(), HashSet::new());
        for resource in contributions.iter().map(ResourceRegistration::resource) {
            let (group, place) = (&*resource.group, resource.storage_prefix());
            let is_free = self.resource(group, &resource.plural).is_none()
                && self.by_kind(group, &resource.kind).is_none()
                && place.is_none_or(|place| !self.collections.contains_key(place));
            let is_first = names.insert((group, &*resource.plural))
                && kinds.insert((group, &*resource.kind))
                && place.is_none_or(|place| places.insert(place));
            if !(is_free && is_first) {
                return Err(RegistrationError::Taken(resource.group_resource()));
            }
        }
        Ok(())
    }
}

/// The collections of the contributed resources.
fn layouts(contributions: &[ResourceRegistration]) -> Vec<Collection> {
    Collection::all(contributions.iter().map(ResourceRegistration::resource))
}

/// Returns true if entries decoded for one layout fit the other.
fn same_layout(previous: &StoredCollection, layout: &Collection) -> bool {
    let Collection { paths, dispatch, namespaced, .. } = &*previous.layout;
    (paths, dispatch, namespaced) == (&layout.paths, &layout.dispatch, &layout.namespaced)
}
