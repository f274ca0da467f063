//! Strategic merge patch: the rules of the built-in kinds, every directive, refusals, and patches made from generated
//! values.
//!
//! Keys and strategies come from the schemas. The tests check the walk over object, patch and schema.

#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

#[path = "strategic/properties.rs"]
mod properties;

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_patch::strategic::{apply, apply_to_object};
use keelson_schema::{SchemaRef, Schemas};

fn schema(name: &str) -> SchemaRef<'static> {
    Schemas::builtin().definition(name).unwrap()
}

fn pod_spec() -> SchemaRef<'static> {
    schema("io.k8s.api.core.v1.PodSpec")
}

fn members(value: &Value) -> Map {
    value.as_object().unwrap().clone()
}

/// Compares texts, since the order of members must be equal too.
#[track_caller]
fn gives(schema: SchemaRef<'_>, target: &Value, patch: &Value, expected: &Value) {
    let patched = apply(members(target), &members(patch), schema).unwrap();
    assert_eq!(Value::Object(patched).to_string(), expected.to_string(), "{patch}");
}

#[track_caller]
fn refuses(schema: SchemaRef<'_>, target: &Value, patch: &Value, code: u16, text: &str) {
    let error = apply(members(target), &members(patch), schema).unwrap_err();
    assert_eq!(error.to_string(), text);
    assert_eq!(ApiError::from(error).code(), code);
}

fn containers() -> Value {
    json!({"containers": [
        {"name": "a", "image": "a:1", "args": ["x", "y"], "env": [{"name": "E", "value": "1"}]},
        {"name": "b", "image": "b:1"},
    ]})
}

#[test]
fn items_are_merged_by_their_key_and_stay_where_they_are() {
    let expected = json!({"containers": [
        {"name": "a", "image": "a:1", "args": ["x", "y"], "env": [{"name": "E", "value": "1"}]},
        {"name": "b", "image": "b:2"},
    ]});
    gives(pod_spec(), &containers(), &json!({"containers": [{"name": "b", "image": "b:2"}]}), &expected);
}

#[test]
fn lists_without_a_strategy_are_replaced_and_nested_ones_merged() {
    let patch = json!({"containers": [
        {"name": "a", "args": ["z"], "env": [{"name": "F", "value": "2"}, {"name": "E", "value": null}]},
    ]});
    let expected = json!({"containers": [
        {"name": "a", "image": "a:1", "args": ["z"], "env": [{"name": "F", "value": "2"}, {"name": "E"}]},
        {"name": "b", "image": "b:1"},
    ]});
    gives(pod_spec(), &containers(), &patch, &expected);
}

#[test]
fn new_items_come_before_those_that_the_patch_does_not_name() {
    let patch = json!({"containers": [{"name": "c", "image": "c:1"}, {"name": "b", "tty": true}]});
    let expected = json!({"containers": [
        {"name": "c", "image": "c:1"},
        {"name": "a", "image": "a:1", "args": ["x", "y"], "env": [{"name": "E", "value": "1"}]},
        {"name": "b", "image": "b:1", "tty": true},
    ]});
    gives(pod_spec(), &containers(), &patch, &expected);
}

#[test]
fn items_are_deleted_and_lists_replaced_on_request() {
    let patch = json!({"containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}]});
    gives(pod_spec(), &containers(), &patch, &json!({"containers": [{"name": "c"}, {"name": "b", "image": "b:1"}]}));
    let patch = json!({"containers": [{"$patch": "replace"}, {"name": "c"}]});
    gives(pod_spec(), &containers(), &patch, &json!({"containers": [{"name": "c"}]}));
    let twice = json!({"ports": [{"containerPort": 1, "name": "t"}, {"containerPort": 2}, {"containerPort": 1}]});
    let container = schema("io.k8s.api.core.v1.Container");
    let patch = json!({"ports": [{"containerPort": 1, "$patch": "delete"}]});
    gives(container, &twice, &patch, &json!({"ports": [{"containerPort": 2}]}));
}

#[test]
fn objects_are_replaced_or_emptied_on_request() {
    let deployment = schema("io.k8s.api.apps.v1.DeploymentSpec");
    let target = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}, "replicas": 1});
    let patch = json!({"strategy": {"$patch": "replace", "type": "Recreate"}});
    gives(deployment, &target, &patch, &json!({"strategy": {"type": "Recreate"}, "replicas": 1}));
    let patch = json!({"strategy": {"$patch": "delete", "type": "Recreate"}});
    gives(deployment, &target, &patch, &json!({"strategy": {}, "replicas": 1}));
    gives(deployment, &json!({}), &json!({"strategy": {"$patch": "replace", "type": "Recreate"}}), &json!({}));
    gives(deployment, &target, &json!({"$patch": "replace", "replicas": 2}), &json!({"replicas": 2}));
}

