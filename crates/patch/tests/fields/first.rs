//! Ownership after a create. For objects of every kind, the text that is written in one walk equals that of the general
//! comparison.

use std::borrow::Cow;

use keelson_meta::Object;
use keelson_meta::json::{Value, json};
use keelson_patch::fields::{
    FieldSchema, FieldSet, Fields, Manager, Owners, PathElement, Versions, Writer, apply, compare, extract, update,
};
use keelson_schema::{SchemaRef, Schemas, WalkOptions, WalkReport};
use proptest::prelude::*;

use super::model::{self, Dice};
use super::objects::{Toy, node, repeating_node};

/// The depth of generated objects, in fields.
const DEPTH: usize = 7;

/// The only version, and its fields without owners.
struct One<S> {
    schema: S,
    kept: FieldSet,
}

impl<'a, S: FieldSchema<'a>> Versions<'a> for One<S> {
    type Schema = S;

    fn schema(&self, _: &str) -> Option<S> {
        Some(self.schema)
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Borrowed(&self.kept)
    }
}

/// Members without owners: those of an object, and those of its metadata.
const UNOWNED: [&[&str]; 2] = [
    &["apiVersion", "kind", "metadata"],
    &["name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "managedFields", "resourceVersion"],
];

fn without_unowned(mut set: FieldSet) -> FieldSet {
    let mut unowned = FieldSet::new();
    UNOWNED[0].iter().for_each(|name| unowned.insert(&[PathElement::field(name)]));
    UNOWNED[1].iter().for_each(|name| unowned.insert(&[PathElement::field("metadata"), PathElement::field(name)]));
    set.subtract(&unowned);
    set
}

fn text(set: &FieldSet) -> String {
    let mut text = String::new();
    set.write_text(&mut text);
    text
}

/// The text of the only owner's fields.
fn owned(owners: &Owners) -> String {
    let written = owners.write();
    assert_eq!(owners.write_text(), written.to_string());
    written.get(0).map_or("{}".to_owned(), |entry| entry["fieldsV1"].to_string())
}

fn check_update<'a, S: FieldSchema<'a>>(versions: &One<S>, before: &Value, after: &Value) {
    let changes = compare(versions.schema, before, after).without(&versions.kept);
    let expected = without_unowned(changes.added.union(&changes.modified));
    let manager = Manager::updates("m", "v1", "");
    let owners =
        update(versions, &Owners::default(), Writer { manager: &manager, version: "v1", now: None }, before, after);
    assert_eq!(owned(&owners), text(&expected), "{before} to {after}");
}

fn check_apply<'a, S: FieldSchema<'a>>(versions: &One<S>, applied: &Value) {
    let expected = without_unowned(extract(versions.schema, applied).recursive_difference(&versions.kept));
    let manager = Manager::applies("m", "");
    let writer = Writer { manager: &manager, version: "v1", now: None };
    let done = apply(versions, &Owners::default(), writer, &json!({}), applied, false).unwrap();
    assert_eq!(owned(&done.owners), text(&expected), "{applied}");
}

fn check_model<'a, S: FieldSchema<'a>>(schema: S, object: &Value) {
    assert_eq!(extract(schema, object), model::fields(schema, object, true), "{object}");
    let changes = compare(schema, &json!({}), object);
    assert_eq!(changes.added, model::fields(schema, object, false), "{object}");
    assert!(changes.modified.is_empty() && changes.removed.is_empty());
    assert_eq!(compare(schema, object, &json!({})).removed, changes.added);
}

/// The parts that every object of this schema has.
fn nothing(schema: SchemaRef<'_>) -> Value {
    let mut object = Object::default();
    let options = WalkOptions { defaults: false, ..WalkOptions::STORE };
    schema.walk(&mut object, &mut WalkReport::default(), options);
    object.into_value()
}

fn check_kind(schema: SchemaRef<'static>, dice: &mut Dice) {
    let object = |dice: &mut Dice| match model::value(schema, dice, DEPTH) {
        Value::Null => json!({}),
        object => object,
    };
    let (one, other) = (object(dice), object(dice));
    check_model(schema, &one);
    let kept = FieldSet::from_fields_v1(&json!({"f:status": {}, "f:metadata": {"f:labels": {}}})).unwrap();
    let versions = One { schema, kept };
    check_update(&versions, &nothing(schema), &one);
    check_update(&versions, &other, &one);
    check_apply(&versions, &one);
}

fn set(object: &Value) -> FieldSet {
    compare(Toy::Node, &json!({}), object).added
}

/// The fields of a stored entry, as text.
fn stored(set: &FieldSet) -> Fields {
    let entry = json!([{
        "manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": set.to_fields_v1(),
    }]);
    let owners = Owners::read_text(&entry.to_string()).unwrap();
    owners.iter().next().map(|(_, owned)| owned.fields.clone()).unwrap()
}

/// Checks that combining texts yields the same as combining sets, in the same form.
fn check_combinations(left: &FieldSet, right: &FieldSet) {
    let check = |fields: &Fields, expected: &FieldSet| {
        let mut written = String::new();
        fields.write_text(&mut written);
        assert_eq!(written, text(expected));
        assert_eq!(&**fields, expected);
    };
    check(&stored(left).intersection(right).into(), &left.intersection(right));
    let (mut fewer, mut more) = (stored(left), stored(left));
    fewer.subtract(right);
    check(&fewer, &left.difference(right));
    more.extend(right);
    check(&more, &left.union(right));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_first_writer_of_every_kind_owns_its_fields(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        Schemas::builtin().kinds().for_each(|(.., schema)| check_kind(schema, &mut dice));
    }
}

proptest! {
    #[test]
    fn the_first_writer_of_any_schema_owns_its_fields(before in repeating_node(), after in repeating_node(), kept in node()) {
        check_model(Toy::Node, &after);
        for kept in [FieldSet::new(), set(&kept).leaves()] {
            let versions = One { schema: Toy::Node, kept };
            check_update(&versions, &before, &after);
            check_update(&versions, &json!({"node": {"map": null, "items": null, "text": "x"}, "words": []}), &after);
            check_apply(&versions, &after);
        }
    }

    #[test]
    fn combined_as_text_and_as_sets_fields_are_the_same(left in node(), right in node(), seed in any::<u64>()) {
        check_combinations(&set(&left), &set(&right));
        check_combinations(&set(&left).leaves(), &extract(Toy::Node, &right));
        let schema = Schemas::builtin().definition("io.k8s.api.core.v1.PodSpec").unwrap();
        let mut dice = Dice::new(seed);
        let mut fields = || model::fields(schema, &model::value(schema, &mut dice, DEPTH), false);
        check_combinations(&fields(), &fields());
    }
}

/// Texts in another form than this server writes are combined too.
#[test]
fn texts_in_another_form_are_read() {
    let fields = |text: &str| {
        let entry =
            r#"[{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":FIELDS}]"#;
        let owners = Owners::read_text(&entry.replace("FIELDS", text)).unwrap();
        owners.iter().next().map(|(_, owned)| owned.fields.clone()).unwrap()
    };
    let asked = FieldSet::from_fields_v1(&json!({"f:a": {"f:x": {}}, "f:b": {}})).unwrap();
    let left = json!({"f:a": {".": {}, "f:y": {}}, "f:c": {}});
    for form in [
        r#"{"f:a":{".":{},"f:x":{},"f:y":{}},"f:b":{},"f:c":{}}"#,
        r#"{"f:c":{},"f:b":{},"f:a":{"f:y":{},"f:x":{},".":{}}}"#,
        r#"{ "f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}, "f:c": {} }"#,
        r#"{"f:\u0061":{".":{},"f:x":{},"f:y":{}},"f:b":{},"f:c":{}}"#,
        r#"{"f:a":{".":{},"f:x":{},"f:y":{},"x:new":{}},"f:b":{".":{}},"f:c":{}}"#,
    ] {
        assert_eq!(fields(form).intersection(&asked), asked, "{form}");
        let (mut fewer, mut more) = (fields(form), fields(form));
        fewer.subtract(&asked);
        assert_eq!(fewer.to_fields_v1(), left, "{form}");
        more.extend(&FieldSet::from_fields_v1(&json!({"f:c": {"f:z": {}}})).unwrap());
        let union = json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {}, "f:c": {".": {}, "f:z": {}}});
        assert_eq!(more.to_fields_v1(), union, "{form}");
    }
}
