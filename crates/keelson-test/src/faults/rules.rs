//! Faults as values: the requests that they match, how often they happen, and the effect.
//!
//! The rules of a layer are looked at in the order in which they were added. Nothing here knows of connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::Error;

/// The most faults of a layer.
const MOST_FAULTS: usize = 1000;

/// A fault: its effect, the requests that it matches, and how often it happens.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    methods: Vec<Method>,
    path: Option<String>,
    watches: bool,
    times: Option<u64>,
}

/// The consequence for a request.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// It waits, and then goes on.
    Delay(Duration),
    /// It gets this response and does not reach the server.
    Answer(Answer),
    /// A watch gets an event of 410.
    Expired,
    /// A watch ends after so many events.
    DroppedAfter(usize),
    /// It reaches the server, and the response is lost.
    Lost,
}

/// A response without the server.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    code: StatusCode,
    reason: &'static str,
    message: String,
    pub(crate) retry_after: Option<u32>,
}

impl Fault {
    fn new(effect: Effect, times: Option<u64>) -> Self {
        Self { effect, methods: Vec::new(), path: None, watches: false, times }
    }

    fn answer(code: StatusCode, reason: &'static str, message: &str, retry_after: Option<u32>) -> Self {
        Self::new(Effect::Answer(Answer { code, reason, message: message.to_owned(), retry_after }), Some(1))
    }

    /// A delay of every request, until it is removed.
    pub fn latency(delay: Duration) -> Self {
        Self::new(Effect::Delay(delay), None)
    }

    /// 409 for the next update (PUT or PATCH), as if another client had changed the object in between.
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again";
        Self::answer(StatusCode::CONFLICT, "Conflict", message, None).methods([Method::PUT, Method::PATCH])
    }

    /// 410 for the next watch: its first event is an ERROR that says that its resourceVersion is too old.
    pub fn expired_watch() -> Self {
        Self { watches: true, ..Self::new(Effect::Expired, Some(1)) }
    }

    /// An end of the next watch after so many events, as of a broken connection. [`Faults::drop_watches`](crate::Faults::drop_watches)
    /// ends watches that are open.
    pub fn dropped_watch(after_events: usize) -> Self {
        Self { watches: true, ..Self::new(Effect::DroppedAfter(after_events), Some(1)) }
    }

    /// 429 for the next request, with the header `Retry-After` in seconds.
    pub fn too_many_requests(retry_after_seconds: u32) -> Self {
        let message = "too many requests, please try again later";
        Self::answer(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, Some(retry_after_seconds))
    }

    /// 500 for the next request.
    pub fn internal_error() -> Self {
        Self::answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "Internal error occurred", None)
    }

    /// 503 for the next request.
    pub fn unavailable() -> Self {
        Self::answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the server is unavailable", None)
    }

    /// A lost response to the next request: the server carries it out, and the connection ends before the response.
    pub fn lost_response() -> Self {
        Self::new(Effect::Lost, Some(1))
    }

    /// Confines it to these methods.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Confines it to a path, without the query. `*` stands for one segment, and `**` at the end for any number:
    /// `/api/v1/namespaces/*/pods/**` matches the pods of all namespaces, together and each alone.
    #[must_use]
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Confines it to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watches = true;
        self
    }

    /// Has it happen so many times, rather than once.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Has it happen until it is removed.
    #[must_use]
    pub fn always(mut self) -> Self {
        self.times = None;
        self
    }

    fn matches(&self, target: &Target<'_>) -> bool {
        (self.methods.is_empty() || self.methods.contains(target.method))
            && self.path.as_deref().is_none_or(|pattern| matches_path(pattern, target.path))
            && (target.is_watch || !self.watches)
    }
}

/// A request, as far as faults look at it.
pub(crate) struct Target<'r> {
    pub(crate) method: &'r Method,
    pub(crate) path: &'r str,
    pub(crate) is_watch: bool,
}

impl<'r> Target<'r> {
    pub(crate) fn of(method: &'r Method, uri: &'r Uri) -> Self {
        let asks = |part: &str| matches!(part, "watch" | "watch=true" | "watch=1");
        let is_watch = *method == Method::GET
            && (uri.query().is_some_and(|query| query.split('&').any(asks)) || uri.path().contains("/watch/"));
        Self { method, path: uri.path(), is_watch }
    }
}

/// Compares a path with a pattern, segment by segment.
pub(crate) fn matches_path(pattern: &str, path: &str) -> bool {
    let mut path = path.trim_end_matches('/').split('/');
    let mut pattern = pattern.trim_end_matches('/').split('/');
    loop {
        match (pattern.next(), path.next()) {
            (Some("**"), _) | (None, None) => return true,
            (Some(wanted), Some(found)) if wanted == "*" && !found.is_empty() || wanted == found => {}
            _ => return false,
        }
    }
}

impl Answer {
    pub(crate) fn code(&self) -> StatusCode {
        self.code
    }

    pub(crate) fn body(&self) -> Value {
        status(self.code, self.reason, &self.message, self.retry_after)
    }
}

/// The event that a watch ends with whose resourceVersion is too old.
pub(crate) fn expired_event() -> String {
    let message = "too old resource version: the history of this watch is gone";
    let mut event =
        json!({ "type": "ERROR", "object": status(StatusCode::GONE, "Expired", message, None) }).to_string();
    event.push('\n');
    event
}

fn status(code: StatusCode, reason: &str, message: &str, retry_after: Option<u32>) -> Value {
    let mut status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason, "code": code.as_u16(),
    });
    if let Some(seconds) = retry_after {
        status["details"] = json!({ "retryAfterSeconds": seconds });
    }
    status
}

