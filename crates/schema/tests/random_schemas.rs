//! Random structural schemas and random objects. A second walk changes nothing, the check of bytes accepts the result
//! of a walk, and validation does not panic and reports a limited number of faults.

#![allow(clippy::unwrap_used, reason = "clippy takes only test functions for tests, not their helpers")]

use keelson_meta::field_error::FAULTS_MAX;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupVersionKind, Object};
use keelson_schema::{Schema, WalkOptions, WalkReport};
use proptest::collection::vec;
use proptest::prelude::*;

const NAMES: [&str; 6] = ["a", "b", "c", "apiVersion", "kind", "metadata"];

fn name() -> impl Strategy<Value = String> {
    prop_oneof![6 => prop::sample::select(&NAMES[..3]), 1 => prop::sample::select(&NAMES[3..])].prop_map(str::to_owned)
}

/// Any value that an object may contain.
fn any_value() -> BoxedStrategy<Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3..12_i64).prop_map(Value::from),
        (-3.0..12.0).prop_map(|number: f64| json!(number)),
        any::<u64>().prop_map(Value::from),
        "[ab:.\\-0-9é]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |below| {
        prop_oneof![
            vec(below.clone(), 0..4).prop_map(Value::from),
            vec((name(), below), 0..4).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
    .boxed()
}

/// A schema with some of these members added.
fn with(schema: Value, rest: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let mut schema = schema;
    for (name, value) in rest {
        if let Some(value) = value {
            schema[name] = value;
        }
    }
    schema
}

fn some<T: Clone + std::fmt::Debug + 'static>(of: impl Strategy<Value = T> + 'static) -> BoxedStrategy<Option<T>> {
    proptest::option::weighted(0.3, of).boxed()
}

fn leaf_schema() -> BoxedStrategy<Value> {
    let flag = || some(Just(json!(true)));
    let text = (
        some(Just(json!("ab"))),
        some(prop::sample::select(vec!["ipv4", "date-time", "hostname", "uri", "byte", "duration", "unknown"])),
        some(0..3_usize),
        some(Just(json!("^[a-m]*$"))),
        flag(),
    );
    let text = text.prop_map(|(default, format, most, pattern, nullable)| {
        let rest = [
            ("default", default),
            ("format", format.map(Value::from)),
            ("maxLength", most.map(Value::from)),
            ("pattern", pattern),
            ("nullable", nullable),
        ];
        with(json!({ "type": "string" }), rest)
    });
    let number =
        (prop::sample::select(vec!["integer", "number"]), some(0..9_i64), some(0..9_i64), some(1..4_i64), flag());
    let number = number.prop_map(|(of, default, most, factor, nullable)| {
        let rest = [
            ("default", default.map(Value::from)),
            ("maximum", most.map(Value::from)),
            ("multipleOf", factor.map(Value::from)),
            ("nullable", nullable),
        ];
        with(json!({ "type": of }), rest)
    });
    let flags = (some(any::<bool>()), flag()).prop_map(|(default, nullable)| {
        with(json!({ "type": "boolean" }), [("default", default.map(Value::from)), ("nullable", nullable)])
    });
    prop_oneof![
        3 => text,
        3 => number,
        1 => flags,
        1 => Just(json!({ "x-kubernetes-int-or-string": true, "anyOf": [{ "minimum": 3 }, { "minLength": 3 }] })),
        1 => Just(json!({ "x-kubernetes-preserve-unknown-fields": true })),
    ]
    .boxed()
}

