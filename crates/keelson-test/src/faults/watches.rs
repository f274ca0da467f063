//! The open watches of a proxy, which a test can find by path and cut.
//!
//! A watch is the body of a forwarded response. It ends with its connection, with a cut, or after a number of events.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Body, Frame};
use tokio::sync::oneshot;

use super::front::{ResponseBody, broken};
use super::rules::{expired_event, matches_path};

/// The time that an event has to reach its client before the watch is cut.
const FLUSH: Duration = Duration::from_millis(20);

/// The way in which a test ends a watch.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WatchEnd {
    /// The connection breaks.
    Dropped,
    /// The watch gets an ERROR event of code 410.
    Expired,
}

/// The watches that are open at the proxy.
#[derive(Debug, Default)]
pub(crate) struct OpenWatches(Mutex<Vec<OpenWatch>>);

#[derive(Debug)]
struct OpenWatch {
    path: String,
    cut: oneshot::Sender<WatchEnd>,
}

impl OpenWatches {
    /// Cuts the watches of a path. Returns their number.
    pub(crate) fn cut(&self, path: &str, how: WatchEnd) -> usize {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (matching, others) = open.drain(..).partition(|watch| matches_path(path, &watch.path));
        *open = others;
        let matching: Vec<OpenWatch> = matching;
        matching.into_iter().filter_map(|watch| watch.cut.send(how).ok()).count()
    }

    /// The number of open watches of a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.iter().filter(|watch| !watch.cut.is_closed() && matches_path(path, &watch.path)).count()
    }

    /// Forwards the body of a watch, with at most this number of events.
    pub(crate) fn pass_on<B>(&self, path: &str, body: B, events: Option<usize>) -> ResponseBody
    where
        B: Body<Data = Bytes> + Unpin + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (cut, is_cut) = oneshot::channel();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|watch| !watch.cut.is_closed());
        open.push(OpenWatch { path: path.to_owned(), cut });
        let watch = Some(Forwarder { body, is_cut, left: events });
        let frames = stream::unfold(watch, |watch| async move { watch?.next().await });
        StreamBody::new(frames).boxed_unsync()
    }
}

/// A watch that the proxy forwards.
struct Forwarder<B> {
    body: B,
    is_cut: oneshot::Receiver<WatchEnd>,
    /// The number of events that may follow; `None` for no limit.
    left: Option<usize>,
}

type Step<B> = (Result<Frame<Bytes>, io::Error>, Option<Forwarder<B>>);

impl<B> Forwarder<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn next(mut self) -> Option<Step<B>> {
        if self.left == Some(0) {
            // The pause lets the last event be sent, since the cut discards unsent data.
            tokio::time::sleep(FLUSH).await;
            return Some((Err(broken()), None));
        }
        let frame = tokio::select! {
            biased;
            Ok(cut) = &mut self.is_cut => return Some(match cut {
                WatchEnd::Dropped => (Err(broken()), None),
                WatchEnd::Expired => (Ok(Frame::data(Bytes::from(expired_event()))), None),
            }),
            frame = self.body.frame() => frame?,
        };
        match frame {
            Ok(frame) => Some((Ok(self.counted(frame)), Some(self))),
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    }

    /// The part of a frame that may be forwarded. A JSON event ends at the end of its line.
    fn counted(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        let Some(left) = &mut self.left else { return frame };
        let Ok(data) = frame.into_data() else { return Frame::data(Bytes::new()) };
        let ends = data.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(place, _)| place + 1);
        let ends: Vec<usize> = ends.take(*left).collect();
        *left -= ends.len();
        let end = if *left == 0 { ends.last().copied().unwrap_or(data.len()) } else { data.len() };
        Frame::data(data.slice(..end))
    }
}
