//! OpenAPI 3: an index, and a document for each group version.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use keelson_meta::GroupVersionKind;
use keelson_resources::{Catalogue, Group};
use serde_json::{Map, Value, json};

use crate::Document;
use crate::operations::{self, Body, OBJECT_TYPES, Operation, PATCH_TYPES, PathItem};
use crate::parameters::{Parameter, Place};

/// The documents of version 3, each made when it is first asked for.
#[derive(Debug)]
pub struct OpenApi {
    /// The version of the server, as the documents state it.
    server_version: String,
    index: OnceLock<Document>,
    /// By the path below `/openapi/v3/`, such as `apis/apps/v1`.
    documents: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    group: &'static Group,
    version: &'static str,
    document: OnceLock<Document>,
}

impl OpenApi {
    /// The documents of the catalogue's groups. Nothing is rendered yet.
    pub fn new(catalogue: &Catalogue, server_version: &str) -> Self {
        let entries = catalogue.groups().iter().flat_map(|group| {
            group.versions.iter().map(move |version| {
                let path = group.version_path(version.name)[1..].to_owned();
                (path, Entry { group, version: version.name, document: OnceLock::new() })
            })
        });
        Self { server_version: server_version.to_owned(), index: OnceLock::new(), documents: entries.collect() }
    }

    /// `/openapi/v3`: where the documents are. It names their hashes, so the first call renders them all.
    pub fn index(&self) -> &Document {
        self.index.get_or_init(|| {
            let paths: Map<String, Value> = self
                .documents
                .iter()
                .map(|(path, entry)| {
                    let url = format!("/openapi/v3/{path}?hash={}", self.render(entry).hash);
                    (path.clone(), json!({ "serverRelativeURL": url }))
                })
                .collect();
            Document::new(to_vec(&json!({ "paths": paths })))
        })
    }

    /// `/openapi/v3/<path>`: the document of a group version, whose path is such as `api/v1` or `apis/apps/v1`.
    pub fn document(&self, path: &str) -> Option<&Document> {
        self.documents.get(path).map(|entry| self.render(entry))
    }

    fn render<'a>(&self, entry: &'a Entry) -> &'a Document {
        entry.document.get_or_init(|| {
            let items = operations::paths(entry.group, entry.version);
            let paths: Map<String, Value> = items.iter().map(|item| (item.path.clone(), path_item(item))).collect();
            Document::new(to_vec(&json!({
                "openapi": "3.0.0",
                "info": { "title": "Kubernetes", "version": self.server_version },
                "paths": paths,
                "components": { "schemas": {} },
            })))
        })
    }
}

fn to_vec(document: &Value) -> Vec<u8> {
    serde_json::to_vec(document).expect("a JSON value can be written")
}

fn path_item(item: &PathItem) -> Value {
    let mut fields: Map<String, Value> =
        item.operations.iter().map(|each| (each.action.method().to_owned(), operation(each))).collect();
    fields.insert("parameters".to_owned(), item.parameters.iter().copied().map(parameter).collect());
    Value::Object(fields)
}

fn operation(operation: &Operation) -> Value {
    let mut fields = Map::new();
    let mut set = |key: &str, value: Value| fields.insert(key.to_owned(), value);
    set("tags", json!([operation.tag]));
    set("description", json!(operation.description));
    set("operationId", json!(operation.id));
    let parameters: Vec<Value> = operation.parameters.iter().copied().flatten().map(parameter).collect();
    if !parameters.is_empty() {
        // Given in full on each operation: kubectl looks for `fieldValidation` here and does not follow references.
        set("parameters", Value::Array(parameters));
    }
    match operation.action.body() {
        Body::None => None,
        Body::Object => set("requestBody", json!({ "content": content(OBJECT_TYPES), "required": true })),
        Body::Patch => set("requestBody", json!({ "content": content(PATCH_TYPES), "required": true })),
        Body::Options => set("requestBody", json!({ "content": content(OBJECT_TYPES) })),
    };
    set("responses", json!({ "200": { "description": "OK" }, "401": { "description": "Unauthorized" } }));
    set("x-kubernetes-action", json!(operation.action.name()));
    set("x-kubernetes-group-version-kind", kind(&operation.kind));
    Value::Object(fields)
}

