//! Cuts a connection whose peer takes nothing for a long time, so that it cannot hold a snapshot or buffers for ever.
//!
//! Answers that are taken too slowly are given up earlier, by `sending.rs`; this is what remains when nothing moves at all.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use keelson_outbound::{Layer, Layered};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail once the peer took nothing for a while.
pub(super) type StallGuard<S> = Layered<S, Patience>;

/// The time that a peer may read nothing, and the start of the present stall.
pub(super) struct Patience {
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    /// Fails writes once the peer took nothing for so long.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, timer: None }
    }
}

impl Layer for Patience {
    /// Passes a finished write on; starts or asks the timer for one that waits.
    fn written(&mut self, context: &mut Context<'_>, write: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if write.is_ready() {
            self.timer = None;
            return write;
        }
        let patience = self.patience;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(patience)));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => {
                timer.as_mut().reset(Instant::now() + patience);
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the peer stopped reading")))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_reads_nothing_is_cut() {
        let (near, _far) = tokio::io::duplex(16);
        let mut guarded = StallGuard::new(near, Patience::new(Duration::from_secs(60)));
        let started = Instant::now();
        let refused = guarded.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_secs(60));
    }
}
