//! The id by which a request is found in logs, here and at the client: `Audit-Id`.
//!
//! A client may bring its own, which is taken over as the reference does it, whatever it is; otherwise one is made. It is in the head of
//! every answer.

use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use keelson_meta::Random;

use crate::body::ResponseBody;

pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The client's own id if it sent a usable one, or a new one.
pub(super) fn of(headers: &HeaderMap, random: &dyn Random) -> HeaderValue {
    // It is as long as a head may be at the most.
    let usable = |id: &&HeaderValue| !id.is_empty() && id.to_str().is_ok();
    headers.get(AUDIT_ID).filter(usable).cloned().unwrap_or_else(|| {
        HeaderValue::try_from(random.uuid()).expect("a UUID is made of hexadecimal digits and dashes")
    })
}

/// The answer with its id. That of an aggregated server stays.
pub(super) fn stamped(mut response: Response<ResponseBody>, id: HeaderValue) -> Response<ResponseBody> {
    response.headers_mut().entry(AUDIT_ID).or_insert(id);
    response
}
