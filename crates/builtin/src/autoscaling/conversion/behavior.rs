//! Reads and writes the annotation with the behavior of an autoscaler.
//!
//! Upstream writes it with the field names of its Go types, and null for absent fields. Users who write the annotation
//! by hand use either spelling.

use keelson_meta::json::{Map, Value, json};

use super::leaf::{Leaf, field, pick};

/// The scaling directions: the name in the annotation, and the name in v2.
const DIRECTIONS: [(&str, &str); 2] = [("ScaleUp", "scaleUp"), ("ScaleDown", "scaleDown")];

/// Parses the annotation; `None` if it is malformed or has no rules.
pub(super) fn read(text: &str) -> Option<Value> {
    let Value::Object(noted) = serde_json::from_str(text).ok()? else { return None };
    let mut behavior = Map::new();
    for (_, name) in DIRECTIONS {
        if let Some(rules) = field(&noted, name) {
            behavior.insert(name, Value::Object(read_rules(rules.as_object()?)?));
        }
    }
    (!behavior.is_empty()).then_some(Value::Object(behavior))
}

/// Serializes the behavior for the annotation.
pub(super) fn write(behavior: &Value) -> Value {
    let direction =
        |(noted, name): (&str, &str)| (noted.to_owned(), behavior.get(name).map_or(Value::Null, write_rules));
    Value::Object(DIRECTIONS.into_iter().map(direction).collect())
}

fn read_rules(noted: &Map) -> Option<Map> {
    let mut rules = pick(noted, &[("stabilizationWindowSeconds", Leaf::Number), ("selectPolicy", Leaf::Text)])?;
    if let Some(policies) = field(noted, "policies") {
        let policies: Option<Vec<Value>> = policies.as_array()?.iter().map(read_policy).collect();
        rules.insert("policies", Value::Array(policies?));
    }
    rules.extend(pick(noted, &[("tolerance", Leaf::Quantity)])?);
    Some(rules)
}

/// All fields of a policy are required, since Go writes all of them.
fn read_policy(noted: &Value) -> Option<Value> {
    let fields = [("type", Leaf::Text), ("value", Leaf::Number), ("periodSeconds", Leaf::Number)];
    let mut policy = json!({"type": "", "value": 0, "periodSeconds": 0});
    policy.as_object_mut()?.extend(pick(noted.as_object()?, &fields)?);
    Some(policy)
}

fn write_rules(rules: &Value) -> Value {
    if rules.is_null() {
        return Value::Null;
    }
    let get = |name| rules.get(name).cloned().unwrap_or_default();
    let policies = rules.get("policies").and_then(Value::as_array);
    let policies = policies.map_or(Value::Null, |policies| policies.iter().map(write_policy).collect());
    json!({
        "StabilizationWindowSeconds": get("stabilizationWindowSeconds"),
        "SelectPolicy": get("selectPolicy"),
        "Policies": policies,
        "Tolerance": get("tolerance"),
    })
}

fn write_policy(policy: &Value) -> Value {
    let get = |name, absent| policy.get(name).cloned().unwrap_or(absent);
    json!({
        "Type": get("type", json!("")),
        "Value": get("value", json!(0)),
        "PeriodSeconds": get("periodSeconds", json!(0)),
    })
}
