//! Compares the cache with the store periodically, and reloads collections that differ.
//!
//! Without this check, a lost event would stay unnoticed: the watermark passes it, and the cache reads the object again
//! only after its next write. Each collection is compared once in an interval, by key and revision, at one revision.
//! Small collections share a read of the store. Pauses between the reads limit the load.
//!
//! Invariant: the check never changes a collection that equals the store. If the store has lost an object, the cache
//! keeps it.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, pin_mut};
use keelson_storage::{KeyValue, Store, StoreError, behind};
use keelson_supervision::error_repeated;
use tokio::sync::mpsc;

use crate::additions::Cause;
use crate::collection::Collection;
use crate::load::{self, PAGE, ScanPrefixes};
use crate::shared::Shared;
use crate::snapshot::Snapshot;
use crate::tail::Command;

/// The pause between two pages.
const PAUSE: Duration = Duration::from_millis(20);
/// The maximum number of differing keys in a log line.
const NAMED: usize = 5;

pub(crate) struct Checker {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) interval: Duration,
    pub(crate) commands: mpsc::Sender<Command>,
}

/// A collection under comparison.
struct Compared {
    collection: Arc<Collection>,
    /// The state of the collection at the revision of the store's read.
    snapshot: Snapshot,
    /// All relative keys below this one have been compared.
    up_to: String,
    differences: usize,
    /// The first differing keys.
    named: Vec<String>,
}

impl Checker {
    /// Checks one group of collections after another, forever.
    pub(crate) async fn run(self) {
        let mut last = String::new();
        loop {
            let (group, share) = self.group_behind(&last);
            tokio::time::sleep(self.interval.mul_f64(share)).await;
            last = group.last().map_or_else(String::new, |collection| collection.prefix().to_owned());
            match self.check(&group).await {
                Ok(differing) if !differing.is_empty() && self.has_lost_rows(&differing).await => {}
                Ok(differing) => {
                    for Compared { collection, differences, named, .. } in differing {
                        let prefix = collection.prefix();
                        error_repeated!(prefix; prefix,
                            differences,
                            ?named,
                            "the cache differs from the store; reloading the collection"
                        );
                        if self.commands.send(Command::Repair(collection, Cause::Differs)).await.is_err() {
                            return;
                        }
                    }
                }
                // Other components report failures of the store, and the check can wait.
                Err(error) => tracing::debug!(%error, "comparing the cache with the store failed"),
            }
        }
    }

    /// Returns true if the store has lost rows, or can't be read. The cache then keeps its objects, so that clients see
    /// no deletions.
    async fn has_lost_rows(&self, differing: &[Compared]) -> bool {
        match self.store.verify().await {
            Ok(()) => false,
            Err(error) => {
                let named: Vec<_> = differing.iter().flat_map(|compared| &compared.named).take(NAMED).collect();
                error_repeated!(""; %error, ?named, "the cache differs from a damaged store; the cache is kept");
                true
            }
        }
    }

    /// Returns the collections after a prefix that have about a page of objects together, and their share of all
    /// collections. After the last collection, the next group starts with the first.
    fn group_behind(&self, prefix: &str) -> (Vec<Arc<Collection>>, f64) {
        self.shared.routes(|routes| {
            let mut objects = 0;
            let is_more = |collection: &&Arc<Collection>| {
                let more = objects < PAGE;
                objects += collection.len();
                more
            };
            let group: Vec<_> = routes.behind(prefix).take_while(is_more).cloned().collect();
            // An empty group ends the round. A round without any collections takes as long as any other.
            let share = if routes.is_empty() { 1.0 } else { group.len() as f64 / routes.len() as f64 };
            (group, share)
        })
    }

    /// Returns the collections that differ from the store.
    async fn check(&self, group: &[Arc<Collection>]) -> Result<Vec<Compared>, StoreError> {
        let revision = self.shared.watermark().get();
        // Collections that are being removed or reloaded are compared in the next round.
        let state = |collection: &Arc<Collection>| {
            let snapshot = collection.snapshot_at(revision).ok()?;
            let (collection, up_to, named) = (collection.clone(), String::new(), Vec::new());
            Some(Compared { collection, snapshot, up_to, differences: 0, named })
        };
        let mut compared: Vec<Compared> = group.iter().filter_map(state).collect();
        let wanted = ScanPrefixes::new(compared.iter().map(|compared| &compared.collection));
        let pages = load::pages(self.store.clone(), wanted.clone(), revision);
        pin_mut!(pages);
        while let Some(page) = pages.next().await {
            let page = page?;
            for part in page.chunk_by(|a, b| wanted.find(a.key.as_str()) == wanted.find(b.key.as_str())) {
                let place = part.first().and_then(|first| wanted.find(first.key.as_str()).ok());
                place.into_iter().for_each(|place| compared[place].compare(part));
            }
            tokio::time::sleep(PAUSE).await;
        }
        self.shared.counters().checks.add(compared.len() as u64);
        compared.iter_mut().for_each(Compared::finish);
        for Compared { collection, differences, .. } in &compared {
            let counts = collection.counts();
            if *differences == 0 { counts.checks.increment() } else { counts.differences.increment() }
        }
        compared.retain(|compared| compared.differences > 0);
        Ok(compared)
    }
}

impl Compared {
    /// Compares the next part of the store with the same keys of the snapshot.
    fn compare(&mut self, part: &[KeyValue]) {
        let collection = self.collection.clone();
        let relative = |stored: &KeyValue| collection.relative(stored.key.as_str()).to_owned();
        let Some(end) = part.last().map(|last| behind(&relative(last))) else { return };
        let snapshot = self.snapshot.clone();
        let mut cached = snapshot.range(&self.up_to, Some(&end)).peekable();
        for stored in part {
            let key = relative(stored);
            while let Some(extra) = cached.next_if(|entry| *entry.key < *key) {
                self.differs(&extra.key);
            }
            match cached.next_if(|entry| *entry.key == *key) {
                Some(entry) if entry.revision == stored.revision => {}
                // The cache does not have values that are not objects.
                None if collection.decode(stored).is_err() => {}
                Some(_) | None => self.differs(&key),
            }
        }
        cached.for_each(|extra| self.differs(&extra.key));
        self.up_to = end;
    }

    /// Compares the rest of the snapshot after the last key of the store.
    fn finish(&mut self) {
        let snapshot = self.snapshot.clone();
        snapshot.range(&self.up_to, None).for_each(|extra| self.differs(&extra.key));
    }

    fn differs(&mut self, key: &str) {
        self.differences += 1;
        if self.named.len() < NAMED {
            self.named.push(key.to_owned());
        }
    }
}
