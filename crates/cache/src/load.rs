//! Loads collections from the store: one scan for all, decoded on several cores while the next page is read.
//!
//! If the store can scan faster in another order than that of keys, the load uses that order and sorts the result.
//! Otherwise it reads from the first prefix to the end of the last one. A page contains all keys of its range. If a
//! page ends between two prefixes, the next page begins at the next prefix. So thousands of empty collections cost a
//! page or two, and other keys between them cost at most a page for each gap.
//!
//! The load uses memory for the result, and for one page more than the runtime has threads, so that the scan does not
//! wait for decoding.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use keelson_meta::Revision;
use keelson_storage::{KeyValue, RangeRequest, Scan, ScanRequest, Store, StoreError, StoreKey, behind, pages_from};

use crate::collection::{Change, Collection, Unreadable};
use crate::cores;
use crate::entry::Entry;
use crate::shared::Shared;
use crate::trees::Trees;

/// The number of keys in one read.
pub(crate) const PAGE: usize = 500;

/// The number of concurrent decoders: one for each thread of the runtime.
pub(crate) fn decoders() -> usize {
    tokio::runtime::Handle::current().metrics().num_workers()
}

/// The prefixes of a scan, sorted. None is below another.
#[derive(Clone)]
pub(crate) struct ScanPrefixes(Arc<[Box<str>]>);

impl ScanPrefixes {
    /// The prefixes of these collections.
    pub(crate) fn new<'a>(collections: impl IntoIterator<Item = &'a Arc<Collection>>) -> Self {
        let mut prefixes: Vec<Box<str>> =
            collections.into_iter().map(|collection| collection.prefix().into()).collect();
        prefixes.sort_unstable();
        Self(prefixes.into())
    }

    /// The index of the prefix that contains a key.
    ///
    /// # Errors
    /// If no prefix contains the key, the index of the first prefix after it.
    pub(crate) fn find(&self, key: &str) -> Result<usize, usize> {
        let behind = self.0.partition_point(|prefix| **prefix <= *key);
        behind.checked_sub(1).filter(|place| key.starts_with(&*self.0[*place])).ok_or(behind)
    }

    /// The key at which to continue after this key. `None` if no prefix follows.
    fn behind(&self, key: &str) -> Option<StoreKey> {
        match self.find(key) {
            Ok(_) => Some(StoreKey::new(behind(key))),
            Err(next) => self.0.get(next).map(|prefix| StoreKey::new(&**prefix)),
        }
    }
}

/// Reads the stored values at a revision from the first prefix to the end of the last, in key order. Skips most of the
/// keys between prefixes.
pub(crate) fn pages(
    store: Arc<dyn Store>,
    wanted: ScanPrefixes,
    revision: Revision,
) -> impl Stream<Item = Result<Vec<KeyValue>, StoreError>> + Send + 'static {
    let ends = wanted.0.first().zip(wanted.0.last());
    let request = ends.map(|(first, last)| {
        let (from, to) = (StoreKey::new(&**first), StoreKey::prefix_end(last));
        RangeRequest { from, to, revision: Some(revision), limit: Some(PAGE) }
    });
    let pages = request.map(|request| pages_from(store, request, move |last| wanted.behind(last.as_str())));
    stream::iter(pages).flatten()
}

/// Reads the stored values of the prefixes at a revision, in the store's fastest order.
fn scan(store: &Arc<dyn Store>, wanted: &ScanPrefixes, revision: Revision) -> Scan {
    let ranges = wanted.0.iter().map(|prefix| (StoreKey::new(&**prefix), StoreKey::prefix_end(prefix)));
    let request = ScanRequest { ranges: ranges.collect(), revision };
    store.scan(request).unwrap_or_else(|| pages(store.clone(), wanted.clone(), revision).boxed())
}

/// A loaded collection.
pub(crate) struct LoadedCollection {
    pub(crate) trees: Trees,
    pub(crate) unreadable: Unreadable,
}

impl LoadedCollection {
    /// Applies a change from after the load.
    pub(crate) fn apply(&mut self, change: Change) {
        change.content.put_in(&change.key, &mut self.trees, &mut self.unreadable);
    }
}

/// The values of a collection read so far.
#[derive(Default)]
struct Read {
    entries: Vec<Arc<Entry>>,
    unreadable: Unreadable,
}

