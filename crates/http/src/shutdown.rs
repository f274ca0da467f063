//! The phases of a server's end, by kube-apiserver's flags `--shutdown-*`.
//!
//! At the request to stop `/readyz` fails, and all requests are still served for a delay, in which load balancers
//! notice. Then the listener closes, or stays open and refuses requests with 429, until requests in flight have ended.
//! Watches are ended one after the other, so that their clients do not all return at once. The end of everything else
//! is the token of [`Shutdown::stopping`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::header::{CONNECTION, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode, Version};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::body::{GuardedBody, ResponseBody, stream};
use crate::respond;

/// Paths whose requests are never refused, by their beginning.
const SERVED_TO_THE_END: [&str; 4] = ["/readyz", "/livez", "/healthz", "/metrics"];
/// The least number of watches that are ended in a second, as upstream.
const LEAST_WATCHES_PER_SECOND: f64 = 200.0;
/// `Retry-After` of refused requests and watches, in seconds.
const RETRY_REQUEST: u32 = 5;
const RETRY_WATCH: u32 = 1;

/// The settings of a shutdown. The default has no delay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutdownTimes {
    /// The time for which all requests are still served.
    pub delay: Duration,
    /// True to keep the listener open after the delay and to refuse requests, until those in flight have ended.
    pub sends_retry_after: bool,
    /// The longest time over which watches are ended. Zero ends all at once.
    pub watch_grace: Duration,
}

/// The phases of the end of one server.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<Phases>);

#[derive(Debug)]
struct Phases {
    times: ShutdownTimes,
    /// Cancelled at the request to stop.
    announced: CancellationToken,
    /// Cancelled when the listener closes.
    closing: CancellationToken,
    stopping: CancellationToken,
    /// True while new requests are refused.
    refuses: AtomicBool,
    /// The requests in flight, if a shutdown waits for them.
    requests: TaskTracker,
    watches: Mutex<Watches>,
    watches_in_flight: TaskTracker,
}

/// The tokens of watches, if a shutdown ends them one by one.
#[derive(Debug, Default)]
struct Watches {
    next: u64,
    tokens: BTreeMap<u64, CancellationToken>,
    are_ending: bool,
}

/// A request that a shutdown waits for, until its response is sent.
#[derive(Debug)]
pub(crate) struct InFlight {
    _counted: TaskTrackerToken,
    watch: Option<(Shutdown, u64)>,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        if let Some((shutdown, number)) = &self.watch {
            shutdown.0.watches.lock().tokens.remove(number);
        }
    }
}

/// A request that may be answered.
pub(crate) struct AdmittedRequest {
    /// Cancelled when the request must end, if it is a watch.
    pub(crate) stopping: CancellationToken,
    in_flight: Option<InFlight>,
}

impl AdmittedRequest {
    /// Keeps the request in flight until the response is sent.
    pub(crate) fn holding(in_flight: Option<InFlight>, response: Response<ResponseBody>) -> Response<ResponseBody> {
        match in_flight {
            Some(guard) => response.map(|body| stream(GuardedBody::new(body, guard))),
            None => response,
        }
    }

    /// The guard of the request.
    pub(crate) fn take_guard(&mut self) -> Option<InFlight> {
        self.in_flight.take()
    }
}

/// Response extension: the connection closes after this response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClosesConnection;

/// Announces the end of an HTTP/1.1 connection in a header. Returns true if the connection of another version must be
/// closed with GOAWAY.
pub(crate) fn closes(response: &mut Response<ResponseBody>, version: Version) -> bool {
    if response.extensions_mut().remove::<ClosesConnection>().is_none() {
        return false;
    }
    if version == Version::HTTP_2 {
        return true;
    }
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    false
}

impl Shutdown {
    /// The phases before `stopping` is cancelled.
    pub fn new(stopping: CancellationToken, times: ShutdownTimes) -> Self {
        let closing = stopping.child_token();
        Self(Arc::new(Phases {
            times,
            announced: closing.child_token(),
            closing,
            stopping,
            refuses: AtomicBool::new(false),
            requests: TaskTracker::new(),
            watches: Mutex::default(),
            watches_in_flight: TaskTracker::new(),
        }))
    }

    /// Cancelled at the request to stop. `/readyz` fails from then on.
    pub fn announced(&self) -> &CancellationToken {
        &self.0.announced
    }

    /// Cancelled when no more connections are accepted.
    pub(crate) fn closing(&self) -> &CancellationToken {
        &self.0.closing
    }

    /// Cancelled when the server stops.
    pub fn stopping(&self) -> &CancellationToken {
        &self.0.stopping
    }

    /// Runs the phases before the end: the delay, then the end of watches and of requests in flight, for which it waits
    /// for at most `longest_request`.
    pub async fn drain(&self, longest_request: Duration) {
        let Phases { times, .. } = *self.0;
        self.0.announced.cancel();
        if !times.delay.is_zero() {
            tracing::info!(delay = ?times.delay, "stopping: requests are served for the time of --shutdown-delay-duration");
            sleep(times.delay).await;
        }
        if times.sends_retry_after {
            // ORDER: refused before the wait. A request is counted before it looks.
            self.0.refuses.store(true, Ordering::SeqCst);
        } else {
            self.0.closing.cancel();
        }
        let requests = async {
            self.0.requests.close();
            if times.sends_retry_after && timeout(longest_request, self.0.requests.wait()).await.is_err() {
                tracing::warn!("requests in flight did not end in the time of --request-timeout");
            }
        };
        let watches = async {
            if !times.watch_grace.is_zero() && timeout(times.watch_grace, self.end_watches()).await.is_err() {
                tracing::warn!("watches did not end in the time of --shutdown-watch-termination-grace-period");
            }
        };
        tokio::join!(requests, watches);
    }

