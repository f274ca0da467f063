//! Bodies of requests that arrive slowly.
//!
//! A request takes seats of flow control when its body is there. While it waits for seats, no more of the body is taken in than
//! 256 KiB. The rest of a larger body has a second to arrive with the seats held. A body that takes longer gives the seats back, arrives
//! without them, and is counted: it may keep 3 MiB, and each user may have a share of such bodies.

use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_immediate;
use keelson_meta::ApiError;
use tokio::time::timeout;

use crate::body::{MAX_REQUEST_BYTES, RequestBody};
use crate::shares::{Holder, Share, Shares};

/// The number of bodies of all users that may arrive slowly at once.
pub(super) const MOST: usize = 512;
/// The time that a body, or the rest of it, may take without being counted.
const MOMENT: Duration = Duration::from_secs(1);
/// The bytes of a body that are taken in before its request has seats: as many as a stream of HTTP/2 has under way.
const WAITING_BYTES: usize = 256 * 1024;

/// Waits for a body, or for as much of it as may wait for seats. Returns a share if it arrives slowly, after it has arrived whole.
///
/// # Errors
/// 429 when it arrives slowly and its user has as many such bodies as it may have.
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

/// True if the rest of a body arrives in a moment.
pub(super) async fn rest_arrived(body: &mut RequestBody) -> bool {
    is_there(body, MAX_REQUEST_BYTES).await
}

/// Waits for a body for as long as its request may take.
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
    // Most bodies come with their head: no timer is made for them.
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
    async fn no_more_of_a_body_waits_for_seats_than_a_part() {
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
