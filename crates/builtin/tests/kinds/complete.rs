//! Tests that missing defaults of old objects are detected for every kind. The defaults of a kind include those of its
//! schema, and a decoded object lacks none.

use keelson_builtin::{Defaults, collection_specs};
use keelson_codec::{ParsedObject, StoredObject};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupVersionKind, Object};
use keelson_schema::layout::Type;
use keelson_schema::{SchemaRef, Schemas, WalkOptions, WalkReport};

/// The depth of the sample, which must be limited since schemas may be recursive.
const DEPTH: usize = 14;

/// A value of the schema with all fields that have no default.
fn sample(schema: SchemaRef<'_>, depth: usize) -> Value {
    let inner = |items: Option<SchemaRef<'_>>| items.map_or(json!("x"), |items| sample(items, depth + 1));
    match schema.value_type() {
        Type::Object if depth < DEPTH => schema
            .fields()
            .filter(|field| field.default_json().is_none() && field.field_name() != "metadata")
            .map(|field| (field.field_name().to_owned(), sample(field, depth + 1)))
            .collect::<Map>()
            .into(),
        Type::Object => json!({}),
        Type::Map => json!({ "k": inner(schema.items()) }),
        Type::Array => json!([inner(schema.items())]),
        Type::Either => schema.choices().map_or(Value::Null, |(_, other)| sample(other, depth + 1)),
        Type::Int32 | Type::Int64 | Type::Number | Type::IntOrString => json!(1),
        Type::Boolean => json!(true),
        Type::Quantity => json!("1"),
        Type::Time => json!("2026-01-01T00:00:00Z"),
        Type::MicroTime => json!("2026-01-01T00:00:00.000000Z"),
        Type::Bytes => json!("eA=="),
        Type::Any | Type::String => json!("x"),
    }
}

#[test]
fn missing_declared_defaults_are_detected_in_every_kind() {
    // Groups of pods have schemas, and are not served.
    let is_served = |group: &str, version: &str| group != "scheduling.k8s.io" || version == "v1";
    let objects = Schemas::builtin().kinds().filter(|(_, _, kind, _)| !kind.ends_with("List"));
    let objects = objects.filter(|(group, version, ..)| is_served(group, version));
    let completions: Vec<_> = collection_specs().into_iter().filter_map(|spec| spec.complete).collect();
    for (group, version, kind, schema) in objects {
        let of = GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() };
        let mut object = Object::from_value(sample(schema, 0)).unwrap();
        object.set_type(&of);
        object.set_meta("name", "n");
        let defaults = Defaults::for_kind(&of);
        defaults.into_iter().for_each(|defaults| defaults.fill(&mut object));
        let before = object.clone();
        // If the schema sets a default that the kind does not, the defaults of the kind are incomplete.
        let options = WalkOptions { defaults: true, ..WalkOptions::CHECK };
        let mut report = WalkReport::default();
        schema.walk(&mut object, &mut report, options);
        assert_eq!(report.fault(), None, "{kind}");
        assert!(object == before, "{group}/{version} {kind}: {}", Value::Object(object.0));
        // After decoding, no default is missing.
        schema.walk(&mut object, &mut report, WalkOptions::STORE);
        let stored = ParsedObject::from(StoredObject::encode(&object));
        let lacks = defaults.is_some_and(|defaults| defaults.lacks(&stored));
        assert!(!lacks, "{group}/{version} {kind}: {}", stored.object().text());
        // Objects of a retired version are completed to the version that is served.
        let is_retired = (version, kind) == ("v1beta1", "PodCertificateRequest");
        let completed = completions.iter().find_map(|known| known.complete(&stored));
        assert_eq!(completed.is_some(), is_retired, "{group}/{version} {kind}");
    }
}
