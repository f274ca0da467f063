//! A Kubernetes object as a JSON tree, with typed access to its metadata.
//!
//! Accessors are lenient: a field of the wrong type counts as absent. The types are validated once, by a walk over the
//! schema, when a client sends the object.

use crate::json::{Map, Value};
use serde::{Deserialize, Serialize};

use crate::gvk::GroupVersionKind;

/// An object of any kind: a JSON object with its keys in their original order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Object(pub Map);

impl Object {
    /// Creates an object from a JSON object. `None` for other values.
    pub fn from_value(value: Value) -> Option<Self> {
        match value {
            Value::Object(map) => Some(Self(map)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => None,
        }
    }

    /// The object as a JSON value.
    pub fn into_value(self) -> Value {
        Value::Object(self.0)
    }

    /// `apiVersion`.
    pub fn api_version(&self) -> Option<&str> {
        self.0.get("apiVersion")?.as_str()
    }

    /// `kind`.
    pub fn kind(&self) -> Option<&str> {
        self.0.get("kind")?.as_str()
    }

    /// `metadata.name`. Empty if absent.
    pub fn name(&self) -> &str {
        self.meta_str("name").unwrap_or_default()
    }

    /// `metadata.namespace`. Empty if absent.
    pub fn namespace(&self) -> &str {
        self.meta_str("namespace").unwrap_or_default()
    }

    /// `metadata.generateName`. Empty if absent.
    pub fn generate_name(&self) -> &str {
        self.meta_str("generateName").unwrap_or_default()
    }

    /// `metadata.uid`. Empty if absent.
    pub fn uid(&self) -> &str {
        self.meta_str("uid").unwrap_or_default()
    }

    /// `metadata.resourceVersion`. Empty if absent.
    pub fn resource_version(&self) -> &str {
        self.meta_str("resourceVersion").unwrap_or_default()
    }

    /// `metadata.creationTimestamp`.
    pub fn creation_timestamp(&self) -> Option<&str> {
        self.meta_str("creationTimestamp")
    }

    /// `metadata.deletionTimestamp`, present after a graceful deletion has begun.
    pub fn deletion_timestamp(&self) -> Option<&str> {
        self.meta_str("deletionTimestamp")
    }

    /// `metadata.generation`.
    pub fn generation(&self) -> Option<i64> {
        self.meta("generation")?.as_i64()
    }

    /// `metadata.labels`, in their original order.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text_map("labels")
    }

    /// `metadata.annotations`, in their original order.
    pub fn annotations(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text_map("annotations")
    }

    /// `metadata.finalizers`.
    pub fn finalizers(&self) -> Vec<&str> {
        self.meta_list("finalizers").iter().filter_map(Value::as_str).collect()
    }

    /// The list in this metadata field. Empty if absent.
    pub fn meta_list(&self, field: &str) -> &[Value] {
        self.meta(field).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// This metadata field.
    pub fn meta(&self, field: &str) -> Option<&Value> {
        self.metadata()?.get(field)
    }

    /// This metadata field, if it is a text.
    pub fn meta_str(&self, field: &str) -> Option<&str> {
        self.meta(field)?.as_str()
    }

    /// `metadata`.
    pub fn metadata(&self) -> Option<&Map> {
        self.0.get("metadata")?.as_object()
    }

    /// `metadata`, created if it is absent or not an object.
    pub fn metadata_mut(&mut self) -> &mut Map {
        if self.metadata().is_none() {
            self.0.insert("metadata", Map::new());
        }
        self.0.get_mut("metadata").and_then(Value::as_object_mut).expect("metadata was just made an object")
    }

    /// Sets a metadata field.
    pub fn set_meta(&mut self, field: &str, value: impl Into<Value>) {
        self.metadata_mut().insert(field, value);
    }

    /// Removes a metadata field, keeping the order of the others.
    pub fn remove_meta(&mut self, field: &str) {
        if let Some(Value::Object(metadata)) = self.0.get_mut("metadata") {
            metadata.remove(field);
        }
    }

    /// Sets `kind` and `apiVersion`.
    pub fn set_type(&mut self, kind: &GroupVersionKind) {
        self.0.insert("kind", kind.kind.as_str());
        self.0.insert("apiVersion", kind.group_version().to_string());
    }

    /// The value at this path of object keys.
    pub fn get(&self, path: &[&str]) -> Option<&Value> {
        let (first, rest) = path.split_first()?;
        rest.iter().try_fold(self.0.get(first)?, |value, key| value.get(key))
    }

    fn text_map(&self, field: &str) -> impl Iterator<Item = (&str, &str)> {
        let entries = self.meta(field).and_then(Value::as_object);
        entries.into_iter().flatten().filter_map(|(key, value)| Some((key, value.as_str()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn reads_metadata_and_forgives_wrong_types() {
        let pod = object(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {
            "name": "web", "namespace": 7, "labels": {"a": "b", "c": 1}, "generation": 3, "finalizers": ["x", 1]
        }}));
        assert_eq!((pod.name(), pod.namespace(), pod.generation()), ("web", "", Some(3)));
        assert_eq!(pod.labels().collect::<Vec<_>>(), [("a", "b")]);
        assert_eq!(pod.annotations().count(), 0);
        assert_eq!(pod.finalizers(), ["x"]);
        assert_eq!(pod.get(&["metadata", "labels", "a"]), Some(&json!("b")));
        assert_eq!(pod.get(&["spec", "nodeName"]), None);
        assert_eq!(pod.get(&[]), None);
    }

    #[test]
    fn metadata_is_made_when_missing_or_not_an_object() {
        for value in [json!({}), json!({"metadata": null}), json!({"metadata": "x"})] {
            let mut made = object(value);
            made.set_meta("name", "a");
            assert_eq!(made.name(), "a");
            made.remove_meta("name");
            assert_eq!(made.into_value(), json!({"metadata": {}}));
        }
    }

    #[test]
    fn removing_a_field_keeps_the_order() {
        let mut made = object(json!({"metadata": {"a": 1, "b": 2, "c": 3}}));
        made.remove_meta("a");
        assert_eq!(made.into_value().to_string(), r#"{"metadata":{"b":2,"c":3}}"#);
    }

    #[test]
    fn type_has_the_core_group_without_a_slash() {
        let mut made = Object::default();
        made.set_type(&GroupVersionKind { group: String::new(), version: "v1".into(), kind: "Pod".into() });
        assert_eq!((made.api_version(), made.kind()), (Some("v1"), Some("Pod")));
        made.set_type(&GroupVersionKind { group: "apps".into(), version: "v1".into(), kind: "Deployment".into() });
        assert_eq!(made.api_version(), Some("apps/v1"));
    }
}