/// A fault that was added to a layer. Dropping this leaves the fault in place.
#[derive(Clone, Debug)]
pub struct Injected {
    rule: Arc<Rule>,
    rules: Weak<Mutex<Vec<Arc<Rule>>>>,
}

impl Injected {
    /// The number of requests that met the fault so far.
    pub fn hits(&self) -> u64 {
        *self.rule.hits.borrow()
    }

    /// Waits until so many requests have met the fault.
    pub async fn reached(&self, hits: u64) {
        // The sender is in the rule, so waiting can't end otherwise.
        let _ = self.rule.hits.subscribe().wait_for(|so_far| *so_far >= hits).await;
    }

    /// Removes the fault.
    pub fn remove(&self) {
        if let Some(rules) = self.rules.upgrade() {
            lock(&rules).retain(|rule| !Arc::ptr_eq(rule, &self.rule));
        }
    }
}

#[derive(Debug)]
struct Rule {
    fault: Fault,
    /// How often it still happens; `u64::MAX` for ever.
    left: AtomicU64,
    hits: watch::Sender<u64>,
}

/// The faults of a layer.
#[derive(Debug, Default)]
pub(crate) struct Rules(Arc<Mutex<Vec<Arc<Rule>>>>);

/// The faults that one request meets.
#[derive(Debug, Default)]
pub(crate) struct Met {
    pub(crate) delay: Duration,
    pub(crate) effect: Option<Effect>,
}

impl Rules {
    pub(crate) fn add(&self, fault: Fault) -> Result<Injected, Error> {
        if let Some(path) = fault.path.as_deref().filter(|path| !path.starts_with('/')) {
            return Err(Error::Argument(format!("the path {path:?} of a fault does not begin with a slash")));
        }
        let left = AtomicU64::new(fault.times.unwrap_or(u64::MAX));
        let rule = Arc::new(Rule { fault, left, hits: watch::Sender::new(0) });
        let mut rules = lock(&self.0);
        rules.retain(|rule| rule.left.load(Ordering::Relaxed) > 0);
        if rules.len() >= MOST_FAULTS {
            return Err(Error::Argument(format!("there are {MOST_FAULTS} faults already")));
        }
        rules.push(rule.clone());
        Ok(Injected { rule, rules: Arc::downgrade(&self.0) })
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// The faults that a request meets, which are counted.
    pub(crate) fn meet(&self, target: &Target<'_>) -> Met {
        let mut met = Met::default();
        // ORDER: under the lock, so that no fault happens more often than it may.
        let rules = lock(&self.0);
        for rule in rules.iter().filter(|rule| rule.fault.matches(target)) {
            let left = rule.left.load(Ordering::Relaxed);
            let is_delay = matches!(rule.fault.effect, Effect::Delay(_));
            if left == 0 || met.effect.is_some() && !is_delay {
                continue;
            }
            if left != u64::MAX {
                rule.left.store(left - 1, Ordering::Relaxed);
            }
            rule.hits.send_modify(|hits| *hits += 1);
            match &rule.fault.effect {
                Effect::Delay(delay) => met.delay += *delay,
                other => met.effect = Some(other.clone()),
            }
        }
        met
    }
}

fn lock(rules: &Mutex<Vec<Arc<Rule>>>) -> std::sync::MutexGuard<'_, Vec<Arc<Rule>>> {
    rules.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        for path in matching {
            assert!(matches_path(pattern, path), "{pattern} {path}");
        }
        for path in others {
            assert!(!matches_path(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn a_pattern_matches_segments() {
        check("/api/v1/pods", &["/api/v1/pods", "/api/v1/pods/"], &["/api/v1/pods/a", "/api/v1", "/api/v1/podsx"]);
        let pods = "/api/v1/namespaces/*/pods/**";
        check(
            pods,
            &["/api/v1/namespaces/a/pods", "/api/v1/namespaces/a/pods/b/status"],
            &["/api/v1/namespaces/a/secrets"],
        );
        check("/**", &["/", "/api", "/api/v1"], &[]);
    }

    fn met(rules: &Rules, method: &Method, uri: &str) -> (Duration, bool) {
        let met = rules.meet(&Target::of(method, &uri.parse().unwrap()));
        (met.delay, met.effect.is_some())
    }

    #[test]
    fn a_fault_happens_so_many_times_to_what_it_matches() {
        let rules = Rules::default();
        let fault = rules.add(Fault::conflict().path("/a").times(2)).unwrap();
        rules.add(Fault::latency(Duration::from_secs(1)).watches()).unwrap();
        assert_eq!(met(&rules, &Method::GET, "/a"), (Duration::ZERO, false));
        assert_eq!(met(&rules, &Method::PUT, "/b"), (Duration::ZERO, false));
        assert_eq!(met(&rules, &Method::PUT, "/a"), (Duration::ZERO, true));
        assert_eq!(met(&rules, &Method::PATCH, "/a"), (Duration::ZERO, true));
        assert_eq!(met(&rules, &Method::PUT, "/a"), (Duration::ZERO, false));
        assert_eq!(met(&rules, &Method::GET, "/a?watch=true&x=1"), (Duration::from_secs(1), false));
        assert_eq!(fault.hits(), 2);
    }

    #[test]
    fn one_request_meets_one_fault_beside_latencies() {
        let rules = Rules::default();
        let first = rules.add(Fault::internal_error()).unwrap();
        let second = rules.add(Fault::unavailable()).unwrap();
        rules.add(Fault::latency(Duration::from_millis(1))).unwrap();
        assert_eq!(met(&rules, &Method::GET, "/a"), (Duration::from_millis(1), true));
        assert_eq!((first.hits(), second.hits()), (1, 0));
        second.remove();
        assert_eq!(met(&rules, &Method::GET, "/a"), (Duration::from_millis(1), false));
    }
}
