//! The layout of keys in etcd, including keelson's own keys without objects.
//!
//! As in Kubernetes, the store's keys are `/registry/...`. In etcd, the configured prefix replaces `/registry`. This
//! keeps the order, since all keys have the same prefix.

use keelson_storage::StoreKey;

/// The part that the configured prefix replaces.
const ROOT: &str = "/registry";
/// The prefix of all keys of the store.
const ALL: &str = "/registry/";

/// The key by which API servers of all kinds coordinate compaction. Its version counts the compactions, and its value
/// is the last compacted revision. As upstream, it is outside of every prefix.
pub(crate) const COMPACTION_KEY: &[u8] = b"compact_rev_key";

/// The part after the prefix in keelson's own keys. No API group starts with a full stop.
const RESERVED: &str = "/.keelson/";
/// Written to cause an event if etcd can't report the progress of a watch. Below [`RESERVED`].
const TICK: &str = "tick";
/// Written to raise the revision. Below [`RESERVED`].
const RAISED: &str = "raised";
/// Contains the number of the store's format, unless it is 1. Below [`RESERVED`].
const FORMAT: &str = "format";
/// Contains the name of the store. Below [`RESERVED`].
const NAME: &str = "name";

/// Converts keys of the store to keys of etcd and back.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

impl Keys {
    /// Creates the keys below a prefix such as `/registry`. It starts with a slash and does not end in one.
    pub(crate) const fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Returns the key in etcd. Keys outside of `/registry` keep their whole path after the prefix.
    pub(crate) fn encode(&self, key: &StoreKey) -> Vec<u8> {
        let path = key.as_str();
        let below = path.strip_prefix(ROOT).unwrap_or(path);
        [self.prefix.as_bytes(), below.as_bytes()].concat()
    }

    /// Returns the store's key, if a key of etcd belongs to the store.
    pub(crate) fn decode(&self, key: &[u8]) -> Option<StoreKey> {
        let below = std::str::from_utf8(key).ok()?.strip_prefix(&self.prefix)?;
        Some(StoreKey::new(format!("{ROOT}{below}")))
    }

    /// Returns the start of the range of all keys, and its end.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        (format!("{}/", self.prefix).into_bytes(), format!("{}0", self.prefix).into_bytes())
    }

    /// The key written to cause an event.
    pub(crate) fn tick(&self) -> Vec<u8> {
        format!("{}{RESERVED}{TICK}", self.prefix).into_bytes()
    }

    /// The key written to raise the revision.
    pub(crate) fn raised(&self) -> Vec<u8> {
        format!("{}{RESERVED}{RAISED}", self.prefix).into_bytes()
    }

    /// The key with the store's format.
    pub(crate) fn format(&self) -> Vec<u8> {
        format!("{}{RESERVED}{FORMAT}", self.prefix).into_bytes()
    }

    /// The key with the store's name.
    pub(crate) fn name(&self) -> Vec<u8> {
        format!("{}{RESERVED}{NAME}", self.prefix).into_bytes()
    }

    /// The ranges of all keys with objects.
    pub(crate) fn objects(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.segments(&StoreKey::new(ALL), &StoreKey::prefix_end(ALL))
    }

    /// Returns true for one of keelson's own keys without an object.
    pub(crate) fn is_reserved(&self, key: &[u8]) -> bool {
        key.strip_prefix(self.prefix.as_bytes()).is_some_and(|below| below.starts_with(RESERVED.as_bytes()))
    }

    /// Returns the range without the reserved keys, in zero to two parts, ascending.
    pub(crate) fn segments(&self, from: &StoreKey, to: &StoreKey) -> Vec<(Vec<u8>, Vec<u8>)> {
        let (from, to) = (self.encode(from), self.encode(to));
        let reserved = format!("{}{RESERVED}", self.prefix).into_bytes();
        let behind = [&reserved[..reserved.len() - 1], b"0"].concat();
        let before = (from.clone(), to.clone().min(reserved));
        let after = (from.max(behind), to);
        [before, after].into_iter().filter(|(from, to)| from < to).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefix: &str) -> Keys {
        Keys::new(prefix.to_owned())
    }

    #[track_caller]
    fn check(prefix: &str, stored: &str, in_etcd: &str) {
        let key = StoreKey::new(stored);
        assert_eq!(String::from_utf8(keys(prefix).encode(&key)).unwrap(), in_etcd);
        assert_eq!(keys(prefix).decode(in_etcd.as_bytes()), Some(key));
    }

    #[test]
    fn the_prefix_takes_the_place_of_registry() {
        check("/registry", "/registry/pods/ns/web-0", "/registry/pods/ns/web-0");
        check("/clusters/one", "/registry/minions/n1", "/clusters/one/minions/n1");
        check("/clusters/one", "/registry0", "/clusters/one0");
        assert_eq!(keys("/registry").decode(b"/other/x"), None);
        assert_eq!(keys("/registry").decode(b"/registry/\xff"), None);
    }

    #[test]
    fn ranges_leave_the_reserved_keys_out() {
        let segments = |from: &str, to: &str| -> Vec<(String, String)> {
            let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
            let found = keys("/p").segments(&StoreKey::new(from), &StoreKey::new(to));
            found.into_iter().map(|(from, to)| (text(from), text(to))).collect()
        };
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(segments("/registry/pods/", "/registry/pods0"), [pair("/p/pods/", "/p/pods0")]);
        assert_eq!(segments("/registry/", "/registry0"), [pair("/p/", "/p/.keelson/"), pair("/p/.keelson0", "/p0")]);
        assert_eq!(segments("/registry/z", "/registry/a"), []);
        assert!(keys("/p").is_reserved(&keys("/p").tick()) && keys("/p").is_reserved(&keys("/p").format()));
        assert!(!keys("/p").is_reserved(b"/p/pods/x"));
    }
}
