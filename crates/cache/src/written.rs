//! Objects that this server is writing, until their events come back from the store.
//!
//! Such an object is well formed and complete, so its event needs neither a check of its text nor a look for what it
//! lacks. It is known by its very bytes: a store that hands on the bytes that it was given saves that work; one that reads
//! them again loses nothing. What is forgotten here is read like everybody else's.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use keelson_codec::StoredObject;
use parking_lot::Mutex;

/// How many objects are remembered, and how many bytes they have together: far more than are written at a time, and what
/// is kept in vain where the store hands on other bytes.
const MOST_OBJECTS: usize = 1024;
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// What a server is writing, to whatever collection.
#[derive(Default)]
pub(crate) struct Written(Mutex<Objects>);

#[derive(Default)]
struct Objects {
    /// By where their bytes are. Each holds its bytes, so no others can be there meanwhile.
    at: HashMap<usize, StoredObject>,
    /// Where, in the order in which they were announced, whether they are still waited for or not.
    order: VecDeque<(usize, usize)>,
    /// Of all in `order`.
    bytes: usize,
}

impl Written {
    /// An object is about to be written. Cost: a lock and an entry of a hash map.
    pub(crate) fn announce(&self, object: &StoredObject) {
        let (place, length) = (place(object.bytes()), object.bytes().len());
        let mut objects = self.0.lock();
        objects.at.insert(place, object.clone());
        objects.order.push_back((place, length));
        objects.bytes += length;
        while objects.order.len() > MOST_OBJECTS || objects.bytes > MOST_BYTES {
            let Some((oldest, length)) = objects.order.pop_front() else { break };
            // Another may stand in its place meanwhile, which is then read like a stranger's.
            objects.at.remove(&oldest);
            objects.bytes -= length;
        }
    }

    /// The object that has these very bytes, if it was announced. It is forgotten with that.
    pub(crate) fn take(&self, value: &Bytes) -> Option<StoredObject> {
        let mut objects = self.0.lock();
        objects.at.remove(&place(value)).filter(|object| object.bytes().len() == value.len())
    }
}

fn place(bytes: &Bytes) -> usize {
    bytes.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> StoredObject {
        let value = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{text}"}}}}"#);
        StoredObject::parse(value.into()).unwrap()
    }

    #[test]
    fn an_object_is_known_by_its_bytes_alone_and_once() {
        let (written, ours) = (Written::default(), object("a"));
        written.announce(&ours);
        assert_eq!(written.take(&Bytes::copy_from_slice(ours.bytes())), None, "equal bytes of somebody else's");
        assert_eq!(written.take(&ours.bytes().slice(..5)), None, "a part of them");
        written.announce(&ours);
        assert_eq!(written.take(&ours.bytes().clone()), Some(ours.clone()));
        assert_eq!(written.take(ours.bytes()), None);
    }

    #[test]
    fn what_never_comes_back_does_not_pile_up() {
        let written = Written::default();
        let few: Vec<StoredObject> = (0..MOST_OBJECTS + 1).map(|number| object(&number.to_string())).collect();
        few.iter().for_each(|object| written.announce(object));
        assert_eq!(written.take(few[0].bytes()), None);
        assert!(written.take(few[1].bytes()).is_some());
        let large = object(&"x".repeat(MOST_BYTES - 1000));
        written.announce(&large);
        assert_eq!(written.take(few[2].bytes()), None);
        assert!(written.take(large.bytes()).is_some());
    }
}
