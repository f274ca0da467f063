//! The OpenAPI v2 paths and definitions of an aggregated server, which are merged into the common document.
//!
//! As upstream, a definition is renamed to `NAME_v2` if a different definition has its name. Other content is not
//! changed, so it may contain references to definitions that don't exist.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use keelson_meta::json::{Map, Value};

use crate::json::member;
use crate::protobuf;
use crate::shared::{Rendering, SharedDefinitions};

const DEFINITIONS: &str = "#/definitions/";
const PARAMETERS: &str = "#/parameters/";
/// The extension that lists a definition's kinds. Definitions that differ only in this extension are merged.
const KINDS: &str = "x-kubernetes-group-version-kind";

/// The paths of one group version, with all definitions of their document.
#[derive(Debug, PartialEq)]
pub struct ForeignPaths {
    path: String,
    paths: BTreeMap<String, Value>,
    definitions: Arc<BTreeMap<String, Value>>,
}

impl ForeignPaths {
    /// The paths of each of these parts of the API in a document. A part is named by its path, such as `apis/apps/v1`.
    ///
    /// # Errors
    /// An invalid version 2 document.
    pub fn of_document(document: &Value, parts: &[String]) -> Result<Vec<Arc<Self>>, String> {
        let empty = Map::new();
        let members = |field: &str| match &document[field] {
            Value::Null => Ok(&empty),
            Value::Object(members) => Ok(members),
            _ => Err(format!("{field} is not an object")),
        };
        if document["swagger"].as_str() != Some("2.0") {
            return Err("the document is not OpenAPI 2".to_owned());
        }
        let (paths, parameters) = (members("paths")?, members("parameters")?);
        let definitions: BTreeMap<String, Value> = members("definitions")?
            .iter()
            .filter(|(_, definition)| definition.is_object())
            .map(|(name, definition)| (name.to_owned(), definition.clone()))
            .collect();
        let definitions = Arc::new(definitions);
        let of_part = |part: &String| {
            let (exactly, below) = (format!("/{part}"), format!("/{part}/"));
            let of_part = paths
                .iter()
                .filter(|(path, item)| item.is_object() && (**path == *exactly || path.starts_with(&*below)));
            let stated = of_part.map(|(path, item)| {
                let mut item = item.clone();
                state_parameters(&mut item, parameters);
                (path.to_owned(), item)
            });
            Arc::new(Self { path: part.clone(), paths: stated.collect(), definitions: definitions.clone() })
        };
        Ok(parts.iter().map(of_part).collect())
    }

    /// The path of the part.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The paths, each as a member of the enclosing object.
    pub(crate) fn rendered(&self, names: &Names, rendering: Rendering) -> Vec<(String, Vec<u8>)> {
        let render = |(path, item): (&String, &Value)| {
            let mut item = item.clone();
            names.rewrite(&mut item);
            let rendered = match rendering {
                Rendering::V2Protobuf => protobuf::path(path, &item),
                Rendering::V2Json | Rendering::V3 => member(path, &item),
            };
            (path.clone(), rendered)
        };
        self.paths.iter().map(render).collect()
    }
}

/// Replaces references to parameters by the parameters themselves, since the names of parameters are only valid within
/// one document.
fn state_parameters(value: &mut Value, parameters: &Map) {
    let items = value.as_object_mut().into_iter().flat_map(Map::values_mut);
    for operation in items {
        let operation = match operation {
            Value::Array(_) => operation,
            operation => match operation.get_mut("parameters") {
                Some(parameters) => parameters,
                None => continue,
            },
        };
        for parameter in operation.as_array_mut().into_iter().flatten() {
            let stated = parameter["$ref"].as_str().and_then(|to| parameters.get(to.strip_prefix(PARAMETERS)?));
            if let Some(stated) = stated.cloned() {
                *parameter = stated;
            }
        }
    }
}

/// The new names of the definitions of one document. Definitions that keep their names are left out.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, String>);

impl Names {
    /// Renames the definitions that a value refers to.
    fn rewrite(&self, value: &mut Value) {
        if self.0.is_empty() {
            return;
        }
        match value {
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(item)),
            Value::Object(members) => {
                for (key, member) in members.iter_mut() {
                    let renamed = member.as_str().filter(|_| key == "$ref");
                    let renamed = renamed.and_then(|to| self.0.get(to.strip_prefix(DEFINITIONS)?));
                    match renamed {
                        Some(name) => *member = Value::from(format!("{DEFINITIONS}{name}")),
                        None => self.rewrite(member),
                    }
                }
            }
            _ => {}
        }
    }
}

/// The definitions that aggregated servers add to this server's.
#[derive(Default)]
pub(crate) struct ForeignDefinitions<'d> {
    /// The names of this server's definitions that aggregated servers have too, with equal content.
    shared: Vec<String>,
    /// By the name under which they are added.
    added: BTreeMap<String, (&'d Value, Arc<Names>)>,
    /// The merged documents, by the address of their definitions.
    documents: HashMap<*const BTreeMap<String, Value>, Arc<Names>>,
}

