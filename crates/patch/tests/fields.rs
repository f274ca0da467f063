//! Field ownership: objects of the built-in kinds, and laws for generated sets and objects.
//!
//! Tests of complete applies are in `ownership`.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "fields/first.rs"]
mod first;
#[path = "fields/model.rs"]
mod model;
#[path = "fields/objects.rs"]
mod objects;
#[path = "fields/sets.rs"]
mod sets;

use keelson_meta::json::{Value, json};
use keelson_patch::fields::{
    Duplicates, FieldSet, FieldsError, compare, extract, merge, remove, validate, with_named_fields,
};
use keelson_schema::{SchemaRef, Schemas};

fn schema(name: &str) -> SchemaRef<'static> {
    Schemas::builtin().definition(name).unwrap()
}

fn pod_spec() -> SchemaRef<'static> {
    schema("io.k8s.api.core.v1.PodSpec")
}

fn deployment() -> SchemaRef<'static> {
    schema("io.k8s.api.apps.v1.Deployment")
}

/// Compares texts, since the order of members must be equal too.
#[track_caller]
fn is(set: &FieldSet, expected: &Value) {
    assert_eq!(set.to_fields_v1().to_string(), expected.to_string());
}

fn set(fields: &Value) -> FieldSet {
    FieldSet::from_fields_v1(fields).unwrap()
}

fn applied() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]}]},
            },
        },
    })
}

#[test]
fn an_applied_object_owns_values_items_and_entries() {
    let expected = json!({
        "f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}},
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {"f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {},
                    "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }}},
            },
        },
    });
    is(&extract(deployment(), &applied()), &expected);
}

#[test]
fn a_write_owns_the_added_fields() {
    let before = json!({"metadata": {}, "spec": {
        "selector": null, "strategy": {}, "template": {"metadata": {}, "spec": {"containers": null}},
    }, "status": {}});
    let mut after = applied();
    after["spec"]["strategy"] = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}});
    let changes = compare(deployment(), &before, &after);
    let expected = json!({
        "f:apiVersion": {}, "f:kind": {}, "f:metadata": {"f:name": {}},
        "f:spec": {
            "f:replicas": {},
            "f:strategy": {"f:rollingUpdate": {".": {}, "f:maxSurge": {}}, "f:type": {}},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                    ".": {}, "f:image": {}, "f:name": {},
                    "f:ports": {".": {}, "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                }}},
            },
        },
    });
    is(&changes.added, &expected);
    is(&changes.modified, &json!({"f:spec": {"f:selector": {}}}));
    is(&changes.removed, &json!({"f:status": {}}));
}

#[test]
fn sets_atomic_values_and_empty_objects_are_owned() {
    let spec = json!({
        "securityContext": {},
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "a"}],
        "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["a"]}],
        "containers": [],
        "hostname": null,
    });
    let expected = json!({
        "f:hostAliases": {"k:{\"ip\":\"1.1.1.1\"}": {".": {}, "f:hostnames": {}, "f:ip": {}}},
        "f:hostname": {},
        "f:nodeSelector": {},
        "f:securityContext": {},
        "f:tolerations": {},
    });
    is(&extract(pod_spec(), &spec), &expected);
    let meta = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let expected = json!({"f:finalizers": {"v:\"a\\u003c/b\"": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}});
    is(&extract(meta, &json!({"finalizers": ["a</b"], "ownerReferences": [{"uid": "u"}]})), &expected);
    let revision = schema("io.k8s.api.apps.v1.ControllerRevision");
    is(&extract(revision, &json!({"data": {"a": {"b": 1}}})), &json!({"f:data": {}}));
}