#[test]
fn only_retained_keys_stay() {
    let deployment = schema("io.k8s.api.apps.v1.DeploymentSpec");
    let target = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}});
    let patch = json!({"strategy": {"$retainKeys": ["type"], "type": "Recreate"}});
    gives(deployment, &target, &patch, &json!({"strategy": {"type": "Recreate"}}));
    let target = json!({"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]});
    let patch = json!({"volumes": [{"name": "v", "$retainKeys": ["name", "configMap"], "configMap": {"name": "c"}}]});
    let expected = json!({"volumes": [{"name": "v", "configMap": {"name": "c"}}, {"name": "w", "emptyDir": {}}]});
    gives(pod_spec(), &target, &patch, &expected);
}

#[test]
fn scalars_are_merged_and_deleted() {
    let meta = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let target = json!({"finalizers": ["a", "b", "c"]});
    gives(meta, &target, &json!({"finalizers": ["d", "b"]}), &json!({"finalizers": ["d", "a", "b", "c"]}));
    let patch = json!({"$deleteFromPrimitiveList/finalizers": ["b", "x"]});
    gives(meta, &target, &patch, &json!({"finalizers": ["a", "c"]}));
    gives(meta, &json!({}), &patch, &json!({}));
    let patch = json!({
        "$deleteFromPrimitiveList/finalizers": ["a"],
        "$setElementOrder/finalizers": ["c", "d", "b"],
        "finalizers": ["d"],
    });
    gives(meta, &target, &patch, &json!({"finalizers": ["c", "d", "b"]}));
}

#[test]
fn lists_get_the_order_that_the_patch_requests() {
    let target = json!({"containers": [{"name": "a"}, {"name": "sidecar"}, {"name": "b"}, {"name": "c"}]});
    let patch = json!({
        "$setElementOrder/containers": [{"name": "c"}, {"name": "d"}, {"name": "a"}],
        "containers": [{"name": "d"}, {"name": "b", "$patch": "delete"}],
    });
    let expected = json!({"containers": [{"name": "sidecar"}, {"name": "c"}, {"name": "d"}, {"name": "a"}]});
    gives(pod_spec(), &target, &patch, &expected);
    let order = json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]});
    let expected = json!({"containers": [{"name": "sidecar"}, {"name": "b"}, {"name": "a"}, {"name": "c"}]});
    gives(pod_spec(), &target, &order, &expected);
    gives(pod_spec(), &json!({}), &order, &json!({}));
}

#[test]
fn new_values_come_without_nulls_and_directives() {
    let patch = json!({"affinity": {"podAffinity": null, "nodeAffinity": {"$patch": "delete"}}, "tolerations": [{"key": null}]});
    gives(
        pod_spec(),
        &json!({"hostname": "h"}),
        &patch,
        &json!({"hostname": "h", "affinity": {}, "tolerations": [{}]}),
    );
    gives(pod_spec(), &json!({"hostname": "h"}), &json!({"hostname": null, "subdomain": null}), &json!({}));
}

