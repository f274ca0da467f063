//! Objects that this server is writing, until their events come back from the store.
//!
//! Such an object is well formed and complete, so its event needs neither a check of its text nor a look for what it
//! lacks. It is known by its very bytes: a store that hands on the bytes that it was given saves that work; one that reads
//! them again loses nothing. What is forgotten here is read like everybody else's.

use std::collections::VecDeque;

use bytes::Bytes;
use hashbrown::HashMap;
use keelson_codec::Checked;
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
    at: HashMap<usize, Checked>,
    /// Where, in the order in which they were announced, whether they are still waited for or not.
    order: VecDeque<(usize, usize)>,
    /// Of all in `order`.
    bytes: usize,
}

impl Written {
    /// An object is about to be written. Cost: a lock and an entry of a hash map.
    pub(crate) fn announce(&self, object: Checked) {
        let bytes = object.object().bytes();
        let (place, length) = (place(bytes), object.memory());
        let mut objects = self.0.lock();
        objects.at.insert(place, object);
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
    pub(crate) fn take(&self, value: &Bytes) -> Option<Checked> {
        let mut objects = self.0.lock();
        objects.at.remove(&place(value)).filter(|object| object.object().bytes().len() == value.len())
    }
}

fn place(bytes: &Bytes) -> usize {
    bytes.as_ptr() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Checked {
        let value = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{text}"}}}}"#);
        Checked::parse(value.into()).unwrap()
    }

    fn take(written: &Written, bytes: &Bytes) -> Option<Bytes> {
        written.take(bytes).map(|object| object.object().bytes().clone())
    }

    #[test]
    fn an_object_is_known_by_its_bytes_alone_and_once() {
        let (written, ours) = (Written::default(), object("a"));
        let bytes = ours.object().bytes();
        written.announce(ours.clone());
        assert_eq!(take(&written, &Bytes::copy_from_slice(bytes)), None, "equal bytes of somebody else's");
        assert_eq!(take(&written, &bytes.slice(..5)), None, "a part of them");
        written.announce(ours.clone());
        assert_eq!(take(&written, &bytes.clone()).as_ref(), Some(bytes));
        assert_eq!(take(&written, bytes), None);
    }

    #[test]
    fn what_never_comes_back_does_not_pile_up() {
        let written = Written::default();
        let few: Vec<Checked> = (0..MOST_OBJECTS + 1).map(|number| object(&number.to_string())).collect();
        few.iter().for_each(|object| written.announce(object.clone()));
        let is_there = |object: &Checked| written.take(object.object().bytes()).is_some();
        assert!(!is_there(&few[0]));
        assert!(is_there(&few[1]));
        let large = object(&"x".repeat(MOST_BYTES - 1000));
        written.announce(large.clone());
        assert!(!is_there(&few[2]));
        assert!(is_there(&large));
    }
}
