//! Tests of schemas in definitions: keywords, structure, defaults and expressions.
//!
//! Paths and messages are kube-apiserver's.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{object, rules_of, texts};

/// The path of the schema of the only version.
const SCHEMA: &str = "spec.validation.openAPIV3Schema";

fn definition(schema: &Value, subresources: &Value) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": subresources,
                "schema": {"openAPIV3Schema": schema}}]},
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}})
}

/// The errors of a definition with this schema, without the path to the schema.
fn faults(schema: &Value, subresources: &Value) -> Vec<String> {
    let definition = object(&definition(schema, subresources));
    let faults = texts(rules_of(&definition).create(&definition));
    faults.into_iter().map(|fault| fault.replace(SCHEMA, "")).collect()
}

fn check_root(schema: &Value, expected: &[&str]) {
    assert_eq!(faults(schema, &Value::Null), expected, "{schema}");
}

/// Checks the errors of a field in this schema. The path of the schema is omitted.
#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn check(field: Value, expected: &[&str]) {
    let schema = json!({"type": "object", "properties": {"f": field}});
    let faults: Vec<String> =
        faults(&schema, &Value::Null).into_iter().map(|fault| fault.replace(".properties[f]", "")).collect();
    assert_eq!(faults, expected, "{schema}");
}

#[test]
fn a_type_is_stated_for_every_value_and_once() {
    check(json!({"description": "none"}), &[".type: Required value: must not be empty for specified object fields"]);
    check(
        json!({"type": "array", "items": {}}),
        &[".items.type: Required value: must not be empty for specified array items"],
    );
    check(json!({"type": "array"}), &[".items: Required value: must be specified"]);
    check(json!({"x-kubernetes-preserve-unknown-fields": true}), &[]);
    check(
        json!({"type": "colour"}),
        &[
            ".type: Unsupported value: \"colour\": supported values: \"array\", \"boolean\", \"integer\", \"number\", \"object\", \
           \"string\"",
        ],
    );
    // Combined schemas may have no structure, except for an integer or a string.
    check(
        json!({"type": "string", "allOf": [{"type": "string", "default": "a"}], "not": {"nullable": true}}),
        &[
            ".allOf[0].default: Forbidden: must be undefined to be structural",
            ".allOf[0].type: Forbidden: must be empty to be structural",
            ".not.nullable: Forbidden: must be false to be structural",
        ],
    );
    let either = json!([{"type": "integer"}, {"type": "string"}]);
    check(json!({"x-kubernetes-int-or-string": true, "anyOf": either}), &[]);
    check(json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": either}, {"pattern": "a"}]}), &[]);
    check_root(
        &json!({"type": "object", "properties": {"a": {"type": "object"}}, "anyOf": [{"properties": {"b": {"minLength": 1}}}]}),
        &[".properties[b]: Required value: because it is defined in .anyOf[0].properties[b]"],
    );
}

#[test]
fn the_root_is_an_object_with_metadata_that_is_known() {
    check_root(&json!({}), &[".type: Required value: must not be empty at the root"]);
    check_root(&json!({"type": "string"}), &[".type: Invalid value: \"string\": must be object at the root"]);
    check_root(
        &json!({"type": "object", "nullable": true}),
        &[".nullable: Forbidden: nullable cannot be true at the root"],
    );
    let with = |metadata: Value| json!({"type": "object", "properties": {"metadata": metadata}});
    check_root(&with(json!({"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}})), &[]);
    check_root(
        &with(json!({"type": "object", "required": ["name"]})),
        &[
            ".properties[metadata]: Forbidden: must not specify anything other than name and generateName, but metadata is \
           implicitly specified",
        ],
    );
    check_root(
        &with(json!({"type": "object", "properties": {"name": {"type": "string", "default": "a"}}})),
        &[".properties[metadata].properties[name].default: Forbidden: must not be set in top-level metadata"],
    );
    // With a status subresource, a rule at the root cannot apply to both parts.
    let root = json!({"type": "object", "maxProperties": 2});
    let [fault] = &faults(&root, &json!({"status": {}}))[..] else { panic!("one fault") };
    assert!(fault.starts_with(": Invalid value: {\"ID\":\"\",\"Schema\":\"\",\"Ref\":null"), "{fault}");
    assert!(
        fault.ends_with(" fields are allowed at the root of the schema if the status subresource is enabled"),
        "{fault}"
    );
    assert!(
        faults(&json!({"type": "object", "description": "d", "required": ["spec"]}), &json!({"status": {}})).is_empty()
    );
}

#[test]
fn keywords_that_are_not_supported_are_named() {
    check(json!({"type": "string", "id": "x"}), &[".id: Forbidden: id is not supported"]);
    check(json!({"$ref": "#/a"}), &[".$ref: Forbidden: $ref is not supported"]);
    check(
        json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
        &[".uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime complexity becomes quadratic"],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
        &[".additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"],
    );
    check(
        json!({"type": "string", "pattern": "a("}),
        &[
            ".pattern: Invalid value: \"a(\": must be a valid regular expression, but isn't: error parsing regexp: missing closing \
           ): `a(`",
        ],
    );
    check_root(
        &json!({"type": "object", "$schema": "http://json-schema.org/draft-07/schema#"}),
        &[": Invalid value: \"\": OpenAPIV3Schema 'schema' is not supported"],
    );
    let mut deep = json!({"type": "string"});
    for _ in 0..101 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    check_root(&deep, &[": Invalid value: must not have more than 100 schemas inside of each other"]);
}

#[test]
fn list_map_keys_are_required_scalar_properties() {
    let of = |item: Value, keys: Value| json!({"type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys});
    let item =
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}, "b": {"type": "object"}}});
    check(of(item.clone(), json!(["a"])), &[]);
    check(
        of(item.clone(), json!(["a", "a", "c"])),
        &[
            ".x-kubernetes-list-map-keys: Invalid value: [\"a\",\"a\",\"c\"]: must not contain duplicate entries",
            ".x-kubernetes-list-map-keys: Invalid value: [\"a\",\"a\",\"c\"]: entries must all be names of item properties",
        ],
    );
    check(
        of(item, json!(["b"])),
        &[
            ".items.properties[b].type: Invalid value: \"object\": must be a scalar type if parent array's \
             x-kubernetes-list-type is map",
            ".items.properties[b].default: Required value: this property is in x-kubernetes-list-map-keys, so it must have a \
             default or be a required property",
        ],
    );
    check(
        json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}),
        &[".items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a list with \
           x-kubernetes-list-type=set"],
    );
    check(
        json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
        &[".type: Invalid value: \"string\": must be object if x-kubernetes-map-type is specified"],
    );
}

#[test]
fn defaults_keep_their_own_schemas() {
    check(json!({"type": "string", "default": "a", "maxLength": 1}), &[]);
    // For integer-or-string values, upstream does not check the type of the default.
    check(json!({"x-kubernetes-int-or-string": true, "default": ["a"]}), &[]);
    check(
        json!({"type": "integer", "default": "3"}),
        &[".default: Invalid value: \"string\":  in body must be of type integer: \"string\""],
    );
    let with = |default: Value| json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}, "default": default});
    check(with(json!({})), &[".default.a: Required value"]);
    check(
        with(json!({"a": "1", "b": 2})),
        &[".default: Invalid value: {\"a\":\"1\",\"b\":2}: must not have unknown fields"],
    );
    check(
        json!({"type": "integer", "default": 3, "x-kubernetes-validations": [{"rule": "self > 5", "message": "five"}]}),
        &[".default: Invalid value: 3: five"],
    );
    let once = json!({"rule": "oldSelf.hasValue()", "optionalOldSelf": true, "message": "never new"});
    check(
        json!({"type": "integer", "default": 3, "x-kubernetes-validations": [once]}),
        &[".default: Invalid value: 3: never new"],
    );
    let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {"metadata": {"type": "object",
        "properties": {"finalizers": {"type": "array", "items": {"type": "string"}, "default": ["a b"]}}}}});
    let schema = json!({"type": "object", "properties": {"f": embedded}});
    let [fault] = &faults(&schema, &Value::Null)[..] else { panic!("one fault") };
    let expected = ".properties[f].properties[metadata].properties[finalizers].default: Invalid value: [\"a b\"]: must result in \
                    valid metadata: metadata.finalizers: Invalid value: \"a b\": name part must consist of";
    assert!(fault.starts_with(expected), "{fault}");
}

