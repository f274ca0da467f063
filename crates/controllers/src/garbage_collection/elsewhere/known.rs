//! The last known objects of other servers, and the changes of them that the index has not read yet.
//!
//! The objects of a server that does not answer are kept unchanged. The total number of objects is limited, and a kind
//! whose objects exceed the limit is not followed.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use keelson_meta::ApiError;
use tokio::sync::Semaphore;

use super::{Objects, RemoteKind, RemoteKindNumber, RemoteObject};

/// The most known objects of other servers, including lists in progress. About 300 bytes each.
const MOST_OBJECTS: usize = 250_000;

/// A change on another server.
pub(in super::super) enum Change {
    /// An object was created, changed or deleted.
    Object { number: RemoteKindNumber, before: Option<Arc<RemoteObject>>, after: Option<Arc<RemoteObject>> },
    /// The first list of a kind is complete.
    Listed,
    /// No server has the kind any more.
    Forgotten(RemoteKindNumber),
}

/// All known objects of other servers.
#[derive(Default)]
pub(super) struct RemoteObjects {
    pub(super) collections: HashMap<RemoteKindNumber, KnownCollection>,
    pub(super) changes: VecDeque<Change>,
    objects: usize,
    given: u32,
}

/// The objects of a kind.
pub(super) struct KnownCollection {
    pub(super) resource: Arc<RemoteKind>,
    pub(super) objects: Objects,
    pub(super) permits: Arc<Semaphore>,
    is_listed: bool,
}

impl RemoteObjects {
    /// The kind of this name in a group. Kinds without a complete first list are not found.
    pub(super) fn by_kind(&self, group: &str, kind: &str) -> Option<(RemoteKindNumber, &KnownCollection)> {
        let mut collections = self.collections.iter();
        let found = collections
            .find(|(_, known)| known.is_listed && known.resource.group == group && known.resource.kind == kind);
        found.map(|(number, collection)| (*number, collection))
    }

    pub(super) fn add(&mut self, resource: RemoteKind) -> RemoteKindNumber {
        self.given += 1;
        let number = RemoteKindNumber(self.given);
        let collection = KnownCollection {
            resource: Arc::new(resource),
            objects: Objects::new(),
            permits: super::permits(),
            is_listed: false,
        };
        self.collections.insert(number, collection);
        number
    }

    pub(super) fn forget(&mut self, number: RemoteKindNumber) {
        if let Some(collection) = self.collections.remove(&number) {
            self.objects -= collection.objects.len();
            self.changes.push_back(Change::Forgotten(number));
        }
    }

    /// Checks that the limit allows this many more objects.
    ///
    /// # Errors
    /// 500 when the limit would be exceeded.
    pub(super) fn check_room(&self, more: usize) -> Result<(), ApiError> {
        if self.objects + more <= MOST_OBJECTS {
            return Ok(());
        }
        Err(ApiError::Internal(format!("other servers have more than the {MOST_OBJECTS} objects that are followed")))
    }

    /// Replaces all objects of a kind by a list.
    pub(super) fn replace(&mut self, number: RemoteKindNumber, listed: Objects) {
        let Some(collection) = self.collections.get_mut(&number) else { return };
        let before = std::mem::replace(&mut collection.objects, listed);
        self.objects = self.objects - before.len() + collection.objects.len();
        for (key, old) in &before {
            if !collection.objects.contains_key(key) {
                self.changes.push_back(Change::Object { number, before: Some(old.clone()), after: None });
            }
        }
        for (key, new) in &collection.objects {
            note(&mut self.changes, number, before.get(key), new);
        }
        if !std::mem::replace(&mut collection.is_listed, true) {
            self.changes.push_back(Change::Listed);
        }
    }

