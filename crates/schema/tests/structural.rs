//! Compares structural schemas with kube-apiserver: the faults of values, and the results of walks.
//!
//! Cases with several faults are in `values`.

#![allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupVersionKind, Object};
use keelson_schema::{Schema, WalkOptions, WalkReport};
use proptest::prelude::*;

#[path = "structural/values.rs"]
mod values;

fn schema(spec: Value) -> Schema {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Check".into() };
    let document = json!({ "type": "object", "properties": { "spec": { "type": "object", "properties": spec } } });
    Schema::structural(&kind, &document).unwrap()
}

fn causes(faults: &[FieldError]) -> Vec<(String, String)> {
    faults.iter().map(|fault| (fault.cause().field, fault.cause().message)).collect()
}

/// Checks the faults of a field with this schema: the field and the text of each.
#[track_caller]
fn check(of: &Value, value: Value, expected: &[(&str, &str)]) {
    let schema = schema(json!({ "f": of.clone() }));
    let faults = schema.rules().unwrap().validate(&json!({ "spec": { "f": value } }), None, None).faults;
    let expected: Vec<(String, String)> =
        expected.iter().map(|(field, text)| ((*field).to_owned(), (*text).to_owned())).collect();
    assert_eq!(causes(&faults), expected);
}

#[test]
fn values_of_wrong_types_get_upstream_errors() {
    let integer = json!({ "type": "integer" });
    let wrong =
        |of: &str, found: &str| format!("Invalid value: \"{found}\": spec.f in body must be of type {of}: \"{found}\"");
    check(&integer, json!("1"), &[("spec.f", &wrong("integer", "string"))]);
    let fraction = "Invalid value: \"\": Checked value must be of type integer (default format) in spec.f";
    check(&integer, json!(1.5), &[("spec.f", &wrong("integer", "number")), ("<nil>", fraction)]);
    check(&integer, json!(1.0), &[]);
    check(&json!({ "type": "string" }), json!(1), &[("spec.f", &wrong("string", "integer"))]);
    check(&json!({ "type": "array", "items": {} }), json!({ "a": 1 }), &[("spec.f", &wrong("array", "object"))]);
    let nulls = json!({ "type": "array", "items": { "type": "string" } });
    let text = "Invalid value: \"null\": spec.f[1] in body must be of type string: \"null\"";
    check(&nulls, json!(["a", null]), &[("spec.f[1]", text)]);
    check(&json!({ "type": "array", "items": { "type": "string", "nullable": true } }), json!(["a", null]), &[]);
    let either = json!({ "x-kubernetes-int-or-string": true, "pattern": "^[0-9]+%$", "maximum": 5 });
    check(&either, json!("5%"), &[]);
    check(&either, json!(true), &[("spec.f", &wrong("integer,string", "boolean"))]);
    check(&either, json!("5"), &[("spec.f", "Invalid value: \"5\": spec.f in body should match '^[0-9]+%$'")]);
    check(&either, json!(6), &[("spec.f", "Invalid value: 6: spec.f in body should be less than or equal to 5")]);
    let map = json!({ "type": "object", "additionalProperties": { "type": "integer" } });
    let key = "Invalid value: \"string\": spec.f.k.e y in body must be of type integer: \"string\"";
    check(&map, json!({ "k.e y": "v" }), &[("spec.f.k.e y", key)]);
    let closed = json!({ "type": "object", "additionalProperties": false });
    check(&closed, json!({ "a": 1 }), &[("spec.f", "Invalid value: \"a\": spec.f.a in body is a forbidden property")]);
}

#[test]
fn bounds_of_numbers_are_kept() {
    let check = |of: Value, value: Value, text: &str| check(&of, value, &[("spec.f", text)]);
    let number = |keyword: &str, bound: Value| json!({ "type": "number", keyword: bound });
    check(
        number("maximum", json!(1.5)),
        json!(1.6),
        "Invalid value: 1.6: spec.f in body should be less than or equal to 1.5",
    );
    check(
        number("minimum", json!(1_234_567_890_123_i64)),
        json!(5),
        "Invalid value: 5: spec.f in body should be greater than or equal to 1234567890123",
    );
    check(
        json!({ "type": "integer", "maximum": 10, "exclusiveMaximum": true }),
        json!(10),
        "Invalid value: 10: spec.f in body should be less than 10",
    );
    check(
        json!({ "type": "integer", "minimum": 2, "exclusiveMinimum": true }),
        json!(2),
        "Invalid value: 2: spec.f in body should be greater than 2",
    );
    check(
        number("multipleOf", json!(0.1)),
        json!(0.25),
        "Invalid value: 0.25: spec.f in body should be a multiple of 0.1",
    );
    check(number("multipleOf", json!(3)), json!(4), "Invalid value: 4: spec.f in body should be a multiple of 3");
    check(
        number("multipleOf", json!(0)),
        json!(4),
        "Invalid value: 0: factor MultipleOf declared for spec.f must be positive: 0",
    );
}

