//! How long a connection has had nothing to do, or nothing but watches.

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
    /// The requests that end by themselves: all but watches.
    bounded: usize,
    unbounded_since: Instant,
}

/// One request, until its answer was sent.
#[derive(Debug)]
pub(super) struct Busy {
    activity: Activity,
    bounded: bool,
}

impl Activity {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self(Arc::new(Mutex::new(State { requests: 0, idle_since: now, bounded: 0, unbounded_since: now })))
    }

    /// Counts a request for as long as the result lives.
    pub(super) fn begin(&self) -> Busy {
        let mut state = self.0.lock();
        state.requests += 1;
        state.bounded += 1;
        drop(state);
        Busy { activity: self.clone(), bounded: true }
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

    /// Waits until, for `limit` from now on, there has been nothing but watches. What was sent last may still be on its
    /// way for that long.
    pub(super) async fn only_long_running_for(&self, limit: Duration) {
        let started = Instant::now();
        loop {
            let State { bounded, unbounded_since, .. } = *self.0.lock();
            let now = Instant::now();
            let since = if bounded == 0 { unbounded_since.max(started) } else { now };
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
        if std::mem::replace(&mut self.bounded, false) {
            self.activity.0.lock().end_bounded(Instant::now());
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.activity.0.lock();
        let now = Instant::now();
        state.requests -= 1;
        state.idle_since = now;
        if self.bounded {
            state.end_bounded(now);
        }
    }
}

impl State {
    fn end_bounded(&mut self, now: Instant) {
        self.bounded -= 1;
        self.unbounded_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    async fn a_watch_is_waited_for_briefly_and_a_list_to_its_end() {
        const LIMIT: Duration = Duration::from_secs(5);
        let activity = Activity::new();
        let mut watch = activity.begin();
        watch.is_long_running();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let started = Instant::now();
        activity.only_long_running_for(LIMIT).await;
        assert_eq!(started.elapsed(), LIMIT);

        let list = activity.begin();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(12)).await;
            drop(list);
        });
        let started = Instant::now();
        activity.only_long_running_for(LIMIT).await;
        assert!(started.elapsed() >= Duration::from_secs(17), "{:?}", started.elapsed());
        drop(watch);
    }
}