    /// Ends the watches, spread over the grace period.
    async fn end_watches(&self) {
        let tokens: Vec<CancellationToken> = {
            let mut watches = self.0.watches.lock();
            watches.are_ending = true;
            watches.tokens.values().cloned().collect()
        };
        let grace = self.0.times.watch_grace.as_secs_f64();
        #[allow(clippy::cast_precision_loss, reason = "a rate")]
        let rate = (tokens.len() as f64 / grace).max(LEAST_WATCHES_PER_SECOND);
        let begun = Instant::now();
        tracing::info!(watches = tokens.len(), "stopping: watches are ended");
        for (number, token) in (0_u32..).zip(tokens) {
            let due = begun + Duration::from_secs_f64(f64::from(number) / rate);
            if due > Instant::now() {
                sleep_until(due).await;
            }
            token.cancel();
        }
        self.0.watches_in_flight.close();
        self.0.watches_in_flight.wait().await;
    }

    /// Counts a request. `is_watch` is true for one that this server ends by its token.
    ///
    /// # Errors
    /// The refusal of a request that comes too late.
    pub(crate) fn enter(
        &self,
        path: &str,
        is_long_running: bool,
        is_watch: bool,
    ) -> Result<AdmittedRequest, Box<Response<ResponseBody>>> {
        let (phases, is_served) = (&*self.0, SERVED_TO_THE_END.iter().any(|begin| path.starts_with(begin)));
        let counts = phases.times.sends_retry_after && !is_long_running && !is_served;
        let counted = counts.then(|| InFlight { _counted: phases.requests.token(), watch: None });
        if phases.refuses.load(Ordering::SeqCst) && !is_served {
            let text = "The apiserver is shutting down, please try again later.\n";
            return Err(Box::new(refusal(StatusCode::TOO_MANY_REQUESTS, RETRY_REQUEST, text)));
        }
        if !is_watch || phases.times.watch_grace.is_zero() {
            return Ok(AdmittedRequest { stopping: phases.stopping.clone(), in_flight: counted });
        }
        let mut watches = phases.watches.lock();
        if watches.are_ending {
            let text = "apiserver is shutting down.\n";
            return Err(Box::new(refusal(StatusCode::SERVICE_UNAVAILABLE, RETRY_WATCH, text)));
        }
        let (number, token) = (watches.next, phases.stopping.child_token());
        watches.next += 1;
        watches.tokens.insert(number, token.clone());
        let counted = phases.watches_in_flight.token();
        let in_flight = InFlight { _counted: counted, watch: Some((self.clone(), number)) };
        Ok(AdmittedRequest { stopping: token, in_flight: Some(in_flight) })
    }
}

fn refusal(code: StatusCode, retry_after: u32, text: &'static str) -> Response<ResponseBody> {
    let mut refused = respond::plain_text(code, text.to_owned());
    refused.headers_mut().insert(RETRY_AFTER, HeaderValue::from(retry_after));
    refused.extensions_mut().insert(ClosesConnection);
    refused
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::empty;

    fn times(sends_retry_after: bool, delay: u64, watch_grace: u64) -> ShutdownTimes {
        let [delay, watch_grace] = [delay, watch_grace].map(Duration::from_secs);
        ShutdownTimes { delay, sends_retry_after, watch_grace }
    }

    #[tokio::test(start_paused = true)]
    async fn requests_are_served_in_the_delay_and_then_refused() {
        let shutdown = Shutdown::new(CancellationToken::new(), times(true, 10, 0));
        let mut entered = shutdown.enter("/api/v1/pods", false, false).unwrap();
        let response = AdmittedRequest::holding(entered.take_guard(), Response::new(empty()));
        let (begun, draining) = (Instant::now(), shutdown.clone());
        let draining = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
        sleep(Duration::from_secs(9)).await;
        assert!(shutdown.announced().is_cancelled() && !shutdown.closing().is_cancelled());
        drop(shutdown.enter("/api/v1/pods", false, false).unwrap());
        sleep(Duration::from_secs(5)).await;
        let refused = shutdown.enter("/api/v1/pods", false, false).err().unwrap();
        assert_eq!((refused.status().as_u16(), &refused.headers()[RETRY_AFTER]), (429, &HeaderValue::from(5)));
        assert!(shutdown.enter("/readyz", false, false).is_ok() && !draining.is_finished());
        drop(response);
        draining.await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(20), "the request in flight has ended");
        assert!(!shutdown.closing().is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn watches_are_ended_one_after_the_other() {
        let shutdown = Shutdown::new(CancellationToken::new(), times(false, 0, 10));
        let watches: Vec<_> = (0..4000).map(|_| shutdown.enter("/api/v1/pods", true, true).unwrap()).collect();
        drop(shutdown.enter("/api/v1/pods", true, true).unwrap());
        assert_eq!(shutdown.0.watches.lock().tokens.len(), 4000);
        let draining = shutdown.clone();
        let draining = tokio::spawn(async move { draining.drain(Duration::from_secs(60)).await });
        sleep(Duration::from_secs(5)).await;
        let ended = watches.iter().filter(|watch| watch.stopping.is_cancelled()).count();
        assert!((1990..=2010).contains(&ended), "{ended} of 4000 after half of the time");
        assert_eq!(shutdown.enter("/api/v1/pods", true, true).err().unwrap().status(), 503);
        sleep(Duration::from_millis(4999)).await;
        assert!(watches.iter().all(|watch| watch.stopping.is_cancelled()) && !draining.is_finished());
        drop(watches);
        draining.await.unwrap();
        assert!(shutdown.closing().is_cancelled() && !shutdown.stopping().is_cancelled());
    }
}
