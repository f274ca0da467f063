//! Definitions of custom resources for tests, and responses of conversion webhooks.
//!
//! The definitions are minimal: namespaced objects of a kind in some versions. Tests add further fields.

use serde_json::{Value, json};

/// The path of definitions.
pub const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A definition of a namespaced kind with these versions.
pub fn definition(group: &str, plural: &str, kind: &str, versions: impl Into<Value>) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": { "plural": plural, "kind": kind },
            "versions": versions.into(),
        },
    })
}

/// A served version with this schema of the whole object. It is the storage version if `stored`.
pub fn definition_version(name: &str, stored: bool, schema: impl Into<Value>) -> Value {
    json!({ "name": name, "served": true, "storage": stored, "schema": { "openAPIV3Schema": schema.into() } })
}

/// The response to a ConversionReview. `spec` makes the `spec` of each object for the requested version.
pub fn converted_review(review: &Value, spec: impl Fn(&Value, &str) -> Value) -> Value {
    let request = &review["request"];
    let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
    let converted = |object: &Value| {
        let mut converted = object.clone();
        converted["apiVersion"] = json!(wanted);
        converted["spec"] = spec(&object["spec"], wanted);
        converted
    };
    let objects: Vec<Value> = request["objects"].as_array().into_iter().flatten().map(converted).collect();
    let response = json!({ "uid": request["uid"], "convertedObjects": objects, "result": { "status": "Success" } });
    json!({ "kind": review["kind"], "apiVersion": review["apiVersion"], "response": response })
}
