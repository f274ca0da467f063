//! Tests the tables of workloads: replicas, containers and selectors.
//!
//! The tests cover all columns, including those of `-o wide`.

use keelson_meta::json::{Value, json};

use super::{cell, check};

fn spec(selector: Value) -> Value {
    let pod = json!({"containers": [{"name": "a", "image": "r/a:1"}, {"name": "b", "image": "r/b"}],
        "nodeSelector": {"disk": "ssd"}});
    json!({"replicas": 3, "selector": selector, "template": {"spec": pod}})
}

#[test]
fn workloads_show_their_progress() {
    let selector = json!({"matchLabels": {"app": "web"}});
    let status = json!({"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "availableReplicas": 2,
        "desiredNumberScheduled": 5, "currentNumberScheduled": 4, "numberReady": 3, "updatedNumberScheduled": 2,
            "numberAvailable": 1});
    let fields = json!({"spec": spec(selector), "status": status});
    check("apps", "Deployment", fields.clone(), json!(["x", "2/3", 1, 2, "3d4h", "a,b", "r/a:1,r/b", "app=web"]));
    check("apps", "ReplicaSet", fields.clone(), json!(["x", 3, 3, 2, "3d4h", "a,b", "r/a:1,r/b", "app=web"]));
    check("apps", "StatefulSet", fields.clone(), json!(["x", "2/3", "3d4h", "a,b", "r/a:1,r/b"]));
    check("apps", "DaemonSet", fields, json!(["x", 5, 4, 3, 2, 1, "disk=ssd", "3d4h", "a,b", "r/a:1,r/b", "app=web"]));
}

#[test]
fn selectors_are_shown_in_canonical_form() {
    let shown = |kind: &str, selector: Value| cell("apps", kind, "Selector", json!({"spec": spec(selector)}));
    let full = json!({
        "matchLabels": {"z": "1", "a": "2"},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["b", "a"]},
            {"key": "env", "operator": "NotIn", "values": ["dev"]},
            {"key": "up", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist", "values": []},
        ],
    });
    let text = "a=2,env notin (dev),!old,tier in (a,b),up,z=1";
    assert_eq!(shown("ReplicaSet", full.clone()), text);
    assert_eq!(shown("Deployment", full), text);
    assert_eq!(shown("ReplicaSet", json!({})), "<none>");
    assert_eq!(shown("Deployment", json!({})), "");
    for wrong in [
        json!({"key": "a", "operator": "In"}),
        json!({"key": "a", "operator": "Exists", "values": ["b"]}),
        json!({"operator": "x"}),
    ] {
        let selector = json!({"matchExpressions": [wrong]});
        assert_eq!(shown("DaemonSet", selector.clone()), "<error>");
        assert_eq!(shown("Deployment", selector), "<invalid>");
    }
}

#[test]
fn revisions_name_their_controller() {
    let owners = json!([
        {"apiVersion": "v1", "kind": "Thing", "name": "other"},
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": true},
    ]);
    let fields = json!({"metadata": {"ownerReferences": owners}, "revision": 4});
    check("apps", "ControllerRevision", fields, json!(["x", "statefulset.apps/db", 4, "3d4h"]));
    let owners = json!([{"apiVersion": "v1", "kind": "Thing", "name": "one", "controller": true}]);
    let fields = json!({"metadata": {"ownerReferences": owners}});
    check("apps", "ControllerRevision", fields, json!(["x", "thing/one", 0, "3d4h"]));
    check("apps", "ControllerRevision", json!({"revision": 1}), json!(["x", "<none>", 1, "3d4h"]));
}