#[test]
fn expressions_compile_and_cost_no_more_than_they_may() {
    let rules = |rules: Value| json!({"type": "object", "properties": {"i": {"type": "integer"}}, "x-kubernetes-validations": rules});
    let go = |rule: &str| {
        format!(
            "{{\"Rule\":\"{rule}\",\"Message\":\"\",\"MessageExpression\":\"\",\"Reason\":null,\"FieldPath\":\"\",\"OptionalOldSelf\":null}}"
        )
    };
    check(rules(json!([{"rule": "self.i > 1", "fieldPath": ".i", "reason": "FieldValueRequired"}])), &[]);
    check(
        rules(json!([{"rule": "self.j"}])),
        &[&format!(
            ".x-kubernetes-validations[0].rule: Invalid value: {}: compilation failed: ERROR: <input>:1:5: undefined field \
             'j'\n | self.j\n | ....^",
            go("self.j")
        )],
    );
    check(
        rules(json!([{"rule": "self.i", "messageExpression": "self.j"}])),
        &[&format!(
            ".x-kubernetes-validations[0].rule: Invalid value: {}: cel expression must evaluate to a bool",
            go("self.i").replace("\"MessageExpression\":\"\"", "\"MessageExpression\":\"self.j\"")
        )],
    );
    check(
        rules(json!([{"rule": " ", "reason": "Odd", "fieldPath": ".z"}])),
        &[
            ".x-kubernetes-validations[0].rule: Required value: rule is not specified",
            ".x-kubernetes-validations[0].reason: Unsupported value: \"Odd\": supported values: \"FieldValueDuplicate\", \
             \"FieldValueForbidden\", \"FieldValueInvalid\", \"FieldValueRequired\"",
            ".x-kubernetes-validations[0].fieldPath: Invalid value: \".z\": must be a valid path",
        ],
    );
    // Only items with keys have an old value.
    let items = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self == oldSelf"}]});
    check(
        json!({"type": "array", "items": items, "maxItems": 5}),
        &[&format!(
            ".items.x-kubernetes-validations[0].rule: Invalid value: \"self == oldSelf\": oldSelf cannot be used on the \
             uncorrelatable portion of the schema within {SCHEMA}.properties[f]"
        )
        .replace(SCHEMA, "")
        .replace(".properties[f]", "")],
    );
    let twice = json!({"type": "array", "items": {"type": "integer"}, "maxItems": 1300,
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x <= y))"}]});
    check(
        twice,
        &[
            ".x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds budget by factor of 1.014650x (try \
           simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are declared)",
        ],
    );
}

