//! OpenAPI v3 documents as tests use them: operations, schemas of responses, and a check of values against a schema.
//!
//! Built-in definitions list all of their fields, so an unknown field does not fit.

use std::collections::BTreeMap;

use keelson_testkit::{DEFINITIONS, Raw};
use serde_json::{Map, Value, json};

/// The sample objects of all kinds, shared with the tests of kinds.
const SAMPLES: &str = include_str!("../objects/kinds/objects.json");
/// The definition of a custom kind with a status and a scale.
const DEFINITION: &str = include_str!("documented/definition.json");

/// An operation of a document.
pub(crate) struct Operation<'d> {
    pub(crate) document: &'d Value,
    pub(crate) path: &'d str,
    pub(crate) method: &'d str,
    pub(crate) stated: &'d Value,
}

impl<'d> Operation<'d> {
    /// All operations of a document.
    pub(crate) fn all(document: &'d Value) -> Vec<Self> {
        let paths = document["paths"].as_object().unwrap();
        let of_path = |(path, item): (&'d String, &'d Value)| {
            let methods = item.as_object().unwrap().iter().filter(|(method, _)| *method != "parameters");
            let operations = methods.map(move |(method, stated)| Self {
                document,
                path: path.as_str(),
                method: method.as_str(),
                stated,
            });
            operations.collect::<Vec<_>>()
        };
        paths.iter().flat_map(of_path).collect()
    }

    pub(crate) fn id(&self) -> &'d str {
        self.stated["operationId"].as_str().unwrap()
    }

    /// The value of `x-kubernetes-action`, empty for pages.
    pub(crate) fn action(&self) -> &'d str {
        self.stated["x-kubernetes-action"].as_str().unwrap_or_default()
    }

    /// The media types of request bodies.
    pub(crate) fn consumes(&self) -> Vec<&'d str> {
        keys(&self.stated["requestBody"]["content"])
    }

    /// The media types of its responses.
    pub(crate) fn produces(&self) -> Vec<&'d str> {
        keys(&self.stated["responses"]["200"]["content"])
    }

    /// The schema of a response body.
    pub(crate) fn answer(&self, code: u16, media_type: &str) -> &'d Value {
        &self.stated["responses"][code.to_string()]["content"][media_type]["schema"]
    }

    /// The plural name of the resource, and the subresource of the path.
    pub(crate) fn resource(&self) -> (&'d str, &'d str) {
        let parts: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        match parts.iter().position(|part| *part == "{name}") {
            Some(place) => (parts[place - 1], parts.get(place + 1).copied().unwrap_or_default()),
            None => (parts[parts.len() - 1], ""),
        }
    }

    /// The group and version of its path, such as `apps/v1`, or `v1`.
    pub(crate) fn api_version(&self) -> String {
        let parts: Vec<&str> = self.path.trim_matches('/').split('/').collect();
        match parts.as_slice() {
            ["api", version, ..] => (*version).to_owned(),
            ["apis", group, version, ..] => format!("{group}/{version}"),
            _ => String::new(),
        }
    }
}

fn keys(members: &Value) -> Vec<&str> {
    members.as_object().into_iter().flat_map(|members| members.keys().map(String::as_str)).collect()
}

/// The documents of version 3, by their paths.
pub(crate) async fn documents(raw: &Raw) -> BTreeMap<String, Value> {
    let index = raw.get("/openapi/v3").await.expect(200).json();
    let mut documents = BTreeMap::new();
    for (path, entry) in index["paths"].as_object().unwrap() {
        let url = entry["serverRelativeURL"].as_str().unwrap();
        documents.insert(path.clone(), raw.get(url).await.expect(200).json());
    }
    documents
}

/// The definition to which a reference refers.
pub(crate) fn resolved<'d>(document: &'d Value, schema: &'d Value) -> &'d Value {
    match schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        Some(pointer) => document.pointer(pointer).unwrap_or_else(|| panic!("{pointer} leads nowhere")),
        None => schema,
    }
}

/// The kinds that a schema describes, as `apiVersion` and `kind`.
pub(crate) fn kinds(document: &Value, schema: &Value) -> Vec<(String, String)> {
    let kinds = resolved(document, schema)["x-kubernetes-group-version-kind"].as_array();
    let text = |kind: &Value, member: &str| kind[member].as_str().unwrap_or_default().to_owned();
    let named = kinds.into_iter().flatten().map(|kind| {
        let (group, version) = (text(kind, "group"), text(kind, "version"));
        let api_version = if group.is_empty() { version } else { format!("{group}/{version}") };
        (api_version, text(kind, "kind"))
    });
    named.collect()
}

