//! Numbers of encryption: transformations, calls to key services, key IDs, and reloads of the file.
//!
//! The metrics endpoint sets names, help texts and formats. Labels are names of keys and providers and hashes of key
//! IDs, never keys. The number of key IDs that a service can add is bounded.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use keelson_meta::metering::{AtomicHistogram, Buckets, Count, Series};
use parking_lot::Mutex;

/// The most key IDs that have series, as upstream has it.
const KEY_IDS: usize = 100;

/// From 5 µs on, each twice as long, in nanoseconds.
const fn doubling<const N: usize>(first: u64) -> [u64; N] {
    let mut ends = [0; N];
    let (mut end, mut place) = (first, 0);
    while place < N {
        ends[place] = end;
        end *= 2;
        place += 1;
    }
    ends
}

static TRANSFORMATION_ENDS: [u64; 25] = doubling(5_000);
static GENERATION_ENDS: [u64; 14] = doubling(5_000);
static CALL_ENDS: [u64; 20] = doubling(100_000);
static TRANSFORMATIONS: Buckets = Buckets::of_short_durations(&TRANSFORMATION_ENDS);
static GENERATIONS: Buckets = Buckets::of_short_durations(&GENERATION_ENDS);
static CALLS: Buckets = Buckets::of_short_durations(&CALL_ENDS);

/// The direction of a transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyUse {
    /// Decryption.
    FromStorage,
    /// Encryption.
    ToStorage,
}

impl KeyUse {
    /// The label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FromStorage => "from_storage",
            Self::ToStorage => "to_storage",
        }
    }
}

