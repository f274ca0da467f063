//! Faults as values: the requests that they match, the number of times that they occur, and their effect.
//!
//! The proxy checks its rules in the order in which they were added. This module does not use connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use http::{Method, StatusCode, Uri};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::error::Error;

/// The largest number of faults of a proxy.
const MOST_FAULTS: usize = 1000;

/// A fault: its effect, the requests that it matches, and the number of times that it occurs.
#[derive(Clone, Debug)]
pub struct Fault {
    effect: Effect,
    methods: Vec<Method>,
    path: Option<String>,
    watches: bool,
    times: Option<u64>,
}

/// The effect on a request.
#[derive(Clone, Debug)]
pub(crate) enum Effect {
    /// The request waits and is then forwarded.
    Delay(Duration),
    /// The proxy answers with this response and does not forward the request.
    Answer(Answer),
    /// The watch gets an ERROR event of code 410.
    Expired,
    /// The watch ends after this number of events.
    DroppedAfter(usize),
    /// The request is forwarded, and its response is discarded.
    Lost,
}

/// A response of the proxy itself.
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

    /// Delays every request until the fault is removed.
    pub fn latency(delay: Duration) -> Self {
        Self::new(Effect::Delay(delay), None)
    }

    /// Answers the next update (PUT or PATCH) with 409, as if another client had changed the object in between.
    pub fn conflict() -> Self {
        let message = "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and try again";
        Self::answer(StatusCode::CONFLICT, "Conflict", message, None).methods([Method::PUT, Method::PATCH])
    }

    /// Ends the next watch with 410: its first event is an ERROR, which says that its resource version is too old.
    pub fn expired_watch() -> Self {
        Self { watches: true, ..Self::new(Effect::Expired, Some(1)) }
    }

    /// Ends the next watch after this number of events, like a broken connection.
    /// [`Faults::drop_watches`](crate::Faults::drop_watches) ends watches that are already open.
    pub fn dropped_watch(after_events: usize) -> Self {
        Self { watches: true, ..Self::new(Effect::DroppedAfter(after_events), Some(1)) }
    }

    /// Answers the next request with 429 and the header `Retry-After`, in seconds.
    pub fn too_many_requests(retry_after_seconds: u32) -> Self {
        let message = "too many requests, please try again later";
        Self::answer(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message, Some(retry_after_seconds))
    }

    /// Answers the next request with 500.
    pub fn internal_error() -> Self {
        Self::answer(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", "Internal error occurred", None)
    }

    /// Answers the next request with 503.
    pub fn unavailable() -> Self {
        Self::answer(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "the server is unavailable", None)
    }

    /// Loses the response to the next request: the server executes the request, and the connection ends before the
    /// response.
    pub fn lost_response() -> Self {
        Self::new(Effect::Lost, Some(1))
    }

    /// Limits the fault to these methods.
    #[must_use]
    pub fn methods(mut self, methods: impl IntoIterator<Item = Method>) -> Self {
        self.methods = methods.into_iter().collect();
        self
    }

    /// Limits the fault to a path, without the query. `*` matches one segment, and `**` at the end any number of
    /// segments: `/api/v1/namespaces/*/pods/**` matches the pods of every namespace, both the list and single pods.
    #[must_use]
    pub fn path(mut self, pattern: &str) -> Self {
        self.path = Some(pattern.to_owned());
        self
    }

    /// Limits the fault to watches.
    #[must_use]
    pub fn watches(mut self) -> Self {
        self.watches = true;
        self
    }

    /// Makes the fault occur this number of times instead of once.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Makes the fault occur until it is removed.
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

/// The parts of a request that faults match.
pub(crate) struct Target<'r> {
    pub(crate) method: &'r Method,
    pub(crate) path: &'r str,
    pub(crate) is_watch: bool,
}

impl<'r> Target<'r> {
    pub(crate) fn new(method: &'r Method, uri: &'r Uri) -> Self {
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

/// The last event of a watch whose resource version is too old.
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

/// A fault that was added to a proxy. Dropping this value leaves the fault in place.
#[derive(Clone, Debug)]
pub struct InjectedFault {
    rule: Arc<Rule>,
    rules: Weak<Mutex<Vec<Arc<Rule>>>>,
}

impl InjectedFault {
    /// The number of requests that the fault has affected so far.
    pub fn hits(&self) -> u64 {
        *self.rule.hits.borrow()
    }

    /// Waits until the fault has affected this number of requests.
    pub async fn reached(&self, hits: u64) {
        // The rule owns the sender, so the wait can't fail.
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
    /// The number of times that the fault still occurs; `u64::MAX` means forever.
    left: AtomicU64,
    hits: watch::Sender<u64>,
}

/// The faults of a proxy, in the order of their addition.
#[derive(Debug, Default)]
pub(crate) struct Rules(Arc<Mutex<Vec<Arc<Rule>>>>);

/// The faults that affect one request.
#[derive(Debug, Default)]
pub(crate) struct ActiveFaults {
    pub(crate) delay: Duration,
    pub(crate) effect: Option<Effect>,
}

impl Rules {
    pub(crate) fn add(&self, fault: Fault) -> Result<InjectedFault, Error> {
        if let Some(path) = fault.path.as_deref().filter(|path| !path.starts_with('/')) {
            return Err(Error::Argument(format!("the path {path:?} of a fault does not begin with a slash")));
        }
        let left = AtomicU64::new(fault.times.unwrap_or(u64::MAX));
        let rule = Arc::new(Rule { fault, left, hits: watch::Sender::new(0) });
        let mut rules = lock(&self.0);
        rules.retain(|rule| rule.left.load(Ordering::Relaxed) > 0);
        if rules.len() >= MOST_FAULTS {
            return Err(Error::TooManyFaults(MOST_FAULTS));
        }
        rules.push(rule.clone());
        Ok(InjectedFault { rule, rules: Arc::downgrade(&self.0) })
    }

    pub(crate) fn clear(&self) {
        lock(&self.0).clear();
    }

    /// Returns the faults that affect a request, and counts them.
    pub(crate) fn meet(&self, target: &Target<'_>) -> ActiveFaults {
        let mut met = ActiveFaults::default();
        // ORDER: under the lock, so that no fault occurs more often than its limit.
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
        let met = rules.meet(&Target::new(method, &uri.parse().unwrap()));
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
