//! The CEL rules of schemas, which are compiled at first use: once, within the memory limit, and with the same result.
//!
//! The crate `cel` tests the results of expressions.

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Value, json};
use keelson_schema::{PROGRAMS_BYTES, ProgramCache, Pruning, Schema, SchemaDocument};

/// A document as it is stored.
#[derive(Debug)]
struct Stored(Value);

impl SchemaDocument for Stored {
    fn read(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

/// A schema with a rule that limits a number. The rule has this message.
fn schema(message: &str, programs: &Arc<ProgramCache>) -> Schema {
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Ruled".into() };
    let rules = json!([{ "rule": "self < 5", "message": message }]);
    let number = json!({ "type": "integer", "x-kubernetes-validations": rules });
    let document = json!({ "type": "object", "properties": { "n": number } });
    Schema::structural_on_demand(&kind, &document, Pruning::Undeclared, Arc::new(Stored(document.clone())), programs)
        .expect("a schema")
}

fn told(schema: &Schema) -> Vec<String> {
    let found = schema.rules().expect("it is structural").validate(&json!({ "n": 7 }), None, None);
    found.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn expressions_are_compiled_at_first_validation_and_dropped_with_schemas() {
    let programs = Arc::new(ProgramCache::default());
    let (one, other) = (schema("one", &programs), schema("two", &programs));
    let effort = |schema: &Schema| schema.rules().unwrap().effort();
    assert_eq!((programs.stats().compiled, effort(&one)), (0, u64::MAX), "it takes long to compile them");
    for _ in 0..3 {
        assert_eq!(told(&one), ["n: Invalid value: 7: one"]);
    }
    assert_eq!((programs.stats().compiled, programs.stats().schemas), (1, 1));
    assert!(effort(&one) < 5, "and no time to ask them");
    assert_eq!((told(&other), effort(&other) < 5), (vec!["n: Invalid value: 7: two".to_owned()], true));
    assert_eq!((programs.stats().compiled, programs.stats().schemas), (2, 2));
    let bytes = programs.stats().bytes;
    assert!(bytes > 0 && bytes < PROGRAMS_BYTES);
    drop(one);
    assert_eq!((programs.stats().schemas, programs.stats().bytes), (1, bytes / 2));
    drop(other);
    assert_eq!((programs.stats().schemas, programs.stats().bytes), (0, 0));
}

#[test]
fn a_schema_without_expressions_has_none_to_compile() {
    let programs = Arc::new(ProgramCache::default());
    let kind = GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Plain".into() };
    let document = json!({ "type": "object", "properties": { "n": { "type": "integer", "maximum": 5 } } });
    let source = Arc::new(Stored(document.clone()));
    let plain = Schema::structural_on_demand(&kind, &document, Pruning::Undeclared, source, &programs).unwrap();
    assert!(plain.rules().unwrap().effort() < 5);
    assert_eq!(told(&plain).len(), 1);
    assert_eq!(programs.stats().compiled, 0);
}

#[test]
fn the_least_recently_used_programs_are_evicted_and_recompiled() {
    let probe = Arc::new(ProgramCache::default());
    let first = schema("0", &probe);
    told(&first);
    let room_for_four = probe.stats().bytes * 4 + 3;
    let programs = Arc::new(ProgramCache::within(room_for_four));
    let schemas: Vec<Schema> = (0..10).map(|number| schema(&number.to_string(), &programs)).collect();
    for (number, schema) in schemas.iter().enumerate() {
        assert_eq!(told(schema), [format!("n: Invalid value: 7: {number}")]);
        told(&schemas[0]);
        assert!(programs.stats().bytes <= room_for_four, "{:?}", programs.stats());
    }
    assert_eq!((programs.stats().compiled, programs.stats().schemas), (10, 4), "the first one is asked all the time");
    assert_eq!(told(&schemas[3]), ["n: Invalid value: 7: 3"]);
    assert_eq!(programs.stats().compiled, 11);

    // An entry that is larger than the limit is kept if it is the only one.
    let narrow = Arc::new(ProgramCache::within(1));
    let (one, other) = (schema("one", &narrow), schema("other", &narrow));
    for _ in 0..2 {
        assert_eq!(told(&one), ["n: Invalid value: 7: one"]);
    }
    assert_eq!((narrow.stats().compiled, narrow.stats().schemas), (1, 1));
    assert_eq!(told(&other), ["n: Invalid value: 7: other"]);
    assert_eq!((narrow.stats().compiled, narrow.stats().schemas), (2, 1));
}

#[test]
fn concurrent_callers_share_one_compilation() {
    let programs = Arc::new(ProgramCache::default());
    let one = schema("one", &programs);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(told(&one), ["n: Invalid value: 7: one"]));
        }
    });
    assert_eq!(programs.stats().compiled, 1);
}
