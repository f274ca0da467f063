//! Copies all objects from one store to another: resumable, and verified before it reports success.
//!
//! A pass reads the source in pages at one revision, and writes the differences to the target. Passes repeat until one
//! finds no difference and the source has not changed. So that last pass has verified the copy, and an interrupted copy
//! resumes by starting again. A mark in the target records that the copy is unfinished, and no server starts on such a
//! store. A store that is created for a copy has the mark from the start.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::SystemTime;

use bytes::Bytes;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_meta::Revision;

use crate::key::StoreKey;
use crate::pages::pages;
use crate::store::{CommitError, KeyValue, RangeRequest, Store, StoreError, Transaction, Write};

/// The prefix of all keys.
const EVERYTHING: &str = "/registry/";
/// The key that marks an unfinished copy.
const MARK: &str = "/registry/keelson/unfinished-copy";
/// The value of that key, a text for users.
const MARK_TEXT: &[u8] = b"a copy into this store is not finished";
/// The number of keys in a page.
const PAGE: usize = 500;
/// The most writes of a transaction; etcd accepts 128 operations.
const TRANSACTION_WRITES: usize = 100;
/// The most bytes of values in a transaction, unless a single value is larger; etcd accepts 1.5 MiB.
const TRANSACTION_BYTES: usize = 512 * 1024;
/// The number of concurrent transactions, so that they share commits.
const IN_FLIGHT: usize = 8;
/// The most passes over a changing source before the copy fails.
const PASSES: usize = 16;

/// The progress of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyProgress {
    /// The number of the pass over the source, from 1.
    pub pass: usize,
    /// The number of objects compared in this pass.
    pub compared: u64,
    /// The number of objects in the source.
    pub total: u64,
    /// The number of objects written in all passes.
    pub written: u64,
    /// The number of objects deleted from the target in all passes because the source no longer had them.
    pub deleted: u64,
}

/// The reason for which a copy stopped. Copied objects stay, and the same call resumes.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The source is an unfinished copy.
    #[error("the source is itself an unfinished copy: finish that one first")]
    SourceUnfinished,
    /// The target holds other data.
    #[error("the target holds objects already: copy into an empty store")]
    TargetNotEmpty,
    /// The source keeps changing.
    #[error("the source is still being written after {PASSES} passes: stop its servers and copy again")]
    SourceRestless,
    /// A value of the source can't be decrypted.
    #[error("{key} of the source can't be decrypted: {why}")]
    Unreadable {
        /// Its key.
        key: StoreKey,
        /// The reason.
        why: String,
    },
    /// The source can't be read.
    #[error("reading the source: {0}")]
    Source(#[source] StoreError),
    /// The target can't be read or written.
    #[error("writing the target: {0}")]
    Target(#[source] StoreError),
}

/// Returns true if a copy into this store has started and not finished.
///
/// # Errors
/// The store can't be read.
pub async fn is_unfinished(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.get(&StoreKey::new(MARK)).await?.is_some())
}

/// The first object of a store that is created for a copy. Servers do not start on a store with this object.
pub fn unfinished() -> (StoreKey, Bytes) {
    (StoreKey::new(MARK), Bytes::from_static(MARK_TEXT))
}

/// Checks that the source is not an unfinished copy.
///
/// # Errors
/// The source is an unfinished copy, or can't be read.
pub async fn check_source(from: &dyn Store) -> Result<(), CopyError> {
    match is_unfinished(from).await.map_err(CopyError::Source)? {
        true => Err(CopyError::SourceUnfinished),
        false => Ok(()),
    }
}

/// Returns true if the store has an object.
///
/// # Errors
/// It can't be read.
pub async fn holds_objects(store: &dyn Store) -> Result<bool, CopyError> {
    Ok(!store.range(all(None, Some(1))).await.map_err(CopyError::Source)?.entries.is_empty())
}

