//! Deletes events a time after their last write, as the lease of an event does in kube-apiserver.
//!
//! A pass notes the time and the newest revision. An event with an older revision than the note of that time has expired,
//! without a look at the object. Events from before the first note are decoded, and their own times decide.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use keelson_cache::Entry;
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::Value;
use keelson_meta::options::{DeleteOptions, ListOptions, Preconditions};
use keelson_meta::{ApiError, Object, Revision};
use keelson_registry::{Caller, Registry, Target};
use keelson_supervision::warn_repeated;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The number of passes in the time of an event, unless they would come too close or too seldom.
const PASSES: u32 = 60;
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);
/// The number of events deleted concurrently.
const AT_ONCE: usize = 32;

/// The controller.
pub struct EventExpiry {
    registry: Arc<Registry>,
    events: Target,
    time: Duration,
}

/// The newest revision at times, the oldest first.
type Notes = VecDeque<(SystemTime, Revision)>;

impl EventExpiry {
    /// Creates the controller for events that last this time.
    ///
    /// # Errors
    /// 500 when events are not served.
    pub fn new(registry: Arc<Registry>, time: Duration) -> Result<Self, ApiError> {
        let events = registry.target("", "events")?;
        Ok(Self { registry, events, time })
    }

    /// Runs until the server stops.
    pub fn run(self, stopping: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut notes = Notes::new();
            let interval = (self.time / PASSES).clamp(SHORTEST, LONGEST);
            let passes = async {
                loop {
                    if let Err(error) = self.pass(&mut notes).await {
                        warn_repeated!(""; %error, "deleting expired events failed; retrying");
                    }
                    sleep(interval).await;
                }
            };
            stopping.run_until_cancelled(passes).await;
        })
    }

    async fn pass(&self, notes: &mut Notes) -> Result<(), ApiError> {
        let now = self.registry.now();
        notes.push_back((now, self.registry.cache().watermark()));
        let Some(end) = now.checked_sub(self.time) else { return Ok(()) };
        // Keeps the newest note of a time that is over, and all later ones.
        while notes.get(1).is_some_and(|(time, _)| *time <= end) {
            notes.pop_front();
        }
        let Some((noted, first)) = notes.front().copied() else { return Ok(()) };
        let options = ListOptions { resource_version_raw: "0".to_owned(), ..ListOptions::default() };
        let caller = Caller::upkeep();
        let events = self.registry.list(&self.events, &caller, &options).await?.items.into_entries().await?;
        let expired: Vec<Arc<Entry>> = events
            .into_iter()
            .filter(|event| event.revision <= first && (noted <= end || last_write(event) <= end))
            .collect();
        stream::iter(expired).map(|event| self.delete(event, &caller)).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn delete(&self, event: Arc<Entry>, caller: &Caller) -> Result<(), ApiError> {
        let target = self.events.clone().in_namespace(event.namespace());
        let resource_version = Some(event.revision.to_string());
        let preconditions = Preconditions { uid: None, resource_version };
        let options = DeleteOptions { preconditions, ..DeleteOptions::default() };
        match self.registry.delete(&target, event.name(), caller, &options).await {
            // Another server has deleted it, or a client has written it again.
            Ok(_) | Err(ApiError::NotFound { .. } | ApiError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The time of an event's last write, by its own fields.
fn last_write(entry: &Entry) -> SystemTime {
    let event = entry.object().decode(entry.revision);
    let fields = [&["metadata", "creationTimestamp"][..], &["lastTimestamp"], &["eventTime"]];
    let stated = fields.into_iter().filter_map(|path| event.get(path)?.as_str().map(str::to_owned));
    let series = event.get(&["series", "lastObservedTime"]).and_then(Value::as_str).map(str::to_owned);
    let written = managed_times(&event);
    let times = stated.chain(series).chain(written).filter_map(|text| parse_rfc3339(&text));
    times.max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn managed_times(event: &Object) -> Vec<String> {
    let entries = event.get(&["metadata", "managedFields"]).and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(|entry| entry["time"].as_str().map(str::to_owned)).collect()
}
