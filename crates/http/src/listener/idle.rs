//! The idle time of a connection: the time without a request, or without progress of its requests.
//!
//! A connection that is idle for long is closed, so that it does not occupy a slot that a new client needs. A shutdown
//! waits only for connections that make progress. The state consists of counts and times, and for each request whether
//! the server or the client must act next.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    requests: usize,
    idle_since: Instant,
    /// True if a request ended at that time, and not only the handshake.
    is_answered: bool,
    /// The number of requests for which the server must act next. Watches are never counted.
    worked_on: usize,
    /// The time of the last progress of a request that is not a watch.
    moved: Instant,
}

/// The party that must act next in one request, server or client. Changed only under the lock of its connection's
/// state.
#[derive(Debug)]
struct Turn {
    /// True while the server produces the response, or more of it.
    answer: AtomicBool,
    /// True while the server waits for the rest of the request body.
    body: AtomicBool,
}

/// One request in flight, until its response is sent.
#[derive(Debug)]
pub(super) struct Busy {
    activity: Activity,
    turn: Arc<Turn>,
    is_long_running: bool,
}

/// The body of a request. While the server waits for it, the client must act next.
pub(super) struct IncomingBody<B> {
    inner: B,
    activity: Activity,
    turn: Arc<Turn>,
    is_waited_for: bool,
}

impl Turn {
    fn is_the_servers(&self) -> bool {
        self.answer.load(Ordering::Relaxed) && !self.body.load(Ordering::Relaxed)
    }
}

impl State {
    /// Records a step of a request.
    fn change(&mut self, now: Instant, turn: &Turn, change: impl FnOnce(&Turn)) {
        self.moved = now;
        let before = turn.is_the_servers();
        change(turn);
        match (before, turn.is_the_servers()) {
            (false, true) => self.worked_on += 1,
            (true, false) => self.worked_on -= 1,
            (true, true) | (false, false) => {}
        }
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        let state = State { requests: 0, idle_since: now, is_answered: false, worked_on: 0, moved: now };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Counts a request until the returned guard is dropped. The server must act until the response
    /// [moves](Busy::moves), except while it waits for the rest of the [body](Busy::intake).
    pub(super) fn begin(&self) -> Busy {
        let mut state = self.0.lock();
        state.requests += 1;
        state.worked_on += 1;
        drop(state);
        let turn = Turn { answer: AtomicBool::new(true), body: AtomicBool::new(false) };
        Busy { activity: self.clone(), turn: Arc::new(turn), is_long_running: false }
    }

    /// Records a step of a request, which may change the party that must act next.
    fn change(&self, turn: &Turn, change: impl FnOnce(&Turn)) {
        self.0.lock().change(Instant::now(), turn, change);
    }

    /// Returns true if there is no request.
    pub(super) fn is_idle(&self) -> bool {
        self.0.lock().requests == 0
    }

    /// Waits until there has been no request for `limit`.
    pub(super) async fn idle_for(&self, limit: Duration) {
        loop {
            let State { requests, idle_since, .. } = *self.0.lock();
            let now = Instant::now();
            let since = if requests == 0 { idle_since } else { now };
            if now >= since + limit {
                return;
            }
            sleep_until(since + limit).await;
        }
    }

    /// Waits until no request except watches has made progress for `limit`, and the server has nothing left to do. The
    /// last bytes may take that long to arrive. Without any request it waits for `parting`, the time to announce the
    /// shutdown.
    pub(super) async fn stalled_for(&self, limit: Duration, parting: Duration) {
        let started = Instant::now();
        loop {
            let State { requests, idle_since, is_answered, worked_on, moved } = *self.0.lock();
            let now = Instant::now();
            let end = if requests == 0 {
                let last = if is_answered { idle_since + limit } else { started };
                last.max(started + parting)
            } else if worked_on == 0 {
                moved.max(started) + limit
            } else {
                now + limit
            };
            if now >= end {
                return;
            }
            sleep_until(end).await;
        }
    }
}

impl Busy {
    /// Wraps the body of the request, to record when the server waits for it.
    pub(super) fn intake<B>(&self, inner: B) -> IncomingBody<B> {
        IncomingBody { inner, activity: self.activity.clone(), turn: self.turn.clone(), is_waited_for: false }
    }

    /// Marks the request as a watch, which ends when the server stops.
    pub(super) fn is_long_running(&mut self) {
        self.set_worked_on(false);
        self.is_long_running = true;
    }

