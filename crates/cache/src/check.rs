//! Compares the cache with the store now and then, and has what differs loaded anew.
//!
//! An event that was lost on the way would stay unnoticed for ever: the watermark passes it, and nothing comes back to
//! its object until somebody writes it again. Each collection is compared once in an interval, key by key and revision by
//! revision, at the revision of one snapshot; pages are read with pauses between them, so that nobody feels it.
//!
//! Invariant: what is equal is never touched.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use keelson_storage::{KeyValue, Store, StoreError};
use tokio::sync::mpsc;

use crate::cache::Shared;
use crate::load;
use crate::snapshot::Snapshot;

/// How long to wait between two pages of one collection.
const PAUSE: Duration = Duration::from_millis(20);
/// How many of the keys that differ are named in the log.
const NAMED: usize = 5;

/// A collection, by its place, that has to be loaded anew.
pub(crate) struct Repair(pub(crate) usize);

pub(crate) struct Checker {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) interval: Duration,
    pub(crate) repairs: mpsc::Sender<Repair>,
}

/// Where the cache and the store are not of one mind.
#[derive(Debug, Default, PartialEq, Eq)]
struct Differences {
    count: usize,
    /// The first of the keys.
    keys: Vec<String>,
}

impl Differences {
    fn add(&mut self, key: &str) {
        self.count += 1;
        if self.keys.len() < NAMED {
            self.keys.push(key.to_owned());
        }
    }
}

impl Checker {
    /// Checks one collection after the other, for ever.
    pub(crate) async fn run(self) {
        let count = u32::try_from(self.shared.collections.len()).unwrap_or(u32::MAX).max(1);
        for place in (0..self.shared.collections.len()).cycle() {
            tokio::time::sleep(self.interval / count).await;
            match self.check(place).await {
                Ok(found) if found.count == 0 => {}
                Ok(found) => {
                    let collection = self.shared.collections[place].prefix();
                    let Differences { count, keys } = found;
                    tracing::error!(collection, count, ?keys, "the cache differs from the store; loading it anew");
                    if self.repairs.send(Repair(place)).await.is_err() {
                        return;
                    }
                }
                // Whoever needs the store says so; a check can wait.
                Err(error) => tracing::debug!(%error, "the cache could not be compared with the store"),
            }
        }
    }

    async fn check(&self, place: usize) -> Result<Differences, StoreError> {
        let collection = &self.shared.collections[place];
        let snapshot = collection.snapshot();
        let mut found = Differences::default();
        // Everything below this relative key has been compared.
        let mut compared = String::new();
        let pages = load::pages(self.store.clone(), collection.prefix(), snapshot.revision);
        pin_mut!(pages);
        while let Some(page) = pages.next().await {
            compared = self.compare(place, &snapshot, &compared, &page?, &mut found);
            tokio::time::sleep(PAUSE).await;
        }
        snapshot.range(&compared, None).for_each(|extra| found.add(&extra.key));
        self.shared.counters.checks.fetch_add(1, Ordering::Relaxed);
        Ok(found)
    }

    /// Compares a page of the store with the same keys of the snapshot. Returns where the next page begins.
    fn compare(
        &self,
        place: usize,
        snapshot: &Snapshot,
        from: &str,
        page: &[KeyValue],
        found: &mut Differences,
    ) -> String {
        let prefix = self.shared.collections[place].prefix();
        let relative = |stored: &KeyValue| stored.key.as_str().strip_prefix(prefix).unwrap_or_default().to_owned();
        let Some(end) = page.last().map(|last| relative(last) + "\0") else { return from.to_owned() };
        let mut cached = snapshot.range(from, Some(&end)).peekable();
        for stored in page {
            let key = relative(stored);
            while let Some(extra) = cached.next_if(|entry| *entry.key < *key) {
                found.add(&extra.key);
            }
            match cached.next_if(|entry| *entry.key == *key) {
                Some(entry) if entry.revision == stored.revision => {}
                // What is no object is not shown.
                None if self.shared.collections[place].decode(stored).is_err() => {}
                Some(_) | None => found.add(&key),
            }
        }
        cached.for_each(|extra| found.add(&extra.key));
        end
    }
}
