//! Server-side apply, and the changes of ownership by other writes: a deployment with several managers and versions,
//! and laws for generated objects.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "ownership/laws.rs"]
mod laws;
#[path = "ownership/versions.rs"]
mod versions;

use std::borrow::Cow;

use keelson_meta::json::{Value, json};
use keelson_patch::fields::{
    Applied, BEFORE_FIRST_APPLY, Conflicts, FieldSet, Manager, Owners, OwnersError, Versions, Writer, apply, update,
};
use keelson_schema::{SchemaRef, Schemas};

const V1: &str = "apps/v1";
const NOON: &str = "2026-01-02T12:00:00Z";
const LATER: &str = "2026-01-02T12:00:01Z";

struct Deployments;

impl Versions<'static> for Deployments {
    type Schema = SchemaRef<'static>;

    fn schema(&self, version: &str) -> Option<SchemaRef<'static>> {
        (version == V1).then(|| Schemas::builtin().kind("apps", "v1", "Deployment").unwrap())
    }

    fn convert(&self, _: &Value, _: &str) -> Option<Value> {
        None
    }

    fn reset_fields(&self, _: &str) -> Cow<'_, FieldSet> {
        Cow::Owned(FieldSet::from_fields_v1(&json!({"f:status": {}})).unwrap())
    }
}

/// The parts that every deployment has.
fn nothing() -> Value {
    json!({
        "metadata": {},
        "spec": {"selector": null, "template": {"metadata": {}, "spec": {"containers": null}}, "strategy": {}},
        "status": {},
    })
}

fn config(image: &str, replicas: Option<u32>) -> Value {
    let mut config = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    });
    if let Some(replicas) = replicas {
        config["spec"]["replicas"] = replicas.into();
    }
    config
}

fn owned(replicas: bool, image: bool) -> Value {
    let mut spec = json!({});
    if replicas {
        spec["f:replicas"] = json!({});
    }
    spec["f:selector"] = json!({});
    let item = if image { json!({".": {}, "f:image": {}, "f:name": {}}) } else { json!({".": {}, "f:name": {}}) };
    spec["f:template"] = json!({
        "f:metadata": {"f:labels": {"f:app": {}}},
        "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": item}},
    });
    json!({ "f:spec": spec })
}

