//! Logs of the test kubelet.
//!
//! A log has three lines. With `follow`, further lines come every few milliseconds.

use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};

use crate::UpstreamBody;

/// The time between two lines of a followed log.
const INTERVAL: Duration = Duration::from_millis(20);

pub(super) fn answer(request: &Request<Incoming>, pod: &str) -> Response<UpstreamBody> {
    let query = request.uri().query().unwrap_or_default();
    let has = |parameter: &str| query.split('&').any(|pair| pair == parameter);
    let lines = ["one\n", "two\n", "three\n"].map(Bytes::from);
    let tail = query.split('&').find_map(|pair| pair.strip_prefix("tailLines=")?.parse::<usize>().ok());
    let first = stream::iter(lines.into_iter().skip(3 - tail.unwrap_or(3).min(3)).map(Ok));
    let body: UpstreamBody = match pod {
        "endless" => {
            let piece = Bytes::from(vec![b'x'; 64 << 10]);
            streamed(stream::repeat(piece).map(Ok))
        }
        "dying" => streamed(first.chain(stream::once(async {
            tokio::time::sleep(10 * INTERVAL).await;
            Err(std::io::Error::other("the kubelet dies"))
        }))),
        _ if has("follow=true") => {
            let further = stream::unfold(4_u64, |number| async move {
                tokio::time::sleep(INTERVAL).await;
                Some((Ok(Bytes::from(format!("line {number}\n"))), number + 1))
            });
            streamed(first.chain(further))
        }
        _ => streamed(first),
    };
    let response = Response::builder().header("content-type", "text/html").header("set-cookie", "kubelet=1");
    response.body(body).expect("fields that can be sent")
}

fn streamed(pieces: impl futures::Stream<Item = std::io::Result<Bytes>> + Send + Sync + 'static) -> UpstreamBody {
    BodyExt::boxed(StreamBody::new(pieces.map(|piece| piece.map(Frame::data))))
}
