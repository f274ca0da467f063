//! Tests of the order between a collection's state and its history.
//!
//! A waker runs after both locks are released, so it can read the collection.

use std::task::{Context, Wake};

use bytes::Bytes;
use parking_lot::Mutex;

use super::*;
use crate::packing::Packer;

/// A waker that reads the collection when it is woken.
struct CountingWaker {
    collection: Arc<Collection>,
    seen: Mutex<Vec<(Revision, usize)>>,
}

impl Wake for CountingWaker {
    fn wake(self: Arc<Self>) {
        let snapshot = self.collection.snapshot();
        self.seen.lock().push((snapshot.revision, snapshot.len()));
    }
}

fn put(collection: &Collection, number: usize, revision: u64) -> Change {
    let value = Bytes::from(format!(r#"{{"kind":"K","apiVersion":"v1","metadata":{{"name":"n{number}"}}}}"#));
    let revision = Revision::new(revision);
    let key = format!("n{number}").into();
    let entry = collection.decoder.decode(key, &value, (revision, keelson_storage::Seal::PLAIN)).unwrap();
    Change { key: entry.key.clone(), revision, content: Content::Entry(Arc::new(entry)) }
}

fn empty() -> Arc<Collection> {
    let spec = CollectionSpec {
        prefix: "/registry/k/".to_owned(),
        fields: Vec::new(),
        dispatch: None,
        complete: None,
        typed_items: false,
    };
    Arc::new(Collection::new(spec, Arc::new(Environment::new(u64::MAX, u64::MAX, Packer::off()))))
}

#[test]
fn a_state_that_is_at_hand_is_not_counted_as_rebuilt() {
    let collection = empty();
    collection.apply((0..20).map(|number| put(&collection, number, number as u64 + 1)).collect());
    let rebuilt = |revision| {
        assert_eq!(collection.snapshot_at(Revision::new(revision)).unwrap().len() as u64, revision);
        collection.environment.counters.snapshots_rebuilt.get()
    };
    assert_eq!([rebuilt(20), rebuilt(7), rebuilt(7), rebuilt(9), rebuilt(20)], [0, 1, 1, 2, 2]);
}

#[test]
fn the_writes_of_one_revision_become_visible_together() {
    let collection = empty();
    let looks = Arc::new(CountingWaker { collection: collection.clone(), seen: Mutex::default() });
    let mut cursor = collection.watch(Revision::ZERO, Scope::All).unwrap();
    let waker = looks.clone().into();
    assert!(cursor.poll_next(&mut Context::from_waker(&waker), 1).is_pending());
    let together = 3 * APPLY_EVENTS;
    let mut changes: Vec<Change> = (0..together).map(|number| put(&collection, number, 1)).collect();
    changes.push(put(&collection, together, 2));
    collection.apply(changes);
    assert_eq!(*looks.seen.lock(), [(Revision::new(1), together)]);
    assert_eq!(collection.len(), together + 1);
}
