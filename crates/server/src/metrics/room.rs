//! Metrics of the space that stores use, and of the memory for objects in the cache.
//!
//! Every store with a size limit has `keelson_store_full`.

use keelson_cache::PackingStats;
use keelson_http::metrics::Sample;
use keelson_storage::memory::MemoryStore;
use keelson_storage_sql::SpaceStats;

use super::{counter, gauge};

const HISTORY: (&str, &str) =
    ("keelson_store_history_bytes", "Bytes of stored versions that only reads of the past see");
const FULL: (&str, &str) = ("keelson_store_full", "1 if the store is full and refuses writes that add to it");

/// The memory for objects in the cache.
pub(crate) fn packing_samples(stats: &PackingStats) -> [Sample; 9] {
    let reads = |form: &str, count| Sample {
        labels: vec![("form", form.to_owned())],
        ..counter(
            "keelson_cache_object_reads_total",
            "Reads of objects in the cache, by form: plain, or packed and therefore decoded",
            count,
        )
    };
    [
        gauge("keelson_cache_plain_bytes", "Bytes of the uncompressed objects in the cache", stats.plain_bytes),
        gauge(
            "keelson_cache_packed_bytes",
            "Bytes of the compressed objects in the cache, as compressed",
            stats.packed_bytes,
        ),
        gauge("keelson_cache_packed_objects", "Compressed objects in the cache", stats.packed_objects),
        reads("plain", stats.hits),
        reads("packed", stats.misses),
        counter("keelson_cache_packs_total", "Objects that the cache compressed, out of use", stats.packs),
        counter(
            "keelson_cache_unpacks_total",
            "Compressed objects that the cache keeps uncompressed again, since they are in use",
            stats.promotions,
        ),
        gauge("keelson_cache_dictionaries", "Dictionaries of compressed objects in the cache", stats.dictionaries),
        counter(
            "keelson_cache_dictionary_trainings_total",
            "Dictionaries trained for the objects of large collections",
            stats.trainings,
        ),
    ]
}

/// The space of the embedded store.
pub(crate) fn space_samples(stats: SpaceStats) -> Vec<Sample> {
    vec![
        gauge("keelson_store_used_bytes", "Bytes that the embedded store uses of its file", stats.used),
        Sample {
            labels: vec![("storage_cluster_id", "sqlite".to_owned())],
            ..gauge("apiserver_storage_size_bytes", "Bytes of the file of the store, free pages included", stats.file)
        },
        gauge("keelson_store_file_bytes", "Bytes of the file of the embedded store, free pages included", stats.file),
        gauge("keelson_store_quota_bytes", "The largest size of the embedded store (0 for no limit)", stats.quota),
        gauge(
            "keelson_store_reserve_bytes",
            "Reserved bytes on the disk of the embedded store (0 while the reserve is in use)",
            stats.reserve,
        ),
        gauge(HISTORY.0, HISTORY.1, stats.history),
        full(stats.full),
        counter(
            "keelson_store_history_cuts_total",
            "Early compactions of history, because it took too much space",
            stats.cuts,
        ),
        counter(
            "keelson_store_refused_total",
            "Transactions that were refused since the store was full",
            stats.refused,
        ),
    ]
}

/// The space of a store in memory.
pub(crate) fn memory_samples(store: &MemoryStore) -> Vec<Sample> {
    vec![gauge(HISTORY.0, HISTORY.1, store.history_bytes())]
}

/// 1 for a store that refuses new data.
pub(super) fn full(is_full: bool) -> Sample {
    gauge(FULL.0, FULL.1, u64::from(is_full))
}