/// Returns the first key whose value matches `is_wanted`.
///
/// # Errors
/// The store can't be read.
pub async fn find(store: &dyn Store, is_wanted: impl Fn(&Bytes) -> bool) -> Result<Option<StoreKey>, StoreError> {
    let mut pages = pin!(pages(store, RangeRequest { limit: Some(PAGE), ..all(None, None) }));
    while let Some(page) = pages.try_next().await? {
        if let Some(found) = page.into_iter().find(|entry| is_wanted(&entry.value)) {
            return Ok(Some(found.key));
        }
    }
    Ok(None)
}

/// Checks that a store can be the target of a copy: it is empty, or holds the result of an interrupted copy. Changes
/// nothing.
///
/// # Errors
/// The store holds other data, or can't be read.
pub async fn check_target(to: &dyn Store) -> Result<(), CopyError> {
    let found = to.range(all(None, Some(1))).await.map_err(CopyError::Target)?;
    if found.entries.is_empty() || is_unfinished(to).await.map_err(CopyError::Target)? {
        return Ok(());
    }
    Err(CopyError::TargetNotEmpty)
}

/// Copies all objects. `expiry` returns the expiry of a key that is written now, if any, since stores do not report the
/// remaining time of an object.
///
/// # Errors
/// A store fails, the target holds other data, or the source keeps changing.
pub async fn copy(
    from: &dyn Store,
    to: &dyn Store,
    expiry: impl Fn(&StoreKey) -> Option<SystemTime>,
    mut report: impl FnMut(CopyProgress),
) -> Result<CopyProgress, CopyError> {
    check_source(from).await?;
    begin(to).await?;
    let mut progress = CopyProgress::default();
    for pass in 1..=PASSES {
        let revision = from.current_revision().await.map_err(CopyError::Source)?;
        let total = from.count(all(Some(revision), None)).await.map_err(CopyError::Source)?;
        let before = (progress.written, progress.deleted);
        progress = CopyProgress { pass, compared: 0, total, ..progress };
        match (Pass { from, to, revision, expiry: &expiry }).run(&mut progress, &mut report).await {
            Ok(()) => {}
            // The pass took longer than the source keeps its history. The objects written so far are correct for that
            // revision, so a new pass continues.
            Err(CopyError::Source(StoreError::Compacted { .. })) => continue,
            Err(error) => return Err(error),
        }
        let clean = before == (progress.written, progress.deleted);
        if clean && from.current_revision().await.map_err(CopyError::Source)? == revision {
            write(to, Transaction::default().delete(StoreKey::new(MARK))).await?;
            return Ok(progress);
        }
    }
    Err(CopyError::SourceRestless)
}

/// Writes the mark to the target, unless it is there already.
async fn begin(to: &dyn Store) -> Result<(), CopyError> {
    check_target(to).await?;
    if is_unfinished(to).await.map_err(CopyError::Target)? {
        return Ok(());
    }
    write(to, Transaction::default().put(StoreKey::new(MARK), MARK_TEXT)).await
}

async fn write(to: &dyn Store, transaction: Transaction) -> Result<(), CopyError> {
    match to.commit(transaction).await {
        Ok(_) => Ok(()),
        Err(CommitError::Store(error)) => Err(CopyError::Target(error)),
        // The transaction has no compares.
        Err(error @ CommitError::Compare { .. }) => Err(CopyError::Target(StoreError::Corrupt(error.to_string()))),
    }
}

fn all(revision: Option<Revision>, limit: Option<usize>) -> RangeRequest {
    RangeRequest { from: StoreKey::new(EVERYTHING), to: StoreKey::prefix_end(EVERYTHING), revision, limit }
}

/// One pass through the source, at one revision.
struct Pass<'s, E> {
    from: &'s dyn Store,
    to: &'s dyn Store,
    revision: Revision,
    expiry: &'s E,
}

