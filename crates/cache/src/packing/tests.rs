//! Tests of single objects in a pool, with real time and without the worker's thread.
//!
//! The model of the cache covers whole collections (`tests/model.rs`).

use std::time::Duration;

use bytes::Bytes;
use keelson_codec::FieldPath;
use keelson_meta::Revision;
use keelson_storage::{KeyValue, StoreKey};
use tokio_util::sync::CancellationToken;

use super::dictionary::Encoder;
use super::*;
use crate::shared::Shared;
use crate::spec::CollectionSpec;

const TICK: Duration = Duration::from_millis(20);

fn settings() -> Packing {
    Packing { tick: TICK, after_ticks: 2, from_objects: 10, from_bytes: 1000, ..Packing::default() }
}

struct World {
    packer: Arc<Packer>,
    collection: Arc<Collection>,
}

impl World {
    fn new(settings: Packing) -> Self {
        let packer = Arc::new(Packer::new(settings, Supervisor::default(), CancellationToken::new()));
        let shared = Shared::new(u64::MAX, 0, packer.clone());
        let collection = shared.collection(CollectionSpec {
            prefix: "/registry/pods/".to_owned(),
            fields: vec![FieldPath::parse("spec.nodeName")],
            dispatch: None,
            complete: None,
            typed_items: false,
        });
        Self { packer, collection }
    }

    fn entry(&self, number: usize, text: &str) -> Arc<Entry> {
        let value = object(number, text);
        let key = StoreKey::new(format!("/registry/pods/a/pod-{number}"));
        self.collection.decode(&KeyValue::new(key, Bytes::from(value), Revision::new(7))).unwrap()
    }

    /// Entries of a collection with a dictionary.
    fn trained(settings: Packing) -> (Self, Vec<Arc<Entry>>) {
        let world = Self::new(settings);
        let entries: Vec<_> = (0..20).map(|number| world.entry(number, "the same text in all objects")).collect();
        world.collection.pool().admit_loaded(&entries);
        assert!(world.collection.pool().encoder().is_some());
        (world, entries)
    }

    fn pack(&self, entry: &Entry) -> PackResult {
        let pool = self.collection.pool();
        pool.pack(entry, &pool.encoder().unwrap())
    }
}

fn object(number: usize, text: &str) -> String {
    let owned = "\"f:field\":{},".repeat(20);
    let metadata = format!(
        r#"{{"name":"pod-{number}","namespace":"a","uid":"u-{number}","labels":{{"app":"web"}},"ownerReferences":[{{"uid":"o"}}],"managedFields":[{{"manager":"m","fieldsV1":{{{owned}"f:last":{{}}}}}}]}}"#
    );
    let text = text.repeat(10);
    format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{metadata},"spec":{{"nodeName":"n1","text":"{text}"}}}}"#)
}

#[test]
fn a_packed_object_is_the_same_object_and_takes_less_memory() {
    let (world, entries) = World::trained(settings());
    for (number, entry) in entries.iter().enumerate() {
        let (whole, list_bytes) = (object(number, "the same text in all objects"), entry.list_bytes());
        let result = world.pack(entry);
        assert!(matches!(result, PackResult::Packed { plain, packed } if packed * 4 < plain), "{result:?}");
        assert!(entry.is_packed() && entry.plain_object().is_none());
        assert_eq!((entry.owner_references(), entry.field(0)), (Some(r#"[{"uid":"o"}]"#), "n1"));
        assert_eq!((entry.size(), entry.list_bytes()), (whole.len(), list_bytes));
        assert!(entry.header(|header| (header.kind(), header.api_version()) == ("Pod", "v1")));
        assert!(entry.is_packed(), "nothing of this decodes");
        assert_eq!(entry.object().text(), whole);
        let mut item = Vec::new();
        entry.write_item(&mut item);
        assert_eq!(item.len() as u64, list_bytes);
        assert_eq!(world.pack(entry), PackResult::Nothing, "it is packed already");
    }
    let stats = world.packer.stats();
    assert_eq!((stats.packed_objects, stats.packs, stats.plain_bytes), (20, 20, 0));
    assert!(stats.packed_bytes > 0 && stats.misses == 40);
    drop(entries);
    let stats = world.packer.stats();
    assert_eq!((stats.packed_objects, stats.packed_bytes, stats.plain_bytes), (0, 0, 0));
}

#[test]
fn reads_in_two_ticks_make_an_object_plain() {
    let (world, entries) = World::trained(settings());
    let entry = &entries[0];
    world.pack(entry);
    let read_until_plain = || {
        for reads in 1.. {
            drop(entry.object());
            if !entry.is_packed() {
                return reads;
            }
            std::thread::sleep(TICK / 4);
        }
        0
    };
    let first = world.packer.now();
    assert!(read_until_plain() > 1 && world.packer.now() > first);
    assert_eq!(world.packer.stats().promotions, 1);
    // Then it is queued again.
    world.pack(entry);
    assert!(entry.is_packed());
}

#[test]
fn objects_stay_packed_without_room_for_plain_ones() {
    let (world, entries) = World::trained(Packing { plain_bytes: 0, ..settings() });
    world.collection.pool().prepare(&world.collection);
    world.collection.pool().admit_loaded(&entries);
    assert!(entries.iter().all(|entry| entry.is_packed()), "a load without room packs at once");
    let one_is_plain = world.entry(100, "another text");
    for _ in 0..3 {
        entries.iter().for_each(|entry| drop(entry.object()));
        std::thread::sleep(TICK);
        world.packer.measure();
    }
    assert!(entries.iter().all(|entry| entry.is_packed()));
    drop(one_is_plain);
}

#[test]
fn objects_that_are_held_or_pinned_stay_plain() {
    let (world, entries) = World::trained(settings());
    let held = entries[0].object();
    assert_eq!(world.pack(&entries[0]), PackResult::Busy);
    drop(held);
    let pinned = entries[1].pinned_object();
    assert_eq!(world.pack(&entries[1]), PackResult::Nothing);
    assert_eq!(pinned.skeleton().as_ptr(), entries[1].object().skeleton().as_ptr());
    world.pack(&entries[2]);
    let pinned = entries[2].pinned_object();
    assert_eq!(pinned.skeleton().as_ptr(), entries[2].object().skeleton().as_ptr());
    assert_eq!((world.pack(&entries[2]), entries[2].is_packed()), (PackResult::Nothing, false));
}

#[test]
fn text_that_does_not_compress_is_refused() {
    let samples: Vec<Bytes> = (0..100).map(|number| object(number, "a text").into()).collect();
    let encoder = Encoder::train(&samples);
    let mut state = 1_u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    };
    let noise: Vec<u8> = (0..4000).map(|_| noise()).collect();
    assert!(encoder.pack(&noise).is_none());
    for length in [0, 1, 2, 100] {
        // A short text may be refused, and is never changed.
        if let Some(packed) = encoder.pack(&noise[..length]) {
            assert_eq!(encoder.form(b"").unpack(&packed, length), noise[..length]);
        }
    }
    let packed = encoder.pack(&samples[3]).unwrap();
    assert!(packed.len() * 4 < samples[3].len(), "{} bytes", packed.len());
    assert_eq!(encoder.form(b"").unpack(&packed, samples[3].len()), samples[3]);
}
