//! Patches of every form, applied to one object, and field ownership.
//!
//! An input is a patch for a constant object. The result must be a value that can be written and parsed.

use std::borrow::Cow;
use std::sync::LazyLock;

use keelson_codec::{json, yaml};
use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_patch::fields::{self, Duplicates, FieldSet, Manager, Owners, Versions, Writer};
use keelson_patch::json_patch::{self, Limits};
use keelson_patch::{merge_patch, strategic};
use keelson_schema::{SchemaRef, Schemas};

use super::{Target, form, refused};

const DEPLOYMENT: &[u8] = br#"{"kind":"Deployment","apiVersion":"apps/v1","metadata":{"name":"d","namespace":"n","labels":{"a":"b"},"finalizers":["x/y","x/z"]},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c1","image":"i","ports":[{"containerPort":80,"protocol":"TCP"},{"containerPort":81,"protocol":"UDP"}],"env":[{"name":"e","value":"v"}]},{"name":"c2"}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"k"}]}},"strategy":{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1}}}}"#;

static OBJECT: LazyLock<Object> = LazyLock::new(|| {
    let parsed = json::parse(DEPLOYMENT).expect("the object that is patched is JSON");
    Object::from_value(parsed.value).expect("the object that is patched is one")
});

fn schema() -> SchemaRef<'static> {
    Schemas::builtin().kind("apps", "v1", "Deployment").expect("a built-in kind")
}

fn patch_of(input: &[u8]) -> Option<Value> {
    json::parse(input).ok().map(|parsed| parsed.value)
}

/// The kind of a patch's result, which must be a valid value.
fn left(value: &Value) -> u64 {
    let written = json::to_vec(value);
    let again = json::parse(&written).unwrap_or_else(|error| panic!("the result of a patch can't be read: {error}"));
    assert_eq!(again.value, *value, "the result of a patch reads differently");
    form(value)
}

pub(super) const JSON_PATCH: Target = Target {
    name: "json-patch",
    seeds: &[
        br#"[{"op":"add","path":"/spec/template/spec/containers/-","value":{"name":"x"}},{"op":"remove","path":"/metadata/labels/a"}]"#,
        br#"[{"op":"move","from":"/spec/template/spec/containers/0","path":"/spec/template/spec/containers/1"},{"op":"copy","from":"/spec","path":"/spec/x"}]"#,
        br#"[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":2}]"#,
    ],
    words: &[
        "\"op\":\"add\"", "\"op\":\"move\"", "\"op\":\"copy\"", "\"op\":\"test\"", "\"op\":\"remove\"", "\"from\":\"/", "\"path\":\"/", "/spec",
        "/-", "/0", "/-1", "~0", "~1", "/metadata/finalizers", "\"value\":", "null", "{}", "},{", "/template/spec/containers",
    ],
    check: |input| {
        let Some(patch) = patch_of(input) else { return 0 };
        let target = Value::from(OBJECT.0.clone());
        match json_patch::apply(&target, &patch, Limits::default()) {
            Ok(patched) => left(&patched),
            Err(error) => refused(&error),
        }
    },
};