#[test]
fn maps_are_merged() {
    let meta = schema("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let patch = json!({"labels": {"b": null, "c": "3"}});
    gives(meta, &json!({"labels": {"a": "1", "b": "2"}}), &patch, &json!({"labels": {"a": "1", "c": "3"}}));
    let selector = schema("io.k8s.api.core.v1.ConfigMapVolumeSource");
    gives(selector, &json!({"defaultMode": 1}), &json!({"defaultMode": "2"}), &json!({"defaultMode": "2"}));
}

#[test]
fn bad_directives_are_refused() {
    let pod = pod_spec();
    refuses(pod, &json!({}), &json!({"$patch": "merge"}), 500, "unknown patch type: merge in map: map[$patch:merge]");
    let target = json!({"containers": [{"name": "a"}]});
    let patch = json!({"containers": [{"name": "a", "$patch": "merge"}]});
    refuses(pod, &target, &patch, 500, "merging lists cannot yet be specified in the patch");
    let patch = json!({"containers": [{"name": "a", "$patch": 1}]});
    let text = "unknown patch type: %!s(int64=1) in map: map[$patch:1 name:a]";
    refuses(pod, &target, &patch, 500, text);
    let text = "invalid patch format of retainKeys";
    refuses(pod, &json!({}), &json!({"$retainKeys": "x"}), 400, text);
    refuses(pod, &json!({}), &json!({"$retainKeys": ["a"], "hostname": "x"}), 400, text);
    let text = "invalid patch format of setElementOrder list";
    refuses(pod, &json!({}), &json!({"$setElementOrder": []}), 400, text);
    let text = "invalid patch format of primitive list";
    refuses(pod, &json!({}), &json!({"$deleteFromPrimitiveListx/y": []}), 400, text);
}

#[test]
fn lists_that_cannot_be_merged_are_refused() {
    let (pod, target) = (pod_spec(), containers());
    let text = "map: map[image:x] does not contain declared merge key: name";
    refuses(pod, &target, &json!({"containers": [{"image": "x"}]}), 500, text);
    let text = "map: map[$patch:delete] does not contain declared merge key: name";
    refuses(pod, &target, &json!({"containers": [{"$patch": "delete"}]}), 500, text);
    let target = json!({"containers": [{"name": "a"}]});
    let text = "list element types are not identical: [[map[name:a]] [a 1]]";
    refuses(pod, &target, &json!({"containers": ["a", 1]}), 500, text);
    let text = "the server rejected our request due to an error in our request";
    let error = apply(members(&json!({"containers": [[]]})), &members(&json!({"containers": [[]]})), pod).unwrap_err();
    assert_eq!(ApiError::from(error).to_string(), text);
    let patch = json!({"$setElementOrder/containers": [{"name": "a"}], "containers": [{"name": "b"}]});
    let text = "the order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]";
    refuses(pod, &target, &patch, 500, text);
    let patch = json!({"$setElementOrder/containers": {}});
    refuses(pod, &target, &patch, 500, "expected a []interface {}, but received a map[string]interface {}");
    let patch = json!({"$deleteFromPrimitiveList/tolerations": [{"key": "a"}]});
    let text = "cannot merge lists without merge key for struct";
    refuses(pod, &json!({"tolerations": [{"key": "a"}]}), &patch, 500, text);
}

#[test]
fn merges_without_a_schema_are_refused() {
    let text = r#"unable to find api field in struct PodSpec for the json field "bogus""#;
    refuses(pod_spec(), &json!({"bogus": {}}), &json!({"bogus": {}}), 500, text);
    let revision = schema("io.k8s.api.apps.v1.ControllerRevision");
    let text = r#"unable to find api field in struct RawExtension for the json field "spec""#;
    refuses(revision, &json!({"data": {"spec": {}}}), &json!({"data": {"spec": {}}}), 500, text);
    gives(revision, &json!({"data": {"a": 1}}), &json!({"data": {"b": 2}}), &json!({"data": {"a": 1, "b": 2}}));
    let csr = schema("io.k8s.api.certificates.v1.CertificateSigningRequestSpec");
    let text = "merging an object in json but data type is not struct, instead is: map";
    refuses(csr, &json!({"extra": {"a": ["b"]}}), &json!({"extra": {"a": ["c"]}}), 500, text);
}

#[test]
fn only_an_object_or_nothing_can_patch_an_object() {
    let object = || Object(members(&json!({"metadata": {"name": "n"}})));
    let pod = schema("io.k8s.api.core.v1.Pod");
    assert_eq!(apply_to_object(object(), &Value::Null, pod), Ok(object()));
    let patched = apply_to_object(object(), &json!({"metadata": {"labels": {"a": "b"}}}), pod).unwrap();
    assert_eq!((patched.name(), patched.labels().count()), ("n", 1));
    let error = ApiError::from(apply_to_object(object(), &json!([]), pod).unwrap_err());
    let text = "json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!((error.code(), error.to_string().as_str()), (400, text));
}
