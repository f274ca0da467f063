//! The scale of a workload: how many replicas are wanted, how many there are, and which pods they are
//! (`autoscaling/v1` Scale, the subresource that `kubectl scale` and autoscalers use).

use std::sync::Arc;

use keelson_cache::Entry;
use keelson_meta::field_error::FieldError;
use keelson_meta::{ApiError, GroupKind, Object};
use serde_json::{Map, Value, json};

use crate::registry::Registry;
use crate::target::Target;
use crate::write::Change;

/// The keys of an object's metadata that its scale shows.
const SHOWN: [&str; 5] = ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"];

impl Registry {
    /// The scale of a stored workload.
    pub fn scale(&self, entry: &Entry) -> Object {
        scale_of(&entry.object.decode(entry.revision))
    }

    /// Changes the wanted replicas: `change` makes a new scale of the one that is.
    ///
    /// # Errors
    /// What `change` returns; 404, 409 as for an update; 422 for a negative number.
    pub async fn change_scale(
        &self,
        target: &Target,
        name: &str,
        dry_run: bool,
        change: impl Fn(Object) -> Result<Object, ApiError>,
    ) -> Result<Object, ApiError> {
        let written = self
            .change(target, name, dry_run, |current| {
                let next = change(self.scale(current))?;
                self.rescaled(target, name, current, &next)
            })
            .await?;
        Ok(scale_of(&written.object.decode(written.revision.unwrap_or_default())))
    }

    fn rescaled(&self, target: &Target, name: &str, current: &Arc<Entry>, scale: &Object) -> Result<Change, ApiError> {
        let wanted = match scale.get(&["spec", "replicas"]) {
            None | Some(Value::Null) => 0,
            Some(number) => number.as_i64().ok_or_else(|| invalid(name, number, "must be an integer"))?,
        };
        if wanted < 0 {
            return Err(invalid(name, &json!(wanted), "must be greater than or equal to 0"));
        }
        let mut next = current.object.decode(current.revision);
        next.set_meta("uid", scale.uid());
        next.set_meta("resourceVersion", scale.resource_version());
        let spec = next.0.entry("spec").or_insert_with(|| json!({}));
        if let Value::Object(spec) = spec {
            spec.insert("replicas".to_owned(), json!(wanted));
        }
        self.replace(target, name, current, next)
    }
}

fn scale_of(workload: &Object) -> Object {
    let mut metadata = Map::new();
    for key in SHOWN {
        if let Some(value) = workload.meta(key) {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    let number = |path: [&str; 2]| workload.get(&path).and_then(Value::as_i64).unwrap_or_default();
    let mut spec = Map::new();
    if number(["spec", "replicas"]) != 0 {
        spec.insert("replicas".to_owned(), json!(number(["spec", "replicas"])));
    }
    let mut status = Map::new();
    status.insert("replicas".to_owned(), json!(number(["status", "replicas"])));
    let selector = selector_text(workload.get(&["spec", "selector"]));
    if !selector.is_empty() {
        status.insert("selector".to_owned(), json!(selector));
    }
    let mut scale = Object::default();
    scale.0.insert("kind".to_owned(), json!("Scale"));
    scale.0.insert("apiVersion".to_owned(), json!("autoscaling/v1"));
    scale.0.insert("metadata".to_owned(), Value::Object(metadata));
    scale.0.insert("spec".to_owned(), Value::Object(spec));
    scale.0.insert("status".to_owned(), Value::Object(status));
    scale
}

/// A label selector as the text that list requests take. Replication controllers have bare labels there.
fn selector_text(selector: Option<&Value>) -> String {
    let Some(Value::Object(selector)) = selector else {
        return String::new();
    };
    let structured = selector.contains_key("matchLabels") || selector.contains_key("matchExpressions");
    let labels = if structured { selector.get("matchLabels").and_then(Value::as_object) } else { Some(selector) };
    let equalities = labels.into_iter().flatten().map(|(key, value)| {
        let text = format!("{key}={}", value.as_str().unwrap_or_default());
        (key.as_str(), text)
    });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let mut terms: Vec<(&str, String)> = equalities.chain(expressions.filter_map(expression)).collect();
    terms.sort();
    terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(",")
}

fn expression(expression: &Value) -> Option<(&str, String)> {
    let key = expression.get("key")?.as_str()?;
    let mut values: Vec<&str> =
        expression.get("values").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    values.sort_unstable();
    let values = values.join(",");
    let text = match expression.get("operator")?.as_str()? {
        "In" => format!("{key} in ({values})"),
        "NotIn" => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    };
    Some((key, text))
}

fn invalid(name: &str, value: &Value, why: &str) -> ApiError {
    ApiError::Invalid {
        kind: GroupKind { group: "autoscaling".to_owned(), kind: "Scale".to_owned() },
        name: name.to_owned(),
        errors: vec![FieldError::invalid("spec.replicas", value.to_string(), why)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Object {
        Object::from_value(value).expect("an object")
    }

    #[test]
    fn a_scale_shows_the_selector_as_a_text() {
        let workload = object(json!({
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
            "spec": {"replicas": 3, "selector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "In", "values": ["b", "a"]},
                    {"key": "x", "operator": "DoesNotExist"},
                ],
            }},
            "status": {"replicas": 2},
        }));
        let expected = object(json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": "d", "namespace": "n", "uid": "u", "resourceVersion": "7"},
            "spec": {"replicas": 3},
            "status": {"replicas": 2, "selector": "app=web,tier in (a,b),!x"},
        }));
        assert_eq!(scale_of(&workload), expected);
    }

    #[test]
    fn a_replication_controller_has_bare_labels() {
        assert_eq!(selector_text(Some(&json!({"b": "2", "a": "1"}))), "a=1,b=2");
        assert_eq!(selector_text(None), "");
    }
}
