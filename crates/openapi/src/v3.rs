//! The documents of OpenAPI 3, one for each part of the API.
//!
//! A document is self-contained: it repeats every definition that its operations refer to, copied in rendered form.

use std::collections::BTreeMap;

use keelson_meta::json::{Map, Value, json};

use crate::action::Body;
use crate::definitions::needed;
use crate::document_scope::DocumentScope;
use crate::json::{join, member, write_object};
use crate::operations::Operation;
use crate::parameters::{Location, Parameter};
use crate::schema::Dialect;
use crate::shared::{Rendering, SharedDefinitions, security, security_schemes};

/// The document of a part.
pub(crate) fn document(scope: DocumentScope<'_>, shared: &SharedDefinitions) -> Vec<u8> {
    let items = scope.items(shared.schemas);
    let mut out = format!(r#"{{"openapi":"3.0.0","info":{},"paths":"#, scope.info(shared)).into_bytes();
    write_object(&mut out, items.iter().map(|item| (&item.path, item.described(operation, parameter))));
    out.extend_from_slice(br#","components":{"schemas":{"#);
    let own = scope.own_definitions(Dialect::V3, shared.schemas);
    let own: Vec<(String, Vec<u8>)> = own
        .into_iter()
        .map(|(name, value)| {
            let rendered = member(&name, &value);
            (name, rendered)
        })
        .collect();
    let needed = needed(&scope.references(&items), shared.schemas);
    let all: BTreeMap<&str, &[u8]> = needed
        .into_iter()
        .map(|name| (name, shared.definition(name, Rendering::V3)))
        .chain(own.iter().map(|(name, rendered)| (&**name, &**rendered)))
        .collect();
    join(&mut out, all.into_values());
    let (schemes, security) = (security_schemes(), security());
    out.extend_from_slice(format!(r#"}},"securitySchemes":{schemes}}},"security":{security}}}"#).as_bytes());
    out
}

fn operation(operation: &Operation) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key, value);
    set("tags", json!([operation.tag]));
    set("description", json!(operation.description));
    set("operationId", json!(operation.id));
    let parameters: Vec<Value> = operation.parameters.iter().copied().flatten().map(parameter).collect();
    if !parameters.is_empty() {
        // The parameters are stated in full on each operation: kubectl looks for `fieldValidation` here and does not
        // follow references.
        set("parameters", Value::Array(parameters));
    }
    let body = operation.action.body();
    if body != Body::None {
        let mut request = Map::new();
        request.insert("content", content(operation.consumes(), operation.body.as_deref()));
        if body.required() {
            request.insert("required", json!(true));
        }
        set("requestBody", request.into());
    }
    operation.end(&mut fields, "content", &content(operation.produces(), operation.answer.as_deref()).into());
    Value::Object(fields)
}

fn content(types: &[&str], definition: Option<&str>) -> Map {
    let body = |media_type: &&str| ((*media_type).to_owned(), json!({ "schema": Dialect::V3.body(definition) }));
    types.iter().map(body).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut fields = Map::new();
    fields.insert("name", json!(parameter.name));
    fields.insert("in", json!(parameter.place.as_str()));
    fields.insert("description", json!(parameter.description));
    if parameter.place == Location::Path {
        fields.insert("required", json!(true));
    }
    fields.insert("schema", json!({ "type": parameter.value.as_str(), "uniqueItems": true }));
    Value::Object(fields)
}
