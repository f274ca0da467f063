//! One object as an answer: its canonical bytes, under the version that was asked for.

use bytes::Bytes;
use http::{Response, StatusCode};
use keelson_codec::StoredObject;
use keelson_meta::{ApiError, Revision};
use keelson_registry::{Target, VersionedView};
use serde_json::Value;

use crate::body::ResponseBody;
use crate::negotiation::MediaType;
use crate::respond;

/// An object at a revision, as the client accepts it. What was only tried (a dry run) has no revision.
pub(super) fn object(
    code: StatusCode,
    target: &Target,
    object: &StoredObject,
    revision: Option<Revision>,
    media: MediaType,
) -> Result<Response<ResponseBody>, ApiError> {
    let Some(revision) = revision else {
        return Ok(respond::value(code, &unborn(target, object), media));
    };
    let mut out = Vec::with_capacity(object.object_len(revision) + 32);
    match target.view() {
        VersionedView::Identity => object.write_object(revision, &mut out),
        VersionedView::Renamed(kind) => object.write_object_as(&kind, revision, &mut out),
    }
    out.push(b'\n');
    respond::object(code, Bytes::from(out), media)
}

/// An object that was not stored, so that it has no resourceVersion.
fn unborn(target: &Target, object: &StoredObject) -> Value {
    let mut shown = object.decode(Revision::ZERO);
    shown.remove_meta("resourceVersion");
    shown.set_type(&target.kind());
    shown.into_value()
}
