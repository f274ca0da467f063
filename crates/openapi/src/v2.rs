//! OpenAPI 2 (Swagger): one document with all parts of the API, as JSON and as protobuf.
//!
//! The content of the document is built as JSON, one piece at a time, and then written as JSON or converted to
//! protobuf. Each part of the API keeps its pieces, so that a change of one part does not render the others again.

use std::collections::BTreeMap;

use keelson_meta::json::{Map, Value, json};

use crate::action::Body;
use crate::addition::Addition;
use crate::definitions::needed;
use crate::document;
use crate::document_scope::DocumentScope;
use crate::json::{join, member, write_object};
use crate::operations::{Operation, PathItem};
use crate::parameters::{self, Location, Parameter};
use crate::protobuf;
use crate::schema::Dialect;
use crate::shared::{Rendering, SharedDefinitions, security, security_schemes};

/// The number of digits of the hash in the name of a parameter.
const SHOWN_OF_HASH: usize = 8;

/// The addition of a part to the document.
pub(crate) fn addition(scope: DocumentScope<'_>, shared: &SharedDefinitions, rendering: Rendering) -> Addition {
    let items = scope.items(shared.schemas);
    let path = |item: &PathItem| {
        let described = item.described(operation, parameter);
        match rendering {
            Rendering::V2Protobuf => protobuf::path(&item.path, &described),
            Rendering::V2Json | Rendering::V3 => member(&item.path, &described),
        }
    };
    let definition = |(name, value): (String, Value)| {
        let rendered = match rendering {
            Rendering::V2Protobuf => protobuf::definition(&name, &value),
            Rendering::V2Json | Rendering::V3 => member(&name, &value),
        };
        (name, rendered)
    };
    Addition {
        paths: items.iter().map(|item| (item.path.clone(), path(item))).collect(),
        shared_definitions: needed(&scope.references(&items), shared.schemas).into_iter().collect(),
        own_definitions: scope.own_definitions(Dialect::V2, shared.schemas).into_iter().map(definition).collect(),
    }
}

/// Writes the document with all paths and definitions, in order. `paths` are already [joined](join_paths).
pub(crate) fn document<'p>(
    shared: &SharedDefinitions,
    rendering: Rendering,
    paths: &[u8],
    definitions: impl Iterator<Item = &'p [u8]>,
) -> Vec<u8> {
    let parameters = all_parameters();
    if rendering == Rendering::V2Protobuf {
        let security = (&security_schemes(), &security());
        return protobuf::document("2.0", &shared.info(), paths, definitions, &parameters, security);
    }
    let mut out = format!(r#"{{"swagger":"2.0","info":{},"paths":{{"#, shared.info()).into_bytes();
    out.extend_from_slice(paths);
    out.extend_from_slice(br#"},"definitions":{"#);
    join(&mut out, definitions);
    out.extend_from_slice(br#"},"parameters":"#);
    write_object(&mut out, parameters.iter().map(|(name, value)| (name, value.clone())));
    let (schemes, security) = (security_schemes(), security());
    out.extend_from_slice(format!(r#","securityDefinitions":{schemes},"security":{security}}}"#).as_bytes());
    out
}

/// Appends the paths of one part after those of earlier parts.
pub(crate) fn join_paths(all: &mut Vec<u8>, of_part: &[(String, Vec<u8>)], rendering: Rendering) {
    if rendering == Rendering::V2Protobuf {
        return of_part.iter().for_each(|(_, path)| all.extend_from_slice(path));
    }
    if !all.is_empty() && !of_part.is_empty() {
        all.push(b',');
    }
    join(all, of_part.iter().map(|(_, path)| &**path));
}

fn operation(operation: &Operation) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key, value);
    let body = operation.action.body();
    set("description", json!(operation.description));
    if body != Body::None {
        set("consumes", json!(operation.consumes()));
    }
    set("produces", json!(operation.produces()));
    set("schemes", json!(["https"]));
    set("tags", json!([operation.tag]));
    set("operationId", json!(operation.id));
    let in_body = (body != Body::None).then(|| {
        let schema = Dialect::V2.body(operation.body.as_deref());
        json!({ "name": "body", "in": "body", "required": body.required(), "schema": schema })
    });
    let parameters: Vec<Value> =
        in_body.into_iter().chain(operation.parameters.iter().copied().flatten().map(parameter)).collect();
    if !parameters.is_empty() {
        set("parameters", Value::Array(parameters));
    }
    operation.end(&mut fields, "schema", &Dialect::V2.body(operation.answer.as_deref()));
    Value::Object(fields)
}

/// A reference to a parameter. The document states the parameter once for thousands of operations.
fn parameter(parameter: &Parameter) -> Value {
    let (name, _) = shared_parameter(parameter);
    json!({ "$ref": format!("#/parameters/{name}") })
}

/// Every parameter by its name in the document.
fn all_parameters() -> BTreeMap<String, Value> {
    parameters::all().map(shared_parameter).collect()
}

/// A parameter, and its name in the document. The name begins with the parameter's own and ends in a hash of its
/// content, as in kube-apiserver. Clients find out by the beginning whether the parameter is supported.
fn shared_parameter(parameter: &Parameter) -> (String, Value) {
    let mut fields = Map::new();
    fields.insert("name", json!(parameter.name));
    fields.insert("in", json!(parameter.place.as_str()));
    fields.insert("description", json!(parameter.description));
    fields.insert("type", json!(parameter.value.as_str()));
    fields.insert("uniqueItems", json!(true));
    if parameter.place == Location::Path {
        fields.insert("required", json!(true));
    }
    let value = Value::Object(fields);
    let hash = document::hash(value.to_string().as_bytes());
    // Slashes are replaced: they would have to be escaped in references, which not every parser decodes.
    (format!("{}-{}", parameter.name.replace('/', "."), &hash[..SHOWN_OF_HASH]), value)
}
