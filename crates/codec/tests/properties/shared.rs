//! Objects with shared parts equal the same objects without them.
//!
//! Objects with shared and with own owners are written in every encoding, and the results compared.

use std::collections::BTreeSet;
use std::sync::Arc;

use keelson_codec::stored::StoredObject;
use keelson_codec::{FieldPath, ParsedObject};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{Object, Revision};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::strategies::object;

/// The owned fields of a manager, in any form that another program may write.
fn owned() -> impl Strategy<Value = Value> {
    let fields = |count: usize| (0..count).map(|at| (format!("f:field{at}"), json!({}))).collect::<Value>();
    prop_oneof![
        (0usize..20).prop_map(fields),
        (5usize..20).prop_map(move |count| json!({"f:metadata": {"k:{\"a\":\"}\"}": fields(count)}})),
        Just(json!(null)),
        Just(json!("no object".repeat(30))),
    ]
}

fn managed() -> impl Strategy<Value = Value> {
    let entry = (owned(), any::<bool>(), 0usize..3).prop_map(|(owned, first, behind)| {
        let mut entry = Map::new();
        if !first {
            entry.insert("manager", "m");
        }
        entry.insert("fieldsV1", owned);
        (0..behind).for_each(|at| drop(entry.insert(format!("more{at}").as_str(), at.to_string())));
        Value::Object(entry)
    });
    prop_oneof![4 => vec(entry, 0..4).prop_map(Value::from), 1 => Just(json!(null)), 1 => Just(json!({"fieldsV1": {}}))]
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

proptest! {
    #[test]
    fn a_shared_object_is_the_same(mut object in object(), managed in managed(), behind in any::<bool>()) {
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.insert("managedFields", managed);
        if behind {
            metadata.insert("unknown", json!([{"fieldsV1": {}}]));
        }
        let plain = ParsedObject::encode_with(&Object(object), None);
        let known = ParsedObject::parse(plain.object().bytes()).unwrap();
        for checked in [&plain, &known] {
            let mut cut = 0;
            let shared = checked.shared(|text| {
                cut += text.len();
                Arc::from(text)
            });
            check(checked, &shared);
            prop_assert_eq!(shared.skeleton().len() + cut, plain.object().size());
        }
    }
}

/// Checks that the shared object equals the one without shared parts.
fn check(checked: &ParsedObject, shared: &StoredObject) {
    let (plain, revision) = (checked.object(), Revision::new(71));
    assert_eq!(shared, plain);
    assert_eq!((shared.bytes(), shared.text(), shared.size()), (plain.bytes(), plain.text(), plain.size()));
    for write in [StoredObject::write_item, StoredObject::write_object, StoredObject::write_metadata] {
        assert_eq!(written(|out| write(shared, revision, out)), written(|out| write(plain, revision, out)));
    }
    assert_eq!(shared.item_len(revision), plain.item_len(revision));
    assert_eq!(shared.object_len(revision), plain.object_len(revision));
    assert_eq!(shared.decode(revision), plain.decode(revision));
    assert_eq!(shared.decode_apart(revision), plain.decode_apart(revision));
    assert_eq!(shared.managed_fields_text(), plain.managed_fields_text());
    assert_eq!((shared.uid(), shared.kind(), shared.api_version()), (plain.uid(), plain.kind(), plain.api_version()));
    // The skeleton is a JSON object too, and the offsets in its summary refer to the same parts.
    let _: Value = serde_json::from_slice(shared.skeleton()).unwrap();
    let fields = [FieldPath::parse("status.phase")];
    let (of_plain, of_shared) = (checked.summary(&fields).unwrap(), shared.summary(&fields).unwrap());
    assert_eq!(of_plain.marks.in_skeleton_of(shared), of_shared.marks);
    assert_eq!(of_plain.owners.map(|at| shared.place_of(at.get())), of_shared.owners.map(u32::from));
    assert_eq!((of_plain.labels, of_plain.fields), (of_shared.labels, of_shared.fields));
}

#[test]
fn equal_field_owners_are_stored_once() {
    let owned: Value = (0..20).map(|at| (format!("f:field{at}"), json!({}))).collect();
    let mut kept = BTreeSet::<Arc<[u8]>>::new();
    let mut share = |name: &str| {
        let managed =
            json!([{"manager": name, "time": "t", "fieldsV1": owned}, {"manager": "short", "fieldsV1": {"f:a": {}}}]);
        let object = json!({"kind": "K", "apiVersion": "v1", "metadata": {"name": name, "managedFields": managed}});
        let checked = ParsedObject::parse(object.to_string().into()).unwrap();
        checked.shared(|text| {
            if !kept.contains(text) {
                kept.insert(Arc::from(text));
            }
            kept.get(text).unwrap().clone()
        })
    };
    let (one, other) = (share("one"), share("other"));
    let expected = r#"{"kind":"K","apiVersion":"v1","metadata":{"name":"one","managedFields":[{"manager":"one","time":"t"},{"manager":"short","fieldsV1":{"f:a":{}}}]}}"#;
    assert_eq!(one.skeleton_text(), expected);
    assert!(other.text().contains("f:field19"));
    assert_eq!(kept.len(), 1);
}
