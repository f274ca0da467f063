//! A cache of objects that a conversion webhook has converted, so that the webhook converts an object only once.
//!
//! A converted object is cached with the stored bytes that it was converted from, so it never matches other bytes. It
//! belongs to the resource as it is served now, and is dropped when the resource gets another converter or other
//! defaults. All kinds share [`KEPT_BYTES`].
//!
//! Eviction is random. A list that is larger than the cache then still finds a part of its objects. An order of last
//! use would evict all of them. Concurrent requests for one object share a call, so a thousand watches of one event
//! cause one conversion.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hashbrown::HashMap;
use keelson_codec::StoredObject;
use keelson_meta::ApiError;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The size of the conversion cache over all kinds, in bytes: stored objects, which the watch cache mostly has too, and
/// converted ones.
pub const KEPT_BYTES: usize = 256 << 20;
/// The overhead of a cached object in bytes: its entries in two tables.
const OVERHEAD_BYTES: usize = 200;

/// The conversion cache.
#[derive(Default)]
pub struct ConversionCache {
    state: Mutex<State>,
    asked: AtomicU64,
    spared: AtomicU64,
}

/// The counts of the conversion cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConversionCacheStats {
    /// The number of objects.
    pub objects: usize,
    /// Their size in bytes.
    pub bytes: usize,
    /// The number of objects that converters had to convert.
    pub asked: u64,
    /// The number of conversions avoided by the cache, or by waiting for another request.
    pub spared: u64,
}

#[derive(Default)]
struct State {
    tables: HashMap<u64, Table>,
    /// One slot for each cached object, in no order, so that a random one can be evicted.
    slots: Vec<(u64, Key)>,
    bytes: usize,
    /// The number of resources so far.
    resources: u64,
    /// The state of the random choice for eviction.
    turn: u64,
}

#[derive(Default)]
struct Table {
    kept: HashMap<Key, ConvertedObject>,
    under_way: HashMap<Key, Arc<Flight>>,
}

/// The address and length of stored bytes, and the index of the requested version in the resource. The bytes are held
/// as long as the key is in use, so that no other bytes can have their address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    address: usize,
    length: usize,
    version: usize,
}

struct ConvertedObject {
    /// Held so that its address is not reused.
    stored: StoredObject,
    converted: StoredObject,
}

impl ConvertedObject {
    fn size(&self) -> usize {
        self.stored.size() + self.converted.size() + OVERHEAD_BYTES
    }
}

/// Objects whose conversion is under way.
struct Flight {
    /// The number of objects.
    objects: usize,
    landed: CancellationToken,
    /// Still empty when `landed` is cancelled, if the converting request ended without a result.
    outcome: OnceLock<Result<HashMap<Key, StoredObject>, ApiError>>,
}

impl Key {
    fn new(stored: &StoredObject, version: usize) -> Self {
        let bytes = stored.skeleton();
        Self { address: bytes.as_ptr().addr(), length: bytes.len(), version }
    }
}

/// The cache entries of one served resource.
pub(crate) struct ResourceEntries {
    id: u64,
    all: Arc<ConversionCache>,
}

impl ConversionCache {
    /// The counts.
    pub fn stats(&self) -> ConversionCacheStats {
        let state = self.state.lock();
        ConversionCacheStats {
            objects: state.slots.len(),
            bytes: state.bytes,
            asked: self.asked.load(Ordering::Relaxed),
            spared: self.spared.load(Ordering::Relaxed),
        }
    }
}

impl State {
    fn keep(&mut self, id: u64, key: Key, kept: ConvertedObject) {
        let size = kept.size();
        let Some(table) = self.tables.get_mut(&id).filter(|_| size <= KEPT_BYTES) else { return };
        match table.kept.insert(key, kept) {
            Some(before) => self.bytes -= before.size(),
            None => self.slots.push((id, key)),
        }
        self.bytes += size;
        while self.bytes > KEPT_BYTES {
            self.drop_one();
        }
    }

