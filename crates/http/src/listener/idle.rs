//! The idle time of a connection: since when it has no request, or none that moves.
//!
//! A connection that is idle for long is closed, so that it holds no place that a new client needs. Only counts and times are
//! kept.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The requests of one connection.
#[derive(Clone, Debug)]
pub(super) struct Activity(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    requests: usize,
    idle_since: Instant,
    /// The requests that the server, rather than the client, has something to do for. Watches are never among them.
    worked_on: usize,
    /// When something last happened to a request that is no watch.
    moved: Instant,
}

/// One request, until its answer was sent.
#[derive(Debug)]
pub(super) struct Busy {
    activity: Activity,
    is_long_running: bool,
    is_worked_on: bool,
}

impl Activity {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(State { requests: 0, idle_since: now, worked_on: 0, moved: now })))
    }

    /// Counts a request for as long as the result lives. The server works on it until something of its answer
    /// [moves](Busy::moves).
    pub(super) fn begin(&self) -> Busy {
        let mut state = self.0.lock();
        state.requests += 1;
        state.worked_on += 1;
        drop(state);
        Busy { activity: self.clone(), is_long_running: false, is_worked_on: true }
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

    /// Waits until, for `limit` from now on, nothing has moved but watches, and nothing is left for the server to do. What
    /// was sent last may still be on its way for that long.
    pub(super) async fn stalled_for(&self, limit: Duration) {
        let started = Instant::now();
        loop {
            let State { worked_on, moved, .. } = *self.0.lock();
            let now = Instant::now();
            let since = if worked_on == 0 { moved.max(started) } else { now };
            if now >= since + limit {
                return;
            }
            sleep_until(since + limit).await;
        }
    }
}

impl Busy {
    /// The request is a watch: it ends when it is told to.
    pub(super) fn is_long_running(&mut self) {
        self.set_worked_on(false);
        self.is_long_running = true;
    }

    /// Something of the answer was made, and it is for the client to take it.
    pub(super) fn moves(&mut self) {
        self.set_worked_on(false);
    }

    /// The client took all that was made, and the server makes more.
    pub(super) fn works(&mut self) {
        self.set_worked_on(true);
    }

    fn set_worked_on(&mut self, worked_on: bool) {
        if self.is_long_running {
            return;
        }
        let mut state = self.activity.0.lock();
        state.moved = Instant::now();
        if self.is_worked_on != worked_on {
            self.is_worked_on = worked_on;
            if worked_on {
                state.worked_on += 1;
            } else {
                state.worked_on -= 1;
            }
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.set_worked_on(false);
        let mut state = self.activity.0.lock();
        state.requests -= 1;
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(5);

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
    async fn a_watch_is_waited_for_briefly_and_a_list_as_long_as_it_moves() {
        let activity = Activity::new();
        let mut watch = activity.begin();
        watch.is_long_running();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let started = Instant::now();
        activity.stalled_for(LIMIT).await;
        assert_eq!(started.elapsed(), LIMIT);

        let mut list = activity.begin();
        tokio::spawn(async move {
            for _ in 0..4 {
                tokio::time::sleep(Duration::from_secs(3)).await;
                list.moves();
            }
        });
        let started = Instant::now();
        activity.stalled_for(LIMIT).await;
        assert_eq!(started.elapsed(), Duration::from_secs(17));
        drop(watch);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_waited_for_briefly_and_one_that_is_still_made_is_not() {
        let activity = Activity::new();
        let mut list = activity.begin();
        list.moves();
        let started = Instant::now();
        activity.stalled_for(LIMIT).await;
        assert_eq!(started.elapsed(), LIMIT);

        list.works();
        let started = Instant::now();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(60)).await;
            list.moves();
            std::future::pending::<()>().await;
        });
        activity.stalled_for(LIMIT).await;
        assert_eq!(started.elapsed(), Duration::from_secs(65));
    }
}