#[test]
fn lengths_patterns_and_enumerations_are_kept() {
    let check = |of: Value, value: Value, text: &str| check(&of, value, &[("spec.f", text)]);
    check(json!({ "type": "string", "maxLength": 3 }), json!("abcd"), "Too long: may not be more than 3 bytes");
    check(
        json!({ "type": "string", "minLength": 3 }),
        json!("ab"),
        "Invalid value: \"ab\": spec.f in body should be at least 3 chars long",
    );
    check(
        json!({ "type": "string", "pattern": "^a+$" }),
        json!("aa\n"),
        "Invalid value: \"aa\\n\": spec.f in body should match '^a+$'",
    );
    check(
        json!({ "type": "string", "enum": ["one", "two", ""] }),
        json!("One"),
        "Unsupported value: \"One\": supported values: \"one\", \"two\", \"\"",
    );
    check(
        json!({ "type": "integer", "enum": [1, 2] }),
        json!(3),
        "Unsupported value: 3: supported values: \"1\", \"2\"",
    );
    check(
        json!({ "type": "string", "enum": ["a", null], "nullable": true }),
        json!(null),
        "Unsupported value: null: supported values: \"a\", \"null\"",
    );
    check(
        json!({ "type": "array", "items": {}, "maxItems": 2 }),
        json!([1, 2, 3]),
        "Too many: 3: must have at most 2 items",
    );
    check(
        json!({ "type": "array", "items": {}, "minItems": 2 }),
        json!([1]),
        "Invalid value: 1: spec.f in body should have at least 2 items",
    );
    check(
        json!({ "type": "object", "maxProperties": 1 }),
        json!({ "a": 1, "b": 2 }),
        "Too many: 2: must have at most 1 item",
    );
    check(
        json!({ "type": "object", "minProperties": 2 }),
        json!({ "a": 1 }),
        "Invalid value: 1: spec.f in body should have at least 2 properties",
    );
    check(
        json!({ "type": "object", "minProperties": 1 }),
        json!({}),
        "Invalid value: 0: spec.f in body should have at least 1 properties",
    );
    check(
        json!({ "type": "string", "format": "ipv4" }),
        json!("x"),
        "Invalid value: \"x\": spec.f in body must be of type ipv4: \"x\"",
    );
}

#[test]
fn valid_values_are_accepted() {
    check(&json!({ "type": "number", "multipleOf": 0.1 }), json!(0.3), &[]);
    check(&json!({ "type": "integer", "multipleOf": 3 }), json!(-6), &[]);
    check(&json!({ "type": "string", "maxLength": 3 }), json!("äöü"), &[]);
    check(&json!({ "type": "integer", "enum": [1, 2] }), json!(1.0), &[]);
    check(&json!({ "type": "string", "enum": [] }), json!("b"), &[]);
    let mixed = json!({ "x-kubernetes-preserve-unknown-fields": true, "enum": [{ "a": 1 }, [1]] });
    check(&mixed, json!({ "a": 1 }), &[]);
    check(&json!({ "type": "string", "format": "colour" }), json!("anything"), &[]);
}