    /// Removes and returns all cache entries of a resource.
    fn forget(&mut self, id: u64) -> HashMap<Key, ConvertedObject> {
        let kept = self.tables.get_mut(&id).map(|table| std::mem::take(&mut table.kept)).unwrap_or_default();
        self.slots.retain(|(of, _)| *of != id);
        self.bytes -= kept.values().map(ConvertedObject::size).sum::<usize>();
        kept
    }

    fn drop_one(&mut self) {
        // A full cycle of 64-bit numbers, whose upper bits are as good as random.
        self.turn = self.turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let picked = usize::try_from(self.turn >> 33).unwrap_or_default() % self.slots.len().max(1);
        if picked >= self.slots.len() {
            self.bytes = 0;
            return;
        }
        let (id, key) = self.slots.swap_remove(picked);
        if let Some(gone) = self.tables.get_mut(&id).and_then(|table| table.kept.remove(&key)) {
            self.bytes -= gone.size();
        }
    }
}

/// The conversions that a request may reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// Cached results, and results of calls under way.
    Kept,
    /// Only results of calls under way. The converter may have been corrected since the cached results.
    UnderWay,
}

/// The result of looking up some objects in another version.
pub(crate) struct LookupResult {
    /// The cached conversion of each.
    pub(crate) kept: Vec<Option<StoredObject>>,
    /// The objects that the caller has to convert.
    pub(crate) claim: Option<Claim>,
    /// The objects that another request is converting.
    pub(crate) others: Vec<PendingConversion>,
}

/// Objects that the owner of this value converts. If it is dropped without a result, other requests convert them.
pub(crate) struct Claim {
    /// Their indices among the requested objects.
    pub(crate) places: Vec<usize>,
    stored: Vec<StoredObject>,
    version: usize,
    flight: Arc<Flight>,
    of: Arc<ResourceEntries>,
}

/// Objects that another request is converting.
pub(crate) struct PendingConversion {
    places: Vec<(usize, Key)>,
    flight: Arc<Flight>,
}

impl ResourceEntries {
    pub(crate) fn new(all: &Arc<ConversionCache>) -> Arc<Self> {
        let mut state = all.state.lock();
        let id = state.resources;
        state.resources += 1;
        state.tables.insert(id, Table::default());
        Arc::new(Self { id, all: all.clone() })
    }

    /// Looks up objects in the version at this index: in the cache and in calls under way, or only in the latter.
    pub(crate) fn look(self: &Arc<Self>, version: usize, objects: &[&StoredObject], reuse: Reuse) -> LookupResult {
        let mut looked = LookupResult { kept: Vec::with_capacity(objects.len()), claim: None, others: Vec::new() };
        let mut places = Vec::new();
        let mut state = self.all.state.lock();
        let Some(table) = state.tables.get_mut(&self.id) else { return looked };
        for (place, stored) in objects.iter().enumerate() {
            let key = Key::new(stored, version);
            let kept = table.kept.get(&key).filter(|_| reuse == Reuse::Kept).map(|kept| kept.converted.clone());
            match table.under_way.get(&key) {
                _ if kept.is_some() => {}
                Some(flight) => match looked.others.iter_mut().find(|other| Arc::ptr_eq(&other.flight, flight)) {
                    Some(known) => known.places.push((place, key)),
                    None => {
                        looked.others.push(PendingConversion { places: vec![(place, key)], flight: flight.clone() });
                    }
                },
                None => places.push(place),
            }
            looked.kept.push(kept);
        }
        if !places.is_empty() {
            let flight = Flight { objects: places.len(), landed: CancellationToken::new(), outcome: OnceLock::new() };
            let flight = Arc::new(flight);
            let stored: Vec<StoredObject> = places.iter().map(|place| objects[*place].clone()).collect();
            for stored in &stored {
                table.under_way.insert(Key::new(stored, version), flight.clone());
            }
            looked.claim = Some(Claim { places, stored, version, flight, of: self.clone() });
        }
        drop(state);
        let asked = looked.claim.as_ref().map_or(0, |claim| claim.places.len());
        self.all.asked.fetch_add(asked as u64, Ordering::Relaxed);
        self.all.spared.fetch_add((objects.len() - asked) as u64, Ordering::Relaxed);
        looked
    }
}

