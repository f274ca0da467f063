//! The part of packing that belongs to one collection: its dictionary, and the sizes of its objects.
//!
//! A collection without a dictionary is small, and its objects stay plain. It gets one when it has grown, or during its
//! load.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use keelson_codec::stored::StoredObject;
use parking_lot::{Mutex, RwLock};

use super::dictionary::{Dictionary, Encoder};
use super::{PackResult, Packer};
use crate::collection::Collection;
use crate::entry::Entry;
use crate::snapshot::Snapshot;

/// The number of objects from which a dictionary is trained.
const SAMPLES: usize = 256;
/// The total size of the samples in bytes.
const SAMPLE_BYTES: usize = 2 << 20;
/// The part of a large object that is a sample, in bytes.
const SAMPLE_LENGTH: usize = 32 << 10;
/// Of this many loaded objects, one is a sample.
const SAMPLED: usize = 2;
/// The bytes of plain text after which the compression ratio is compared with the best one.
const WINDOW_BYTES: u64 = 4 << 20;
/// A dictionary is outdated if objects take this many per cent of their best compressed size.
const OUTDATED_PER_CENT: u64 = 150;
/// The least time between two trainings for one collection, in ticks.
const TRAINING_TICKS: u32 = 60;
/// The number of dictionaries that the objects of one collection may use at once.
const LIVE_DICTIONARIES: usize = 4;

/// The packing of one collection.
pub(crate) struct Pool {
    packer: Arc<Packer>,
    /// The size of the plain objects in bytes.
    plain: AtomicU64,
    /// Samples of the load in progress.
    loading: Mutex<Option<Box<Samples>>>,
    /// The state of a large collection.
    large: OnceLock<Box<Large>>,
    is_requested: AtomicBool,
}

#[derive(Default)]
struct Samples {
    texts: Vec<Bytes>,
    bytes: usize,
    objects: usize,
    object_bytes: u64,
}

struct Large {
    encoder: RwLock<Arc<Encoder>>,
    collection: OnceLock<Weak<Collection>>,
    dictionaries: Mutex<Vec<Weak<Dictionary>>>,
    window: Mutex<Window>,
}

/// The compression since the last comparison.
struct Window {
    plain: u64,
    packed: u64,
    /// The best size of a packed object so far, in parts of a thousand of the plain one.
    best: u64,
    is_outdated: bool,
    trained_at: u32,
}

impl Samples {
    fn add(&mut self, object: &StoredObject) {
        if self.texts.len() < SAMPLES && self.bytes < SAMPLE_BYTES {
            let text = &object.skeleton()[object.header().bytes().len()..];
            let text = &text[..text.len().min(SAMPLE_LENGTH)];
            self.bytes += text.len();
            self.texts.push(Bytes::copy_from_slice(text));
        }
    }
}

impl Pool {
    pub(crate) fn new(packer: Arc<Packer>) -> Self {
        Self {
            packer,
            plain: AtomicU64::new(0),
            loading: Mutex::default(),
            large: OnceLock::new(),
            is_requested: AtomicBool::new(false),
        }
    }

    pub(super) const fn packer(&self) -> &Arc<Packer> {
        &self.packer
    }

    /// The dictionary, if the collection is large.
    pub(super) fn encoder(&self) -> Option<Arc<Encoder>> {
        self.large.get().map(|large| large.encoder.read().clone())
    }

    /// The tick of a write.
    pub(super) fn tick(&self) -> u32 {
        if self.large.get().is_some() { self.packer.now() } else { self.packer.last_tick() }
    }

    pub(super) fn plain_bytes(&self) -> u64 {
        self.plain.load(Ordering::Relaxed)
    }

