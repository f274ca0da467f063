//! OpenAPI 2 (Swagger): one document with all parts of the API, as JSON and as protobuf.
//!
//! The pieces of the document are made as JSON, one at a time, and either written or turned into protobuf.

use keelson_meta::json::{Map, Value, json};
use keelson_resources::Catalogue;
use keelson_schema::Schemas;

use crate::action::Body;
use crate::definitions::{Kinds, needed};
use crate::json::write_object;
use crate::operations::{Operation, PathItem};
use crate::parameters::{Parameter, Place};
use crate::part::Part;
use crate::protobuf;
use crate::schema::{Dialect, kind};

/// The document as JSON.
pub(crate) fn json(catalogue: &'static Catalogue, schemas: &Schemas, kinds: &Kinds, server_version: &str) -> Vec<u8> {
    let items = items(catalogue, schemas);
    let mut out = format!(r#"{{"swagger":"2.0","info":{},"paths":"#, info(server_version)).into_bytes();
    write_object(&mut out, items.iter().map(|item| (&item.path, item.described(operation, parameter))));
    out.extend_from_slice(br#","definitions":"#);
    let definitions = needed(&items).into_iter();
    write_object(&mut out, definitions.map(|(name, schema)| (name, Dialect::V2.definition(schema, kinds))));
    out.push(b'}');
    out
}

/// The document in the protobuf form that client-go asks for.
pub(crate) fn protobuf(
    catalogue: &'static Catalogue,
    schemas: &Schemas,
    kinds: &Kinds,
    server_version: &str,
) -> Vec<u8> {
    let items = items(catalogue, schemas);
    let mut document = protobuf::DocumentWriter::new("2.0", &info(server_version));
    for item in &items {
        document.path(&item.path, &item.described(operation, parameter));
    }
    for (name, schema) in needed(&items) {
        document.definition(name, &Dialect::V2.definition(schema, kinds));
    }
    document.finish()
}

fn items<'a>(catalogue: &'static Catalogue, schemas: &'a Schemas) -> Vec<PathItem<'a>> {
    let parts = Part::all(catalogue).into_iter();
    let mut items: Vec<PathItem<'a>> = parts.flat_map(|part| part.items(schemas)).collect();
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

fn info(server_version: &str) -> Value {
    json!({ "title": "Kubernetes", "version": server_version })
}

fn operation(operation: &Operation<'_>) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key, value);
    let body = operation.action.body();
    set("description", json!(operation.description));
    if body != Body::None {
        set("consumes", json!(body.types()));
    }
    set("produces", json!(operation.action.produces()));
    set("schemes", json!(["https"]));
    set("tags", json!([operation.tag]));
    set("operationId", json!(operation.id));
    let in_body = (body != Body::None).then(|| {
        let schema = Dialect::V2.body(operation.body);
        json!({ "name": "body", "in": "body", "required": body.required(), "schema": schema })
    });
    let parameters: Vec<Value> =
        in_body.into_iter().chain(operation.parameters.iter().copied().flatten().map(parameter)).collect();
    if !parameters.is_empty() {
        set("parameters", Value::Array(parameters));
    }
    set("responses", responses(operation).into());
    if let Some(action) = operation.action.name() {
        set("x-kubernetes-action", json!(action));
    }
    if let Some(of) = &operation.kind {
        set("x-kubernetes-group-version-kind", kind(of));
    }
    Value::Object(fields)
}

fn responses(operation: &Operation<'_>) -> Map {
    let answer = |(code, description): &(&str, &str)| {
        let schema = Dialect::V2.body(operation.answer);
        ((*code).to_owned(), json!({ "description": description, "schema": schema }))
    };
    let refused = ("401".to_owned(), json!({ "description": "Unauthorized" }));
    operation.action.codes().iter().map(answer).chain([refused]).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut fields = Map::new();
    fields.insert("name", json!(parameter.name));
    fields.insert("in", json!(parameter.place.as_str()));
    fields.insert("description", json!(parameter.description));
    fields.insert("type", json!(parameter.value.as_str()));
    fields.insert("uniqueItems", json!(true));
    if parameter.place == Place::Path {
        fields.insert("required", json!(true));
    }
    Value::Object(fields)
}
