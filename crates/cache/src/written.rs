//! The pending writes of this server, whose events the store has not returned yet.
//!
//! The server validates and defaults an object before it writes it, so the event of the write needs neither. An event
//! belongs to a pending write if key and bytes are equal. Some stores return the same memory, others a copy. Comparing
//! the bytes costs little compared with validation. All other events are decoded like those of another server.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hashbrown::HashMap;
use keelson_codec::ParsedObject;
use keelson_storage::StoreKey;
use parking_lot::Mutex;

/// The maximum number and the maximum total size of remembered objects. Concurrent writes need far less. Objects whose
/// event never comes are dropped at these limits.
const MOST_OBJECTS: usize = 1024;
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The identity of a collection's decoder. It is assigned when the decoder is created, and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecoderId(u64);

impl DecoderId {
    /// A new identity.
    pub(crate) fn next() -> Self {
        static LAST: AtomicU64 = AtomicU64::new(0);
        Self(LAST.fetch_add(1, Ordering::Relaxed))
    }
}

/// The pending writes of this server to all collections.
#[derive(Default)]
pub(crate) struct WrittenObjects(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    /// The newest pending object of each key, with its number.
    newest: HashMap<StoreKey, Newest>,
    /// All registered objects in order, pending or not.
    order: VecDeque<Announced>,
    /// The total size of `order`.
    bytes: usize,
    /// The number of registered objects so far.
    count: u64,
}

struct Newest {
    number: u64,
    object: ParsedObject,
    by: DecoderId,
}

struct Announced {
    key: StoreKey,
    number: u64,
    bytes: usize,
}

impl WrittenObjects {
    /// Registers an object that is about to be written. The object must be complete for this decoder. Cost: a lock and
    /// an entry of a hash map.
    pub(crate) fn announce(&self, key: StoreKey, object: ParsedObject, by: DecoderId) {
        let mut objects = self.0.lock();
        objects.count += 1;
        let announced = Announced { key: key.clone(), number: objects.count, bytes: object.memory() };
        objects.newest.insert(key, Newest { number: announced.number, object, by });
        objects.bytes += announced.bytes;
        objects.order.push_back(announced);
        while objects.order.len() > MOST_OBJECTS || objects.bytes > MOST_BYTES {
            let Some(oldest) = objects.order.pop_front() else { break };
            objects.bytes -= oldest.bytes;
            if objects.newest.get(&oldest.key).is_some_and(|newest| newest.number == oldest.number) {
                objects.newest.remove(&oldest.key);
            }
        }
    }

    /// Removes and returns the pending object of a key if it has these bytes and this decoder. Another decoder may
    /// complete the object differently. Cost: a lock, a lookup, and a comparison of the bytes if the store returns a
    /// copy.
    pub(crate) fn take(&self, key: &StoreKey, value: &Bytes, by: DecoderId) -> Option<ParsedObject> {
        let mut objects = self.0.lock();
        let newest = objects.newest.get(key).filter(|newest| newest.by == by)?;
        let written = newest.object.object().bytes();
        let is_same = written.len() == value.len() && (written.as_ptr() == value.as_ptr() || written == value);
        if is_same { objects.newest.remove(key).map(|newest| newest.object) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> StoreKey {
        StoreKey::new(format!("/registry/configmaps/default/{name}"))
    }

    fn object(text: &str) -> ParsedObject {
        let value = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{text}"}}}}"#);
        ParsedObject::parse(value.into()).unwrap()
    }

    const READER: DecoderId = DecoderId(u64::MAX);

    fn take(written: &WrittenObjects, name: &str, bytes: &Bytes) -> Option<Bytes> {
        written.take(&key(name), bytes, READER).map(|object| object.object().bytes())
    }

    #[test]
    fn an_object_is_known_by_its_key_and_bytes_and_once() {
        let (written, ours) = (WrittenObjects::default(), object("a"));
        let bytes = &ours.object().bytes();
        written.announce(key("a"), ours.clone(), READER);
        assert_eq!(take(&written, "b", bytes), None, "the same under another key");
        assert_eq!(take(&written, "a", &bytes.slice(..5)), None, "a part of it");
        assert_eq!(take(&written, "a", &object("b").object().bytes()), None, "what another wrote under the key");
        // The store returned copies. The object still refers to the bytes that were written.
        let found = take(&written, "a", &Bytes::copy_from_slice(bytes));
        assert_eq!(found.map(|found| found.as_ptr()), Some(bytes.as_ptr()));
        assert_eq!(take(&written, "a", bytes), None);
        written.announce(key("a"), ours.clone(), DecoderId(0));
        assert_eq!(take(&written, "a", bytes), None, "it is read in another way since");
    }

    #[test]
    fn frequent_writes_stay_known_after_their_predecessors() {
        let written = WrittenObjects::default();
        for number in 0..=MOST_OBJECTS {
            written.announce(key("a"), object(&number.to_string()), READER);
        }
        let last = object(&MOST_OBJECTS.to_string());
        assert!(take(&written, "a", &last.object().bytes()).is_some());
    }

    #[test]
    fn hints_without_events_are_limited() {
        let written = WrittenObjects::default();
        let names: Vec<String> = (0..=MOST_OBJECTS).map(|number| number.to_string()).collect();
        let few: Vec<ParsedObject> = names.iter().map(|name| object(name)).collect();
        names.iter().zip(&few).for_each(|(name, object)| written.announce(key(name), object.clone(), READER));
        let is_there = |name: &str, object: &ParsedObject| take(&written, name, &object.object().bytes()).is_some();
        assert!(!is_there(&names[0], &few[0]));
        assert!(is_there(&names[1], &few[1]));
        let large = object(&"x".repeat(MOST_BYTES - 1000));
        written.announce(key("large"), large.clone(), READER);
        assert!(!is_there(&names[2], &few[2]));
        assert!(is_there("large", &large));
    }
}
