//! The fields of an object that an apply of it owns.
//!
//! In keyed lists and maps, each part is owned separately. Every other value is one field.

use keelson_meta::json::Value;

use super::listing::{Listing, Members, OmittedFields};
use super::schema::FieldSchema;
use super::set::FieldSet;
use super::sink::{SetSink, TextSink};
use super::view::View;

/// The fields that an apply of this object owns: scalars and atomic values, list items, and map entries. Cost:
/// proportional to the object.
///
/// An object that is a declared field is not a member of the set, unless it is empty.
pub fn extract<'a>(schema: impl FieldSchema<'a>, object: &Value) -> FieldSet {
    let mut sink = SetSink::default();
    Listing::new(Members::Applied, &mut sink).below(View::Known(schema), object, OmittedFields::default());
    sink.finish()
}

/// The text of [`extract`]'s result without hidden fields.
pub(super) fn extract_text<'a>(
    schema: impl FieldSchema<'a>,
    object: &Value,
    hidden: OmittedFields<'_>,
    size: usize,
) -> String {
    let mut sink = TextSink::new(size);
    Listing::new(Members::Applied, &mut sink).below(View::Known(schema), object, hidden);
    sink.finish()
}