impl<E: Fn(&StoreKey) -> Option<SystemTime>> Pass<'_, E> {
    async fn run(&self, progress: &mut CopyProgress, report: &mut impl FnMut(CopyProgress)) -> Result<(), CopyError> {
        let mut start = StoreKey::new(EVERYTHING);
        let everything = RangeRequest { limit: Some(PAGE), ..all(Some(self.revision), None) };
        let mut pages = pin!(pages(self.from, everything).map_err(CopyError::Source).peekable());
        while let Some(page) = pages.try_next().await? {
            // A page covers all keys before the start of the next page. Keys of the target that it lacks are no longer in
            // the source.
            if let Some(KeyValue { key, value, .. }) = page.iter().find(|entry| entry.seal.is_unreadable()) {
                let why = String::from_utf8_lossy(value).into_owned();
                return Err(CopyError::Unreadable { key: key.clone(), why });
            }
            let is_last = pages.as_mut().peek().await.is_none();
            let last = page.last().filter(|_| !is_last).map(|last| last.key.behind());
            let end = last.unwrap_or_else(|| StoreKey::prefix_end(EVERYTHING));
            let there = self.target_between(&start, &end).await.map_err(CopyError::Target)?;
            let writes = self.differences(&page, there);
            let deleted = writes.iter().filter(|write| matches!(write, Write::Delete { .. })).count() as u64;
            progress.written += writes.len() as u64 - deleted;
            progress.deleted += deleted;
            progress.compared += page.len() as u64;
            self.write(writes).await?;
            report(*progress);
            start = end;
        }
        Ok(())
    }

    /// The content of the target in `[start, end)`.
    async fn target_between(&self, start: &StoreKey, end: &StoreKey) -> Result<BTreeMap<StoreKey, Bytes>, StoreError> {
        let request = RangeRequest { from: start.clone(), to: end.clone(), revision: None, limit: Some(PAGE) };
        let mut pages = pin!(pages(self.to, request));
        let mut found = BTreeMap::new();
        while let Some(page) = pages.try_next().await? {
            found.extend(page.into_iter().map(|entry| (entry.key, entry.value)));
        }
        found.remove(&StoreKey::new(MARK));
        Ok(found)
    }

    /// The writes that make the target equal to the source.
    fn differences(&self, source: &[KeyValue], mut target: BTreeMap<StoreKey, Bytes>) -> Vec<Write> {
        let mut writes = Vec::new();
        for KeyValue { key, value, .. } in source {
            if target.remove(key).as_ref() != Some(value) {
                let expires = (self.expiry)(key);
                writes.push(Write::Put { key: key.clone(), value: value.clone(), expires });
            }
        }
        writes.extend(target.into_keys().map(|key| Write::Delete { key }));
        writes
    }

    async fn write(&self, writes: Vec<Write>) -> Result<(), CopyError> {
        stream::iter(in_transactions(writes).into_iter().map(Ok))
            .try_for_each_concurrent(IN_FLIGHT, |writes| {
                write(self.to, Transaction { writes, ..Transaction::default() })
            })
            .await
    }
}