impl Drop for ResourceEntries {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        let dropped = state.forget(self.id);
        state.tables.remove(&self.id);
        drop(state);
        // The last holder of the resource may be a request.
        drop_elsewhere(dropped);
    }
}

/// Drops cache entries, which may be many, on a thread that no request needs.
fn drop_elsewhere(kept: HashMap<Key, ConvertedObject>) {
    if !kept.is_empty() && tokio::runtime::Handle::try_current().is_ok() {
        keelson_supervision::spawn_blocking(move || drop(kept));
    }
}

impl Claim {
    /// The objects to convert.
    pub(crate) fn stored(&self) -> &[StoredObject] {
        &self.stored
    }

    /// Caches the result, and passes it to the requests that wait for it.
    pub(crate) fn land(self, answer: Result<&[StoredObject], &ApiError>) {
        let keys = || self.stored.iter().map(|stored| Key::new(stored, self.version));
        let outcome = match answer {
            Ok(converted) => {
                let mut state = self.of.all.state.lock();
                // A result other than the cached one shows that the converter has changed, so all cached results are
                // stale.
                let is_other = |kept: &HashMap<Key, ConvertedObject>| {
                    keys().zip(converted).any(|(key, new)| kept.get(&key).is_some_and(|kept| kept.converted != *new))
                };
                if state.tables.get(&self.of.id).is_some_and(|table| is_other(&table.kept)) {
                    drop_elsewhere(state.forget(self.of.id));
                }
                for ((key, stored), converted) in keys().zip(&self.stored).zip(converted) {
                    let kept = ConvertedObject { stored: stored.clone(), converted: converted.clone() };
                    state.keep(self.of.id, key, kept);
                }
                Ok(keys().zip(converted.iter().cloned()).collect())
            }
            Err(error) => Err(error.clone()),
        };
        let _ = self.flight.outcome.set(outcome);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // ORDER: the result is cached before the flight ends, so that no other request converts in between.
        if let Some(table) = self.of.all.state.lock().tables.get_mut(&self.of.id) {
            for stored in &self.stored {
                table.under_way.remove(&Key::new(stored, self.version));
            }
        }
        self.flight.landed.cancel();
    }
}

impl PendingConversion {
    /// Waits for the result, and puts the objects in their places. A place stays empty if the converting request ended
    /// without a result, or if its error was about other objects too.
    ///
    /// # Errors
    /// The error of the conversion, if it was about exactly these objects.
    pub(crate) async fn land(self, found: &mut [Option<StoredObject>]) -> Result<(), ApiError> {
        self.flight.landed.cancelled().await;
        match self.flight.outcome.get() {
            Some(Ok(converted)) => {
                for (place, key) in self.places {
                    found[place] = converted.get(&key).cloned();
                }
                Ok(())
            }
            Some(Err(error)) if self.flight.objects == self.places.len() => Err(error.clone()),
            Some(Err(_)) | None => Ok(()),
        }
    }
}

