//! Encodes objects that are built for one response: a scale, a review, a token.
//!
//! Objects that are not stored have the encodings of stored objects. The table row of a scale has the columns of its
//! kind.

use http::{Response, StatusCode};
use keelson_codec::{Outline, json};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, ListMeta, Object, Revision};
use keelson_tables::Printer;
use keelson_tables::wire::{self, IncludeObject, MetaVersion, Row, TableHead, write_partial};

use super::Renderer;
use crate::body::ResponseBody;
use crate::negotiation::ObjectForm;
use crate::respond;

impl Renderer {
    /// The response with an object that is not stored.
    ///
    /// # Errors
    /// 500 when it does not fit its message in protobuf.
    pub(in crate::handlers) fn answer_unstored(
        &self,
        code: StatusCode,
        object: Object,
        printer: &Printer,
    ) -> Result<Response<ResponseBody>, ApiError> {
        let object = object.into_value();
        let mut out = Vec::new();
        match self.representation.object_form {
            ObjectForm::Whole => return Ok(respond::value(code, &object, self.media())),
            ObjectForm::Metadata(version) => {
                write_partial(version, |out| json::write(&object["metadata"], out), &mut out);
            }
            ObjectForm::Table(version) => self.write_table(version, &object, printer, &mut out)?,
        }
        out.push(b'\n');
        respond::object(code, out.into(), self.media())
    }

    /// Appends a table of one row.
    fn write_table(
        &self,
        version: MetaVersion,
        object: &Value,
        printer: &Printer,
        out: &mut Vec<u8>,
    ) -> Result<(), ApiError> {
        let text = String::from_utf8(json::to_vec(object)).map_err(|error| ApiError::Internal(error.to_string()))?;
        let outline = Outline::read(&text);
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        let meta = ListMeta::at(revision.map_or(Revision::ZERO, Revision::new));
        TableHead { version, meta, columns: Some(&printer.columns()) }.write(out);
        let included = |out: &mut Vec<u8>| match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => write_partial(version, |out| json::write(&object["metadata"], out), out),
            IncludeObject::Object => out.extend_from_slice(text.as_bytes()),
        };
        let cells = printer.cells(&outline, self.now);
        Row { cells: &cells, conditions: printer.conditions(&outline) }.write(included, out);
        out.extend_from_slice(wire::END);
        Ok(())
    }
}
