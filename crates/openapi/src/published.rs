//! The published form of a structural schema: nearly unchanged in version 3, without unsupported parts in version 2.
//!
//! Version 2 has no alternatives and no nullable values, and kubectl treats the named fields as the only ones. So in
//! version 2 a nullable value has no type, and an object that preserves unknown fields names no fields. All this is
//! upstream's behaviour.

use keelson_meta::json::{Map, Value, json};

use crate::custom;
use crate::schema::Dialect;

/// Keywords that are published unchanged.
const STATED: &[&str] = &[
    "description",
    "title",
    "type",
    "format",
    "maximum",
    "exclusiveMaximum",
    "minimum",
    "exclusiveMinimum",
    "maxLength",
    "minLength",
    "pattern",
    "maxItems",
    "minItems",
    "uniqueItems",
    "multipleOf",
    "enum",
    "maxProperties",
    "minProperties",
    "required",
    "example",
    "externalDocs",
    PRESERVES,
    EMBEDDED,
    INT_OR_STRING,
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

/// Keywords that version 2 does not support.
const STATED_IN_V3: &[&str] = &["allOf", "anyOf", "default", "not", "nullable", "oneOf"];

/// Keywords whose value is a value of the field itself.
const VALUES: [&str; 2] = ["default", "example"];

const EMBEDDED: &str = "x-kubernetes-embedded-resource";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const PRESERVES: &str = "x-kubernetes-preserve-unknown-fields";

/// Returns true if an object is published without its fields.
pub(crate) fn takes_any(document: &Map, dialect: Dialect) -> bool {
    dialect == Dialect::V2 && is(document, PRESERVES)
}

/// Converts a schema with all its parts.
pub(crate) fn schema(stated: &Map, dialect: Dialect) -> Map {
    let mut out = Map::new();
    for (keyword, value) in stated {
        match keyword {
            "items" | "additionalProperties" => {
                out.insert(keyword, below(value, dialect));
            }
            "properties" => {
                let fields = value.as_object().into_iter().flatten();
                let fields = fields.map(|(name, field)| (name.to_owned(), below(field, dialect)));
                out.insert(keyword, fields.collect::<Map>());
            }
            // A keyword with the value false is omitted, but false may be a default or an example.
            _ if *value == Value::Bool(false) && !VALUES.contains(&keyword) => {}
            _ if STATED.contains(&keyword) || (dialect == Dialect::V3 && STATED_IN_V3.contains(&keyword)) => {
                out.insert(keyword, value.clone());
            }
            _ => {}
        }
    }
    match dialect {
        Dialect::V2 => simplify(stated, &mut out),
        Dialect::V3 => spell_out(&mut out),
    }
    if is(stated, EMBEDDED) && !takes_any(stated, dialect) {
        custom::embed(&mut out, dialect);
    }
    out
}

/// Sets fields of a schema, replacing any with the same name.
pub(crate) fn add_properties<'n>(schema: &mut Map, fields: impl IntoIterator<Item = (&'n str, Value)>) {
    let mut properties = match schema.remove("properties") {
        Some(Value::Object(stated)) => stated,
        _ => Map::new(),
    };
    for (name, field) in fields {
        properties.insert(name, field);
    }
    schema.insert("properties", properties);
}

/// Converts a subschema. Additional properties may also be a boolean.
fn below(value: &Value, dialect: Dialect) -> Value {
    match value.as_object() {
        Some(stated) => Value::Object(schema(stated, dialect)),
        None => value.clone(),
    }
}

/// Removes parts that version 2 does not support.
fn simplify(stated: &Map, out: &mut Map) {
    let (nullable, open) = (is(stated, "nullable"), is(stated, PRESERVES));
    let untyped = match stated.get("type").and_then(Value::as_str) {
        Some("array") => open || !stated.contains_key("items"),
        Some("object") => open,
        _ => false,
    };
    if nullable || untyped {
        out.remove("type");
    }
    if nullable || open {
        out.remove("items");
        out.remove("properties");
    }
    let may_be_null = |schema: Option<&Value>| schema.and_then(Value::as_object).is_some_and(|it| is(it, "nullable"));
    let fields = if out.contains_key("properties") { stated.get("properties") } else { None };
    let no_value_is_required = may_be_null(stated.get("additionalProperties"));
    if let Some(Value::Array(required)) = out.get_mut("required") {
        let field = |name: &Value| fields.and_then(|fields| fields.get(name.as_str().unwrap_or_default()));
        required.retain(|name| !no_value_is_required && !may_be_null(field(name)));
        if required.is_empty() {
            out.remove("required");
        }
    }
}

