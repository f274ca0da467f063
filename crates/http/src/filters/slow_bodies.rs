//! Bodies of requests that arrive slowly.
//!
//! A request takes seats of flow control after its body has arrived. Before it has seats, at most 256 KiB of the body
//! are read. The rest of a larger body may take a second while the request holds its seats. A slower body returns the
//! seats and counts in the user's share of slow bodies, since each may occupy 3 MiB.

use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_immediate;
use keelson_meta::ApiError;
use tokio::time::timeout;

use crate::body::{MAX_REQUEST_BYTES, RequestBody};
use crate::shares::{Holder, Share, Shares};

/// The maximum number of concurrent slow bodies, of all users.
pub(super) const MOST: usize = 512;
/// The time that a body, or the rest of it, may take before it counts as slow.
const MOMENT: Duration = Duration::from_secs(1);
/// The bytes of a body that are read before its request has seats: the window of an HTTP/2 stream.
const WAITING_BYTES: usize = 256 * 1024;

/// Waits for a body, or for the part that is read before the request has seats. For a slow body, returns a share after
/// the whole body has arrived.
///
/// # Errors
/// 429 when the body is slow and its user has used its share of slow bodies.
pub(super) async fn arrived(
    body: &mut RequestBody,
    shares: &Arc<Shares>,
    holder: Holder,
) -> Result<Option<Share>, ApiError> {
    if body.is_empty() || is_there(body, WAITING_BYTES).await {
        return Ok(None);
    }
    arrived_slowly(body, shares, holder).await.map(Some)
}

/// Returns true if the rest of a body arrives within a second.
pub(super) async fn rest_arrived(body: &mut RequestBody) -> bool {
    is_there(body, MAX_REQUEST_BYTES).await
}

/// Counts a body as slow, and waits for all of it until the deadline of the request.
///
/// # Errors
/// As [`arrived`].
pub(super) async fn arrived_slowly(
    body: &mut RequestBody,
    shares: &Arc<Shares>,
    holder: Holder,
) -> Result<Share, ApiError> {
    let share = shares.take(holder, 1)?;
    body.gather(MAX_REQUEST_BYTES).await;
    Ok(share)
}

async fn is_there(body: &mut RequestBody, bytes: usize) -> bool {
    // Most bodies arrive with their head and need no timer.
    poll_immediate(body.gather(bytes)).await.is_some() || timeout(MOMENT, body.gather(bytes)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures::{FutureExt as _, StreamExt as _, stream};
    use http::HeaderMap;
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;
    use crate::shares::Level;

    fn body(pieces: impl futures::Stream<Item = &'static str> + Send + 'static) -> RequestBody {
        let frames = pieces.map(|piece| Ok::<_, std::io::Error>(Frame::data(Bytes::from(piece))));
        RequestBody::new(StreamBody::new(Box::pin(frames)), &HeaderMap::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_slowly_has_a_share_until_it_is_there() {
        let (shares, holder) = (Shares::new("bodies", 1), Holder { flow: 1, level: Level::Users });
        let mut there = body(stream::iter(["a", "b"]));
        assert!(arrived(&mut there, &shares, holder).await.unwrap().is_none());
        assert_eq!(there.read(10).await.unwrap(), "ab");

        let mut slow = body(stream::iter(["a"]).chain(stream::pending()));
        let mut waiting = Box::pin(arrived(&mut slow, &shares, holder));
        assert!(timeout(2 * MOMENT, &mut waiting).await.is_err());
        let mut second = body(stream::once(async {
            tokio::time::sleep(2 * MOMENT).await;
            "late"
        }));
        let refused = arrived(&mut second, &shares, holder).await.unwrap_err();
        assert_eq!(refused.code(), 429);
        assert!((&mut waiting).now_or_never().is_none());
        drop(waiting);
        arrived(&mut second, &shares, holder).await.unwrap();
        assert_eq!(second.read(10).await.unwrap(), "late");
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_part_of_a_body_is_buffered_before_seats() {
        const PIECE: &str = "0123456789abcdef";
        let (shares, holder) = (Shares::new("bodies", 1), Holder { flow: 1, level: Level::Users });
        let pieces = 2 * WAITING_BYTES / PIECE.len();
        let mut large = body(stream::iter(std::iter::repeat_n(PIECE, pieces)).chain(stream::pending()));
        assert!(arrived(&mut large, &shares, holder).await.unwrap().is_none());
        assert!(large.known_bytes() <= (WAITING_BYTES + PIECE.len()) as u64);
        assert!(!rest_arrived(&mut large).await);
        assert!(timeout(2 * MOMENT, arrived_slowly(&mut large, &shares, holder)).await.is_err());
        assert_eq!(large.known_bytes(), 2 * WAITING_BYTES as u64);
    }
}