/// The reason why a value does not fit a schema, with its place. Null means a field without a value.
pub(crate) fn misfit(document: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    let schema = resolved(document, schema);
    if value.is_null() {
        return None;
    }
    let mut all = schema["allOf"].as_array().into_iter().flatten();
    if let Some(why) = all.find_map(|schema| misfit(document, schema, value, place)) {
        return Some(why);
    }
    for choice in ["oneOf", "anyOf"] {
        let choices = schema[choice].as_array().map_or(&[][..], Vec::as_slice);
        if !choices.is_empty() && choices.iter().all(|schema| misfit(document, schema, value, place).is_some()) {
            return Some(format!("{place}: {value} fits none of {choices:?}"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array().filter(|allowed| !allowed.contains(value)) {
        return Some(format!("{place}: {value} is none of {allowed:?}"));
    }
    match schema["type"].as_str() {
        Some("object") => misfit_of_object(document, schema, value, place),
        Some("array") => {
            let Some(items) = value.as_array() else { return Some(format!("{place}: {value} is not an array")) };
            items
                .iter()
                .enumerate()
                .find_map(|(index, item)| misfit(document, &schema["items"], item, &format!("{place}[{index}]")))
        }
        Some("string") if !value.is_string() => Some(format!("{place}: {value} is not a string")),
        Some("integer") if !value.is_i64() && !value.is_u64() => Some(format!("{place}: {value} is no integer")),
        Some("number") if !value.is_number() => Some(format!("{place}: {value} is not a number")),
        Some("boolean") if !value.is_boolean() => Some(format!("{place}: {value} is not a flag")),
        _ => None,
    }
}

fn misfit_of_object(document: &Value, schema: &Value, value: &Value, place: &str) -> Option<String> {
    let Some(fields) = value.as_object() else { return Some(format!("{place}: {value} is not an object")) };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    if let Some(missing) = required.into_iter().find(|name| !fields.contains_key(*name)) {
        return Some(format!("{place}: {missing} is required, and {value} lacks it"));
    }
    let named = schema["properties"].as_object();
    let further = schema.get("additionalProperties");
    let is_open = named.is_none() || schema["x-kubernetes-preserve-unknown-fields"] == true;
    fields.iter().find_map(|(name, field)| {
        let place = format!("{place}.{name}");
        match (named.and_then(|named| named.get(name)), further) {
            (Some(schema), _) | (None, Some(schema)) if schema.is_object() => misfit(document, schema, field, &place),
            (None, None) if !is_open => Some(format!("{place}: the schema names no such field")),
            _ => None,
        }
    })
}

/// The stored objects that requests use, by `plural.group`: each with its name and the `apiVersion` of its create.
pub(crate) struct Stored(BTreeMap<String, Value>);

impl Stored {
    /// Creates an object of every kind, and two custom kinds with one object each.
    pub(crate) async fn make(raw: &Raw) -> Self {
        let samples: BTreeMap<String, Value> = serde_json::from_str(SAMPLES).unwrap();
        let mut made = BTreeMap::new();
        let definitions: Value = serde_json::from_str(DEFINITION).unwrap();
        for definition in definitions.as_array().unwrap() {
            raw.post(DEFINITIONS, definition).await.expect(201);
        }
        for (name, sample) in samples {
            let mut body = sample["body"].clone();
            if body["metadata"]["name"].is_null() {
                body["metadata"] = json!({ "name": "stored" });
            }
            let plural = name.split('.').next().unwrap();
            let created = create(raw, plural, &body).await.unwrap_or_else(|answer| panic!("{name}: {answer}"));
            made.insert(name, created);
        }
        for (plural, kind) in [("promises", "Promise"), ("pledges", "Pledge")] {
            let body = json!({
                "apiVersion": "promised.example.org/v1", "kind": kind, "metadata": { "name": "stored" },
                "spec": { "size": 1, "label": "one" },
            });
            made.insert(format!("{plural}.promised.example.org"), create(raw, plural, &body).await.unwrap());
        }
        Self(made)
    }

    /// The object of a resource.
    pub(crate) fn object(&self, api_version: &str, plural: &str) -> Option<&Value> {
        let name = match api_version.split_once('/') {
            Some((group, _)) => format!("{plural}.{group}"),
            None => plural.to_owned(),
        };
        self.0.get(&name)
    }

    /// The `apiVersion`, the plural name and the object of each resource.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str, &Value)> {
        let named = self.0.iter().map(|(name, object)| (name.split('.').next().unwrap(), object));
        named.map(|(plural, object)| (object["apiVersion"].as_str().unwrap(), plural, object))
    }
}

/// The possible paths of a collection: in a namespace, and for the whole cluster.
pub(crate) fn collections(api_version: &str, plural: &str) -> [String; 2] {
    let root = if api_version.contains('/') { format!("/apis/{api_version}") } else { format!("/api/{api_version}") };
    [format!("{root}/namespaces/default/{plural}"), format!("{root}/{plural}")]
}

/// Creates an object in a namespace or in the cluster, as its kind requires.
async fn create(raw: &Raw, plural: &str, body: &Value) -> Result<Value, String> {
    let mut last = String::new();
    for path in collections(body["apiVersion"].as_str().unwrap(), plural) {
        let answer = raw.post(path, body).await;
        if answer.status == 201 {
            return Ok(answer.json());
        }
        last = answer.text();
    }
    Err(last)
}

/// An object in the form of a create, without the fields that the server sets.
pub(crate) fn renamed(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    let mut metadata = Map::new();
    metadata.insert("name".to_owned(), json!(name));
    for kept in ["labels", "annotations", "namespace"] {
        if let Some(value) = object["metadata"].get(kept) {
            metadata.insert(kept.to_owned(), value.clone());
        }
    }
    // The annotation replaces a field that the kind no longer has, and the server counts it.
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove("deprecated.daemonset.template.generation");
    }
    let fields = object.as_object_mut().unwrap();
    fields.insert("metadata".to_owned(), Value::Object(metadata));
    fields.remove("status");
    object
}
