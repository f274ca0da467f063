//! Closes a connection whose client reads nothing for a long time, so that it cannot keep a snapshot or buffers
//! forever.
//!
//! `sending.rs` aborts responses that are read too slowly. This module handles connections without any movement.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use keelson_outbound::{Layer, LayeredStream};
use tokio::time::{Instant, Sleep, sleep};

/// A stream whose writes fail when the client has read nothing for a while.
pub(super) type StallGuard<S> = LayeredStream<S, StallTimer>;

/// The time that a peer may read nothing, and the start of the present stall.
pub(super) struct StallTimer {
    patience: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    /// Sets the time after which writes fail.
    pub(super) fn new(patience: Duration) -> Self {
        Self { patience, timer: None }
    }
}

impl Layer for StallTimer {
    /// Returns a finished write, and resets the timer. For a pending write, starts or polls the timer.
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
        let mut guarded = StallGuard::new(near, StallTimer::new(Duration::from_secs(60)));
        let started = Instant::now();
        let refused = guarded.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(started.elapsed() >= Duration::from_secs(60));
    }
}