#[test]
fn any_of_one_of_and_not_report_their_failures() {
    let pattern =
        |text: &str, pattern: &str| format!("Invalid value: {text:?}: spec.f in body should match '{pattern}'");
    let told = |what: &str| format!("Invalid value: \"\": \"spec.f\" {what}");
    let two = |keyword: &str| json!({ "type": "string", keyword: [{ "pattern": "^a" }, { "pattern": "z$" }] });
    let any = told("must validate at least one schema (anyOf)");
    check(&two("anyOf"), json!("c"), &[("<nil>", &any), ("spec.f", &pattern("c", "^a"))]);
    check(&two("anyOf"), json!("z"), &[]);
    let none = told("must validate one and only one schema (oneOf). Found none valid");
    check(&two("oneOf"), json!("b"), &[("<nil>", &none), ("spec.f", &pattern("b", "^a"))]);
    let both = told("must validate one and only one schema (oneOf). Found 2 valid alternatives");
    check(&two("oneOf"), json!("az"), &[("<nil>", &both)]);
    let all = told("must validate all the schemas (allOf). None validated");
    check(
        &two("allOf"),
        json!("b"),
        &[("spec.f", &pattern("b", "^a")), ("spec.f", &pattern("b", "z$")), ("<nil>", &all)],
    );
    let some = told("must validate all the schemas (allOf)");
    check(&two("allOf"), json!("ab"), &[("spec.f", &pattern("ab", "z$")), ("<nil>", &some)]);
    let not = json!({ "type": "string", "not": { "pattern": "^a" } });
    check(&not, json!("ab"), &[("<nil>", &told("must not validate the schema (not)"))]);
    let required = json!({ "type": "object", "anyOf": [{ "required": ["a"] }, { "required": ["b"] }] });
    check(&required, json!({}), &[("<nil>", &any), ("spec.f.a", "Required value")]);
}

#[test]
fn the_effort_of_a_schema_is_estimated_beforehand() {
    let check = |spec: Value, expected: &dyn Fn(u64) -> bool| {
        let effort = schema(spec.clone()).rules().unwrap().effort();
        assert!(expected(effort), "{effort} for {spec}");
    };
    let text = |more: Value| {
        let mut field = json!({ "type": "string", "maxLength": 100 });
        field.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "f": field })
    };
    let rule = |rule: &str| text(json!({ "x-kubernetes-validations": [{ "rule": rule }] }));
    let name = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$";
    let little = |effort: u64| effort <= 4;
    check(text(json!({})), &little);
    check(text(json!({ "pattern": name })), &little);
    check(rule("self.startsWith('a')"), &little);
    check(rule(&format!("self.matches('{name}')")), &little);
    let several = |effort: u64| (20..40).contains(&effort);
    check(text(json!({ "anyOf": vec![json!({ "minLength": 1 }); 20] })), &several);
    check(text(json!({ "pattern": r"^\pL{5}$" })), &several);
    let much = |effort: u64| effort == u64::MAX;
    check(text(json!({ "pattern": r"^\pL{63}$" })), &much);
    let many = (0..100).map(|index| (format!("f{index}"), json!({ "type": "string", "pattern": name })));
    check(many.collect::<Map>().into(), &much);
    // The pattern is a value of the object, so it is not known when the rule is compiled.
    check(rule("'text'.matches(self)"), &much);
    check(rule("self.find('a{1000}b{1000}c{1000}d{1000}e{1000}f{1000}') == ''"), &much);
    check(
        json!({ "f": { "type": "string", "x-kubernetes-validations": [{ "rule": "self.matches('a.*b.*c.*d.*e')" }] } }),
        &much,
    );
}

#[test]
fn duplicate_items_of_sets_and_maps_are_refused() {
    let set = json!({ "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" });
    let twice = |value: &str| format!("Duplicate value: {value}");
    check(&set, json!(["a", "b", "a", "b", "a"]), &[("spec.f[2]", &twice("\"a\"")), ("spec.f[3]", &twice("\"b\""))]);
    let item = json!({ "type": "object", "properties": { "k": { "type": "string" } }, "required": ["k"] });
    let map =
        json!({ "type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"] });
    check(&map, json!([{ "k": "a" }, { "k": "b" }, { "k": "a" }]), &[("spec.f[2]", &twice("{\"k\":\"a\"}"))]);
    check(&map, json!([{ "v": 1 }]), &[("spec.f[0].k", "Required value")]);
    let keys = json!({ "type": "array", "items": { "type": "object" }, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["z", "a"] });
    let both = json!({ "z": "1", "a": 2 });
    check(&keys, json!([both, both]), &[("spec.f[1]", &twice("{\"a\":2,\"z\":\"1\"}"))]);
    let below = json!({ "type": "object", "additionalProperties": set });
    check(&below, json!({ "k": ["a", "a"] }), &[("spec.f[k][1]", &twice("\"a\""))]);
}

