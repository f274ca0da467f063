//! Stored objects survive a round trip, and summaries agree with whole objects.
//!
//! Summaries are read from bytes without a tree. The tests compare them with summaries computed from the tree.

use std::borrow::Cow;

use bytes::Bytes;
use keelson_codec::cursor::Cursor;
use keelson_codec::stored::{Marks, StoredHeader};
use keelson_codec::{DecodeError, FieldPath, ParsedObject, StoredObject, Summary};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{GroupVersionKind, Object, Revision};
use proptest::prelude::*;

use crate::strategies::{object, value};

const FIELDS: [&str; 6] =
    ["spec.nodeName", "metadata.name", "spec.unschedulable", "spec.replicas", "spec.other.a", "status.phase"];

fn fields() -> Vec<FieldPath> {
    FIELDS.iter().map(|path| FieldPath::parse(path)).collect()
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

/// The expected object at a revision.
fn with_revision(mut object: Map, revision: Revision) -> Map {
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("selfLink");
    metadata.insert("resourceVersion", revision.to_string());
    object
}

/// The summary of a value tree.
fn summary_of(object: &Map) -> Summary<'static> {
    let object = Value::Object(object.clone());
    let metadata = &object["metadata"];
    let text = |field: &str| Cow::from(metadata[field].as_str().unwrap_or_default().to_owned());
    let mut labels: Vec<_> = metadata["labels"].as_object().into_iter().flatten().collect();
    labels.sort_unstable_by_key(|(key, _)| *key);
    Summary {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        labels: labels
            .into_iter()
            .map(|(key, value)| (key.to_owned().into(), value.as_str().unwrap().to_owned().into()))
            .collect(),
        fields: FIELDS.iter().map(|path| field_text(&object, path).into()).collect(),
        deletion_timestamp: Some(text("deletionTimestamp")).filter(|time| !time.is_empty()),
        generation: metadata["generation"].as_i64(),
        owners: None,
        marks: Marks::default(),
    }
}

