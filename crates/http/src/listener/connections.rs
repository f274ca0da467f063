//! The connections of a listener: how many there are, and whose.
//!
//! A connection is a stranger's until its client has proved who it is, by a certificate or with a request. Strangers have a part
//! of all connections and no more, and when that is used up the oldest of them gives way to the newest: whoever can prove who it is
//! has long done so. So nobody without credentials can keep those out who have some.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Edge;

/// How often the log says at the most that connections are refused or give way.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// Which part of all connections strangers may have: one in so many.
const STRANGERS_PART: usize = 4;

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    state: Mutex<State>,
    most: usize,
    most_strangers: usize,
    metrics: Arc<Edge>,
}

#[derive(Debug, Default)]
struct State {
    open: usize,
    next: u64,
    /// By the order in which they came; what is cancelled gives way.
    strangers: BTreeMap<u64, CancellationToken>,
    /// When the log was last told, and what happened since.
    told: Option<Instant>,
    untold: u64,
}

/// One open connection.
#[derive(Debug)]
pub(super) struct Ticket {
    connections: Arc<Connections>,
    number: u64,
    displaced: CancellationToken,
}

impl Connections {
    /// There may be `most` at once.
    pub(super) fn new(most: usize, metrics: Arc<Edge>) -> Self {
        Self { state: Mutex::default(), most, most_strangers: (most / STRANGERS_PART).max(1), metrics }
    }

    /// Counts a connection that was accepted; `None` when it is one too many.
    pub(super) fn register(self: &Arc<Self>) -> Option<Ticket> {
        let mut state = self.state.lock();
        let full = state.open >= self.most;
        if full || state.strangers.len() >= self.most_strangers {
            match state.strangers.pop_first() {
                Some((_, oldest)) => {
                    oldest.cancel();
                    self.metrics.count_displaced();
                    self.metrics.count_stranger(-1);
                }
                None if full => {
                    self.metrics.count_refused();
                    state.tell(self.most);
                    return None;
                }
                None => {}
            }
            state.tell(self.most);
        }
        state.open += 1;
        let (number, displaced) = (state.next, CancellationToken::new());
        state.next += 1;
        state.strangers.insert(number, displaced.clone());
        self.metrics.count_stranger(1);
        Some(Ticket { connections: self.clone(), number, displaced })
    }
}

impl State {
    /// Tells the log, but not each time.
    fn tell(&mut self, most: usize) {
        self.untold += 1;
        let now = Instant::now();
        if self.told.is_none_or(|told| now >= told + TELL_EVERY) {
            let (open, times) = (self.open, self.untold);
            tracing::warn!(
                open,
                most,
                times,
                "more connections come than there may be: strangers' give way or are refused"
            );
            (self.told, self.untold) = (Some(now), 0);
        }
    }
}

impl Ticket {
    /// The client has proved who it is.
    pub(super) fn is_known(&self) {
        if self.connections.state.lock().strangers.remove(&self.number).is_some() {
            self.connections.metrics.count_stranger(-1);
            self.connections.metrics.count_known(1);
        }
    }

    /// Waits until the connection has to give way, which one of somebody who is known never has.
    pub(super) async fn displaced(&self) {
        self.displaced.cancelled().await;
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.connections.state.lock();
        state.open -= 1;
        if state.strangers.remove(&self.number).is_some() {
            self.connections.metrics.count_stranger(-1);
        } else if !self.displaced.is_cancelled() {
            self.connections.metrics.count_known(-1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_give_way_to_newer_ones_and_never_the_known() {
        let connections = Arc::new(Connections::new(8, Arc::new(Edge::default())));
        let first = connections.register().unwrap();
        let known = connections.register().unwrap();
        known.is_known();
        let second = connections.register().unwrap();
        assert!(!first.displaced.is_cancelled());
        let third = connections.register().unwrap();
        assert!(first.displaced.is_cancelled() && !second.displaced.is_cancelled() && !known.displaced.is_cancelled());
        drop((first, second, third));

        let all: Vec<_> = std::iter::from_fn(|| connections.register().inspect(Ticket::is_known)).collect();
        assert_eq!(all.len(), 7, "with the one that was there before");
        drop(all);
        assert!(connections.register().is_some());
        drop(known);
        let state = connections.state.lock();
        assert_eq!((state.open, state.strangers.len()), (0, 0));
    }
}