pub(super) const MERGE_PATCH: Target = Target {
    name: "merge-patch",
    seeds: &[br#"{"metadata":{"labels":{"a":null,"c":"d"},"annotations":{"x":{"y":null}}},"spec":{"template":null,"replicas":[]}}"#],
    words: &["null", "{}", "[]", "\"metadata\":", "\"spec\":{", "\"a\":", "}", ",", "\"labels\":null"],
    check: |input| {
        let Some(patch) = patch_of(input) else { return 0 };
        let mut patched = OBJECT.clone();
        match merge_patch::apply_to_object(&mut patched, &patch) {
            Ok(()) => {
                let mut again = patched.clone();
                let same = merge_patch::apply_to_object(&mut again, &patch).is_ok() && again == patched;
                assert!(same, "a merge patch that is laid over twice changes more");
                left(&patched.into_value())
            }
            Err(error) => refused(&error),
        }
    },
};

pub(super) const STRATEGIC_PATCH: Target = Target {
    name: "strategic-patch",
    seeds: &[
        br#"{"spec":{"template":{"spec":{"containers":[{"name":"c1","image":"j","ports":[{"containerPort":80,"$patch":"delete"}]},{"$patch":"replace"}],"$setElementOrder/containers":[{"name":"c2"},{"name":"c1"}],"volumes":[{"name":"v","$retainKeys":["name"]}]}}}}"#,
        br#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["x/y"],"$setElementOrder/finalizers":["x/z"],"finalizers":["x/w"],"labels":{"$patch":"replace","q":"r"}},"spec":{"strategy":{"$retainKeys":["type"],"type":"Recreate"}}}"#,
    ],
    words: &[
        "\"$patch\":\"delete\"", "\"$patch\":\"replace\"", "\"$patch\":\"merge\"", "\"$retainKeys\":[", "\"$setElementOrder/containers\":[",
        "\"$deleteFromPrimitiveList/finalizers\":[", "{\"name\":\"c1\"}", "{\"name\":\"c3\"}", "null", "\"spec\":{", "\"containers\":[", "]", "}", ",",
    ],
    check: |input| {
        let Some(patch) = patch_of(input) else { return 0 };
        match strategic::apply_to_object(OBJECT.clone(), &patch, schema()) {
            Ok(patched) => left(&patched.into_value()),
            Err(error) => refused(&error),
        }
    },
};

/// The only version of the patched object.
struct OneVersion;

impl Versions<'static> for OneVersion {
    type Schema = SchemaRef<'static>;

    fn schema(&self, _: &str) -> Option<SchemaRef<'static>> {
        Some(schema())
    }

    fn convert(&self, object: &Value, _: &str) -> Option<Value> {
        Some(object.clone())
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Owned(FieldSet::new())
    }
}

pub(super) const APPLY: Target = Target {
    name: "apply",
    seeds: &[
        b"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d, labels: {c: d}}\nspec:\n  replicas: 2\n  template:\n    spec:\n      containers:\n      - {name: c1, image: j}\n      - {name: c3, ports: [{containerPort: 1}]}\n",
    ],
    words: &["- {name: c1}\n", "name: c2", "replicas: null", "containers: []", "  ", "\n", ": ", "[]", "{}", "~", "finalizers: [x/y]", "env: [{name: e}]"],
    check: |input| {
        let Ok(parsed) = yaml::parse(input) else { return 0 };
        let applied = parsed.value;
        let live = Value::from(OBJECT.0.clone());
        if let Err(violations) = fields::validate(schema(), &applied, Duplicates::Refused) {
            return refused(&violations);
        }
        let manager = Manager::applies("m", "");
        let writer = Writer { manager: &manager, version: "apps/v1", now: None };
        let Ok(first) = fields::apply(&OneVersion, &Owners::default(), writer, &live, &applied, true) else {
            panic!("an apply that is forced never conflicts");
        };
        let second = fields::apply(&OneVersion, &first.owners, writer, &first.object, &applied, true);
        let second = second.unwrap_or_else(|_| panic!("an apply that is forced never conflicts"));
        assert_eq!(second.object, first.object, "a second apply changes the object");
        let text = first.owners.write_text();
        let read = Owners::read_text(&text).unwrap_or_else(|error| panic!("owners can't be read: {error}"));
        assert_eq!(read.write_text(), text, "owners read differently");
        left(&first.object)
    },
};

pub(super) const MANAGED_FIELDS: Target = Target {
    name: "managed-fields",
    seeds: &[
        br#"[{"manager":"m","operation":"Apply","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{}}},"f:finalizers":{"v:\"x\"":{}}}}}]"#,
    ],
    words: &["\"f:a\":{}", "\".\":{}", "\"k:{\\\"name\\\":\\\"x\\\"}\":{}", "\"v:1\":{}", "\"i:0\":{}", "\"manager\":", "\"operation\":\"Update\"", "{}", "null", ","],
    check: |input| {
        let Some(value) = patch_of(input) else { return 0 };
        match Owners::read(&value) {
            Ok(owners) => {
                let text = owners.write_text();
                let again = Owners::read_text(&text).unwrap_or_else(|error| panic!("owners can't be read: {error}"));
                assert_eq!(again.write_text(), text, "owners read differently");
                form(&owners.write())
            }
            Err(error) => refused(&error),
        }
    },
};