fn entry(name: &str, operation: &str, time: &str, fields: &Value) -> Value {
    json!({
        "manager": name, "operation": operation, "apiVersion": V1, "time": time, "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

/// An object and its owners between writes.
struct Live {
    object: Value,
    owners: Owners,
}

impl Live {
    fn new() -> Self {
        Self { object: nothing(), owners: Owners::default() }
    }

    fn try_apply(&self, name: &str, config: &Value, now: &str, force: bool) -> Result<Applied, Conflicts> {
        let manager = Manager::applies(name, "");
        let writer = Writer { manager: &manager, version: V1, now: Some(now) };
        apply(&Deployments, &self.owners, writer, &self.object, config, force)
    }

    /// Applies and returns true if the object changed.
    fn apply(&mut self, name: &str, config: &Value, now: &str, force: bool) -> bool {
        let applied = self.try_apply(name, config, now, force).unwrap();
        (self.object, self.owners) = (applied.object, applied.owners);
        applied.changed
    }

    fn update(&mut self, name: &str, after: Value, now: &str) {
        let manager = Manager::updates(name, V1, "");
        let writer = Writer { manager: &manager, version: V1, now: Some(now) };
        self.owners = update(&Deployments, &self.owners, writer, &self.object, &after);
        self.object = after;
    }

    #[track_caller]
    fn is_owned(&self, expected: &[Value]) {
        assert_eq!(self.owners.write().to_string(), Value::from(expected).to_string());
        assert_eq!(Owners::read(&self.owners.write()), Ok(self.owners.clone()));
    }
}

#[test]
fn an_applier_owns_its_fields() {
    let mut live = Live::new();
    assert!(live.apply("one", &config("i:1", Some(2)), NOON, false));
    assert_eq!(live.object["spec"]["replicas"], 2);
    live.is_owned(&[entry("one", "Apply", NOON, &owned(true, true))]);
    assert!(!live.apply("one", &config("i:1", Some(2)), LATER, false));
    live.is_owned(&[entry("one", "Apply", NOON, &owned(true, true))]);
}

#[test]
fn fields_of_other_owners_change_only_by_force() {
    let mut live = Live::new();
    live.apply("one", &config("i:1", Some(2)), NOON, false);
    let conflicts = live.try_apply("two", &config("i:1", Some(5)), LATER, false).unwrap_err();
    assert_eq!(conflicts.to_string(), r#"Apply failed with 1 conflict: conflict with "one": .spec.replicas"#);
    let causes = conflicts.causes();
    assert_eq!(
        (causes.len(), causes[0].reason.as_str(), causes[0].field.as_str()),
        (1, "FieldManagerConflict", ".spec.replicas")
    );
    assert_eq!(causes[0].message, r#"conflict with "one""#);

    assert!(live.apply("two", &config("i:1", Some(5)), LATER, true));
    live.is_owned(&[
        entry("one", "Apply", NOON, &owned(false, true)),
        entry("two", "Apply", LATER, &owned(true, true)),
    ]);
    assert!(!live.apply("one", &config("i:1", None), LATER, false));
    assert_eq!(live.object["spec"]["replicas"], 5);
}

#[test]
fn several_conflicts_are_listed_by_manager() {
    let mut live = Live::new();
    live.apply("one", &config("i:1", Some(2)), NOON, false);
    let mut after = live.object.clone();
    after["spec"]["paused"] = true.into();
    live.update("kubectl", after, NOON);
    let mut wanted = config("i:2", Some(5));
    wanted["spec"]["paused"] = false.into();
    let conflicts = live.try_apply("two", &wanted, LATER, false).unwrap_err();
    let text = "Apply failed with 3 conflicts: conflicts with \"kubectl\" using apps/v1:\n- .spec.paused\n\
                conflicts with \"one\":\n- .spec.replicas\n- .spec.template.spec.containers[name=\"c\"].image";
    assert_eq!(conflicts.to_string(), text);
}

#[test]
fn released_fields_are_removed_unless_another_owns_them() {
    let mut live = Live::new();
    live.apply("one", &config("i:1", Some(2)), NOON, false);
    live.apply("two", &config("i:1", Some(2)), NOON, false);
    assert!(!live.apply("one", &config("i:1", None), LATER, false));
    assert_eq!(live.object["spec"]["replicas"], 2);
    assert!(live.apply("two", &config("i:1", None), LATER, false));
    assert_eq!(live.object["spec"].get("replicas"), None);
}

#[test]
fn released_items_are_removed_with_their_unowned_fields() {
    let mut more = config("i:1", None);
    more["metadata"]["labels"] = json!({"a": "1", "b": "2"});
    more["spec"]["template"]["spec"]["containers"] =
        json!([{"name": "c", "image": "i:1"}, {"name": "d", "image": "d:1"}]);
    let mut live = Live::new();
    live.apply("one", &more, NOON, false);
    live.object["spec"]["template"]["spec"]["containers"][1]["imagePullPolicy"] = "Always".into();
    let mut fewer = config("i:1", None);
    fewer["metadata"]["labels"] = json!({"a": "1"});
    assert!(live.apply("one", &fewer, LATER, false));
    assert_eq!(live.object["metadata"]["labels"], json!({"a": "1"}));
    let containers = &live.object["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers, &json!([{"name": "c", "image": "i:1"}]));
    assert!(live.apply("one", &config("i:1", None), LATER, false));
    assert_eq!(live.object["metadata"].get("labels"), None);
}

#[test]
fn an_item_that_an_update_repeats_is_its_own() {
    let mut live = Live::new();
    let mut wanted = config("i:1", None);
    let containers = "/spec/template/spec/containers";
    *wanted.pointer_mut(containers).unwrap() = json!([{"name": "c", "image": "i:1"}, {"name": "d", "image": "d:1"}]);
    live.apply("one", &wanted, NOON, false);
    let with = |live: &Live, items: Value| {
        let mut after = live.object.clone();
        *after.pointer_mut(containers).unwrap() = items;
        after
    };
    let twice = json!([{"name": "c", "image": "i:1"}, {"name": "d", "image": "d:1"}, {"name": "c", "image": "i:2"}]);
    live.update("up", with(&live, twice), NOON);
    let items = |fields: Value| json!({"f:spec": {"f:template": {"f:spec": {"f:containers": fields}}}});
    let fields = |live: &Live, name: &str| {
        live.owners.get(&Manager::updates(name, V1, "")).map(|owned| owned.fields.to_fields_v1())
    };
    assert_eq!(fields(&live, "up"), Some(items(json!({"k:{\"name\":\"c\"}": {}}))));
    let conflicts = live.try_apply("one", &wanted, LATER, false).unwrap_err();
    assert_eq!(conflicts.0.len(), 1, "{conflicts}");
    let once = json!([{"name": "c", "image": "i:2"}, {"name": "d", "image": "d:1"}]);
    live.update("down", with(&live, once), NOON);
    let whole = items(json!({"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}));
    assert_eq!((fields(&live, "up"), fields(&live, "down")), (None, Some(whole)));
}

#[test]
fn an_object_that_loses_its_fields_stays_if_it_is_applied() {
    let mut live = Live::new();
    let mut wanted = config("i:1", None);
    wanted["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    wanted["metadata"]["labels"] = json!({"a": "b"});
    live.apply("one", &wanted, NOON, false);
    wanted["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {}});
    wanted["metadata"]["labels"] = json!({});
    assert!(live.apply("one", &wanted, LATER, false));
    assert_eq!(live.object["spec"]["strategy"], wanted["spec"]["strategy"]);
    assert_eq!(live.object["metadata"]["labels"], json!({}));
    assert!(!live.apply("one", &wanted, LATER, false));
}

#[test]
fn updates_own_the_changed_fields() {
    let mut live = Live::new();
    live.apply("one", &config("i:1", Some(2)), NOON, false);
    let mut after = live.object.clone();
    after["spec"]["replicas"] = 9.into();
    after["spec"]["template"]["spec"]["containers"][0]["image"] = "i:9".into();
    after["status"]["replicas"] = 4.into();
    live.update("putter", after.clone(), LATER);
    let fields = json!({"f:spec": {
        "f:replicas": {},
        "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}},
    }});
    let expected = [entry("one", "Apply", NOON, &owned(false, false)), entry("putter", "Update", LATER, &fields)];
    live.is_owned(&expected);
    live.update("putter", after.clone(), "2026-01-02T13:00:00Z");
    live.is_owned(&expected);
    after["spec"]["template"]["spec"]["containers"] = json!([]);
    live.update("other", after, LATER);
    let kept = json!({"f:spec": {"f:selector": {}, "f:template": {"f:metadata": {"f:labels": {"f:app": {}}}}}});
    live.is_owned(&[
        entry("one", "Apply", NOON, &kept),
        entry("putter", "Update", LATER, &json!({"f:spec": {"f:replicas": {}}})),
    ]);
}

#[test]
fn fields_created_by_an_update_are_owned_with_their_parents() {
    let mut live = Live::new();
    let mut after = nothing();
    after["metadata"]["labels"] = json!({"a": "1"});
    after["spec"] = config("i:1", Some(1))["spec"].clone();
    live.update("kubectl", after, NOON);
    let fields = json!({
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:image": {}, "f:name": {}}}},
            },
        },
    });
    live.is_owned(&[entry("kubectl", "Update", NOON, &fields)]);
}

#[test]
fn old_updates_are_merged_when_there_are_too_many() {
    let mut live = Live::new();
    live.apply("one", &config("i:1", None), NOON, false);
    for number in 0..12 {
        let mut after = live.object.clone();
        after["metadata"]["annotations"][format!("a{number}")] = "x".into();
        live.update(&format!("m{number:02}"), after, &format!("2026-01-02T12:00:{number:02}Z"));
    }
    let managers: Vec<_> = live.owners.iter().map(|(manager, _)| manager.name.as_str()).collect();
    let expected = ["ancient-changes", "m03", "m04", "m05", "m06", "m07", "m08", "m09", "m10", "m11", "one"];
    assert_eq!(managers, expected);
    let old = live.owners.get(&Manager::updates("ancient-changes", V1, "")).unwrap();
    assert_eq!(old.time.as_deref(), Some("2026-01-02T12:00:02Z"));
    let fields = json!({"f:metadata": {"f:annotations": {".": {}, "f:a0": {}, "f:a1": {}, "f:a2": {}}}});
    assert_eq!(old.fields.to_fields_v1().to_string(), fields.to_string());
}

/// The text equals the tree as JSON, and parses to the same owners.
fn check_text(owners: &Owners) {
    let text = owners.write_text();
    assert_eq!(text, owners.write().to_string());
    let read = Owners::read_text(&text).unwrap();
    // The owners are written before their fields are parsed, then parsed, then written again.
    assert_eq!(read.write_text(), text);
    assert_eq!(&read, owners);
    assert_eq!(read.write(), owners.write());
}

#[test]
fn owners_are_the_same_as_text_and_as_a_tree() {
    let fields = json!({
        ".": {},
        "f:a\"b\\\n\u{1}ü": {"f:c": {}},
        "f:list": {".": {}, "k:{\"name\":\"a b\"}": {".": {}, "f:x": {}}, "v:\"s\"": {}, "i:3": {}},
    });
    let mut scaled = entry("\"m\"", "Update", NOON, &fields);
    scaled["subresource"] = json!("scale");
    let mut untimed = entry("n", "Update", NOON, &json!({}));
    untimed.as_object_mut().unwrap().remove("time");
    let entries = json!([entry("k", "Apply", NOON, &json!({"f:a": {}})), untimed, scaled]);
    check_text(&Owners::read(&entries).unwrap());
    check_text(&Owners::default());
    for bad in ["{}", "[1]", "", "[{\"operation\":\"Do\"}]"] {
        assert!(Owners::read_text(bad).is_err(), "{bad}");
    }
    let unread = Owners::read_text(&json!([entry("m", "Update", NOON, &json!({"a": {}}))]).to_string()).unwrap();
    assert!(unread.iter().all(|(_, owned)| owned.fields.is_empty()));
}

#[test]
fn entries_are_read_as_strictly_as_upstream_does() {
    let good = entry("m", "Update", NOON, &json!({"f:a": {}}));
    let with = |name: &str, value: Value| {
        let mut entry = good.clone();
        entry[name] = value;
        Owners::read(&json!([entry]))
    };
    assert_eq!(with("operation", json!("Do")), Err(OwnersError::UnknownOperation));
    assert_eq!(with("apiVersion", json!("")), Err(OwnersError::NoVersion));
    assert_eq!(with("fieldsType", json!("")), Err(OwnersError::NoFieldsType(0)));
    assert_eq!(with("fieldsType", json!("V2")), Err(OwnersError::UnknownFieldsType("V2".into(), 0)));
    assert!(matches!(with("fieldsV1", json!({"a": {}})), Err(OwnersError::BadFields(_))));
    assert_eq!(Owners::read(&json!({})), Err(OwnersError::NotAList));
    assert_eq!(Owners::read(&Value::Null), Ok(Owners::default()));
    assert!(with("subresource", json!("scale")).unwrap().get(&Manager::updates("m", V1, "scale")).is_some());
    assert!(Owners::is_reset(&json!([{}])) && Owners::is_reset(&json!([])));
    assert!(!Owners::is_reset(&json!([good])) && !Owners::is_reset(&Value::Null));
    assert_eq!(Manager::updates(BEFORE_FIRST_APPLY, V1, "").name, "before-first-apply");
}