/// The labels of counted transformations: resource, direction, prefix, status.
pub type Operation = (String, KeyUse, String, &'static str);
/// The labels of calls: provider, method, code of gRPC.
pub type KmsCall = (String, &'static str, &'static str);

/// The uses of a key ID.
#[derive(Clone, Copy, Debug)]
struct KeyUses {
    count: u64,
    last: SystemTime,
}

/// The numbers of one server.
#[derive(Debug)]
pub struct EncryptionMetrics {
    /// Transformations.
    pub operations: Series<Operation, Count>,
    /// The durations of good ones, by direction and prefix.
    pub durations: Series<(KeyUse, String), AtomicHistogram>,
    /// Data keys that were not cached.
    pub cache_misses: Count,
    /// The durations of making data keys.
    pub key_generation: AtomicHistogram,
    /// The durations of calls to key services.
    pub calls: Series<KmsCall, AtomicHistogram>,
    /// Key IDs of a status that break a rule, by provider and fault.
    pub invalid_key_ids: Series<(String, &'static str), Count>,
    /// Data keys in memory, by provider.
    pub data_keys: Series<String, AtomicU64>,
    /// The share of the cache of KMS v1 that is taken, in millionths.
    pub fill: AtomicU64,
    key_ids: Mutex<HashMap<(KeyUse, String, String), KeyUses>>,
    status_ids: Mutex<HashMap<(String, String), SystemTime>>,
    reloads: Mutex<Reloads>,
}

#[derive(Debug, Default)]
struct Reloads {
    /// Good ones and failures, with the time of the last of each.
    counts: [Option<(u64, SystemTime)>; 2],
    hash: Option<String>,
}

impl Default for EncryptionMetrics {
    fn default() -> Self {
        Self {
            operations: Series::new(Count::new),
            durations: Series::new(|| AtomicHistogram::new(&TRANSFORMATIONS)),
            cache_misses: Count::new(),
            key_generation: AtomicHistogram::new(&GENERATIONS),
            calls: Series::new(|| AtomicHistogram::new(&CALLS)),
            invalid_key_ids: Series::new(Count::new),
            data_keys: Series::new(AtomicU64::default),
            fill: AtomicU64::default(),
            key_ids: Mutex::default(),
            status_ids: Mutex::default(),
            reloads: Mutex::default(),
        }
    }
}

impl EncryptionMetrics {
    /// Counts a transformation. `status` is that of its failure, if it failed.
    pub(crate) fn note(
        &self,
        resource: &str,
        used: KeyUse,
        prefix: &str,
        took: Duration,
        status: Option<&'static str>,
    ) {
        let labels = (resource.to_owned(), used, prefix.to_owned(), status.unwrap_or("OK"));
        if let Some(count) = self.operations.get_or_create(&labels, || labels.clone()) {
            count.increment();
        }
        if status.is_none() {
            let labels = (used, labels.2);
            if let Some(times) = self.durations.get_or_create(&labels, || labels.clone()) {
                times.observe_duration(took);
            }
        }
    }

    pub(crate) fn note_call(&self, provider: &str, method: &'static str, code: &'static str, took: Duration) {
        let labels = (provider.to_owned(), method, code);
        if let Some(times) = self.calls.get_or_create(&labels, || labels.clone()) {
            times.observe_duration(took);
        }
    }

    pub(crate) fn note_key_generation(&self, took: Duration) {
        self.key_generation.observe_duration(took);
    }

    pub(crate) fn note_invalid_key_id(&self, provider: &str, fault: &'static str) {
        let labels = (provider.to_owned(), fault);
        if let Some(count) = self.invalid_key_ids.get_or_create(&labels, || labels.clone()) {
            count.increment();
        }
    }

    pub(crate) fn note_data_keys(&self, provider: &str, count: usize) {
        if let Some(size) = self.data_keys.get_or_create(provider, || provider.to_owned()) {
            size.store(count as u64, Ordering::Relaxed);
        }
    }

    pub(crate) fn note_fill(&self, taken: usize, size: usize) {
        self.fill.store(taken as u64 * 1_000_000 / size.max(1) as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_key_id(&self, used: KeyUse, provider: &str, hash: &str, now: SystemTime) {
        let labels = (used, provider.to_owned(), hash.to_owned());
        let mut known = self.key_ids.lock();
        if !known.contains_key(&labels) {
            make_room(&mut known, |used| used.last);
        }
        let uses = known.entry(labels).or_insert(KeyUses { count: 0, last: now });
        *uses = KeyUses { count: uses.count + 1, last: now };
    }

    pub(crate) fn note_status(&self, provider: &str, hash: &str, now: SystemTime) {
        let labels = (provider.to_owned(), hash.to_owned());
        let mut known = self.status_ids.lock();
        if !known.contains_key(&labels) {
            make_room(&mut known, |last| *last);
        }
        known.insert(labels, now);
    }

    pub(crate) fn note_reload(&self, succeeded: bool, now: SystemTime) {
        let mut reloads = self.reloads.lock();
        let count = &mut reloads.counts[usize::from(!succeeded)];
        *count = Some((count.map_or(0, |(count, _)| count) + 1, now));
    }

    pub(crate) fn note_hash(&self, hash: &str) {
        self.reloads.lock().hash = Some(hash.to_owned());
    }

    /// The uses of key IDs: direction, provider, hash, their number, and the time of the last.
    pub fn key_ids(&self) -> Vec<(KeyUse, String, String, u64, SystemTime)> {
        let known = self.key_ids.lock();
        let mut all: Vec<_> = known
            .iter()
            .map(|((used, provider, hash), uses)| (*used, provider.clone(), hash.clone(), uses.count, uses.last))
            .collect();
        all.sort_unstable();
        all
    }

    /// The key IDs that services have stated: provider, hash, and the time of the last statement.
    pub fn status_ids(&self) -> Vec<(String, String, SystemTime)> {
        let known = self.status_ids.lock();
        let mut all: Vec<_> =
            known.iter().map(|((provider, hash), last)| (provider.clone(), hash.clone(), *last)).collect();
        all.sort_unstable();
        all
    }

    /// The reloads of the file by outcome, with the time of the last.
    pub fn reloads(&self) -> Vec<(&'static str, u64, SystemTime)> {
        let reloads = self.reloads.lock();
        let named = ["success", "failure"].into_iter().zip(reloads.counts);
        named.filter_map(|(status, counted)| counted.map(|(count, last)| (status, count, last))).collect()
    }

    /// The hash of the file that is used.
    pub fn hash(&self) -> Option<String> {
        self.reloads.lock().hash.clone()
    }
}

/// Makes room for one more by forgetting the one that was used longest ago.
fn make_room<K: Clone + Eq + std::hash::Hash, V>(known: &mut HashMap<K, V>, last: impl Fn(&V) -> SystemTime) {
    if known.len() >= KEY_IDS
        && let Some(oldest) = known.iter().min_by_key(|(_, value)| last(value)).map(|(key, _)| key.clone())
    {
        known.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_ids_of_a_service_are_bounded() {
        let metrics = EncryptionMetrics::default();
        let at = |second: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(second);
        for number in 0..2 * KEY_IDS as u64 {
            metrics.note_key_id(KeyUse::ToStorage, "p", &number.to_string(), at(number));
            metrics.note_status("p", &number.to_string(), at(number));
        }
        assert_eq!((metrics.key_ids().len(), metrics.status_ids().len()), (KEY_IDS, KEY_IDS));
        assert!(metrics.key_ids().iter().all(|(.., last)| *last >= at(KEY_IDS as u64)));
    }

    #[test]
    fn reloads_are_counted_by_outcome() {
        let metrics = EncryptionMetrics::default();
        assert!(metrics.reloads().is_empty());
        metrics.note_reload(false, SystemTime::UNIX_EPOCH);
        metrics.note_reload(false, SystemTime::UNIX_EPOCH);
        assert_eq!(metrics.reloads(), [("failure", 2, SystemTime::UNIX_EPOCH)]);
    }
}
