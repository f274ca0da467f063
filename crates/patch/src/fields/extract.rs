//! The fields of an object, as the client that applies it owns them.
//!
//! Lists whose items have keys, and maps, are entered; everything else is one field.

use keelson_meta::json::Value;

use super::listing::{Hidden, Listing, Members};
use super::schema::FieldSchema;
use super::set::FieldSet;
use super::sink::{SetSink, TextSink};
use super::view::View;

/// The fields that a client which applies this object owns: everything that is a value of its own, the items of lists and
/// the entries of maps. Cost: proportional to the object.
///
/// Objects of declared fields are not members themselves, unless they are empty.
pub fn extract<'a>(schema: impl FieldSchema<'a>, object: &Value) -> FieldSet {
    let mut sink = SetSink::default();
    Listing::new(Members::Applied, &mut sink).below(View::Known(schema), object, Hidden::default());
    sink.finish()
}

/// The text of what [`extract`] gives, without some of it.
pub(super) fn extract_text<'a>(
    schema: impl FieldSchema<'a>,
    object: &Value,
    hidden: Hidden<'_>,
    size: usize,
) -> String {
    let mut sink = TextSink::new(size);
    Listing::new(Members::Applied, &mut sink).below(View::Known(schema), object, hidden);
    sink.finish()
}