#[test]
fn unchanged_invalid_values_are_accepted() {
    let short = json!({ "type": "string", "maxLength": 2 });
    let item = json!({ "type": "object", "properties": { "k": { "type": "string" }, "v": short } });
    let schema = schema(json!({
        "s": short,
        "atomic": { "type": "array", "items": short },
        "map": { "type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"] },
        "set": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
    }));
    let old =
        json!({ "spec": { "s": "long", "atomic": ["long"], "map": [{ "k": "a", "v": "long" }], "set": ["a", "a"] } });
    let check = |next: Value, expected: &[&str]| {
        let faults = schema.rules().unwrap().validate(&json!({ "spec": next }), Some(&old), None).faults;
        let fields: Vec<String> = faults.iter().map(|fault| fault.cause().field).collect();
        assert_eq!(fields, expected);
    };
    check(old["spec"].clone(), &[]);
    check(json!({ "s": "other" }), &["spec.s"]);
    check(json!({ "atomic": ["long", "ok"] }), &["spec.atomic[0]"]);
    check(json!({ "map": [{ "k": "b", "v": "ok" }, { "k": "a", "v": "long" }] }), &[]);
    check(json!({ "map": [{ "k": "c", "v": "long" }] }), &["spec.map[0].v"]);
    check(json!({ "set": ["a", "a", "b"] }), &[]);
}

/// The object after a walk, and the unknown fields that were reported.
fn walked(schema: &Schema, spec: Value) -> (Value, Vec<String>) {
    let whole = json!({ "apiVersion": "x.org/v1", "kind": "Check", "metadata": { "name": "x" }, "spec": spec });
    let (mut object, mut report) = (Object::from_value(whole).unwrap(), WalkReport::default());
    schema.get().walk(&mut object, &mut report, WalkOptions::STORE);
    assert_eq!(report.fault(), None);
    (object.get(&["spec"]).cloned().unwrap_or_default(), report.unknown_fields().to_vec())
}

#[test]
fn objects_are_pruned_and_get_their_defaults() {
    let schema = schema(json!({
        "d": { "type": "string", "default": "dd" },
        "dn": { "type": "string", "default": "x", "nullable": true },
        "n": { "type": "object", "default": {}, "properties": { "i": { "type": "integer", "default": 5 } } },
        "l": { "type": "array", "items": { "type": "object", "properties": { "p": { "type": "integer", "default": 80 } } } },
        "m": { "type": "object", "additionalProperties": { "type": "string" } },
        "bare": { "type": "object" },
        "true": { "type": "object", "additionalProperties": true },
        "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": { "inner": { "type": "object", "properties": { "a": { "type": "string" } } } } },
        "any": { "x-kubernetes-preserve-unknown-fields": true },
        "s": { "type": "string" },
    }));
    let defaults = json!({ "d": "dd", "dn": "x", "n": { "i": 5 } });
    let check = |spec: Value, expected: Value, unknown: &[&str]| {
        let mut wanted = defaults.clone();
        for (name, value) in expected.as_object().unwrap() {
            wanted[name] = value.clone();
        }
        wanted.sort_all_keys();
        let (mut found, told) = walked(&schema, spec);
        found.sort_all_keys();
        assert_eq!((found, told), (wanted, unknown.iter().map(|&path| path.to_owned()).collect()));
    };
    check(json!({}), json!({}), &[]);
    check(
        json!({ "zz": 1, "l": [{ "zz": 1 }, {}] }),
        json!({ "l": [{ "p": 80 }, { "p": 80 }] }),
        &["spec.zz", "spec.l[0].zz"],
    );
    check(json!({ "d": null, "s": null, "m": { "a": null, "b": "1" } }), json!({ "m": { "b": "1" } }), &[]);
    check(json!({ "dn": null }), json!({ "dn": null }), &[]);
    check(json!({ "s": "", "l": [], "m": {}, "d": "" }), json!({ "s": "", "l": [], "m": {}, "d": "" }), &[]);
    check(json!({ "bare": { "a": 1 } }), json!({ "bare": {} }), &["spec.bare.a"]);
    check(json!({ "true": { "a": 1, "b": { "c": 1 } } }), json!({ "true": { "a": 1, "b": {} } }), &["spec.true.b.c"]);
    let free = json!({ "free": { "other": { "x": [null, 1.0] }, "inner": { "a": "1", "zz": 2 } } });
    check(free, json!({ "free": { "other": { "x": [null, 1] }, "inner": { "a": "1" } } }), &["spec.free.inner.zz"]);
    check(json!({ "any": [1.0, null, 1.5] }), json!({ "any": [1, null, 1.5] }), &[]);
    check(json!({ "s": { "a": 1 } }), json!({ "s": {} }), &["spec.s.a"]);
}