fn content(types: &[&str]) -> Map<String, Value> {
    types.iter().map(|media_type| ((*media_type).to_owned(), json!({ "schema": { "type": "object" } }))).collect()
}

fn parameter(parameter: &Parameter) -> Value {
    let mut fields = Map::new();
    fields.insert("name".to_owned(), json!(parameter.name));
    fields.insert("in".to_owned(), json!(parameter.place.as_str()));
    fields.insert("description".to_owned(), json!(parameter.description));
    if parameter.place == Place::Path {
        fields.insert("required".to_owned(), json!(true));
    }
    fields.insert("schema".to_owned(), json!({ "type": parameter.value.as_str(), "uniqueItems": true }));
    Value::Object(fields)
}

pub(crate) fn kind(kind: &GroupVersionKind) -> Value {
    json!({ "group": kind.group, "version": kind.version, "kind": kind.kind })
}

#[cfg(test)]
mod tests {
    use keelson_resources::Verb;

    use super::*;

    fn openapi() -> OpenApi {
        OpenApi::new(Catalogue::builtin(), "v1.36.2")
    }

    fn parsed(document: &Document) -> Value {
        serde_json::from_slice(&document.json).expect("documents are JSON")
    }

    /// What kubectl asks before it sends a request that is to be validated by the server: the first PATCH operation of
    /// the kind must take the parameter in its query.
    fn kubectl_finds(document: &Value, wanted: &Value, name: &str) -> bool {
        let paths = document["paths"].as_object().expect("paths are an object");
        let patch = paths.values().map(|item| &item["patch"]).find(|o| o["x-kubernetes-group-version-kind"] == *wanted);
        let parameters = patch.and_then(|operation| operation["parameters"].as_array());
        parameters.is_some_and(|list| list.iter().any(|each| each["name"] == name && each["in"] == "query"))
    }

    #[test]
    fn kubectl_finds_field_validation_and_dry_run_for_every_kind_it_can_patch() {
        let openapi = openapi();
        for group in Catalogue::builtin().groups() {
            for version in group.versions {
                let document =
                    openapi.document(&group.version_path(version.name)[1..]).expect("a document for each version");
                let document = parsed(document);
                for (resource, served) in group.served_in(version.name) {
                    let wanted = kind(&resource.gvk(version.name));
                    for name in ["fieldValidation", "dryRun"] {
                        assert_eq!(
                            kubectl_finds(&document, &wanted, name),
                            served.allows(Verb::Patch),
                            "{wanted} {name}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn the_index_names_each_document_with_its_hash() {
        let openapi = openapi();
        let index = parsed(openapi.index());
        let paths = index["paths"].as_object().expect("paths are an object");
        assert!(paths.contains_key("api/v1") && paths.contains_key("apis/resource.k8s.io/v1alpha3"));
        for (path, entry) in paths {
            let hash = &openapi.document(path).expect("a document at each path").hash;
            assert_eq!(entry["serverRelativeURL"], format!("/openapi/v3/{path}?hash={hash}"));
        }
    }

    #[test]
    fn equal_servers_have_equal_documents_and_another_version_changes_the_hash() {
        assert_eq!(openapi().index(), openapi().index());
        assert_ne!(openapi().index(), OpenApi::new(Catalogue::builtin(), "v1.36.3").index());
    }

    #[test]
    fn unknown_paths_have_no_document() {
        for path in ["", "api/v2", "apis/apps", "apis/apps/v9", "/api/v1"] {
            assert!(openapi().document(path).is_none(), "{path}");
        }
    }

    #[test]
    fn an_operation_says_what_it_takes() {
        let openapi = openapi();
        let document = parsed(openapi.document("apis/apps/v1").expect("apps/v1"));
        let item = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"];
        assert_eq!(
            item["patch"]["x-kubernetes-group-version-kind"],
            json!({ "group": "autoscaling", "version": "v1", "kind": "Scale" })
        );
        assert!(item["patch"]["requestBody"]["content"]["application/merge-patch+json"].is_object());
        let names: Vec<&Value> =
            item["parameters"].as_array().expect("parameters").iter().map(|each| &each["name"]).collect();
        assert_eq!(names, ["name", "namespace", "pretty"]);
    }
}