    /// The server produced a part of the response, which the client must read next.
    pub(super) fn moves(&mut self) {
        self.set_worked_on(false);
    }

    /// The client read all that was produced, and the server produces more.
    pub(super) fn works(&mut self) {
        self.set_worked_on(true);
    }

    fn set_worked_on(&mut self, worked_on: bool) {
        if !self.is_long_running {
            self.activity.change(&self.turn, |turn| turn.answer.store(worked_on, Ordering::Relaxed));
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let now = Instant::now();
        let mut state = self.activity.0.lock();
        if !self.is_long_running {
            state.change(now, &self.turn, |turn| turn.answer.store(false, Ordering::Relaxed));
        }
        state.requests -= 1;
        (state.idle_since, state.is_answered) = (now, true);
    }
}

impl<B> IncomingBody<B> {
    fn wait(&mut self, is_waited_for: bool) {
        if self.is_waited_for != is_waited_for {
            self.is_waited_for = is_waited_for;
            self.activity.change(&self.turn, |turn| turn.body.store(is_waited_for, Ordering::Relaxed));
        }
    }
}

impl<B: Body + Unpin> Body for IncomingBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        let frame = Pin::new(&mut this.inner).poll_frame(context);
        this.wait(frame.is_pending());
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> Drop for IncomingBody<B> {
    fn drop(&mut self) {
        self.wait(false);
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use http_body_util::BodyExt as _;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);
    const PARTING: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn idleness_begins_when_the_last_answer_was_sent() {
        const LIMIT: Duration = Duration::from_secs(90);
        let activity = Activity::new();
        let busy = activity.begin();
        let started = Instant::now();
        let end = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(300)).await;
            drop(busy);
        });
        activity.idle_for(LIMIT).await;
        end.await.unwrap();
        assert!(started.elapsed() >= Duration::from_secs(390));
    }

    #[tokio::test(start_paused = true)]
    async fn shutdown_waits_briefly_for_watches_and_for_moving_lists() {
        let activity = Activity::new();
        let mut watch = activity.begin();
        watch.is_long_running();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let started = Instant::now();
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), LIMIT);

        let mut list = activity.begin();
        tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(3)).await;
                list.moves();
            }
        });
        let started = Instant::now();
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), Duration::from_secs(17));
        drop(watch);
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_response_times_out_soon_and_an_unfinished_one_does_not() {
        let activity = Activity::new();
        let mut list = activity.begin();
        list.moves();
        let started = Instant::now();
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), LIMIT);

        list.works();
        let started = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            list.moves();
            std::future::pending::<()>().await;
        });
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), Duration::from_secs(65));
    }

    #[tokio::test(start_paused = true)]
    async fn a_moving_body_has_no_timeout_and_neither_has_its_handler() {
        let activity = Activity::new();
        let mut request = activity.begin();
        let pieces = futures::stream::iter(0..3).then(async |piece| {
            tokio::time::sleep(Duration::from_secs(3)).await;
            Ok::<_, std::convert::Infallible>(Frame::data(bytes::Bytes::from(vec![piece])))
        });
        let mut body =
            request.intake(http_body_util::StreamBody::new(Box::pin(pieces.chain(futures::stream::pending()))));
        let started = Instant::now();
        let reading = tokio::spawn(async move {
            for _ in 0..3 {
                body.frame().await.unwrap().unwrap();
            }
            // The server works on the part of the body that has arrived.
            tokio::time::sleep(Duration::from_secs(30)).await;
            body.frame().await;
        });
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), Duration::from_secs(9 + 30) + LIMIT);
        // The rest of a body that is dropped after the response changes nothing.
        request.moves();
        reading.abort();
        assert!(reading.await.unwrap_err().is_cancelled());
        let started = Instant::now();
        activity.stalled_for(LIMIT, PARTING).await;
        assert_eq!(started.elapsed(), LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_a_request_is_waited_for_a_moment() {
        let activity = Activity::new();
        let waited = async |activity: &Activity| {
            let started = Instant::now();
            activity.stalled_for(LIMIT, PARTING).await;
            started.elapsed()
        };
        assert_eq!(waited(&activity).await, PARTING, "nothing was ever asked");
        drop(activity.begin());
        assert_eq!(waited(&activity).await, LIMIT, "the answer may be on its way");
        assert_eq!(waited(&activity).await, PARTING, "it has arrived, or never will");
    }
}
