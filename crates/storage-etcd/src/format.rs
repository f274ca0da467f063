//! The format of the keys below a prefix: a number under a key of keelson's own.
//!
//! Format 1 equals that of Kubernetes, keys and values and nothing else. A store without the number has format 1, and
//! no number is written for it. A server that meets an unknown number writes nothing.

use crate::client::{Client, RANGE};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{RangeRequest, RangeResponse};

/// The newest known format. Raise it when an older keelson could no longer read new data, and write it under
/// [`Keys::format`] before anything else.
pub(crate) const FORMAT: u32 = 1;

/// The unknown format in the key, if there is one.
pub(crate) async fn newer(client: &Client, keys: &Keys) -> Result<Option<String>, Failure> {
    let request = RangeRequest { key: keys.format(), ..RangeRequest::default() };
    let answer: RangeResponse = client.call(RANGE, request).await?;
    let Some(found) = answer.kvs.into_iter().next() else { return Ok(None) };
    let found = String::from_utf8_lossy(&found.value).into_owned();
    // A text that is not a number is unknown too.
    let is_known = found.parse().is_ok_and(|format: u32| (1..=FORMAT).contains(&format));
    Ok((!is_known).then_some(found))
}
