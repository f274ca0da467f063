//! The id of a request in logs of server and client: the header `Audit-Id`.
//!
//! As upstream, the server uses the client's own id, whatever its text, or else creates one. Every response has it.

use http::Response;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use keelson_meta::Random;

use crate::body::ResponseBody;

pub(super) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The client's own id if it sent a usable one, or a new one.
pub(super) fn id_of_request(headers: &HeaderMap, random: &dyn Random) -> HeaderValue {
    // The length of the id is limited only by the size of the header fields.
    let usable = |id: &&HeaderValue| !id.is_empty() && id.to_str().is_ok();
    headers.get(AUDIT_ID).filter(usable).cloned().unwrap_or_else(|| {
        HeaderValue::try_from(random.uuid()).expect("a UUID is made of hexadecimal digits and dashes")
    })
}

/// Adds the id to a response. The id that an aggregated server set stays.
pub(super) fn stamped(mut response: Response<ResponseBody>, id: HeaderValue) -> Response<ResponseBody> {
    response.headers_mut().entry(AUDIT_ID).or_insert(id);
    response
}
