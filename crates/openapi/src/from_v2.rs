//! Converts version 2 documents to version 3 as upstream does, for servers that have no version 3. Parts without an
//! equivalent are dropped.
//!
//! A reference with other members beside it is wrapped in `allOf`, since version 3 ignores members beside a reference.

use keelson_meta::json::{Map, Value, json};

/// The members of a path that are operations.
const METHODS: [&str; 7] = ["get", "put", "post", "delete", "options", "head", "patch"];
/// The places of parts that references name, in version 2 and in version 3.
const MOVED: [(&str, &str); 3] = [
    ("#/definitions/", "#/components/schemas/"),
    ("#/parameters/", "#/components/parameters/"),
    ("#/responses/", "#/components/responses/"),
];

/// Converts a whole document.
pub(crate) fn document(v2: &Value) -> Value {
    let mut components = Map::new();
    let mut part = |name: &str, of: &str, convert: &dyn Fn(&Value) -> Value| {
        if let Some(members) = v2[of].as_object() {
            components.insert(name.to_owned(), each(members, convert));
        }
    };
    part("schemas", "definitions", &schema);
    part("parameters", "parameters", &parameter);
    part("responses", "responses", &|it| response(it, &v2["produces"]));
    part("securitySchemes", "securityDefinitions", &security_scheme);
    let mut v3 = copied(v2, &["info", "externalDocs"]);
    v3.insert("openapi".to_owned(), json!("3.0.0"));
    v3.insert("paths".to_owned(), v2["paths"].as_object().map_or_else(|| json!({}), |paths| each(paths, &path)));
    v3.insert("components".to_owned(), Value::Object(components));
    Value::Object(v3)
}

fn each(members: &Map, convert: &dyn Fn(&Value) -> Value) -> Value {
    Value::Object(members.iter().map(|(name, member)| (name.to_owned(), convert(member))).collect())
}

fn list<'v>(items: impl IntoIterator<Item = &'v Value>, convert: impl Fn(&Value) -> Value) -> Value {
    Value::Array(items.into_iter().map(convert).collect())
}

/// Copies the members with these names, and extensions, and converts a reference.
fn copied(value: &Value, names: &[&str]) -> Map {
    let members = value.as_object().into_iter().flat_map(Map::iter);
    let kept = members.filter(|(name, _)| names.contains(&&**name) || name.starts_with("x-"));
    let mut copied: Map = kept.map(|(name, member)| (name.to_owned(), member.clone())).collect();
    if let Some(to) = value["$ref"].as_str() {
        copied.insert("$ref".to_owned(), json!(moved(to)));
    }
    copied
}

fn moved(to: &str) -> String {
    let moves = |(from, there): &(&str, &str)| to.strip_prefix(from).map(|name| format!("{there}{name}"));
    MOVED.iter().find_map(moves).unwrap_or_else(|| to.to_owned())
}

fn path(v2: &Value) -> Value {
    let mut v3 = copied(v2, &[]);
    for method in METHODS.into_iter().filter(|method| v2[*method].is_object()) {
        v3.insert(method.to_owned(), operation(&v2[method]));
    }
    if let Some(parameters) = v2["parameters"].as_array() {
        v3.insert("parameters".to_owned(), list(parameters.iter(), parameter));
    }
    Value::Object(v3)
}