/// Null in a list or a map is replaced by the default of its items, as in kube-apiserver.
#[test]
fn null_items_and_values_get_the_default_of_their_schema() {
    let part = json!({ "type": "object", "default": {}, "properties": { "p": { "type": "integer", "default": 80 } } });
    let map = |values: Value| json!({ "type": "object", "additionalProperties": values });
    let list = |items: Value| json!({ "type": "array", "items": items });
    let schema = schema(json!({
        "m": map(json!({ "type": "string", "default": "dd" })),
        "deep": map(part.clone()),
        "nullable": map(json!({ "type": "string", "default": "dd", "nullable": true })),
        "bare": map(json!({ "type": "string" })),
        "l": list(json!({ "type": "string", "default": "dd" })),
        "parts": list(part),
        "either": list(json!({ "type": "string", "default": "dd", "nullable": true })),
        "nested": map(list(json!({ "type": "integer", "default": 7 }))),
    }));
    let check = |spec: Value, mut expected: Value| {
        let (mut found, told) = walked(&schema, spec);
        found.sort_all_keys();
        expected.sort_all_keys();
        assert_eq!((found, told), (expected, Vec::new()));
    };
    let nulls = json!({ "a": null, "b": "1" });
    check(json!({ "m": nulls }), json!({ "m": { "a": "dd", "b": "1" } }));
    check(json!({ "deep": { "a": null, "b": {} } }), json!({ "deep": { "a": { "p": 80 }, "b": { "p": 80 } } }));
    check(json!({ "nullable": nulls }), json!({ "nullable": nulls }));
    check(json!({ "bare": nulls }), json!({ "bare": { "b": "1" } }));
    check(json!({ "l": ["a", null] }), json!({ "l": ["a", "dd"] }));
    check(json!({ "parts": [null, {}] }), json!({ "parts": [{ "p": 80 }, { "p": 80 }] }));
    check(json!({ "either": [null] }), json!({ "either": [null] }));
    check(json!({ "nested": { "a": [null, 1] } }), json!({ "nested": { "a": [7, 1] } }));
}

/// Unknown fields are kept in the items of an array that keeps unknown fields. Below a declared field, pruning begins
/// again.
#[test]
fn items_of_a_preserving_array_keep_unknown_fields() {
    let part = json!({ "type": "object", "properties": { "z": { "type": "string" } } });
    let item = json!({ "type": "object", "properties": { "z": { "type": "string" }, "part": part } });
    let array =
        |items: &Value| json!({ "type": "array", "x-kubernetes-preserve-unknown-fields": true, "items": items });
    let object = json!({ "z": "1", "w": { "deep": [1] }, "part": { "z": "2", "gone": 3 } });
    let kept = json!({ "part": { "z": "2" }, "w": { "deep": [1] }, "z": "1" });
    let schema = schema(json!({ "flat": array(&item), "nested": array(&json!({ "type": "array", "items": item })) }));
    let (mut walked, unknown) = walked(&schema, json!({ "flat": [object], "nested": [[object]] }));
    walked.sort_all_keys();
    assert_eq!(walked, json!({ "flat": [kept], "nested": [[kept]] }));
    assert_eq!(unknown, ["spec.flat[0].part.gone", "spec.nested[0][0].part.gone"]);
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "[a-z]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        let members = prop::collection::vec(("[dlmns]|any|free|bare", inner.clone()), 0..4);
        let object = members.prop_map(|members| {
            let mut map = Map::new();
            for (name, value) in members {
                map.insert(name, value);
            }
            Value::Object(map)
        });
        prop_oneof![object, prop::collection::vec(inner, 0..4).prop_map(Value::Array)]
    })
}

