//! The format of the keys below a prefix: a number in one of keelson's own keys.
//!
//! Format 1 is that of Kubernetes, with no other keys and values. A store without the number has format 1, and keelson
//! does not write the number for it. A server that reads an unknown number writes nothing.

use crate::client::{Client, RANGE};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{RangeRequest, RangeResponse};

/// The newest known format. Raise it when an older keelson could no longer read new data. Then write it to
/// [`Keys::format`] before any other key.
pub(crate) const FORMAT: u32 = 1;

/// Returns the format in the key if it is unknown.
pub(crate) async fn newer(client: &Client, keys: &Keys) -> Result<Option<String>, Failure> {
    let request = RangeRequest { key: keys.format(), ..RangeRequest::default() };
    let answer: RangeResponse = client.call(RANGE, request).await?;
    let Some(found) = answer.kvs.into_iter().next() else { return Ok(None) };
    let found = String::from_utf8_lossy(&found.value).into_owned();
    // A text that is not a number is also an unknown format.
    let is_known = found.parse().is_ok_and(|format: u32| (1..=FORMAT).contains(&format));
    Ok((!is_known).then_some(found))
}