fn in_transactions(writes: Vec<Write>) -> Vec<Vec<Write>> {
    let mut transactions: Vec<Vec<Write>> = Vec::new();
    let mut bytes = 0;
    for write in writes {
        let size = match &write {
            Write::Put { value, .. } => value.len(),
            Write::Delete { .. } => 0,
        };
        match transactions.last_mut() {
            Some(last) if last.len() < TRANSACTION_WRITES && bytes + size <= TRANSACTION_BYTES => {
                bytes += size;
                last.push(write);
            }
            _ => {
                bytes = size;
                transactions.push(vec![write]);
            }
        }
    }
    transactions
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;

    use crate::memory::MemoryStore;

    fn key(number: usize) -> StoreKey {
        StoreKey::new(format!("/registry/configmaps/default/{number:05}"))
    }

    async fn filled(count: usize) -> MemoryStore {
        let store = MemoryStore::new();
        for number in 0..count {
            put(&store, number, &format!("value {number}")).await;
        }
        store
    }

    async fn put(store: &MemoryStore, number: usize, value: &str) {
        store.commit(Transaction::default().put(key(number), value.to_owned())).await.unwrap();
    }

    async fn contents(store: &MemoryStore) -> Vec<(StoreKey, Bytes)> {
        let page = store.range(all(None, None)).await.unwrap();
        page.entries.into_iter().map(|entry| (entry.key, entry.value)).collect()
    }

    async fn copied(from: &MemoryStore, to: &MemoryStore) -> Result<CopyProgress, CopyError> {
        copy(from, to, |_| None, |_| {}).await
    }

    #[tokio::test]
    async fn a_copy_holds_the_same_and_a_second_pass_proves_it() {
        let (from, to) = (filled(1234).await, MemoryStore::new());
        let progress = copied(&from, &to).await.unwrap();
        assert_eq!(progress, CopyProgress { pass: 2, compared: 1234, total: 1234, written: 1234, deleted: 0 });
        assert_eq!(contents(&from).await, contents(&to).await);
        assert!(!is_unfinished(&to).await.unwrap());
    }

    #[tokio::test]
    async fn an_interrupted_copy_resumes_and_includes_later_changes() {
        let (from, to) = (filled(600).await, MemoryStore::new());
        // The state of a copy that stopped after the first page.
        begin(&to).await.unwrap();
        for number in 0..PAGE {
            put(&to, number, &format!("value {number}")).await;
        }
        put(&from, 0, "changed").await;
        from.commit(Transaction::default().delete(key(1)).put(key(9000), "new")).await.unwrap();
        let progress = copied(&from, &to).await.unwrap();
        assert_eq!((progress.written, progress.deleted), (102, 1));
        assert_eq!(contents(&from).await, contents(&to).await);
    }

    #[tokio::test]
    async fn changes_during_a_pass_are_copied_in_the_next_one() {
        let (from, to) = (filled(600).await, MemoryStore::new());
        let source = from.clone();
        let mut changed = false;
        let report = |_| {
            if !std::mem::replace(&mut changed, true) {
                let transaction = Transaction::default().delete(key(0)).put(key(599), "changed");
                source.commit(transaction).now_or_never().unwrap().unwrap();
            }
        };
        assert_eq!(copy(&from, &to, |_| None, report).await.unwrap().pass, 3);
        assert_eq!(contents(&from).await, contents(&to).await);
    }

    #[tokio::test]
    async fn a_copy_of_a_constantly_changing_source_fails() {
        let (from, to) = (filled(1).await, MemoryStore::new());
        let source = from.clone();
        let mut count = 0;
        let report = |_| {
            count += 1;
            let transaction = Transaction::default().put(key(0), format!("{count}"));
            source.commit(transaction).now_or_never().unwrap().unwrap();
        };
        assert!(matches!(copy(&from, &to, |_| None, report).await, Err(CopyError::SourceRestless)));
        assert!(is_unfinished(&to).await.unwrap());
        assert!(matches!(copied(&to, &MemoryStore::new()).await, Err(CopyError::SourceUnfinished)));
    }

    #[tokio::test]
    async fn a_copy_to_a_store_with_objects_is_refused() {
        let (from, to) = (filled(3).await, filled(1).await);
        assert!(matches!(copied(&from, &to).await, Err(CopyError::TargetNotEmpty)));
        assert_eq!(contents(&to).await.len(), 1);
    }

    #[tokio::test]
    async fn objects_that_end_by_themselves_still_do() {
        let (from, to) = (filled(2).await, MemoryStore::new());
        let end = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(60);
        copy(&from, &to, |copied| (*copied == key(0)).then_some(end), |_| {}).await.unwrap();
        assert_eq!(to.expire(end).await.unwrap(), 1);
    }

    #[test]
    fn transactions_are_bounded_by_writes_and_by_bytes() {
        let put = |size: usize| Write::Put { key: key(0), value: vec![0; size].into(), expires: None };
        let sizes = |writes: Vec<Write>| in_transactions(writes).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes((0..250).map(|_| put(1)).collect()), [100, 100, 50]);
        assert_eq!(sizes(vec![put(1), put(TRANSACTION_BYTES), put(1)]), [1, 1, 1]);
        assert!(sizes(Vec::new()).is_empty());
    }
}
