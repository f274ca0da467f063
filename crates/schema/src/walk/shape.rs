//! Checks stored bytes against a structural schema without building a tree.
//!
//! The cache reads many objects, of which hardly one was written before its schema changed: only those that may need pruning or defaults
//! are decoded. Where this check is not sure, it says that they may.

use keelson_codec::cursor::Cursor;

use super::structural::is_nullable;
use crate::layout::Type;
use crate::schemas::SchemaRef;

impl SchemaRef<'_> {
    /// Whether nothing in this compact and valid JSON text would be taken out or filled in by a structural schema. Metadata and the
    /// order of fields are not looked at.
    ///
    /// Cost: less than checking the text took.
    pub fn is_shape_of(self, text: &[u8]) -> bool {
        fits(self, &mut Cursor::new(text, 0))
    }
}

fn fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    if !schema.is_structural() {
        cursor.skip();
        return true;
    }
    match (schema.of(), cursor.peek()) {
        (Type::Object, b'{') => object_fits(schema, cursor),
        (Type::Map, b'{') => map_fits(schema, cursor),
        (Type::Array, b'[') => list_fits(schema, cursor),
        (_, b'{' | b'[') if !schema.preserves_unknown_fields() => false,
        _ => {
            cursor.skip();
            true
        }
    }
}

fn object_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    let (mut near, mut filled) = (0, 0);
    cursor.step();
    while let Some(key) = cursor.key() {
        let Some(name) = key.plain().and_then(|name| std::str::from_utf8(name).ok()) else { return false };
        let Some(position) = schema.position_near(name, near) else {
            if !schema.preserves_unknown_fields() {
                return false;
            }
            cursor.skip();
            continue;
        };
        near = position + 1;
        let field = schema.field_at(position);
        filled += usize::from(field.filled());
        if !value_fits(field, cursor) {
            return false;
        }
    }
    filled >= schema.filled_count()
}

fn map_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    let Some(values) = schema.items() else {
        cursor.skip();
        return true;
    };
    cursor.step();
    while cursor.key().is_some() {
        if !value_fits(values, cursor) {
            return false;
        }
    }
    true
}

fn list_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    let Some(items) = schema.items() else {
        cursor.skip();
        return true;
    };
    cursor.step();
    while cursor.peek() != b']' {
        if !fits(items, cursor) {
            return false;
        }
        cursor.take(b",");
    }
    cursor.step();
    true
}

/// The same of what stands for itself only where it is no null.
fn value_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    (cursor.peek() != b'n' || is_nullable(schema)) && fits(schema, cursor)
}
