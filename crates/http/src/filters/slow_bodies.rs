//! Bodies of requests that arrive slowly.
//!
//! A request takes seats of flow control when its body is there, so that a client that sends little by little holds none. The bodies that
//! have not arrived after a moment are counted, since each may keep 3 MiB, and each user may have a share of them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::poll_immediate;
use keelson_meta::ApiError;
use tokio::time::timeout;

use crate::body::{MAX_REQUEST_BYTES, RequestBody};
use crate::shares::{Holder, Shares};

/// The number of bodies of all users that may arrive slowly at once.
pub(super) const MOST: usize = 512;
/// The time that a body may take without being counted.
const MOMENT: Duration = Duration::from_secs(1);

/// Waits for a body.
///
/// # Errors
/// 429 when it arrives slowly and its user has as many such bodies as it may have.
pub(super) async fn arrived(body: &mut RequestBody, shares: &Arc<Shares>, holder: Holder) -> Result<(), ApiError> {
    if body.is_empty() {
        return Ok(());
    }
    // Most bodies come with their head: no timer is made for them.
    if poll_immediate(body.gather(MAX_REQUEST_BYTES)).await.is_some() {
        return Ok(());
    }
    if timeout(MOMENT, body.gather(MAX_REQUEST_BYTES)).await.is_ok() {
        return Ok(());
    }
    let _share = shares.take(holder, 1)?;
    body.gather(MAX_REQUEST_BYTES).await;
    Ok(())
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
        arrived(&mut there, &shares, holder).await.unwrap();
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
}
