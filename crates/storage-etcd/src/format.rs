//! The format of the keys below a prefix: a number under a key of keelson's own.
//!
//! Format 1 is what Kubernetes has too, keys and values and nothing beside them, so a store without the number is in it
//! and nothing is written for it. Who meets a higher number than it knows writes nothing.

use crate::client::{Client, RANGE};
use crate::error::Failure;
use crate::keys::Keys;
use crate::proto::{RangeRequest, RangeResponse};

/// The newest format that this code knows. Raise it when an older keelson could not read what is written any more, and
/// write it under [`Keys::format`] before anything else is.
pub(crate) const FORMAT: u32 = 1;

/// What the key says that this code does not know, if anything.
pub(crate) async fn newer(client: &Client, keys: &Keys) -> Result<Option<String>, Failure> {
    let request = RangeRequest { key: keys.format(), ..RangeRequest::default() };
    let answer: RangeResponse = client.call(RANGE, request).await?;
    let Some(found) = answer.kvs.into_iter().next() else { return Ok(None) };
    let found = String::from_utf8_lossy(&found.value).into_owned();
    // What is no number was written by nobody whom this code knows.
    let is_known = found.parse().is_ok_and(|format: u32| (1..=FORMAT).contains(&format));
    Ok((!is_known).then_some(found))
}