fn any_schema() -> BoxedStrategy<Value> {
    leaf_schema()
        .prop_recursive(4, 24, 4, |below| {
            let flag = || some(Just(json!(true)));
            let fields = (
                vec((name(), below.clone()), 0..4),
                some(vec(name(), 0..2)),
                flag(),
                flag(),
                flag(),
                some(Just(json!({}))),
            );
            let object = fields.prop_map(|(fields, required, preserves, embedded, nullable, default)| {
                let properties: Map = fields.into_iter().filter(|(name, _)| NAMES[..3].contains(&&**name)).collect();
                let rest = [
                    ("required", required.map(Value::from)),
                    ("x-kubernetes-preserve-unknown-fields", preserves),
                    ("x-kubernetes-embedded-resource", embedded),
                    ("nullable", nullable),
                    ("default", default),
                ];
                with(json!({ "type": "object", "properties": properties }), rest)
            });
            let map = (below.clone(), flag(), some(0..2_usize)).prop_map(|(values, nullable, most)| {
                let rest = [("nullable", nullable), ("maxProperties", most.map(Value::from))];
                with(json!({ "type": "object", "additionalProperties": values }), rest)
            });
            let of_list = some(prop::sample::select(vec!["set", "atomic"]));
            let list =
                (below, of_list, some(0..3_usize), some(Just(json!([])))).prop_map(|(items, of, most, default)| {
                    let rest = [
                        ("x-kubernetes-list-type", of.map(Value::from)),
                        ("maxItems", most.map(Value::from)),
                        ("default", default),
                    ];
                    with(json!({ "type": "array", "items": items }), rest)
                });
            prop_oneof![3 => object, 1 => map, 1 => list]
        })
        .boxed()
}

fn compile(spec: &Value) -> Schema {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Any".into() };
    Schema::structural(&kind, &json!({ "type": "object", "properties": { "spec": spec } })).unwrap()
}

fn object(spec: &Value) -> Object {
    Object::from_value(
        json!({ "apiVersion": "x.org/v1", "kind": "Any", "metadata": { "name": "a", "generation": 1 }, "spec": spec }),
    )
    .unwrap()
}

fn walk(schema: &Schema, object: &mut Object) -> WalkReport {
    let mut report = WalkReport::default();
    schema.get().walk(object, &mut report, WalkOptions::STORE);
    report
}

fn text(object: &Object) -> String {
    object.clone().into_value().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// A second walk changes nothing, and the check of bytes accepts the result. If bytes are accepted before a walk,
    /// the walk changes only the order of fields.
    #[test]
    fn a_second_walk_changes_nothing(schema in any_schema(), spec in any_value()) {
        let schema = compile(&schema);
        let sent = object(&spec);
        let mut once = sent.clone();
        let report = walk(&schema, &mut once);
        if report.type_error().is_none() {
            let mut twice = once.clone();
            prop_assert!(walk(&schema, &mut twice).type_error().is_none());
            prop_assert_eq!(&once, &twice);
            // The byte check does not accept values of wrong types.
            let (rules, value) = (schema.rules().unwrap(), once.clone().into_value());
            if rules.type_fault_of_embedded(&value).is_none() && rules.validate(&value, None, None).faults.is_empty() {
                prop_assert!(schema.get().is_shape_of(text(&once).as_bytes()), "{}", text(&once));
            }
        }
        // In metadata, only the types are checked.
        if !spec.to_string().contains("metadata") && schema.get().is_shape_of(text(&sent).as_bytes()) {
            prop_assert!(walk(&schema, &mut sent.clone()).unknown_fields().is_empty());
            let count = |object: &Object| members(&object.clone().into_value());
            prop_assert_eq!(count(&sent), count(&once), "{} became {}", text(&sent), text(&once));
        }
    }

    /// Validation of any object is deterministic, and reports a limited number of faults.
    #[test]
    fn validation_is_deterministic_and_bounded(schema in any_schema(), spec in any_value(), other in any_value()) {
        let schema = compile(&schema);
        let rules = schema.rules().unwrap();
        for (new, old) in [(&spec, None), (&spec, Some(&other)), (&spec, Some(&spec))] {
            let (new, old) = (object(new).into_value(), old.map(|old| object(old).into_value()));
            let faults = rules.validate(&new, old.as_ref(), None).faults;
            prop_assert!(faults.len() <= FAULTS_MAX);
            prop_assert_eq!(&faults, &rules.validate(&new, old.as_ref(), None).faults);
        }
    }
}

/// The number of members of all objects in a value.
fn members(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len() + map.values().map(members).sum::<usize>(),
        Value::Array(items) => items.iter().map(members).sum(),
        _ => 0,
    }
}
