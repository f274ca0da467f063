//! Properties of the walk over generated objects of every built-in kind.
//!
//! An object that has the shape of its kind is not changed, and a second walk finds nothing to change.

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_schema::{SchemaRef, Schemas, Type, WalkOptions, WalkReport};
use proptest::prelude::*;

/// Makes valid objects from a stream of numbers.
struct Generator {
    state: u64,
}

impl Generator {
    fn number(&mut self, below: u64) -> u64 {
        // A linear congruential generator is good enough. Its high bits are more random than its low ones.
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 33) % below
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[usize::try_from(self.number(of.len() as u64)).expect("a position in a slice")]
    }

    fn value(&mut self, schema: SchemaRef<'_>, depth: u32) -> Value {
        match schema.value_type() {
            Type::Any => json!({"any": [1, null, {"b": "", "a": 0}]}),
            Type::Object => self.object(schema, depth),
            Type::Map => {
                let items = parts(schema);
                let entries = (0..self.number(3)).map(|i| (format!("key-{i}"), self.value(items, depth + 1)));
                Value::Object(entries.collect())
            }
            Type::Array => {
                let items = parts(schema);
                (0..self.number(3)).map(|_| self.value(items, depth + 1)).collect()
            }
            Type::Either => self.value(schema.choices().expect("an either has choices").0, depth + 1),
            Type::String => json!(self.pick(&["", "a", "text"])),
            Type::Int32 | Type::Int64 => json!(self.number(3)),
            Type::Number => json!(1.5),
            Type::Boolean => json!(self.number(2) == 0),
            Type::IntOrString => json!(self.pick(&["80%", "http"])),
            Type::Quantity => json!(self.pick(&["0", "100m", "1Gi", "0.5", "1000m"])),
            Type::Time => json!(self.pick(&["2026-01-02T03:04:05Z", "2026-01-02T03:04:05+01:00"])),
            Type::MicroTime => json!("2026-01-02T03:04:05.000006Z"),
            Type::Bytes => json!(self.pick(&["", "YWJj", "YQ=="])),
        }
    }

    fn object(&mut self, schema: SchemaRef<'_>, depth: u32) -> Value {
        let odds = 2 + u64::from(depth);
        let mut fields = Map::new();
        for field in schema.fields() {
            if depth < 8 && self.number(odds) == 0 {
                fields.insert(field.field_name().to_owned(), self.value(field, depth + 1));
            }
        }
        Value::Object(fields)
    }
}

/// The schema of the items of a list or of the values of a map.
fn parts(schema: SchemaRef<'_>) -> SchemaRef<'_> {
    schema.items().expect("lists and maps have parts")
}

/// The value with the fields of all objects in reverse order.
fn reversed(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(map.iter().rev().map(|(k, v)| (k, reversed(v))).collect()),
        Value::Array(items) => items.iter().map(reversed).collect(),
        other => other.clone(),
    }
}

/// Adds an undeclared field to every declared object. Returns their number.
fn spoil(schema: SchemaRef<'_>, value: &mut Value) -> usize {
    match (schema.value_type(), value) {
        (Type::Object, Value::Object(map)) => {
            let mut count = 1;
            for field in schema.fields() {
                if let Some(value) = map.get_mut(field.field_name()) {
                    count += spoil(field, value);
                }
            }
            map.insert("undeclared", json!({"x": [1]}));
            count
        }
        (Type::Array, Value::Array(items)) => items.iter_mut().map(|value| spoil(parts(schema), value)).sum(),
        (Type::Map, Value::Object(map)) => map.iter_mut().map(|(_, value)| spoil(parts(schema), value)).sum(),
        _ => 0,
    }
}

fn walk(schema: SchemaRef<'_>, value: &Value, options: WalkOptions) -> (Value, WalkReport) {
    let mut object = Object::from_value(value.clone()).expect("kinds are objects");
    let mut report = WalkReport::default();
    schema.walk(&mut object, &mut report, options);
    (object.into_value(), report)
}

fn kinds() -> Vec<SchemaRef<'static>> {
    Schemas::builtin().kinds().map(|(.., schema)| schema).collect()
}

proptest! {
    #[test]
    fn a_valid_object_is_clean_and_checking_keeps_it(seed: u64, index: prop::sample::Index) {
        let schema = *index.get(&kinds());
        let value = Generator { state: seed }.object(schema, 0);
        let (walked, report) = walk(schema, &value, WalkOptions::CHECK);
        prop_assert!(report.is_clean(), "{:?} {}", report, value);
        prop_assert_eq!(walked.to_string(), value.to_string());
        let prune = WalkOptions { prune: true, ..WalkOptions::CHECK };
        prop_assert_eq!(walk(schema, &value, prune).0.to_string(), value.to_string());
    }

    #[test]
    fn storing_a_stored_object_changes_nothing(seed: u64, index: prop::sample::Index) {
        let schema = *index.get(&kinds());
        let value = Generator { state: seed }.object(schema, 0);
        let (stored, _) = walk(schema, &value, WalkOptions::STORE);
        let (again, report) = walk(schema, &stored, WalkOptions::STORE);
        prop_assert!(report.is_clean(), "{:?} {}", report, stored);
        prop_assert_eq!(again.to_string(), stored.to_string());
    }

    #[test]
    fn the_order_of_fields_does_not_matter(seed: u64, index: prop::sample::Index) {
        let schema = *index.get(&kinds());
        let value = Generator { state: seed }.object(schema, 0);
        let (stored, _) = walk(schema, &value, WalkOptions::STORE);
        // Values that are kept unchanged also keep the order of their fields, so the texts may differ.
        let (other, _) = walk(schema, &reversed(&value), WalkOptions::STORE);
        prop_assert_eq!(other, stored);
    }

    #[test]
    fn pruning_removes_exactly_the_undeclared_fields(seed: u64, index: prop::sample::Index) {
        let schema = *index.get(&kinds());
        let value = Generator { state: seed }.object(schema, 0);
        let mut spoilt = value.clone();
        let count = spoil(schema, &mut spoilt);
        let prune = WalkOptions { prune: true, ..WalkOptions::CHECK };
        let (pruned, report) = walk(schema, &spoilt, prune);
        prop_assert_eq!(report.unknown_fields().len(), count.min(100));
        prop_assert_eq!(pruned.to_string(), value.to_string());
        let (again, report) = walk(schema, &pruned, prune);
        prop_assert!(report.is_clean());
        prop_assert_eq!(again.to_string(), pruned.to_string());
    }
}
