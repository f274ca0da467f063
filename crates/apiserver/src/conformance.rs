//! Conformance tests for a program's own store.
//!
//! Use it in the program's tests: `check(&store, |name| ...).await` on an empty store.

use std::fmt::Debug;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kube::Resource;

use crate::external::{ObjectKey, ObjectStore, StoreFault};

/// The time limit for the notification of a change.
const TOLD_WITHIN: Duration = Duration::from_secs(30);
/// The number of concurrent writers of one object.
const WRITERS: usize = 8;

/// Checks that an empty store satisfies [`ObjectStore`]. `object` returns a new object with a name, without a version,
/// in any namespace or none.
///
/// # Panics
/// The store violates the contract. The text names the violation.
pub async fn check<K, S>(store: &S, object: impl Fn(&str) -> K)
where
    K: Resource + Clone + Debug + Send + Sync,
    S: ObjectStore<K>,
{
    let mut changes = store.watch();
    check_life(store, &mut changes, &object).await;
    check_refusals(store, &object).await;
    check_writers(store, &object).await;
}

/// Creates, changes and deletes an object.
async fn check_life<K, S>(store: &S, changes: &mut BoxStream<'static, ObjectKey>, object: &impl Fn(&str) -> K)
where
    K: Resource + Clone + Debug + Send + Sync,
    S: ObjectStore<K>,
{
    let new = object("life");
    let key = key_of(&new);
    assert!(store.get(&key).await.expect("get").is_none(), "an empty store has nothing");
    assert_eq!(store.list().await.expect("list").len(), 0, "an empty store has nothing");
    let first = store.write(&key, None, Some(&new)).await.expect("an object that is not there can be made");
    assert_change(changes, &key).await;
    check_version(store, &key, &first).await;
    let second = store.write(&key, Some(&first), Some(&new)).await.expect("an object can be written");
    assert_change(changes, &key).await;
    assert_ne!(first, second, "each write has a version of its own");
    check_version(store, &key, &second).await;
    store.write(&key, Some(&second), None).await.expect("an object can be deleted");
    assert_change(changes, &key).await;
    assert!(store.get(&key).await.expect("get").is_none(), "the deleted object is gone");
    assert_eq!(store.list().await.expect("list").len(), 0, "the deleted object is gone");
}

/// Writes that expect another version than the stored one change nothing.
async fn check_refusals<K, S>(store: &S, object: &impl Fn(&str) -> K)
where
    K: Resource + Clone + Debug + Send + Sync,
    S: ObjectStore<K>,
{
    let new = object("refusals");
    let key = key_of(&new);
    let conflict = Err(StoreFault::Conflict);
    assert_eq!(store.write(&key, Some("x"), Some(&new)).await, conflict, "a missing object has no version");
    assert_eq!(store.write(&key, Some("x"), None).await, conflict, "a missing object can't be deleted");
    let first = store.write(&key, None, Some(&new)).await.expect("an object can be made");
    assert_eq!(store.write(&key, None, Some(&new)).await, conflict, "an existing object can't be created");
    let second = store.write(&key, Some(&first), Some(&new)).await.expect("an object can be written");
    assert_eq!(store.write(&key, Some(&first), Some(&new)).await, conflict, "it has changed meanwhile");
    assert_eq!(store.write(&key, Some(&first), None).await, conflict, "it has changed meanwhile");
    check_version(store, &key, &second).await;
    store.write(&key, Some(&second), None).await.expect("an object can be deleted");
}

/// Of several writers that expect one version, one succeeds.
async fn check_writers<K, S>(store: &S, object: &impl Fn(&str) -> K)
where
    K: Resource + Clone + Debug + Send + Sync,
    S: ObjectStore<K>,
{
    let new = object("writers");
    let key = key_of(&new);
    let version = store.write(&key, None, Some(&new)).await.expect("an object can be made");
    let writes = (0..WRITERS).map(|_| store.write(&key, Some(&version), Some(&new)));
    let outcomes = futures::future::join_all(writes).await;
    let taken: Vec<&String> = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).collect();
    let [version] = taken[..] else { panic!("one of {WRITERS} writers of a version succeeds, and not {taken:?}") };
    assert_eq!(outcomes.iter().filter(|outcome| **outcome == Err(StoreFault::Conflict)).count(), WRITERS - 1);
    check_version(store, &key, version).await;
    store.write(&key, Some(version), None).await.expect("an object can be deleted");
}

/// Both reads return the object in this version.
async fn check_version<K, S>(store: &S, key: &ObjectKey, version: &str)
where
    K: Resource + Debug + Send + Sync,
    S: ObjectStore<K>,
{
    let found = store.get(key).await.expect("get").expect("the written object exists");
    assert_eq!(found.meta().resource_version.as_deref(), Some(version), "get shows the version of the last write");
    let listed = store.list().await.expect("list");
    let listed: Vec<_> = listed.iter().filter(|object| key_of(*object) == *key).collect();
    assert_eq!(listed.len(), 1, "the written object is listed once");
    assert_eq!(listed[0].meta().resource_version.as_deref(), Some(version), "list shows the version of the last write");
}

async fn assert_change(changes: &mut BoxStream<'static, ObjectKey>, key: &ObjectKey) {
    let found = changes.any(|changed| std::future::ready(changed == *key));
    let found = tokio::time::timeout(TOLD_WITHIN, found).await;
    assert_eq!(found, Ok(true), "an earlier watch yields {key:?}");
}

fn key_of<K: Resource>(object: &K) -> ObjectKey {
    let metadata = object.meta();
    ObjectKey { namespace: metadata.namespace.clone(), name: metadata.name.clone().unwrap_or_default() }
}