/// Adds the alternatives of an int-or-string, unless the schema states them.
fn spell_out(out: &mut Map) {
    if !is(out, INT_OR_STRING) {
        return;
    }
    let choices = || json!([{ "type": "integer" }, { "type": "string" }]);
    let stated_below = out.get("allOf").and_then(|all| all.get(0)).and_then(|first| first.get("anyOf"));
    if stated_below == Some(&choices()) || out.get("anyOf") == Some(&choices()) {
        return;
    }
    if !out.contains_key("anyOf") {
        out.insert("anyOf", choices());
        return;
    }
    let mut all = vec![json!({ "anyOf": choices() })];
    if let Some(Value::Array(stated)) = out.remove("allOf") {
        all.extend(stated);
    }
    out.insert("allOf", Value::Array(all));
}

fn is(schema: &Map, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the version 3 and version 2 forms of a schema.
    #[track_caller]
    #[allow(clippy::needless_pass_by_value, reason = "callers write the values where they need them")]
    fn check(stated: Value, v3: Value, v2: Value) {
        let stated = stated.as_object().expect("a schema");
        assert_eq!(Value::Object(schema(stated, Dialect::V3)), v3);
        assert_eq!(Value::Object(schema(stated, Dialect::V2)), v2);
    }

    /// Checks a schema that is published unchanged.
    #[track_caller]
    fn check_same(stated: Value) {
        check(stated.clone(), stated.clone(), stated);
    }

    #[test]
    fn most_is_published_as_it_is_stated() {
        check_same(json!({ "type": "string", "title": "S", "pattern": "^a", "minLength": 1, "example": "aa" }));
        check_same(json!({ "type": "object", "additionalProperties": { "type": "string" }, "minProperties": 1 }));
        check_same(json!({ "type": "object", "additionalProperties": false }));
        check_same(json!({ "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" }));
        check_same(json!({ "type": "object", "x-kubernetes-validations": [{ "rule": "self.a != ''" }] }));
        check_same(json!({ "type": "string", "enum": ["a", ""] }));
    }

    #[test]
    fn defaults_and_alternatives_are_for_version_3() {
        let stated = json!({ "type": "integer", "default": 80, "not": { "enum": [1] } });
        check(stated.clone(), stated, json!({ "type": "integer" }));
        let stated = json!({ "type": "boolean", "default": false });
        check(stated.clone(), stated, json!({ "type": "boolean" }));
        let stated =
            json!({ "type": "object", "oneOf": [{ "required": ["a"] }], "properties": { "a": { "type": "string" } } });
        let plain = json!({ "type": "object", "properties": { "a": { "type": "string" } } });
        check(stated.clone(), stated, plain);
    }

    #[test]
    fn nullable_fields_are_untyped_and_optional_in_openapi_2() {
        let stated = json!({ "type": "object", "properties": { "a": { "type": "string" } }, "nullable": true });
        check(stated.clone(), stated, json!({}));
        let stated = json!({
            "type": "object",
            "required": ["a", "b"],
            "properties": { "a": { "type": "string", "nullable": true }, "b": { "type": "string" } },
        });
        let simple =
            json!({ "type": "object", "required": ["b"], "properties": { "a": {}, "b": { "type": "string" } } });
        check(stated.clone(), stated, simple);
        let stated = json!({ "type": "string", "nullable": false });
        check(stated, json!({ "type": "string" }), json!({ "type": "string" }));
    }

    #[test]
    fn openapi_2_omits_properties_of_schemas_that_preserve_unknown_fields() {
        let open = json!({ "x-kubernetes-preserve-unknown-fields": true });
        let mut stated = json!({ "type": "object", "properties": { "known": { "type": "string" } } });
        stated.as_object_mut().expect("an object").insert("x-kubernetes-preserve-unknown-fields", true);
        check(stated.clone(), stated, open.clone());
        check_same(open);
    }

    #[test]
    fn an_integer_or_a_string_is_spelt_out_in_version_3() {
        let choices = json!([{ "type": "integer" }, { "type": "string" }]);
        let short = json!({ "x-kubernetes-int-or-string": true });
        let long = json!({ "x-kubernetes-int-or-string": true, "anyOf": choices });
        check(short.clone(), long.clone(), short.clone());
        check(long.clone(), long, short.clone());
        let other =
            json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "minimum": 1 }], "allOf": [{ "maximum": 9 }] });
        let mut spelt = other.clone();
        spelt["allOf"] = json!([{ "anyOf": choices }, { "maximum": 9 }]);
        check(other, spelt.clone(), short.clone());
        check(spelt.clone(), spelt, short);
    }

    #[test]
    fn an_object_inside_of_an_object_has_its_fields() {
        let stated = json!({ "type": "object", "x-kubernetes-embedded-resource": true, "required": ["kind"] });
        for dialect in [Dialect::V2, Dialect::V3] {
            let found = schema(stated.as_object().expect("a schema"), dialect);
            let names: Vec<&str> = found["properties"].as_object().expect("properties").keys().collect();
            assert_eq!(names, ["apiVersion", "kind", "metadata"]);
            assert_eq!(found["required"], json!(["kind", "apiVersion"]));
        }
        let open = json!({ "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true });
        assert_eq!(Value::Object(schema(open.as_object().expect("a schema"), Dialect::V2)), open);
    }
}