fn operation(v2: &Value) -> Value {
    let mut v3 = copied(v2, &["tags", "summary", "description", "externalDocs", "operationId", "deprecated"]);
    let parameters = v2["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_body = |parameter: &&Value| parameter["name"] == "body" && parameter["schema"].is_object();
    let (bodies, others): (Vec<&Value>, Vec<&Value>) = parameters.iter().partition(is_body);
    if let Some(body) = bodies.last() {
        let mut request = Map::new();
        content(&mut request, &body["schema"], &v2["consumes"]);
        v3.insert("requestBody".to_owned(), Value::Object(request));
    }
    if !others.is_empty() {
        v3.insert("parameters".to_owned(), list(others, parameter));
    }
    if let Some(responses) = v2["responses"].as_object() {
        let convert = |(name, it): (&str, &Value)| {
            let is_extension = name.starts_with("x-");
            (name.to_owned(), if is_extension { it.clone() } else { response(it, &v2["produces"]) })
        };
        v3.insert(
            "responses".to_owned(),
            Value::Object(responses.iter().map(|(name, it)| convert((name, it))).collect()),
        );
    }
    Value::Object(v3)
}

/// Sets a schema for each of these media types.
fn content(of: &mut Map, stated: &Value, media_types: &Value) {
    if let Some(media_types) = media_types.as_array() {
        let schema = schema(stated);
        let named = media_types.iter().filter_map(Value::as_str);
        let content: Map = named.map(|name| (name.to_owned(), json!({ "schema": schema }))).collect();
        of.insert("content".to_owned(), Value::Object(content));
    }
}

fn response(v2: &Value, produces: &Value) -> Value {
    let mut v3 = copied(v2, &["description"]);
    if v2["schema"].is_object() {
        content(&mut v3, &v2["schema"], produces);
    }
    Value::Object(v3)
}

fn parameter(v2: &Value) -> Value {
    let mut v3 = copied(v2, &["name", "in", "description", "required", "allowEmptyValue"]);
    if v2["schema"].is_object() {
        v3.insert("schema".to_owned(), schema(&v2["schema"]));
    } else if v2["$ref"].is_null() {
        let members = ["type", "format", "uniqueItems"].into_iter().filter(|member| !v2[*member].is_null());
        let schema: Map = members.map(|member| (member.to_owned(), v2[member].clone())).collect();
        v3.insert("schema".to_owned(), Value::Object(schema));
    }
    Value::Object(v3)
}

fn security_scheme(v2: &Value) -> Value {
    let mut v3 = copied(v2, &["description", "type", "name", "in"]);
    if let Some(flow) = v2["flow"].as_str() {
        let mut stated = copied(v2, &["authorizationUrl", "tokenUrl", "scopes"]);
        stated.retain(|name, _| !name.starts_with("x-"));
        v3.insert("flows".to_owned(), json!({ flow: stated }));
    }
    Value::Object(v3)
}

/// Converts a schema with its parts. The depth is limited by the parser.
fn schema(v2: &Value) -> Value {
    let Some(members) = v2.as_object() else { return v2.clone() };
    let convert = |(name, member): (&str, &Value)| {
        let converted = match (name, member) {
            ("properties" | "patternProperties", Value::Object(members)) => each(members, &schema),
            ("items" | "allOf" | "anyOf" | "oneOf", Value::Array(list)) => self::list(list, schema),
            ("items" | "additionalItems" | "additionalProperties" | "not", Value::Object(_)) => schema(member),
            ("$ref", Value::String(to)) => json!(moved(to)),
            _ => member.clone(),
        };
        (name.to_owned(), converted)
    };
    let mut v3: Map = members.iter().map(|(name, member)| convert((name, member))).collect();
    if v3.len() > 1
        && let Some(reference) = v3.remove("$ref")
    {
        v3.insert("allOf".to_owned(), json!([{ "$ref": reference }]));
    }
    Value::Object(v3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_openapi_2_is_converted() {
        let thing = json!({ "$ref": "#/definitions/Thing" });
        let v2 = json!({
            "swagger": "2.0", "info": { "title": "T", "version": "1" }, "host": "elsewhere", "basePath": "/",
            "paths": { "/things": {
                "parameters": [{ "$ref": "#/parameters/pretty" }],
                "post": {
                    "operationId": "create", "consumes": ["application/json"], "produces": ["application/json", "text/x"],
                    "x-action": "post", "schemes": ["https"],
                    "parameters": [
                        { "name": "body", "in": "body", "required": true, "schema": thing },
                        { "name": "limit", "in": "query", "type": "integer", "uniqueItems": true },
                    ],
                    "responses": { "200": { "description": "OK", "schema": thing }, "default": { "$ref": "#/responses/no" } },
                },
                "get": { "responses": { "200": { "description": "OK", "schema": thing } } },
            } },
            "definitions": { "Thing": { "properties": {
                "spec": { "$ref": "#/definitions/Spec", "description": "What is wanted.", "default": {} },
                "list": { "type": "array", "items": { "$ref": "#/definitions/Thing" } },
                "map": { "type": "object", "additionalProperties": { "$ref": "#/definitions/Thing" } },
            } } },
            "parameters": { "pretty": { "name": "pretty", "in": "query", "type": "string" } },
            "responses": { "no": { "description": "No" } },
            "securityDefinitions": { "BearerToken": { "type": "apiKey", "name": "authorization", "in": "header" } },
        });
        let thing = json!({ "$ref": "#/components/schemas/Thing" });
        let expected = json!({
            "openapi": "3.0.0", "info": { "title": "T", "version": "1" },
            "paths": { "/things": {
                "parameters": [{ "$ref": "#/components/parameters/pretty" }],
                "post": {
                    "operationId": "create", "x-action": "post",
                    "requestBody": { "content": { "application/json": { "schema": thing } } },
                    "parameters": [{ "name": "limit", "in": "query", "schema": { "type": "integer", "uniqueItems": true } }],
                    "responses": {
                        "200": {
                            "description": "OK",
                            "content": { "application/json": { "schema": thing }, "text/x": { "schema": thing } },
                        },
                        "default": { "$ref": "#/components/responses/no" },
                    },
                },
                "get": { "responses": { "200": { "description": "OK" } } },
            } },
            "components": {
                "schemas": { "Thing": { "properties": {
                    "spec": {
                        "allOf": [{ "$ref": "#/components/schemas/Spec" }], "description": "What is wanted.", "default": {},
                    },
                    "list": { "type": "array", "items": thing },
                    "map": { "type": "object", "additionalProperties": thing },
                } } },
                "parameters": { "pretty": { "name": "pretty", "in": "query", "schema": { "type": "string" } } },
                "responses": { "no": { "description": "No" } },
                "securitySchemes": { "BearerToken": { "type": "apiKey", "name": "authorization", "in": "header" } },
            },
        });
        assert_eq!(document(&v2), expected);
    }
}