proptest! {
    /// A second walk changes nothing, validation does not panic, and an unchanged object has no faults.
    #[test]
    fn walked_objects_have_canonical_form(spec in any_value()) {
        let schema = schema(json!({
            "d": { "type": "string", "default": "dd", "maxLength": 2, "pattern": "^[a-m]*$" },
            "n": { "type": "object", "default": {}, "properties": { "d": { "type": "integer", "default": 5 } } },
            "l": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set", "maxItems": 2 },
            "m": { "type": "object", "additionalProperties": { "type": "string", "nullable": true } },
            "s": { "x-kubernetes-int-or-string": true, "anyOf": [{ "minimum": 3 }, { "minLength": 3 }] },
            "any": { "x-kubernetes-preserve-unknown-fields": true },
            "bare": { "type": "object" },
        }));
        let walk = |object: &mut Object| {
            let mut report = WalkReport::default();
            schema.get().walk(object, &mut report, WalkOptions::STORE);
            report
        };
        let mut once = Object::from_value(json!({ "spec": spec })).unwrap();
        walk(&mut once);
        let mut twice = once.clone();
        prop_assert!(walk(&mut twice).is_clean());
        prop_assert_eq!(&once, &twice);
        let value = once.into_value();
        let faults = schema.rules().unwrap().validate(&value, Some(&value), None).faults;
        prop_assert!(faults.is_empty(), "{:?}", faults);
    }
}

#[test]
fn metadata_is_that_of_every_kind() {
    let schema = schema(json!({}));
    let metadata = schema.get().field("metadata").unwrap();
    assert_eq!(metadata.field("labels").unwrap().go_type(), "map[string]string");
    assert!(!metadata.is_structural());
    let whole = json!({ "metadata": { "name": "x", "labels": ["a"] } });
    let (mut object, mut report) = (Object::from_value(whole).unwrap(), WalkReport::default());
    schema.get().walk(&mut object, &mut report, WalkOptions::STORE);
    let expected = "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string";
    assert_eq!(report.type_error().as_deref(), Some(expected));
}

#[test]
fn unusable_schemas_are_refused_with_their_path() {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Check".into() };
    let check = |document: Value, path: &str| {
        assert_eq!(Schema::structural(&kind, &document).unwrap_err().path, path);
    };
    check(json!({ "properties": { "a": { "items": { "pattern": "(" } } } }), "properties.a.items");
    check(json!({ "anyOf": [{ "type": "text" }] }), "anyOf[0]");
    let deep = (0..200).fold(json!({}), |inner, _| json!({ "items": inner }));
    assert_eq!(Schema::structural(&kind, &deep).unwrap_err().why, "it is too deep");
}

/// Checks that a format accepts the texts in `good` and refuses those in `bad`.
#[track_caller]
fn check_format(name: &str, good: &[&str], bad: &[&str]) {
    let schema = schema(json!({ "f": { "type": "string", "format": name } }));
    let fits = |text: &&str| {
        schema.rules().unwrap().validate(&json!({ "spec": { "f": *text } }), None, None).faults.is_empty()
    };
    assert_eq!(good.iter().filter(|text| !fits(text)).collect::<Vec<_>>(), Vec::<&&str>::new(), "{name}: refused");
    assert_eq!(bad.iter().filter(|text| fits(text)).collect::<Vec<_>>(), Vec::<&&str>::new(), "{name}: taken");
}

#[test]
fn names_and_addresses_are_of_their_format() {
    check_format(
        "uri",
        &["http://example.com", "urn:a:b", "/path", "//host/x", "http://", "*"],
        &["example.com", "http://a b", "a", "", "ftp://x/%zz"],
    );
    check_format(
        "email",
        &["a@b.c", "a@b", "A B <a@b.c>", "a@b.c ", "\"a b\"@c.d", "ä@b.c", "a@[1.2.3.4]"],
        &["a.b.c", "@b", "a@", "a@b@c", ""],
    );
    check_format(
        "hostname",
        &["example.com", "EXAMPLE.com", "a", "xn--4ca.com"],
        &["a.", "-a.b", "a-.b", "a_b.c", "1.2.3.4", "a..b", "*.example.com", "", "a b"],
    );
    check_format(
        "ipv4",
        &["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4"],
        &["256.1.1.1", "1.2.3", "1.2.3.4/8", "::1", " 1.2.3.4", ""],
    );
    check_format(
        "ipv6",
        &["::1", "2001:DB8::1", "::ffff:1.2.3.4"],
        &["1.2.3.4", "fe80::1%eth0", "[::1]", "1::2::3", ""],
    );
    check_format(
        "cidr",
        &["1.2.3.4/8", "2001:db8::/32", "010.0.0.0/8"],
        &["10.0.0.0/33", "10.0.0.0", "::1/129", "10.0.0.0/-1", "10.0.0/8", ""],
    );
    check_format(
        "mac",
        &["01:23:45:67:89:ab", "01-23-45-67-89-AB", "0123.4567.89ab", "0123456789ab", "01:23:45:67:89:ab:cd:ef"],
        &["01:23:45:67:89", "g1:23:45:67:89:ab", ""],
    );
    check_format(
        "uuid",
        &["123e4567-e89b-12d3-a456-426614174000", "123e4567e89b12d3a456426614174000"],
        &["123e4567-e89b-12d3-a456-42661417400", "{123e4567-e89b-12d3-a456-426614174000}", ""],
    );
    check_format(
        "uuid4",
        &["9f8e7d6c-5b4a-4321-8fed-cba987654321"],
        &["9f8e7d6c-5b4a-4321-0fed-cba987654321", "123e4567-e89b-12d3-a456-426614174000"],
    );
    check_format("k8s-short-name", &["a-b"], &["a.b", "A", ""]);
    check_format("k8s-long-name", &["a.b-c"], &["a..b", "A.b", ""]);
}

