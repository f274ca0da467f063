//! Limits for the rate of events: of the whole server, of a namespace, of a user, and of a source with its object.
//!
//! This is upstream's plugin EventRateLimit. A limit is a bucket of tokens for each key, and each server has its own.
//! Events of both groups count, where upstream counts those of the core group alone. Dry runs take no token.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use futures::future::BoxFuture;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, Object, Status};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Operation};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The default number of keys that a limit keeps. The least recently used key is evicted first.
pub(crate) const DEFAULT_KEYS: usize = 4096;

/// The events that share a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventLimitKind {
    /// All events.
    Server,
    /// The events of a namespace.
    Namespace,
    /// The events that a user writes.
    User,
    /// The events of a source about an object.
    SourceAndObject,
}

impl EventLimitKind {
    /// All kinds of limits.
    pub(crate) const ALL: [Self; 4] = [Self::Namespace, Self::Server, Self::SourceAndObject, Self::User];

    /// The name of the kind in settings and messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Server => "Server",
            Self::Namespace => "Namespace",
            Self::User => "User",
            Self::SourceAndObject => "SourceAndObject",
        }
    }
}

/// One limit of the settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventLimit {
    /// The events that share the limit.
    pub kind: EventLimitKind,
    /// The average limit in events per second.
    pub qps: u32,
    /// The largest burst, in events.
    pub burst: u32,
    /// The largest number of keys to keep.
    pub keys: usize,
}

/// Refuses events that exceed a limit.
pub(crate) struct EventRateLimit {
    limits: Vec<(EventLimit, Mutex<Buckets>)>,
}

impl fmt::Debug for EventRateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.limits.iter().map(|(limit, _)| limit)).finish()
    }
}

impl EventRateLimit {
    /// Creates the plugin with these limits.
    ///
    /// # Errors
    /// 500 if there are no limits.
    pub(crate) fn new(limits: &[EventLimit]) -> Result<Self, ApiError> {
        if limits.is_empty() {
            let why = "the plugin EventRateLimit has no limits: give them with --admission-control-config-file";
            return Err(ApiError::Internal(why.to_owned()));
        }
        Ok(Self { limits: limits.iter().map(|limit| (limit.clone(), Mutex::default())).collect() })
    }
}

/// The token buckets of one limit. The least recently used ones are evicted.
#[derive(Default)]
struct Buckets {
    by_key: HashMap<String, Bucket>,
    /// The keys in the order of their last use.
    by_use: BTreeMap<u64, String>,
    uses: u64,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
    last_use: u64,
}

impl Buckets {
    /// Takes a token; returns false if none is left.
    fn take(&mut self, limit: &EventLimit, key: &str, now: Instant) -> bool {
        let (burst, qps) = (f64::from(limit.burst), f64::from(limit.qps));
        self.uses += 1;
        let last_use = self.uses;
        let bucket = match self.by_key.get_mut(key) {
            Some(bucket) => {
                self.by_use.remove(&bucket.last_use);
                bucket
            }
            None => {
                if self.by_key.len() >= limit.keys
                    && let Some((_, oldest)) = self.by_use.pop_first()
                {
                    self.by_key.remove(&oldest);
                }
                self.by_key.entry(key.to_owned()).or_insert(Bucket { tokens: burst, filled: now, last_use })
            }
        };
        self.by_use.insert(last_use, key.to_owned());
        bucket.last_use = last_use;
        bucket.tokens = (bucket.tokens + now.duration_since(bucket.filled).as_secs_f64() * qps).min(burst);
        bucket.filled = now;
        let is_left = bucket.tokens >= 1.0;
        bucket.tokens -= f64::from(u8::from(is_left));
        is_left
    }
}

