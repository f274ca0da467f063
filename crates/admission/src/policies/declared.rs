//! CEL type declarations of kinds, built from their schemas. Type checks use them before any object exists.
//!
//! They equal the declarations that upstream reads from OpenAPI. A field whose schema has no single type there (a
//! quantity, a value of any kind) is not declared. A list or map of such values is not declared either.

use std::sync::Arc;

use keelson_cel::decl::{Decl, DeclKind, ListKind, from_schema};
use keelson_registry::KindVersion;
use keelson_schema::{SchemaRef, Type};

/// The size of strings, lists and maps without a limit. It does not affect results, since no cost is estimated.
const UNBOUNDED: u64 = 3 * 1024 * 1024;

/// The CEL type of objects of a kind; `None` without a schema.
///
/// Cost: some milliseconds for a large kind.
pub(super) fn of_kind(version: &KindVersion) -> Option<Arc<Decl>> {
    let name = &version.kind().kind;
    let Some(document) = version.document() else { return declare(version.schema()?, name, &mut Vec::new()) };
    let stated = from_schema(&document.read()?, name, true)?;
    let DeclKind::Object(object) = &stated.kind else { return Some(stated) };
    // The published schema of a custom resource has all metadata fields.
    let metadata = version.schema().and_then(|schema| schema.field("metadata"));
    let metadata = metadata.and_then(|schema| declare(schema, &format!("{name}.metadata"), &mut Vec::new()));
    let fields = object.fields.values().map(|field| match (&*field.property, &metadata) {
        ("metadata", Some(metadata)) => (field.property.clone(), metadata.clone()),
        _ => (field.property.clone(), field.decl.clone()),
    });
    Some(Decl::object(name, fields))
}

/// The CEL type of a schema, with a name. `above` has the definitions around it, to detect recursion.
fn declare<'s>(schema: SchemaRef<'s>, name: &str, above: &mut Vec<&'s str>) -> Option<Arc<Decl>> {
    match schema.value_type() {
        Type::Object => {
            let definition = schema.definition_name().unwrap_or_default();
            if above.contains(&definition) {
                return None;
            }
            above.push(definition);
            let mut fields = Vec::new();
            for field in schema.fields() {
                let property = field.field_name();
                if let Some(decl) = declare(field, &format!("{name}.{property}"), above) {
                    fields.push((property.to_owned(), decl));
                }
            }
            above.pop();
            Some(Decl::object(name, fields))
        }
        Type::Map => Some(Decl::map(declare(schema.items()?, &format!("{name}.@elem"), above)?, UNBOUNDED)),
        Type::Array => {
            let items = declare(schema.items()?, &format!("{name}.@idx"), above)?;
            Some(Decl::list(items, UNBOUNDED, ListKind::Atomic))
        }
        Type::String => Some(Decl::string(UNBOUNDED)),
        Type::Int32 | Type::Int64 => Some(Decl::int()),
        Type::Number => Some(Decl::double()),
        Type::Boolean => Some(Decl::bool()),
        Type::Bytes => Some(Decl::bytes(UNBOUNDED)),
        Type::Time | Type::MicroTime => Some(Decl::timestamp(UNBOUNDED, 0)),
        Type::IntOrString => Some(Decl::int_or_string(UNBOUNDED)),
        // OpenAPI has such a schema as an object without fields.
        Type::Any if !schema.definition_name().is_some_and(|name| name.ends_with(".JSON")) => {
            Some(Decl::object(name, []))
        }
        Type::Any | Type::Quantity | Type::Either => None,
    }
}