#[test]
fn strings_of_further_formats_are_validated() {
    check_format("isbn", &["0321751043", "978-0321751041"], &["032175104X", "0321751044", "1", ""]);
    check_format("isbn10", &["0-321-75104-3", "080442957X"], &["9780321751041"]);
    check_format(
        "creditcard",
        &["4111111111111111", "4111-1111-1111-1111", "378282246310005"],
        &["4111111111111112", "1234", ""],
    );
    check_format("ssn", &["123-45-6789", "123 45 6789"], &["123456789", "12-345-6789"]);
    check_format("hexcolor", &["#FFF", "ffffff"], &["#ffff", "#ggg", "red"]);
    check_format("rgbcolor", &["rgb(0, 0, 0)"], &["rgb(256,0,0)", "rgb(1,2)", "RGB(1,2,3)", "rgb(1.0,2,3)"]);
    check_format("byte", &["aGVsbG8=", "YQ=="], &["aGVsbG8", "a-_b", "YQ=", "Y Q==", "!!", "", "===="]);
    check_format("date", &["1999-12-31"], &["1999-2-3", "1999-02-30", "99-12-31", "1999/12/31", ""]);
    check_format(
        "date-time",
        &["1999-12-31T23:59:59Z", "1999-12-31t23:59:59z", "1999-12-31T23:59:59+01:00"],
        &[
            "1999-12-31 23:59:59Z",
            "1999-12-31T23:59:60Z",
            "1999-12-31T23:59:59",
            "yesterday",
            "1999-12-31T23:59:59+0100",
        ],
    );
    check_format(
        "duration",
        &["1s", "1h2m3s", "1.5h", "-1s", "22 ns", "1 second", "2 days", "1w", "PT1H", "0", "1 hour 2 minutes"],
        &["1", "s", ""],
    );
}

#[test]
fn numbers_are_in_the_range_of_their_format() {
    let text = |format: &str| format!("Invalid value: \"\": Checked value must be of type {format} in spec.f");
    let int32 = json!({ "type": "integer", "format": "int32" });
    check(&int32, json!(2_147_483_648_i64), &[("<nil>", &text("integer with format int32"))]);
    check(&int32, json!(-2_147_483_648_i64), &[]);
    let float = json!({ "type": "number", "format": "float" });
    check(&float, json!(1e39), &[("<nil>", &text("number with format float"))]);
}

#[test]
fn patterns_match_as_in_re2() {
    let check = |pattern: &str, text: &str, expected: bool| {
        let schema = schema(json!({ "f": { "type": "string", "pattern": pattern } }));
        let faults = schema.rules().unwrap().validate(&json!({ "spec": { "f": text } }), None, None).faults;
        assert_eq!(faults.is_empty(), expected, "{pattern} on {text}");
    };
    check("^a+$", "aa\n", false);
    check(r"^\d$", "5", true);
    check(r"^\d$", "٥", false);
    check(r"^[\d.]+$", "1.5", true);
    check(r"^\w+$", "é", false);
    check(r"\bb\b", "éb", true);
    check("^[]a]$", "]", true);
    check("^[^]a]$", "]", false);
    check("^[[:alpha:]]$", "x", true);
    check("^[a[]$", "[", true);
    check("^[a&&b]$", "&", true);
    check("^.$", "é", true);
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Check".into() };
    let ahead = json!({ "pattern": "(?=a)" });
    assert!(Schema::structural(&kind, &ahead).is_err(), "looking ahead can't be done in linear time");
}
