//! One object as an answer.
//!
//! The stored bytes are sent as they are where the version and the encoding allow it. Lists are in `list.rs`, events in
//! `watch.rs`.

use bytes::Bytes;
use http::{Response, StatusCode};
use keelson_codec::StoredObject;
use keelson_meta::{ApiError, ListMeta, Revision};
use keelson_tables::wire::{self, TableHead};

use super::{Renderer, write_metadata};
use crate::body::ResponseBody;
use crate::negotiation::ObjectForm;
use crate::respond;

impl Renderer {
    /// An object at a revision. What was only tried (a dry run of a create) has no revision.
    ///
    /// # Errors
    /// 500 when the object can't be converted to the version that was asked for, or encoded, which only damaged data can cause.
    pub(in crate::handlers) async fn answer(
        &self,
        code: StatusCode,
        object: &StoredObject,
        revision: Option<Revision>,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let object = &*self.view.show(object).await?;
        let Some(revision) = revision else {
            let mut unborn = self.decode(object, Revision::ZERO);
            unborn.remove_meta("resourceVersion");
            return Ok(respond::value(code, &unborn.into_value(), self.media()));
        };
        let mut out = Vec::with_capacity(object.object_len(revision) + 64);
        match self.representation.object_form {
            ObjectForm::Whole => self.view.write_object(object, revision, &mut out),
            ObjectForm::Metadata(version) => write_metadata(version, object, revision, &mut out),
            ObjectForm::Table(version) => {
                let head = TableHead { version, meta: ListMeta::at(revision), columns: Some(&self.printer.columns()) };
                head.write(&mut out);
                self.write_row(version, object, revision, &mut out);
                out.extend_from_slice(wire::END);
            }
        }
        out.push(b'\n');
        respond::object(code, Bytes::from(out), self.media())
    }
}