fn field_text(object: &Value, path: &str) -> String {
    let mut value = object;
    for step in path.split('.') {
        value = &value[step];
    }
    match value {
        Value::String(text) => text.to_string(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::Null | Value::Array(_) | Value::Object(_) => String::new(),
    }
}

proptest! {
    #[test]
    fn an_object_reads_back_with_its_revision(object in object(), revision in any::<u64>()) {
        let revision = Revision::new(revision);
        let stored = StoredObject::encode(&Object(object.clone()));
        prop_assert_eq!(stored.decode(revision).0, with_revision(object, revision));
    }

    #[test]
    fn owners_stand_beside_an_object_or_in_it(
        object in object(), owners in proptest::option::of(value()), revision in any::<u64>(),
    ) {
        let revision = Revision::new(revision);
        let mut bare = Object(object);
        bare.remove_meta("managedFields");
        let mut whole = bare.clone();
        if let Some(owners) = &owners {
            whole.set_meta("managedFields", owners.clone());
        }
        let text = owners.map(|owners| owners.to_string());
        let stored = StoredObject::encode(&whole);
        prop_assert_eq!(&StoredObject::encode_with(&bare, text.as_deref()), &stored);
        let written = ParsedObject::encode_with(&bare, text.as_deref());
        prop_assert_eq!((written.object(), written.summary(&fields())), (&stored, stored.summary(&fields())));
        let (apart, owners) = stored.decode_apart(revision);
        prop_assert_eq!(apart.0, with_revision(bare.0, revision));
        prop_assert_eq!(owners.as_deref(), text.as_deref());
        prop_assert_eq!(stored.decode(revision).0, with_revision(whole.0, revision));
    }

    #[test]
    fn spliced_bytes_are_the_rendered_tree(object in object(), revision in any::<u64>()) {
        let revision = Revision::new(revision);
        let stored = StoredObject::encode(&Object(object));
        let mut tree = stored.decode(revision).0;
        let whole = written(|out| stored.write_object(revision, out));
        prop_assert_eq!(stored.object_len(revision), whole.len());
        prop_assert_eq!(&whole, &serde_json::to_vec(&tree).unwrap());

        let kind = GroupVersionKind { group: "g".into(), version: "v2".into(), kind: "Other".into() };
        tree["kind"] = "Other".into();
        tree["apiVersion"] = "g/v2".into();
        let other = written(|out| stored.write_object_as(&kind, revision, out));
        prop_assert_eq!(&other, &serde_json::to_vec(&tree).unwrap());
        let renamed = StoredObject::parse(other.into()).unwrap();
        let header = StoredHeader::new(&kind);
        let is_same = stored.kind() == "Other" && stored.api_version() == "g/v2";
        prop_assert_eq!((renamed.has_header(&header), stored.has_header(&header)), (true, is_same));

        tree.remove("kind");
        tree.remove("apiVersion");
        let item = written(|out| stored.write_item(revision, out));
        prop_assert_eq!(stored.item_len(revision), item.len());
        prop_assert_eq!(&item, &serde_json::to_vec(&tree).unwrap());
    }

    #[test]
    fn stored_bytes_are_taken_as_they_are(object in object()) {
        let stored = StoredObject::encode(&Object(object));
        let again = StoredObject::parse(stored.bytes()).unwrap();
        prop_assert_eq!(&again, &stored);
        prop_assert_eq!(again.bytes().as_ptr(), stored.bytes().as_ptr());
    }

    #[test]
    fn other_json_is_brought_into_canonical_form(object in object(), pretty in any::<bool>()) {
        let text = if pretty { serde_json::to_vec_pretty(&object) } else { serde_json::to_vec(&object) }.unwrap();
        let stored = StoredObject::parse(Bytes::from(text)).unwrap();
        let encoded = StoredObject::encode(&Object(object));
        prop_assert_eq!(stored.decode(Revision::new(1)), encoded.decode(Revision::new(1)));
        prop_assert_eq!(StoredObject::parse(stored.bytes()).unwrap(), stored);
    }

    #[test]
    fn a_summary_equals_the_metadata_of_the_object(object in object()) {
        let stored = StoredObject::encode(&Object(object.clone()));
        let summary = stored.summary(&fields()).unwrap();
        let (read, written) = (ParsedObject::from(stored.clone()), ParsedObject::encode_with(&Object(object.clone()), None));
        prop_assert_eq!((written.object(), written.summary(&fields())), (&stored, Ok(summary.clone())));
        prop_assert_eq!(read.summary(&fields()), Ok(summary.clone()));
        prop_assert_eq!(&Summary { owners: None, marks: Marks::default(), ..summary.clone() }, &summary_of(&object));
        prop_assert_eq!(&*stored.uid(), &*summary.uid);
        let owners = summary.owners.map(|place| Cursor::new(stored.skeleton(), place.get() as usize).raw());
        let stated = object["metadata"].get("ownerReferences").filter(|stated| !stated.is_null());
        prop_assert_eq!(owners.map(<[u8]>::to_vec), stated.map(keelson_codec::json::to_vec));
        let member = |name: &str| {
            let mut cursor = Cursor::new(stored.skeleton(), summary.marks.before(name)?);
            while !cursor.key()?.stands_for(name) {
                cursor.skip();
            }
            Some(cursor.raw().to_vec())
        };
        let others = object.keys().filter(|name| !["kind", "apiVersion", "metadata"].contains(name));
        for name in others.chain(["spec", "status", "none"]) {
            prop_assert_eq!(member(name), object.get(name).map(keelson_codec::json::to_vec), "{}", name);
        }
        let kind = object["kind"].as_str().unwrap();
        prop_assert_eq!((stored.kind(), stored.api_version()), (kind, object["apiVersion"].as_str().unwrap()));
    }

    #[test]
    fn any_bytes_are_an_object_or_an_error(value in value()) {
        let text = serde_json::to_vec(&value).unwrap();
        match StoredObject::parse(Bytes::from(text)) {
            Ok(stored) => drop(stored.summary(&fields())),
            Err(error) => prop_assert_eq!(error, DecodeError::NotAnObject),
        }
    }
}

/// JSON as kube-apiserver stores it, with its own order of fields and a final line feed.
#[test]
fn json_that_another_server_stored_is_an_object() {
    let stored = br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"","selfLink":"/x","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[]},"data":{"k":"v"}}"#;
    let object = StoredObject::parse(Bytes::from([&stored[..], b"\n"].concat())).unwrap();
    let expected = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"u","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[]},"data":{"k":"v"}}"#;
    let mut text = Vec::new();
    object.write_object(Revision::new(7), &mut text);
    assert_eq!(String::from_utf8(text).unwrap(), expected);
}

#[test]
fn protobuf_is_read_as_json_of_the_same_object_would_be() {
    let object = json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a", "uid": "u", "labels": {"b": "c"}},
        "data": {"k": "dg=="}, "type": "Opaque"});
    let object = Object::from_value(object).unwrap();
    let bytes = keelson_protobuf::encode("v1", "Secret", &object).unwrap();
    let (read, expected) = (StoredObject::parse(Bytes::from(bytes)).unwrap(), StoredObject::encode(&object));
    assert_eq!(read.text(), expected.text());
    assert_eq!(read, expected);
}

