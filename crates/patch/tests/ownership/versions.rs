//! Owners of fields whose version differs from that of the write.
//!
//! Some of these versions are no longer served, or objects can't be converted to them.

use std::borrow::Cow;

use keelson_meta::json::{Value, json};
use keelson_patch::fields::{
    FieldSchema, FieldSet, Granularity, Manager, Member, Owners, Scalar, Versions, Writer, apply, update,
};

use super::{LATER, NOON};

/// A schema of objects with text fields. The field `old` of `g/v1` is `new` in `g/v2`.
#[derive(Clone, Copy)]
struct Text(bool);

impl FieldSchema<'static> for Text {
    fn form(self) -> Granularity {
        if self.0 { Granularity::Map } else { Granularity::Scalar(Scalar::String) }
    }

    fn member(self, _: &str) -> Member<Self> {
        Member::Field(Self(false))
    }

    fn items(self) -> Option<Self> {
        None
    }

    fn keys(self) -> impl Iterator<Item = &'static str> {
        std::iter::empty()
    }

    fn key_default(self, _: &str) -> Option<Value> {
        None
    }
}

struct Renamed;

impl Versions<'static> for Renamed {
    type Schema = Text;

    fn schema(&self, version: &str) -> Option<Text> {
        ["g/v1", "g/v2"].contains(&version).then_some(Text(true))
    }

    fn convert(&self, object: &Value, version: &str) -> Option<Value> {
        self.schema(version)?;
        let mut object = object.clone();
        let (from, to) = if version == "g/v1" { ("new", "old") } else { ("old", "new") };
        if let Some(value) = object.as_object_mut()?.remove(from) {
            object[to] = value;
        }
        Some(object)
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Owned(FieldSet::new())
    }
}

fn entry(name: &str, operation: &str, version: &str, fields: &Value) -> Value {
    json!({"manager": name, "operation": operation, "apiVersion": version, "time": NOON, "fieldsType": "FieldsV1", "fieldsV1": fields})
}

fn owners(entries: &Value) -> Owners {
    Owners::read(entries).unwrap()
}

#[test]
fn a_change_is_found_in_every_version() {
    let before = owners(&json!([
        entry("a", "Apply", "g/v1", &json!({"f:old": {}})),
        entry("b", "Apply", "g/v2", &json!({"f:new": {}, "f:x": {}})),
        entry("c", "Update", "g/v0", &json!({"f:x": {}})),
    ]));
    let manager = Manager::applies("d", "");
    let writer = Writer { manager: &manager, version: "g/v2", now: Some(LATER) };
    let (live, wanted) = (json!({"new": "1", "x": "y"}), json!({"new": "2"}));
    let conflicts = apply(&Renamed, &before, writer, &live, &wanted, false).unwrap_err();
    let paths: Vec<_> = conflicts.0.iter().map(|it| format!("{}{}", it.manager.name, it.path)).collect();
    assert_eq!(paths, ["a.old", "b.new"]);

    let manager = Manager::updates("d", "g/v2", "");
    let writer = Writer { manager: &manager, version: "g/v2", now: Some(LATER) };
    let after = update(&Renamed, &before, writer, &live, &json!({"new": "2", "x": "y"}));
    let left: Vec<_> =
        after.iter().map(|(manager, owned)| (manager.name.as_str(), owned.fields.paths().len())).collect();
    assert_eq!(left, [("b", 1), ("d", 1)]);
}

#[test]
fn fields_applied_in_another_version_are_released() {
    let before = owners(&json!([entry("a", "Apply", "g/v1", &json!({"f:old": {}, "f:x": {}}))]));
    let manager = Manager::applies("a", "");
    let writer = Writer { manager: &manager, version: "g/v2", now: Some(LATER) };
    let (live, wanted) = (json!({"new": "1", "x": "y", "z": "-"}), json!({"x": "y"}));
    let applied = apply(&Renamed, &before, writer, &live, &wanted, false).unwrap();
    assert_eq!(applied.object, json!({"x": "y", "z": "-"}));
    let shared = owners(&json!([
        entry("a", "Apply", "g/v1", &json!({"f:old": {}, "f:x": {}})),
        entry("b", "Apply", "g/v2", &json!({"f:new": {}})),
    ]));
    let applied = apply(&Renamed, &shared, writer, &live, &wanted, false).unwrap();
    assert!(!applied.changed);
    let gone = owners(&json!([entry("a", "Apply", "g/v0", &json!({"f:old": {}}))]));
    assert!(!apply(&Renamed, &gone, writer, &live, &wanted, false).unwrap().changed);
}
