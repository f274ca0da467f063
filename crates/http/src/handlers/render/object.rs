//! Encodes a single object as a response.
//!
//! The stored bytes are sent unchanged if the version and the encoding allow it. Lists are in `list.rs`, events in
//! `watch.rs`.

use bytes::Bytes;
use http::{Response, StatusCode};
use keelson_codec::{StoredObject, json};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, ListMeta, Revision};
use keelson_query::Mask;
use keelson_tables::wire::{self, TableHead};
use tracing::debug_span;

use super::{Renderer, write_metadata};
use crate::body::ResponseBody;
use crate::handlers::list_body::masked_object;
use crate::negotiation::ObjectForm;
use crate::respond;

impl Renderer {
    /// Renders an object at a revision. The result of a dry run of a create has no revision.
    ///
    /// # Errors
    /// 500 when the object cannot be converted to the requested version, or encoded, which only damaged data can cause.
    pub(in crate::handlers) async fn answer(
        &self,
        code: StatusCode,
        object: &StoredObject,
        revision: Option<Revision>,
    ) -> Result<Response<ResponseBody>, ApiError> {
        self.answer_create(code, object, revision, "").await
    }

    /// The response to a create. A dry run has no revision: as upstream, the response contains the client's
    /// `resourceVersion`, `sent`.
    ///
    /// # Errors
    /// As [`Renderer::answer`].
    pub(in crate::handlers) async fn answer_create(
        &self,
        code: StatusCode,
        object: &StoredObject,
        revision: Option<Revision>,
        sent: &str,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let shown = self.view.show(object).await?;
        let cut;
        let object = if self.drops_managed_fields() {
            cut = masked_object("", &shown, &Mask::default().without_managed_fields())?;
            &cut
        } else {
            &*shown
        };
        let _encoding =
            debug_span!("encoding", media = self.media().kind.content_type(), revision = revision.map(Revision::get))
                .entered();
        let Some(revision) = revision else { return self.answer_unborn(code, object, sent) };
        respond::object(code, Bytes::from(self.write(object, revision)?), self.media())
    }

    /// An object from the dry run of a create, which has no revision.
    fn answer_unborn(
        &self,
        code: StatusCode,
        object: &StoredObject,
        sent: &str,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let mut shown = match self.representation.object_form {
            ObjectForm::Whole => self.decode(object, Revision::ZERO)?.into_value(),
            ObjectForm::Metadata(_) | ObjectForm::Table(_) => {
                let read = json::parse(&self.write(object, Revision::ZERO)?);
                read.map_err(|error| ApiError::Internal(error.to_string()))?.value
            }
        };
        let restore = |shown: &mut Value| restore_revision(shown, sent);
        restore(&mut shown);
        if let Some(rows) = shown.get_mut("rows").and_then(Value::as_array_mut) {
            rows.iter_mut().filter_map(|row| row.get_mut("object")).for_each(restore);
        }
        Ok(respond::value(code, &shown, self.media()))
    }

    fn write(&self, object: &StoredObject, revision: Revision) -> Result<Vec<u8>, ApiError> {
        let mut out = Vec::with_capacity(object.object_len(revision) + 64);
        match self.representation.object_form {
            ObjectForm::Whole => self.view.write_object(object, revision, &mut out)?,
            ObjectForm::Metadata(version) => write_metadata(version, object, revision, &mut out),
            ObjectForm::Table(version) => {
                let head = TableHead { version, meta: ListMeta::at(revision), columns: Some(&self.printer.columns()) };
                head.write(&mut out);
                self.write_row(version, object, revision, &mut out)?;
                out.extend_from_slice(wire::END);
            }
        }
        out.push(b'\n');
        Ok(out)
    }
}

/// Replaces the revision with the `resourceVersion` that the client sent, or removes it.
fn restore_revision(shown: &mut Value, sent: &str) {
    let Some(metadata) = shown.get_mut("metadata").and_then(Value::as_object_mut) else { return };
    if sent.is_empty() {
        metadata.remove("resourceVersion");
    } else {
        metadata.insert("resourceVersion", sent);
    }
}
