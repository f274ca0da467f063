//! How long a connection has had nothing to do.

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
}

/// One request, until its answer was sent.
#[derive(Debug)]
pub(super) struct Busy(Activity);

impl Activity {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(State { requests: 0, idle_since: Instant::now() })))
    }

    /// Counts a request for as long as the result lives.
    pub(super) fn begin(&self) -> Busy {
        self.0.lock().requests += 1;
        Busy(self.clone())
    }

    /// Waits until there has been no request for `limit`.
    pub(super) async fn idle_for(&self, limit: Duration) {
        loop {
            let State { requests, idle_since } = *self.0.lock();
            let now = Instant::now();
            let since = if requests == 0 { idle_since } else { now };
            if now >= since + limit {
                return;
            }
            sleep_until(since + limit).await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.requests -= 1;
        state.idle_since = Instant::now();
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
}
