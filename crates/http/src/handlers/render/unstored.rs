//! An answer that is not a stored object: a scale, a review, a token.
//!
//! It is shown in the same forms as stored ones. Its row has the columns of its kind.

use http::{Response, StatusCode};
use keelson_codec::{Outline, json};
use keelson_meta::json::Value;
use keelson_meta::{ApiError, ListMeta, Object, Revision};
use keelson_tables::Printer;
use keelson_tables::wire::{self, IncludeObject, MetaVersion, Row, TableHead, write_partial};

use super::Renderer;
use super::object::restore_revision;
use crate::body::ResponseBody;
use crate::negotiation::ObjectForm;
use crate::respond;

impl Renderer {
    /// An object that was made for this answer.
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
        match self.representation.object_form {
            ObjectForm::Whole => Ok(respond::value(code, &object, self.media())),
            ObjectForm::Metadata(version) => {
                let mut out = Vec::new();
                write_partial(version, |out| json::write(&object["metadata"], out), &mut out);
                out.push(b'\n');
                respond::object(code, out.into(), self.media())
            }
            ObjectForm::Table(version) => {
                Ok(respond::value(code, &self.table(version, &object, printer)?, self.media()))
            }
        }
    }

    /// A table of one row.
    fn table(&self, version: MetaVersion, object: &Value, printer: &Printer) -> Result<Value, ApiError> {
        let failed = |why: &str| ApiError::Internal(format!("the table of an object can't be made: {why}"));
        let text = json::to_vec(object);
        let text = std::str::from_utf8(&text).map_err(|error| failed(&error.to_string()))?;
        let outline = Outline::read(text);
        let revision = object["metadata"]["resourceVersion"].as_str().and_then(|revision| revision.parse().ok());
        let meta = ListMeta::at(revision.map_or(Revision::ZERO, Revision::new));
        let mut out = Vec::new();
        TableHead { version, meta, columns: Some(&printer.columns()) }.write(&mut out);
        let included = |out: &mut Vec<u8>| match self.include {
            IncludeObject::None => out.extend_from_slice(b"null"),
            IncludeObject::Metadata => write_partial(version, |out| json::write(&object["metadata"], out), out),
            IncludeObject::Object => out.extend_from_slice(text.as_bytes()),
        };
        let cells = printer.cells(&outline, self.now);
        Row { cells: &cells, conditions: printer.conditions(&outline) }.write(included, &mut out);
        out.extend_from_slice(wire::END);
        let mut table = json::parse(&out).map_err(|error| failed(&error.to_string()))?.value;
        if revision.is_none() {
            restore_revision(&mut table, "");
        }
        Ok(table)
    }
}
