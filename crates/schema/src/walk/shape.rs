//! Checks whether a stored object fits a structural schema, from its bytes and without building a tree.
//!
//! Most objects that the cache reads were written under the present schema. Only objects that may need pruning or
//! defaults are decoded. If it is not certain that an object fits, the check returns false.

use keelson_codec::cursor::Cursor;

use super::structural::is_nullable;
use crate::layout::Type;
use crate::schemas::SchemaRef;

impl SchemaRef<'_> {
    /// Returns true if a walk with this structural schema would prune nothing from this compact and valid JSON text,
    /// and add no default. The metadata of the whole object must have a generation, and only known fields of the right
    /// types. The order of fields is ignored.
    ///
    /// Cost: less than validating the text.
    pub fn is_shape_of(self, text: &[u8]) -> bool {
        let mut cursor = Cursor::new(text, 0);
        match (self.value_type(), cursor.peek()) {
            (Type::Object, b'{') => object_fits(self, &mut cursor, Metadata::OfResource),
            _ => fits(self, &mut cursor),
        }
    }
}

/// The kind of object that the metadata belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Metadata {
    OfResource,
    OfEmbedded,
}

fn fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    if !schema.is_structural() {
        return metadata_fits(cursor, Metadata::OfEmbedded);
    }
    match (schema.value_type(), cursor.peek()) {
        (Type::Object, b'{') if schema.fills_metadata() => {
            metadata_fits(&mut cursor.clone(), Metadata::OfEmbedded)
                && object_fits(schema, cursor, Metadata::OfEmbedded)
        }
        (Type::Object, b'{') => object_fits(schema, cursor, Metadata::OfEmbedded),
        (Type::Map, b'{') => map_fits(schema, cursor),
        (Type::Array, b'[') => list_fits(schema, cursor),
        (_, b'{' | b'[') if !schema.preserves_unknown_fields() => false,
        _ => {
            cursor.skip();
            true
        }
    }
}

/// Returns true for metadata with only known fields of the right types.
fn metadata_fits(cursor: &mut Cursor<'_>, of: Metadata) -> bool {
    let mut has_generation = false;
    if cursor.peek() != b'{' {
        return false;
    }
    cursor.step();
    while let Some(key) = cursor.key() {
        let first = cursor.peek();
        let fits = match key.bytes() {
            b"generation" => {
                has_generation = first != b'0';
                first.is_ascii_digit()
            }
            b"deletionGracePeriodSeconds" => first.is_ascii_digit(),
            b"labels" | b"annotations" => {
                if !texts_fit(cursor) {
                    return false;
                }
                continue;
            }
            b"ownerReferences" | b"finalizers" | b"managedFields" => first == b'[',
            b"name" | b"generateName" | b"namespace" | b"uid" | b"resourceVersion" | b"creationTimestamp"
            | b"deletionTimestamp" => first == b'"',
            _ => false,
        };
        if !fits {
            return false;
        }
        cursor.skip();
    }
    has_generation || of == Metadata::OfEmbedded
}

/// Returns true for a map whose values are strings.
fn texts_fit(cursor: &mut Cursor<'_>) -> bool {
    if cursor.peek() != b'{' {
        return false;
    }
    cursor.step();
    while cursor.key().is_some() {
        if cursor.peek() != b'"' {
            return false;
        }
        cursor.skip();
    }
    true
}

fn object_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>, of: Metadata) -> bool {
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
        let is_right = if field.is_structural() { value_fits(field, cursor) } else { metadata_fits(cursor, of) };
        if !is_right {
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

/// Returns true if a value fits. A null fits only where the schema allows null.
fn value_fits(schema: SchemaRef<'_>, cursor: &mut Cursor<'_>) -> bool {
    (cursor.peek() != b'n' || is_nullable(schema)) && fits(schema, cursor)
}