/// Loads collections at a revision. Returns them in the order of the arguments.
pub(crate) async fn collections(
    store: &Arc<dyn Store>,
    shared: &Arc<Shared>,
    collections: &[Arc<Collection>],
    revision: Revision,
) -> Result<Vec<LoadedCollection>, StoreError> {
    let wanted = ScanPrefixes::new(collections);
    let by_prefix: BTreeMap<&str, usize> =
        collections.iter().enumerate().map(|(place, collection)| (collection.prefix(), place)).collect();
    // The collections in the order of the scan's prefixes.
    let sorted: Arc<[Arc<Collection>]> = by_prefix.values().map(|place| collections[*place].clone()).collect();
    let decoded = scan(store, &wanted, revision)
        .map_ok(|page| {
            let (shared, wanted, sorted) = (shared.clone(), wanted.clone(), sorted.clone());
            on_a_core(move || decode(&shared, &wanted, &sorted, &page))
        })
        .try_buffer_unordered(decoders() + 1);
    let nothing = BTreeMap::<usize, Read>::new();
    let mut read = decoded
        .try_fold(nothing, async |mut so_far, page| {
            for (place, part) in page {
                let whole = so_far.entry(place).or_default();
                whole.entries.extend(part.entries);
                whole.unreadable.extend(part.unreadable);
            }
            Ok(so_far)
        })
        .await?;
    let mut loaded = Vec::with_capacity(collections.len());
    for collection in collections {
        let read = wanted.find(collection.prefix()).ok().and_then(|place| read.remove(&place));
        loaded.push(build(collection, read.unwrap_or_default()).await?);
    }
    Ok(loaded)
}

/// Builds the trees of a loaded collection.
async fn build(collection: &Arc<Collection>, read: Read) -> Result<LoadedCollection, StoreError> {
    let layout = collection.layout().clone();
    let Read { entries, unreadable } = read;
    if entries.is_empty() {
        return Ok(LoadedCollection { trees: Trees::empty(layout), unreadable });
    }
    let trees = on_a_core(move || {
        let order = cores::order(&entries, |entry| ["", &entry.key]);
        let mut entries: Vec<_> = order.into_iter().map(|place| entries[place as usize].clone()).collect();
        keep_newest(&mut entries);
        Trees::from_sorted(&entries, layout)
    });
    let trees = trees.await?;
    Ok(LoadedCollection { trees, unreadable })
}

/// Keeps the newest of several entries with one key. A mirrored server may list an object twice, and trees hold each key
/// once.
fn keep_newest(sorted: &mut Vec<Arc<Entry>>) {
    sorted.dedup_by(|next, kept| {
        let is_same = next.key == kept.key;
        if is_same && next.revision > kept.revision {
            std::mem::swap(next, kept);
        }
        is_same
    });
}

/// Decodes the values of a page. Returns them by collection, each with the index of its prefix.
fn decode(shared: &Shared, wanted: &ScanPrefixes, sorted: &[Arc<Collection>], page: &[KeyValue]) -> Vec<(usize, Read)> {
    let mut parts: Vec<(usize, Read)> = Vec::new();
    for stored in page {
        let Ok(place) = wanted.find(stored.key.as_str()) else { continue };
        if parts.last().is_none_or(|(last, _)| *last != place) {
            parts.push((place, Read::default()));
        }
        let Some((_, part)) = parts.last_mut() else { continue };
        match shared.decode(&sorted[place], stored) {
            Ok(entry) => part.entries.push(entry),
            Err(error) => drop(part.unreadable.insert(sorted[place].relative(stored.key.as_str()).into(), error)),
        }
    }
    for (place, part) in &parts {
        sorted[*place].pool().admit_loaded(&part.entries);
    }
    parts
}

/// Runs work outside of the runtime's own threads. The work starts at once, even if the future is not polled.
pub(crate) fn on_a_core<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = Result<T, StoreError>> + Send + 'static {
    let task = keelson_supervision::spawn_blocking(work);
    async move {
        match task.await {
            Ok(done) => Ok(done),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => Err(StoreError::Unavailable("the server is stopping".to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_continues_at_the_next_wanted_range() {
        let wanted = ScanPrefixes(["/r/a/", "/r/c/", "/r/cd/"].map(Box::from).into());
        let behind = |key: &str| wanted.behind(key).map(|key| key.as_str().to_owned());
        assert_eq!(behind("/r/a/x").as_deref(), Some("/r/a/x\0"));
        assert_eq!(behind("/r/b/x").as_deref(), Some("/r/c/"));
        assert_eq!(behind("/r/c").as_deref(), Some("/r/c/"));
        assert_eq!(behind("/r/c0").as_deref(), Some("/r/cd/"));
        assert_eq!(behind("/r/d/"), None);
    }
}