#[test]
fn differences_are_reported_by_item_and_by_atom() {
    let old = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "nodeSelector": {"a": "1"}});
    let new = json!({"containers": [{"name": "c"}, {"name": "a", "image": "2"}], "nodeSelector": {"a": "1", "b": "2"}});
    let changes = compare(pod_spec(), &old, &new);
    is(&changes.added, &json!({"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}}}}));
    is(&changes.modified, &json!({"f:containers": {"k:{\"name\":\"a\"}": {"f:image": {}}}, "f:nodeSelector": {}}));
    is(&changes.removed, &json!({"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}}));
    is(&changes.without(&set(&json!({"f:containers": {}}))).modified, &json!({"f:nodeSelector": {}}));
}

#[test]
fn items_that_are_there_twice_are_one_field() {
    let twice = json!({"env": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}, {"name": "b"}]});
    let container = schema("io.k8s.api.core.v1.Container");
    let expected = json!({"f:env": {"k:{\"name\":\"a\"}": {}, "k:{\"name\":\"b\"}": {".": {}, "f:name": {}}}});
    is(&extract(container, &twice), &expected);
    let once = json!({"env": [{"name": "a", "value": "1"}, {"name": "b"}]});
    let changes = compare(container, &twice, &once);
    is(&changes.added, &json!({"f:env": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:value": {}}}}));
    is(&changes.removed, &json!({"f:env": {"k:{\"name\":\"a\"}": {}}}));
    let other = json!({"env": [{"name": "a", "value": "2"}, {"name": "a", "value": "1"}, {"name": "b"}]});
    is(&compare(container, &twice, &other).modified, &json!({"f:env": {"k:{\"name\":\"a\"}": {}}}));
}

#[track_caller]
fn merges(object: &Value, applied: &Value, expected: &Value) {
    let merged = merge(pod_spec(), object, applied);
    assert_eq!(merged.to_string(), expected.to_string());
}

#[test]
fn applied_fields_are_merged_into_the_object() {
    merges(
        &json!({"hostname": "a", "containers": [{"name": "x", "image": "1", "tty": true}], "nodeSelector": {"a": "1"}}),
        &json!({"containers": [{"name": "x", "image": "2"}], "nodeSelector": {"b": "2"}, "subdomain": "s"}),
        &json!({
            "hostname": "a",
            "containers": [{"name": "x", "image": "2", "tty": true}],
            "nodeSelector": {"b": "2"},
            "subdomain": "s",
        }),
    );
    merges(
        &json!({"hostname": "a", "containers": [{"name": "x"}], "securityContext": {"runAsUser": 1}}),
        &json!({"hostname": null, "containers": null, "securityContext": null}),
        &json!({"hostname": null, "containers": [{"name": "x"}], "securityContext": {"runAsUser": 1}}),
    );
}

#[test]
fn applied_items_are_in_their_order_and_the_others_between_them() {
    let list = |names: &str| {
        let items: Vec<_> = names.chars().map(|name| json!({"name": name.to_string()})).collect();
        json!({ "containers": items })
    };
    for (object, applied, expected) in [
        ("abc", "d", "abcd"),
        ("abc", "ca", "bca"),
        ("abc", "da", "dabc"),
        ("ab", "cbd", "acbd"),
        ("xaybz", "ba", "xybza"),
        ("", "ab", "ab"),
        ("ab", "", "ab"),
    ] {
        merges(&list(object), &list(applied), &list(expected));
    }
}

#[test]
fn removing_fields_removes_their_descendants() {
    let pod = json!({"hostname": "h", "containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}], "securityContext": {"runAsUser": 1}});
    let fields = set(&json!({
        "f:containers": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"b\"}": {"f:image": {}}},
        "f:securityContext": {"f:runAsUser": {}},
    }));
    let expected = json!({"hostname": "h", "containers": [{"name": "b"}], "securityContext": {}});
    assert_eq!(remove(pod_spec(), &pod, &fields), expected);
    let named = with_named_fields(&fields, pod_spec());
    let expected = json!({
        "f:containers": {".": {}, "k:{\"name\":\"a\"}": {".": {}, "f:name": {}}, "k:{\"name\":\"b\"}": {"f:image": {}}},
        "f:securityContext": {".": {}, "f:runAsUser": {}},
    });
    is(&named, &expected);
    assert_eq!(remove(pod_spec(), &pod, &named), json!({"hostname": "h"}));
    assert_eq!(remove(pod_spec(), &json!({"hostname": "h"}), &set(&json!({"f:hostname": {}}))), json!({}));
}

#[track_caller]
fn violates(object: &Value, expected: &str) {
    let violations = validate(pod_spec(), object, Duplicates::Refused).unwrap_err();
    assert_eq!(violations.to_string(), expected);
}

#[test]
fn violations_are_in_upstreams_words() {
    violates(&json!({"bogus": 1}), ".bogus: field not declared in schema");
    violates(&json!({"hostname": 1}), ".hostname: expected string, got &value.valueUnstructured{Value:1}");
    violates(&json!({"priority": "1"}), ".priority: expected numeric (int or float), got string");
    violates(&json!({"hostIPC": "yes"}), ".hostIPC: expected boolean, got &{yes}");
    violates(&json!({"containers": "x"}), ".containers: expected list, got &{x}");
    violates(&json!({"affinity": []}), ".affinity: expected map, got &{[]}");
    violates(
        &json!({"containers": [null]}),
        ".containers: element 0: associative list with keys may not have a null element",
    );
    // The item lacks a key field that is always written, so the field's zero value is its key.
    assert_eq!(validate(pod_spec(), &json!({"containers": [{}]}), Duplicates::Refused), Ok(()));
    violates(&json!({"containers": [{}, {"image": "i"}]}), ".containers: duplicate entries for key [name=\"\"]");
    let ports = json!([{"containerPort": 1}, {"containerPort": 1, "protocol": "TCP"}]);
    let text = r#".containers[name="a"].ports: duplicate entries for key [containerPort=1,protocol="TCP"]"#;
    let pod = json!({"containers": [{"name": "a", "ports": ports}], "hostname": null});
    violates(&pod, text);
    assert_eq!(validate(pod_spec(), &pod, Duplicates::Allowed), Ok(()));
    violates(
        &json!({"hostname": 1, "tolerations": [{"key": 2}]}),
        "errors:\n  .hostname: expected string, got &value.valueUnstructured{Value:1}\n  \
         .tolerations[0].key: expected string, got &value.valueUnstructured{Value:2}",
    );
}

#[test]
fn unknown_path_elements_of_fields_v1_are_omitted() {
    let fields = json!({"f:a": {"x:new": {}, "i:2": {}, "v:1.5": {}}, "f:b": {".": {}, "f:c:d": {}}, "z:": {}});
    let expected = json!({"f:a": {"v:1.5": {}, "i:2": {}}, "f:b": {".": {}, "f:c:d": {}}});
    is(&set(&fields), &expected);
    let paths: Vec<_> = set(&fields).paths().iter().map(ToString::to_string).collect();
    assert_eq!(paths, [".b", ".a[=1.5]", ".a[2]", ".b.c:d"]);
    for bad in [json!({"f": {}}), json!({"i:x": {}}), json!({"k:1": {}}), json!({"v:": {}}), json!({"": {}})] {
        assert!(matches!(FieldSet::from_fields_v1(&bad), Err(FieldsError::BadElement(_))), "{bad}");
    }
    assert_eq!(FieldSet::from_fields_v1(&json!({"f:a": 1})), Err(FieldsError::NotAnObject));
}