#[test]
fn unchanged_schemas_are_not_validated_again() {
    let before = |schema: &Value| object(&definition(schema, &Value::Null));
    let update = |old: &Value, new: &Value| texts(rules_of(&before(old)).update(None, &before(old), &before(new)));
    let costly = |most: u64| {
        json!({"type": "object", "properties": {"l": {"type": "array", "items": {"type": "integer"}, "maxItems": most,
            "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x <= y))"}]}}})
    };
    assert_eq!(update(&costly(2000), &costly(2000)), [""; 0], "what does not change is not validated again");
    assert_eq!(update(&costly(2000), &costly(1900)).len(), 1);
    let set = |of: &str| {
        json!({"type": "object", "properties": {"s": {"type": "array", "x-kubernetes-list-type": "set",
            "items": {"type": "object", "description": of}}}})
    };
    assert_eq!(update(&set("a"), &set("b")), [""; 0]);
    assert_eq!(texts(rules_of(&before(&set("a"))).create(&before(&set("a")))).len(), 1);
}

#[test]
fn unrecognized_formats_get_a_warning_when_they_are_added() {
    let with = |format: &str| {
        object(&definition(
            &json!({"type": "object", "properties": {
        "a": {"type": "string", "format": format}, "b": {"type": "integer", "format": "int32"}}}),
            &Value::Null,
        ))
    };
    let rules = rules_of(&with("date"));
    assert_eq!(rules.warnings(None, &with("date")), [""; 0]);
    assert_eq!(rules.warnings(None, &with("colour")), ["unrecognized format \"colour\""]);
    assert_eq!(rules.warnings(Some(&with("colour")), &with("colour")), [""; 0]);
}
