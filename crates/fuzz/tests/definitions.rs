//! Memory of custom resource definitions: of compiled schemas, and of compiled expressions.
//!
//! Thousands exist at a time, so the memory of each is bounded by its length.

use std::sync::Arc;

use keelson_fuzz::memory::measure;
use keelson_meta::GroupVersionKind;
use keelson_meta::json::{Map, Value, json};
use keelson_schema::{ProgramCache, Pruning, Schema, SchemaDocument};

#[derive(Debug)]
struct Stored(Value);

impl SchemaDocument for Stored {
    fn read(&self) -> Option<Value> {
        Some(self.0.clone())
    }
}

fn kind() -> GroupVersionKind {
    GroupVersionKind { group: "x.org".into(), version: "v1".into(), kind: "Kind".into() }
}

#[test]
fn a_small_schema_is_small() {
    let spec = json!({ "type": "object", "properties": { "replicas": { "type": "integer", "minimum": 0 }, "image": { "type": "string" } } });
    let status = json!({ "type": "object", "properties": { "ready": { "type": "integer" } } });
    let document = json!({ "type": "object", "properties": { "spec": spec, "status": status } });
    let programs = Arc::new(ProgramCache::default());
    let source: Arc<dyn SchemaDocument> = Arc::new(Stored(Value::Null));
    let make =
        || Schema::structural_on_demand(&kind(), &document, Pruning::Undeclared, source.clone(), &programs).unwrap();
    drop(make());
    let (_schema, cost) = measure(make);
    println!("a small schema: {cost:?}");
    assert!(cost.held < 4_000, "{cost:?}");
}

#[test]
fn the_memory_of_compiled_expressions_is_not_underestimated() {
    let fields = |count: usize| -> Map {
        (0..count).map(|number| (format!("field{number}"), json!({ "type": "string", "maxLength": 10 }))).collect()
    };
    let ruled = |properties: Map, rules: Vec<String>| {
        let rules: Vec<Value> = rules.into_iter().map(|rule| json!({ "rule": rule })).collect();
        json!({ "type": "object", "properties": properties, "x-kubernetes-validations": rules })
    };
    let long =
        (0..200).map(|number| format!("self.field{} == '{number}'", number % 5)).collect::<Vec<_>>().join(" || ");
    let numbers = format!("{} > 0", vec!["1"; 500].join("+"));
    let loops = "[1,2,3].all(a, [4,5].exists(b, [6].map(c, c + a).filter(d, d > b).size() >= 0))".to_owned();
    let documents = [
        ("one", ruled(fields(1), vec!["true".to_owned()])),
        ("a few", ruled(fields(5), (0..5).map(|number| format!("self.field{number} != 'x'")).collect())),
        ("many", ruled(fields(5), vec!["self.field1.size() < 5".to_owned(); 100])),
        ("a long one", ruled(fields(5), vec![long])),
        ("numbers", ruled(fields(1), vec![numbers])),
        ("lists", ruled(fields(1), vec![format!("{} != []", vec!["[1]"; 300].join("+"))])),
        ("loops", ruled(fields(1), vec![loops; 10])),
        ("many fields", ruled(fields(1_000), vec!["self.field1 == self.field2".to_owned()])),
        ("patterns", ruled(fields(5), vec!["self.field1.matches('^[a-z]{1,100}$')".to_owned(); 10])),
    ];
    // Creates the shared state of all programs.
    let warm = |(_, document): &(&str, Value)| {
        let judged = Schema::structural(&kind(), document).unwrap().rules().unwrap().validate(&json!({}), None, None);
        assert!(judged.faults.len() < 1_000);
    };
    documents.iter().for_each(warm);
    for (what, document) in documents {
        let programs = Arc::new(ProgramCache::default());
        let source: Arc<dyn SchemaDocument> = Arc::new(Stored(document.clone()));
        let schema = Schema::structural_on_demand(&kind(), &document, Pruning::Undeclared, source, &programs).unwrap();
        let rules = schema.rules().unwrap();
        let (_, cost) = measure(|| drop(rules.validate(&json!({}), None, None)));
        let estimated = programs.stats().bytes;
        println!("{what}: {} held, {estimated} estimated", cost.held);
        assert!(cost.held <= estimated, "{what}: {cost:?}, {estimated} estimated");
        assert!(estimated < 30 * cost.held, "{what}: {cost:?}, {estimated} estimated");
    }
}