#[test]
fn unreadable_values_are_detected_by_their_first_bytes() {
    let parse = |bytes: &'static [u8]| StoredObject::parse(Bytes::from_static(bytes)).unwrap_err();
    let unknown = parse(b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Moon").to_string();
    assert_eq!(unknown, "kube-apiserver wrote it in protobuf, and no kind \"Moon\" is registered for version \"v1\"");
    assert!(matches!(parse(b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09Config"), DecodeError::Protobuf(_)));
    assert_eq!(parse(b"k8s:enc:secretbox:v1:key1:\x01\x02"), DecodeError::Encrypted);
    assert!(matches!(parse(b"k8s"), DecodeError::Syntax(_)));
}

fn encoded(value: Value) -> StoredObject {
    StoredObject::encode(&Object::from_value(value).unwrap())
}

#[test]
fn the_order_of_the_client_does_not_matter_for_known_metadata() {
    let one = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"a": "b"}, "uid": "u", "name": "n"}});
    let two = json!({"kind": "Pod", "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}}, "apiVersion": "v1"});
    let expected = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","uid":"u","labels":{"a":"b"}}}"#;
    assert_eq!(encoded(one).bytes(), expected.as_bytes());
    assert_eq!(encoded(two).bytes(), expected.as_bytes());
}

#[test]
fn the_revision_stands_after_the_identity() {
    let stored = encoded(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"generation": 2, "name": "n"}}));
    let item = written(|out| stored.write_item(Revision::new(42), out));
    assert_eq!(item, br#"{"metadata":{"name":"n","resourceVersion":"42","generation":2}}"#);
}

#[test]
fn metadata_may_be_empty_or_missing() {
    for object in
        [json!({"kind": "Pod", "apiVersion": "v1"}), json!({"kind": "Pod", "apiVersion": "v1", "metadata": {}})]
    {
        let item = written(|out| encoded(object).write_item(Revision::new(1), out));
        assert_eq!(item, br#"{"metadata":{"resourceVersion":"1"}}"#);
    }
    let stored = encoded(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"generation": 1}}));
    let item = written(|out| stored.write_item(Revision::new(1), out));
    assert_eq!(item, br#"{"metadata":{"resourceVersion":"1","generation":1}}"#);
}

#[test]
fn bytes_that_look_canonical_are_not_trusted_with_a_second_revision() {
    let text =
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"n","labels":{},"resourceVersion":"9"},"spec":{}}"#;
    let stored = StoredObject::parse(Bytes::from_static(text.as_bytes())).unwrap();
    assert!(!String::from_utf8_lossy(stored.skeleton()).contains("resourceVersion"));
    assert_eq!(stored.decode(Revision::new(3)).resource_version(), "3");
}

#[test]
fn wrong_types_in_the_metadata_are_detected() {
    let stored = encoded(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": 7}}));
    assert_eq!(stored.summary(&[]), Err(DecodeError::Metadata("name")));
    let stored = encoded(json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"labels": {"a": 1}}}));
    assert_eq!(stored.summary(&[]), Err(DecodeError::Metadata("labels")));
}

#[test]
fn more_fields_than_one_pass_can_follow_are_found() {
    let stored = encoded(
        json!({"kind": "K", "apiVersion": "v1", "spec": (0..100).map(|i| (format!("f{i}"), json!(i))).collect::<Map>()}),
    );
    let paths: Vec<_> = (0..100).map(|i| FieldPath::parse(&format!("spec.f{i}"))).collect();
    let expected: Vec<_> = (0..100).map(|i| i.to_string()).collect();
    assert_eq!(stored.summary(&paths).unwrap().fields, expected);
}