impl<'d> ForeignDefinitions<'d> {
    /// Merges the definitions of a document and returns their new names. `own` returns this server's definitions as
    /// JSON, built-in or custom.
    pub(crate) fn take(&mut self, paths: &'d ForeignPaths, own: &impl Fn(&str) -> Option<Value>) -> Arc<Names> {
        let document = Arc::as_ptr(&paths.definitions);
        if let Some(names) = self.documents.get(&document) {
            return names.clone();
        }
        let mut names = Names::default();
        let mut new = Vec::new();
        for (name, definition) in &*paths.definitions {
            let mut candidate = name.clone();
            let mut number = 1;
            let is_there = loop {
                let same = match self.added.get(&candidate) {
                    Some((added, _)) => Some(is_same(added, definition)),
                    None => own(&candidate).map(|own| is_same(&own, definition)),
                };
                match same {
                    Some(false) => {
                        number += 1;
                        candidate = format!("{name}_v{number}");
                    }
                    Some(true) => break true,
                    None => break false,
                }
            };
            if candidate != *name {
                names.0.insert(name.clone(), candidate.clone());
            }
            if !is_there {
                new.push((candidate, definition));
            } else if !self.added.contains_key(&candidate) {
                self.shared.push(candidate);
            }
        }
        let names = Arc::new(names);
        self.added.extend(new.into_iter().map(|(name, definition)| (name, (definition, names.clone()))));
        self.documents.insert(document, names.clone());
        names
    }

    /// The names of this server's definitions that aggregated servers refer to.
    pub(crate) fn shared(&self) -> &[String] {
        &self.shared
    }

    /// All added definitions, each as a member of the enclosing object.
    pub(crate) fn rendered(&self, rendering: Rendering) -> Vec<(String, Vec<u8>)> {
        let render = |(name, (definition, names)): (&String, &(&Value, Arc<Names>))| {
            let mut definition = (*definition).clone();
            names.rewrite(&mut definition);
            let rendered = match rendering {
                Rendering::V2Protobuf => protobuf::definition(name, &definition),
                Rendering::V2Json | Rendering::V3 => member(name, &definition),
            };
            (name.clone(), rendered)
        };
        self.added.iter().map(render).collect()
    }
}

/// Returns true if two definitions differ at most in their kinds.
fn is_same(one: &Value, other: &Value) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    let said = |members: &Map| members.keys().filter(|key| *key != KINDS).count();
    said(one) == said(other)
        && one.iter().filter(|(key, _)| *key != KINDS).all(|(key, value)| other.get(key) == Some(value))
}

/// A definition of this server in the version 2 document.
pub(crate) fn own_definition(shared: &SharedDefinitions, name: &str) -> Option<Value> {
    let member = shared.definition(name, Rendering::V2Json);
    if member.is_empty() {
        return None;
    }
    let document = [b"{".as_slice(), member, b"}"].concat();
    let mut document: Value = serde_json::from_slice(&document).ok()?;
    Some(document[name].take())
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn document(description: &str) -> Value {
        json!({
            "swagger": "2.0",
            "paths": {
                "/apis/g/v1/things": {
                    "get": {
                        "parameters": [{ "$ref": "#/parameters/p" }, { "$ref": "#/parameters/missing" }],
                        "responses": { "200": { "schema": { "$ref": "#/definitions/Thing" } } },
                    },
                    "parameters": [{ "$ref": "#/parameters/p" }],
                },
                "/apis/g/v10/things": {}, "/healthz": {},
            },
            "parameters": { "p": { "name": "p", "in": "query" } },
            "definitions": {
                "Meta": { "description": description, (KINDS): [1] },
                "Thing": { "properties": { "metadata": { "$ref": "#/definitions/Meta" } } },
            },
        })
    }

    #[test]
    fn only_the_paths_of_a_part_are_taken_with_their_parameters() {
        let parts = ForeignPaths::of_document(&document("a"), &["apis/g/v1".to_owned()]).unwrap();
        let rendered = parts[0].rendered(&Names::default(), Rendering::V2Json);
        let [(path, item)] = &*rendered else { panic!("{rendered:?}") };
        assert_eq!(path, "/apis/g/v1/things");
        let item: Value = serde_json::from_slice(&[b"{", &**item, b"}"].concat()).unwrap();
        let item = &item["/apis/g/v1/things"];
        assert_eq!(item["parameters"][0]["name"], "p");
        assert_eq!(item["get"]["parameters"][0]["in"], "query");
        assert_eq!(item["get"]["parameters"][1]["$ref"], "#/parameters/missing");
        for other in [json!({ "openapi": "3.0.0" }), json!({ "swagger": "2.0", "paths": [] }), json!(1)] {
            assert!(ForeignPaths::of_document(&other, &[]).is_err(), "{other}");
        }
    }

    #[test]
    fn a_name_that_is_taken_by_something_else_is_changed_everywhere() {
        let part = ["apis/g/v1".to_owned()];
        let parts = ["own", "other", "other", "third"]
            .map(|said| ForeignPaths::of_document(&document(said), &part).unwrap().remove(0));
        let own = |name: &str| (name == "Meta").then(|| json!({ "description": "own" }));
        let mut definitions = ForeignDefinitions::default();
        let names: Vec<_> = parts.iter().map(|part| definitions.take(part, &own)).collect();
        assert!(names[0].0.is_empty(), "{names:?}");
        assert_eq!(names[1].0["Meta"], "Meta_v2");
        assert_eq!((&*names[2].0["Meta"], &*names[3].0["Meta"]), ("Meta_v2", "Meta_v3"));
        let added: Vec<String> = definitions.rendered(Rendering::V2Json).into_iter().map(|(name, _)| name).collect();
        assert_eq!(added, ["Meta_v2", "Meta_v3", "Thing"]);
        assert!(!parts[1].rendered(&names[1], Rendering::V2Protobuf).is_empty());
    }
}
