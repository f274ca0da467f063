//! The flow schemas and priority levels that are stored, as each server follows them in its cache.
//!
//! An object is read once for each change of it. A change of status alone changes nothing. After a change the configuration rests for as
//! long as it took four times over, so that a client which writes without end takes a fifth of a processor at the most.

use std::time::{Duration, Instant};

use hashbrown::HashMap;
use keelson_access::NotCached;
use keelson_access::follow::{Follower, Index, decoded};
use keelson_cache::Entry;
use keelson_fairness::{FlowSchema, PriorityLevel};
use keelson_meta::ApiError;
use keelson_registry::Registry;
use tokio_util::sync::CancellationToken;

use crate::client::collection;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// The least time between two changes of the configuration.
const REST: Duration = Duration::from_millis(100);
/// The rest after a change, in times of what it took.
const REST_TIMES: u32 = 4;

/// The objects of flow control that a server's cache has.
pub struct FlowConfiguration {
    follower: Follower<FlowIndex>,
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
            Kind::Schema => put(&mut self.schemas, key, FlowSchema::of(&object)),
            Kind::Level => put(&mut self.levels, key, PriorityLevel::of(&object)),
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

/// Puts a value; whether it differs from the one before.
fn put<T: PartialEq>(values: &mut HashMap<String, T>, key: String, value: T) -> bool {
    if values.get(&key) == Some(&value) {
        return false;
    }
    values.insert(key, value);
    true
}

impl FlowConfiguration {
    /// The objects of a registry. Takes about 30 us for each of them.
    ///
    /// # Errors
    /// 500 when they are not served or not cached.
    pub fn new(registry: &Registry) -> Result<Self, ApiError> {
        let prefix = |plural| collection(registry, GROUP, "v1", plural, None).map(|target| target.key_prefix());
        let (schemas, levels) = (prefix("flowschemas")?, prefix("prioritylevelconfigurations")?);
        let kinds = [(Kind::Schema, schemas.as_str()), (Kind::Level, levels.as_str())];
        let follower = Follower::new(registry.cache().clone(), kinds);
        let follower = follower.map_err(|error: NotCached| ApiError::Internal(error.to_string()))?;
        Ok(Self { follower })
    }

    /// Gives the configuration to `apply` now and after each change, until the server stops.
    pub async fn run(
        self,
        stopping: CancellationToken,
        apply: impl Fn(Vec<FlowSchema>, Vec<PriorityLevel>) + Send + Sync + Clone + 'static,
    ) {
        let following = async {
            let mut applied = None;
            loop {
                let newer = self.follower.current(|index| {
                    let is_newer = applied != Some(index.changes);
                    applied = Some(index.changes);
                    is_newer.then(|| (index.schemas.values().cloned().collect(), index.levels.values().cloned().collect()))
                });
                let begun = Instant::now();
                if let Some((schemas, levels)) = newer {
                    let apply = apply.clone();
                    // Thousands of flow schemas take longer than a task may.
                    let _ = tokio::task::spawn_blocking(move || apply(schemas, levels)).await;
                }
                tokio::time::sleep(REST.max(begun.elapsed() * REST_TIMES)).await;
                self.follower.changed().await;
            }
        };
        let _: Option<()> = stopping.run_until_cancelled(following).await;
    }
}