    pub(super) fn add_plain(&self, bytes: usize) {
        self.plain.fetch_add(bytes as u64, Ordering::Relaxed);
        self.packer.counters.plain_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn remove_plain(&self, bytes: usize) {
        self.plain.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.packer.counters.plain_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn add_packed(&self, bytes: usize) {
        self.packer.counters.packed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.packer.counters.packed_objects.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn remove_packed(&self, bytes: usize) {
        self.packer.counters.packed_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        self.packer.counters.packed_objects.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn note_promotion(&self) {
        let before = self.packer.counters.promotions.fetch_add(1, Ordering::Relaxed);
        // The limit is exceeded by a few objects only.
        if before.is_multiple_of(super::MEASURED_PROMOTIONS) {
            self.packer.measure();
        }
    }

    /// Takes an entry that was read from the store into the pool.
    pub(crate) fn admit(&self, entry: &Arc<Entry>) {
        if self.packer.settings.at_once {
            let encoder = self.encoder().unwrap_or_else(|| {
                let mut samples = Samples::default();
                samples.add(&entry.object());
                self.train(&samples.texts)
            });
            self.pack(entry, &encoder);
        } else if self.large.get().is_some() {
            self.packer.enqueue(Arc::downgrade(entry), entry.slot().read_at());
        }
    }

    /// Takes a part of the load of the collection. Once there is a dictionary and no room for plain objects, they are
    /// packed at once, so that a load does not need more memory than its result. Otherwise the worker packs them later.
    ///
    /// Cost: the training of a dictionary, about 25 ms, for one of the parts. So the caller must not be a thread of the
    /// runtime.
    pub(crate) fn admit_loaded(&self, entries: &[Arc<Entry>]) {
        let settings = self.packer.settings;
        let Some(encoder) = self.encoder() else {
            let mut loading = self.loading.lock();
            let samples = loading.get_or_insert_default();
            for entry in entries {
                if samples.objects.is_multiple_of(SAMPLED) {
                    samples.add(&entry.object());
                }
                samples.objects += 1;
                samples.object_bytes += entry.list_bytes();
            }
            if samples.objects >= settings.from_objects && samples.object_bytes >= settings.from_bytes {
                let samples = loading.take().unwrap_or_default();
                if self.large.get().is_none() {
                    self.train(&samples.texts);
                }
            }
            return;
        };
        self.packer.measure();
        if self.packer.is_full() {
            for entry in entries {
                self.pack(entry, &encoder);
            }
        }
    }

    /// Requests the packing of the collection once it is large.
    pub(crate) fn consider(&self, collection: &Arc<Collection>, loaded: bool) {
        if loaded {
            self.loading.lock().take();
        }
        if !loaded && self.is_requested.load(Ordering::Relaxed) {
            return;
        }
        let settings = self.packer.settings;
        let (objects, bytes) = collection.extent();
        if objects >= settings.from_objects && bytes >= settings.from_bytes {
            self.is_requested.store(true, Ordering::Relaxed);
            self.packer.request(collection);
        }
    }

    /// Trains a dictionary. The objects use it from now on.
    fn train(&self, samples: &[Bytes]) -> Arc<Encoder> {
        let encoder = Arc::new(Encoder::train(samples));
        self.packer.counters.trainings.fetch_add(1, Ordering::Relaxed);
        let large = self.large.get_or_init(|| {
            Box::new(Large {
                encoder: RwLock::new(encoder.clone()),
                collection: OnceLock::new(),
                dictionaries: Mutex::default(),
                window: Mutex::new(Window { plain: 0, packed: 0, best: u64::MAX, is_outdated: false, trained_at: 0 }),
            })
        });
        *large.encoder.write() = encoder.clone();
        large.dictionaries.lock().push(Arc::downgrade(encoder.dictionary()));
        let mut window = large.window.lock();
        *window = Window { best: u64::MAX, plain: 0, packed: 0, is_outdated: false, trained_at: self.packer.now() };
        drop(window);
        encoder
    }

    /// Trains the dictionary of a collection that has none, or an outdated one.
    pub(super) fn prepare(self: &Arc<Self>, collection: &Arc<Collection>) {
        let is_outdated = self.large.get().is_some_and(|large| large.window.lock().is_outdated);
        if self.large.get().is_none() || is_outdated {
            let samples = samples_of(&collection.snapshot());
            if samples.is_empty() {
                return;
            }
            self.train(&samples);
        }
        if let Some(large) = self.large.get()
            && large.collection.set(Arc::downgrade(collection)).is_ok()
        {
            self.packer.pools.lock().push(Arc::downgrade(self));
        }
    }

    /// Packs an object, and notes the success.
    pub(super) fn pack(&self, entry: &Entry, encoder: &Encoder) -> PackResult {
        let result = entry.slot().pack(encoder);
        match result {
            PackResult::Packed { plain, packed } => {
                self.packer.counters.packs.fetch_add(1, Ordering::Relaxed);
                self.note_ratio(plain, packed);
            }
            PackResult::Incompressible { plain } => self.note_ratio(plain, plain),
            PackResult::Nothing | PackResult::Busy => {}
        }
        result
    }

    /// Requests a new dictionary if objects compress worse than before.
    fn note_ratio(&self, plain: u64, packed: u64) {
        let Some(large) = self.large.get() else { return };
        let mut window = large.window.lock();
        window.plain += plain;
        window.packed += packed;
        if window.plain < WINDOW_BYTES {
            return;
        }
        let ratio = window.packed * 1000 / window.plain;
        (window.plain, window.packed) = (0, 0);
        window.best = window.best.min(ratio.max(1));
        let is_worse = ratio * 100 > window.best * OUTDATED_PER_CENT;
        let is_early = self.packer.last_tick() < window.trained_at + TRAINING_TICKS;
        if !is_worse || is_early || window.is_outdated {
            return;
        }
        let mut dictionaries = large.dictionaries.lock();
        dictionaries.retain(|dictionary| dictionary.strong_count() > 0);
        if dictionaries.len() >= LIVE_DICTIONARIES {
            return;
        }
        window.is_outdated = true;
        drop((dictionaries, window));
        if let Some(collection) = large.collection.get().and_then(Weak::upgrade) {
            self.packer.request(&collection);
        }
    }

    /// The number of dictionaries in use.
    pub(super) fn dictionaries(&self) -> u64 {
        self.large.get().map_or(0, |large| {
            large.dictionaries.lock().iter().filter(|dictionary| dictionary.strong_count() > 0).count() as u64
        })
    }
}

/// Texts of objects from all parts of a snapshot. Plain ones are preferred: they were in use lately, so the next objects
/// will be like them.
fn samples_of(snapshot: &Snapshot) -> Vec<Bytes> {
    let step = (snapshot.len() / (4 * SAMPLES)).max(1);
    let spread: Vec<&Arc<Entry>> = (0..snapshot.len()).step_by(step).filter_map(|rank| snapshot.nth(rank)).collect();
    let (plain, packed): (Vec<_>, Vec<_>) = spread.into_iter().partition(|entry| !entry.slot().is_packed());
    let mut samples = Samples::default();
    let each = (plain.len() / SAMPLES).max(1);
    for entry in plain.iter().step_by(each).chain(&packed) {
        samples.add(&entry.object());
    }
    samples.texts
}
