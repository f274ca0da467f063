//! OpenAPI 2 (Swagger): one document with the operations of all groups.

use keelson_resources::Catalogue;
use serde_json::{Map, Value, json};

use crate::Document;
use crate::operations::{self, Body, OBJECT_TYPES, Operation, PATCH_TYPES, PathItem};
use crate::parameters::{Parameter, Place};
use crate::v3::kind;

/// `/openapi/v2`: the document of all groups. It is large and made anew by each call; keep it.
pub fn v2_document(catalogue: &Catalogue, server_version: &str) -> Document {
    let versions = catalogue.groups().iter().flat_map(|group| group.versions.iter().map(move |v| (group, v.name)));
    let items = versions.flat_map(|(group, version)| operations::paths(group, version));
    let paths: Map<String, Value> = items.map(|item| (item.path.clone(), path_item(&item))).collect();
    let document = json!({
        "swagger": "2.0",
        "info": { "title": "Kubernetes", "version": server_version },
        "paths": paths,
        "definitions": {},
    });
    Document::new(serde_json::to_vec(&document).expect("a JSON value can be written"))
}

fn path_item(item: &PathItem) -> Value {
    let mut fields: Map<String, Value> =
        item.operations.iter().map(|each| (each.action.method().to_owned(), operation(each))).collect();
    fields.insert("parameters".to_owned(), item.parameters.iter().copied().map(parameter).collect());
    Value::Object(fields)
}

fn operation(operation: &Operation) -> Value {
    let (consumes, body) = match operation.action.body() {
        Body::None => (OBJECT_TYPES, None),
        Body::Object => (OBJECT_TYPES, Some(body(true))),
        Body::Patch => (PATCH_TYPES, Some(body(true))),
        Body::Options => (OBJECT_TYPES, Some(body(false))),
    };
    let parameters: Vec<Value> =
        body.into_iter().chain(operation.parameters.iter().copied().flatten().map(parameter)).collect();
    json!({
        "description": operation.description,
        "consumes": consumes,
        "produces": OBJECT_TYPES,
        "schemes": ["https"],
        "tags": [operation.tag],
        "operationId": operation.id,
        "parameters": parameters,
        "responses": { "200": { "description": "OK" }, "401": { "description": "Unauthorized" } },
        "x-kubernetes-action": operation.action.name(),
        "x-kubernetes-group-version-kind": kind(&operation.kind),
    })
}

fn body(required: bool) -> Value {
    json!({ "name": "body", "in": "body", "required": required, "schema": { "type": "object" } })
}

fn parameter(parameter: &Parameter) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(parameter.name));
    fields.insert("in".to_owned(), json!(parameter.place.as_str()));
    fields.insert("description".to_owned(), json!(parameter.description));
    fields.insert("type".to_owned(), json!(parameter.value.as_str()));
    fields.insert("uniqueItems".to_owned(), json!(true));
    if parameter.place == Place::Path {
        fields.insert("required".to_owned(), json!(true));
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_the_operations_of_all_groups() {
        let document = v2_document(Catalogue::builtin(), "v1.36.2");
        let document: Value = serde_json::from_slice(&document.json).expect("the document is JSON");
        assert_eq!(document["swagger"], "2.0");
        let paths = &document["paths"];
        assert_eq!(paths["/api/v1/nodes/{name}"]["patch"]["operationId"], "patchCoreV1Node");
        assert_eq!(paths["/apis/apps/v1/deployments"]["get"]["x-kubernetes-action"], "list");
        assert_eq!(paths["/apis/apps/v1/deployments"]["get"]["x-kubernetes-group-version-kind"]["kind"], "Deployment");
    }
}
