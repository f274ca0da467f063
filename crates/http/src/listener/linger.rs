//! The end of an HTTP/1.1 connection whose request was refused before it was read whole.
//!
//! A connection that is closed with unread bytes is reset, and the client's system drops a response that the client has
//! not read. The rest of the request is therefore read and dropped for a short time, as Go's HTTP server does.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::{Sleep, sleep};

/// The longest time for the rest of a request.
const TIME: Duration = Duration::from_millis(500);
/// The largest rest of a request in bytes.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// The bytes of each read.
const READ_BYTES: usize = 8 * 1024;

/// The reads of the rest of a request.
#[derive(Debug)]
pub(super) struct Linger {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl Linger {
    pub(super) fn new() -> Self {
        Self { end: Box::pin(sleep(TIME)), left: MOST_BYTES }
    }

    /// Reads until the client closes its side, or a limit is reached.
    pub(super) fn poll(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Poll<io::Result<()>> {
        while self.end.as_mut().poll(context).is_pending() && self.left > 0 {
            let mut bytes = [MaybeUninit::uninit(); READ_BYTES];
            let mut read = ReadBuf::uninit(&mut bytes);
            // The response is sent, so an error of the client changes nothing.
            if ready!(Pin::new(&mut *stream).poll_read(context, &mut read)).is_err() || read.filled().is_empty() {
                break;
            }
            self.left = self.left.saturating_sub(read.filled().len());
        }
        Poll::Ready(Ok(()))
    }
}