impl fmt::Debug for ConversionCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptObjects").field("stats", &self.stats()).finish()
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Object;
    use keelson_meta::json::json;

    use super::*;

    fn object(name: &str, bytes: usize) -> StoredObject {
        let object = json!({"kind": "K", "apiVersion": "a/v1", "metadata": {"name": name}, "spec": "x".repeat(bytes)});
        StoredObject::encode(&Object::from_value(object).unwrap())
    }

    fn kept_of() -> Arc<ResourceEntries> {
        ResourceEntries::new(&Arc::default())
    }

    #[tokio::test]
    async fn a_conversion_is_cached_by_bytes_and_version() {
        let kept = kept_of();
        let (stored, converted) = (object("a", 1), object("a", 2));
        let claim = kept.look(0, &[&stored], Reuse::Kept).claim.expect("nobody has asked");
        claim.land(Ok(std::slice::from_ref(&converted)));
        assert_eq!(kept.look(0, &[&stored.clone()], Reuse::Kept).kept, [Some(converted.clone())]);
        assert!(kept.look(1, &[&stored], Reuse::Kept).claim.is_some(), "another version");
        assert!(kept.look(0, &[&object("a", 1)], Reuse::Kept).claim.is_some(), "other bytes, though they are equal");
        let stats = kept.all.stats();
        assert_eq!((stats.objects, stats.asked, stats.spared), (1, 3, 1));
        let all = kept.all.clone();
        drop(kept);
        assert_eq!((all.stats().objects, all.stats().bytes), (0, 0), "it goes with the resource");
    }

    #[tokio::test]
    async fn concurrent_requests_share_one_conversion() {
        let kept = kept_of();
        let (a, b, converted) = (object("a", 1), object("b", 1), object("c", 1));
        let claim = kept.look(0, &[&a], Reuse::Kept).claim.unwrap();
        let looked = kept.look(0, &[&a, &b], Reuse::Kept);
        assert_eq!(looked.claim.as_ref().unwrap().places, [1], "the other one is not asked for");
        let mut found = looked.kept;
        let [awaited] = <[PendingConversion; 1]>::try_from(looked.others).ok().unwrap();
        let wait = awaited.land(&mut found);
        let mut wait = Box::pin(wait);
        assert!(futures::poll!(&mut wait).is_pending());
        claim.land(Ok(std::slice::from_ref(&converted)));
        wait.await.unwrap();
        assert_eq!(found, [Some(converted), None]);

        // Without a result another request converts. An error counts for all waiting requests.
        let awaits = |objects: &[&StoredObject]| kept.look(0, objects, Reuse::Kept).others.pop().unwrap();
        let d = object("d", 1);
        let claim = kept.look(0, &[&d], Reuse::Kept).claim.unwrap();
        let waits = awaits(&[&d]);
        drop(claim);
        let mut found = [None];
        waits.land(&mut found).await.unwrap();
        assert_eq!(found, [None]);
        let claim = kept.look(0, &[&d], Reuse::Kept).claim.expect("it is asked for again");
        let waits = awaits(&[&d]);
        claim.land(Err(&ApiError::Unclassified("no".to_owned())));
        assert_eq!(waits.land(&mut [None]).await.unwrap_err().to_string(), "no");
    }

    #[tokio::test]
    async fn a_different_conversion_evicts_all_conversions_of_the_resource() {
        let kept = kept_of();
        let (a, b, converted) = (object("a", 1), object("b", 1), object("c", 1));
        let claim = kept.look(0, &[&a, &b], Reuse::Kept).claim.unwrap();
        claim.land(Ok(&[converted.clone(), converted.clone()]));
        let anew = |answer: &StoredObject| {
            let claim = kept.look(0, &[&a], Reuse::UnderWay).claim.expect("what is kept does not count");
            claim.land(Ok(std::slice::from_ref(answer)));
        };
        anew(&converted);
        assert_eq!(kept.look(0, &[&b], Reuse::Kept).kept, [Some(converted)], "the converter is as it was");
        let corrected = object("d", 1);
        anew(&corrected);
        assert_eq!(kept.look(0, &[&a], Reuse::Kept).kept, [Some(corrected)]);
        assert!(kept.look(0, &[&b], Reuse::Kept).claim.is_some(), "it is asked for again");
        assert_eq!(kept.all.stats().objects, 1);
    }

    #[tokio::test]
    async fn the_conversion_cache_is_limited_and_serves_parts_of_lists() {
        let kept = kept_of();
        const LARGE: usize = 1 << 20;
        let objects: Vec<StoredObject> = (0..200).map(|number| object(&number.to_string(), LARGE)).collect();
        for object in &objects {
            let claim = kept.look(0, &[object], Reuse::Kept).claim.unwrap();
            claim.land(Ok(std::slice::from_ref(object)));
            assert!(kept.all.stats().bytes <= KEPT_BYTES);
        }
        let stats = kept.all.stats();
        assert_eq!(stats.objects, KEPT_BYTES / (2 * LARGE + OVERHEAD_BYTES));
        let found = objects.iter().filter(|object| kept.look(0, &[object], Reuse::Kept).kept[0].is_some()).count();
        assert_eq!(found, stats.objects);
    }
}
