//! The stored flow schemas and priority levels: each server reads them from its cache and applies them after each
//! change.
//!
//! An object is decoded once for each change of it. A change of its status alone does not apply the configuration
//! again. After each application the next one waits for four times as long as it took. So a client that writes without
//! pause costs at most a fifth of a processor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use keelson_access::NotCached;
use keelson_access::follow::{Follower, Index, decoded};
use keelson_cache::{Cache, Entry};
use keelson_fairness::{FlowSchema, PriorityLevel};
use keelson_meta::Revision;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

/// The shortest time between two applications of the configuration.
const REST: Duration = Duration::from_millis(20);
/// The pause after an application, as a multiple of its duration.
const REST_TIMES: u32 = 4;

/// The flow schemas and priority levels in a server's cache.
pub struct FlowConfiguration {
    follower: Follower<FlowIndex>,
    cache: Arc<Cache>,
    applied: watch::Sender<Revision>,
    /// Ends the pause after an application, for a caller that waits.
    wanted: Arc<Notify>,
}

/// The application of flow control objects, for callers that wait for it.
#[derive(Clone)]
pub struct FlowApplication {
    applied: watch::Receiver<Revision>,
    wanted: Arc<Notify>,
}

impl FlowApplication {
    /// Waits until the objects of a cache revision are in effect. Returns earlier if the server stops.
    pub(crate) async fn reaches(&mut self, revision: Revision) {
        // A permit stays until the next pause, so a call before the pause ends it too.
        self.wanted.notify_one();
        let _ = self.applied.wait_for(|applied| *applied >= revision).await;
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Schema,
    Level,
}

/// The specs, by the keys of their objects.
#[derive(Default)]
struct FlowIndex {
    schemas: HashMap<String, FlowSchema>,
    levels: HashMap<String, PriorityLevel>,
    /// The number of changes.
    changes: u64,
}

impl Index for FlowIndex {
    type Kind = Kind;

    fn clear(&mut self, kind: Kind) {
        match kind {
            Kind::Schema => self.schemas.clear(),
            Kind::Level => self.levels.clear(),
        }
        self.changes += 1;
    }

    fn put(&mut self, kind: Kind, entry: &Entry) {
        let (key, object) = (entry.key.to_string(), decoded(entry));
        let is_new = match kind {
            Kind::Schema => put(&mut self.schemas, key, FlowSchema::from_object(&object)),
            Kind::Level => put(&mut self.levels, key, PriorityLevel::from_object(&object)),
        };
        self.changes += u64::from(is_new);
    }

    fn remove(&mut self, kind: Kind, key: &str) {
        match kind {
            Kind::Schema => drop(self.schemas.remove(key)),
            Kind::Level => drop(self.levels.remove(key)),
        }
        self.changes += 1;
    }
}

/// Inserts a value. Returns true if it differs from the previous one.
fn put<T: PartialEq>(values: &mut HashMap<String, T>, key: String, value: T) -> bool {
    if values.get(&key) == Some(&value) {
        return false;
    }
    values.insert(key, value);
    true
}

impl FlowConfiguration {
    /// The objects that a cache holds below the prefixes of flow schemas and of priority levels. Costs about 30 us for
    /// each object.
    ///
    /// # Errors
    /// The cache does not hold one of the collections.
    pub fn new(cache: &Arc<Cache>, [schemas, levels]: [&str; 2]) -> Result<Self, NotCached> {
        let follower = Follower::new(cache.clone(), [(Kind::Schema, schemas), (Kind::Level, levels)])?;
        let applied = watch::Sender::new(Revision::ZERO);
        Ok(Self { follower, cache: cache.clone(), applied, wanted: Arc::default() })
    }

    /// The application of the objects.
    pub fn application(&self) -> FlowApplication {
        FlowApplication { applied: self.applied.subscribe(), wanted: self.wanted.clone() }
    }

    /// Calls `apply` with the configuration now and after each change, until the server stops.
    pub async fn run(
        self,
        stopping: CancellationToken,
        apply: impl Fn(Vec<FlowSchema>, Vec<PriorityLevel>) + Send + Sync + Clone + 'static,
    ) {
        let following = async {
            let mut applied = None;
            loop {
                let seen = self.cache.watermark();
                let newer = self.follower.current(|index| {
                    let is_newer = applied != Some(index.changes);
                    applied = Some(index.changes);
                    is_newer
                        .then(|| (index.schemas.values().cloned().collect(), index.levels.values().cloned().collect()))
                });
                let begun = Instant::now();
                if let Some((schemas, levels)) = newer {
                    let apply = apply.clone();
                    // Applying thousands of flow schemas takes longer than an asynchronous task may hold its thread.
                    keelson_supervision::outcome(keelson_supervision::spawn_blocking(move || apply(schemas, levels)))
                        .await;
                }
                self.applied.send_replace(seen);
                let rest = tokio::time::sleep(REST.max(begun.elapsed() * REST_TIMES));
                tokio::select! {
                    () = rest => {}
                    () = self.wanted.notified() => {}
                }
                self.follower.changed().await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(following).await;
    }
}