/// The key of an event's bucket for this kind of limit.
fn key_of(kind: EventLimitKind, attributes: &AdmissionAttributes<'_>, event: &Object) -> String {
    match kind {
        EventLimitKind::Server => String::new(),
        EventLimitKind::Namespace => attributes.target.namespace.clone().unwrap_or_default(),
        EventLimitKind::User => attributes.caller.user().name.to_string(),
        EventLimitKind::SourceAndObject => source_and_object(event),
    }
}

/// The source of an event and its object, under the names of either group.
fn source_and_object(event: &Object) -> String {
    let text = |names: [&str; 2], field: &str| {
        let found = names.into_iter().find_map(|name| event.get(&[name, field]).and_then(Value::as_str));
        found.unwrap_or_default()
    };
    let source = ["component", "host"].map(|field| text(["source", "deprecatedSource"], field));
    let object = ["kind", "namespace", "name", "uid", "apiVersion"];
    [source.concat(), object.map(|field| text(["involvedObject", "regarding"], field)).concat()].concat()
}

impl Admission for EventRateLimit {
    fn name(&self) -> &'static str {
        "EventRateLimit"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        let resource = &attributes.target.resource;
        let is_event = &*resource.plural == "events" && matches!(&*resource.group, "" | "events.k8s.io");
        let is_write = matches!(attributes.operation, Operation::Create | Operation::Update);
        if is_event && is_write && !attributes.caller.is_dry_run() {
            AttributesNeeded::Object
        } else {
            AttributesNeeded::None
        }
    }

    fn validate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a Object>,
    ) -> BoxFuture<'a, Result<(), ApiError>> {
        Box::pin(async move {
            let Some(event) = object else { return Ok(()) };
            let now = Instant::now();
            let mut reached = Vec::new();
            // Like upstream, a refused event still takes tokens of the other limits.
            for (limit, buckets) in &self.limits {
                let key = key_of(limit.kind, attributes, event);
                if !buckets.lock().take(limit, &key, now) {
                    reached.push(format!("limit reached on type {} for key {key}", limit.kind.name()));
                }
            }
            let told = match reached.as_slice() {
                [] => return Ok(()),
                [one] => one.clone(),
                several => format!("[{}]", several.join(", ")),
            };
            let status = Status::failure(429, Some("TooManyRequests"), format!("Too many requests: {told}"));
            Err(ApiError::Answered(Box::new(status)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_bucket_is_full_at_first_and_fills_again() {
        let limit = EventLimit { kind: EventLimitKind::User, qps: 2, burst: 3, keys: 2 };
        let (mut buckets, begin) = (Buckets::default(), Instant::now());
        let mut take =
            |key: &str, milliseconds: u64| buckets.take(&limit, key, begin + Duration::from_millis(milliseconds));
        assert_eq!([take("a", 0), take("a", 0), take("a", 0), take("a", 0)], [true, true, true, false]);
        assert_eq!([take("a", 400), take("a", 500), take("a", 500)], [false, true, false]);
        assert!(take("b", 500), "each key has a bucket of its own");
        assert_eq!(
            [take("a", 60_000), take("a", 60_000), take("a", 60_000), take("a", 60_000)],
            [true, true, true, false]
        );
        // A third key evicts the least recently used one.
        assert!(take("c", 60_000));
        assert!(!take("a", 60_000), "it is remembered");
        assert_eq!([take("b", 60_000), take("b", 60_000), take("b", 60_000)], [true, true, true], "it was forgotten");
    }

    #[test]
    fn sources_and_objects_have_their_names_in_either_group() {
        let object = json!({ "kind": "Pod", "namespace": "n", "name": "p", "uid": "u", "apiVersion": "v1" });
        let source = json!({ "component": "kubelet", "host": "h" });
        let core = json!({ "source": source, "involvedObject": object });
        let events = json!({ "deprecatedSource": source, "regarding": object });
        for event in [core, events] {
            assert_eq!(source_and_object(&Object::from_value(event).unwrap()), "kubelethPodnpuv1");
        }
        assert_eq!(source_and_object(&Object::default()), "");
    }
}