    /// Stores the new state of an object.
    ///
    /// # Errors
    /// Errors of [`check_room`](Self::check_room).
    pub(super) fn update(&mut self, number: RemoteKindNumber, object: RemoteObject) -> Result<(), ApiError> {
        let Some(collection) = self.collections.get(&number) else { return Ok(()) };
        let is_new = !collection.objects.contains_key(&object.key);
        if is_new {
            self.check_room(1)?;
        }
        let Some(collection) = self.collections.get_mut(&number) else { return Ok(()) };
        let object = Arc::new(object);
        let before = collection.objects.insert(object.key.clone(), object.clone());
        self.objects += usize::from(is_new);
        note(&mut self.changes, number, before.as_ref(), &object);
        Ok(())
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, number: RemoteKindNumber, object: &RemoteObject) {
        let Some(collection) = self.collections.get_mut(&number) else { return };
        if let Some(before) = collection.objects.remove(&object.key) {
            self.objects -= 1;
            self.changes.push_back(Change::Object { number, before: Some(before), after: None });
        }
    }
}

/// Records a change if the garbage collector needs it.
fn note(
    changes: &mut VecDeque<Change>,
    number: RemoteKindNumber,
    before: Option<&Arc<RemoteObject>>,
    after: &Arc<RemoteObject>,
) {
    let replaced = before.filter(|before| before.uid != after.uid);
    if let Some(replaced) = replaced {
        changes.push_back(Change::Object { number, before: Some(replaced.clone()), after: None });
    }
    let before = before.filter(|_| replaced.is_none());
    if before.is_none_or(|before| before.is_free()) && after.is_free() {
        return;
    }
    changes.push_back(Change::Object { number, before: before.cloned(), after: Some(after.clone()) });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(key: &str, uid: &str, references: Option<&str>) -> RemoteObject {
        RemoteObject {
            key: key.into(),
            uid: uid.to_owned(),
            resource_version: String::new(),
            is_deleted: false,
            finalizers: Vec::new(),
            references: references.map(Into::into),
        }
    }

    /// The changes since the last call: `-` and the uid for a deleted object, `+` and the uid for a new state, `*` for
    /// a first list.
    fn changes(known: &mut RemoteObjects) -> Vec<String> {
        let text = |change| match change {
            Change::Object { before, after, .. } => {
                let gone = before.filter(|_| after.is_none()).map(|it| format!("-{}", it.uid));
                gone.or_else(|| after.map(|it| format!("+{}", it.uid))).unwrap_or_default()
            }
            Change::Listed => "*".to_owned(),
            Change::Forgotten(_) => "x".to_owned(),
        };
        let mut messages: Vec<String> = known.changes.drain(..).map(text).collect();
        messages.sort();
        messages
    }

    fn listed(objects: Vec<RemoteObject>) -> Objects {
        objects.into_iter().map(|object| (object.key.clone(), Arc::new(object))).collect()
    }

    #[test]
    fn only_changes_of_identity_and_owners_are_reported() {
        let mut known = RemoteObjects::default();
        let resource = RemoteKind {
            group: "g".to_owned(),
            version: "v1".to_owned(),
            plural: "things".to_owned(),
            kind: "Thing".to_owned(),
            is_namespaced: false,
        };
        let number = known.add(resource);
        assert!(known.by_kind("g", "Thing").is_none(), "its objects are unknown");
        known.replace(number, listed(vec![object("a", "1", None), object("b", "2", Some("[]"))]));
        assert_eq!(changes(&mut known), ["*", "+2"]);
        assert!(known.by_kind("g", "Thing").is_some());
        known.update(number, object("a", "1", None)).unwrap();
        assert!(changes(&mut known).is_empty());
        known.update(number, object("a", "3", None)).unwrap();
        assert_eq!(changes(&mut known), ["-1"]);
        known.remove(number, &object("a", "3", None));
        known.remove(number, &object("c", "4", None));
        assert_eq!(changes(&mut known), ["-3"]);
        known.replace(number, listed(vec![]));
        assert_eq!((changes(&mut known), known.objects), (vec!["-2".to_owned()], 0));
        known.forget(number);
        assert_eq!(changes(&mut known), ["x"]);
    }

    #[test]
    fn the_number_of_remote_objects_is_limited() {
        let known = RemoteObjects::default();
        assert!(known.check_room(MOST_OBJECTS).is_ok());
        assert!(known.check_room(MOST_OBJECTS + 1).is_err());
    }
}
