//! Writes warning events for owners in the wrong namespace. An owner must be in the namespace of its dependent, or have
//! none.
//!
//! A dependent in a namespace with an owner in another one is deleted, since the reference names no object. A dependent
//! without a namespace stays even if its owner in a namespace is deleted. Both surprise users, so events report both,
//! as upstream. The number of events is limited. Dependents on other servers are not reported.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use keelson_meta::ApiError;
use keelson_meta::clock::rfc3339;
use keelson_meta::json::json;
use keelson_registry::Registry;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::graph::{CollectionPlace, ObjectId};
use super::metadata::OwnerReference;
use super::owners::{OwnerLookup, kind_of, target_of};
use crate::client::{CONTROLLER_MANAGER, Client};
use crate::queue::{Backoff, Outcome, Queue};

const REASON: &str = "OwnerRefInvalidNamespace";
/// The reporting component.
const COMPONENT: &str = "garbage-collector-controller";
/// The namespace of events about objects without one.
const DEFAULT_NAMESPACE: &str = "default";
/// The most events in a burst, and the time until one more is allowed.
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_secs(1);
/// The number of references that are remembered, so that each is reported once.
const REMEMBERED: usize = 4096;
/// The number of namespaces that are searched for an owner, at some 1 us each.
const SEARCHED_NAMESPACES: usize = 1000;
/// The backoff of the queue, which never applies: an event is not written again after a failure.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), longest: Duration::from_secs(1) };
/// The longest part of an event's name taken from its object, in bytes.
const LONGEST_PREFIX: usize = 200;

/// Reports invalid owner references.
pub(super) struct InvalidOwners {
    registry: Arc<Registry>,
    client: Client,
    state: Mutex<State>,
    queue: Queue<Report>,
}

struct State {
    reported: HashSet<(ObjectId, String)>,
    left: u32,
    refilled: Instant,
}

/// A reference to an owner in the wrong namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Report {
    dependent: ObjectId,
    uid: String,
    message: String,
}

impl InvalidOwners {
    pub(super) fn new(registry: Arc<Registry>, account: &str) -> Self {
        let client = Client::of_controller(registry.clone(), account, CONTROLLER_MANAGER);
        let state = State { reported: HashSet::new(), left: BURST, refilled: Instant::now() };
        Self {
            registry,
            client,
            state: Mutex::new(state),
            queue: Queue::new("garbage_collector_invalid_owners", BACKOFF),
        }
    }

    /// Writes events until dropped.
    pub(super) async fn run(&self) -> Infallible {
        self.queue
            .run(1, |report| async move {
                if let Err(error) = self.write(&report).await {
                    tracing::debug!(key = %report.dependent.key, %error, "writing an event about an owner failed");
                }
                Outcome::Done
            })
            .await
    }

    /// Reports a reference to an owner in a namespace that the reference can't name.
    pub(super) fn check(
        &self,
        world: OwnerLookup<'_>,
        reference: &OwnerReference<'_>,
        dependent: &ObjectId,
        uid: &str,
    ) {
        if !matches!(dependent.collection, CollectionPlace::Here(_)) {
            return;
        }
        let Some((collection, true)) = kind_of(world, reference) else { return };
        let mut state = self.state.lock();
        let known = (dependent.clone(), reference.uid.to_string());
        if state.reported.contains(&known) || !state.has_room() {
            return;
        }
        if dependent.namespace().is_some() && !is_in_another_namespace(world, collection, reference) {
            return;
        }
        state.left -= 1;
        if state.reported.len() >= REMEMBERED {
            state.reported.clear();
        }
        state.reported.insert(known);
        let OwnerReference { api_version, kind, name, uid: owner, .. } = reference;
        let namespace = dependent.namespace().unwrap_or_default();
        let message = format!(
            "ownerRef [{api_version}/{kind}, namespace: {namespace}, name: {name}, uid: {owner}] does not exist in namespace {namespace:?}"
        );
        self.queue.add(Report { dependent: dependent.clone(), uid: uid.to_owned(), message });
    }

    async fn write(&self, report: &Report) -> Result<(), ApiError> {
        let id = &report.dependent;
        let Some(target) = target_of(&self.registry.surface(), id) else { return Ok(()) };
        let (kind, now) = (target.kind(), self.client.now());
        let time = rfc3339(now);
        let mut involved = json!({ "kind": kind.kind, "apiVersion": kind.group_version().to_string(), "name": id.name(), "uid": report.uid });
        if let Some(namespace) = id.namespace() {
            involved["namespace"] = json!(namespace);
        }
        let nanos = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let event = json!({
            "metadata": { "name": format!("{}.{nanos:x}", prefix(id.name())) },
            "involvedObject": involved,
            "reason": REASON,
            "message": report.message,
            "type": "Warning",
            "count": 1,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "source": { "component": COMPONENT },
            "reportingComponent": COMPONENT,
        });
        let namespace = id.namespace().unwrap_or(DEFAULT_NAMESPACE);
        let events = self.client.collection("", "v1", "events", Some(namespace))?;
        self.client.create(&events, event).await.map(drop)
    }
}

impl State {
    /// Returns true and counts the event if the limit allows one more.
    fn has_room(&mut self) -> bool {
        let more = u32::try_from(self.refilled.elapsed().as_nanos() / REFILL.as_nanos()).unwrap_or(BURST);
        if more > 0 {
            self.left = self.left.saturating_add(more).min(BURST);
            self.refilled = Instant::now();
        }
        self.left > 0
    }
}

/// Returns true if any namespace contains the owner that a reference names.
fn is_in_another_namespace(
    world: OwnerLookup<'_>,
    collection: CollectionPlace,
    reference: &OwnerReference<'_>,
) -> bool {
    let CollectionPlace::Here(owners) = collection else { return false };
    let Some(owners) = world.surface.collection(owners) else { return false };
    let Some(namespaces) = world.surface.resource("", "namespaces").and_then(|served| served.stored()) else {
        return false;
    };
    let snapshot = namespaces.cached.snapshot();
    let keys = snapshot.range("", None).take(SEARCHED_NAMESPACES);
    let mut owners = keys.filter_map(|namespace| owners.cached.get(&format!("{}/{}", namespace.key, reference.name)));
    owners.any(|owner| owner.object().uid() == reference.uid)
}

/// The prefix of an event's name: the object's name, as far as it is valid in the name of an event.
fn prefix(name: &str) -> &str {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    if name.len() <= LONGEST_PREFIX && name.bytes().all(is_fit) { name } else { COMPONENT }
}
