//! Tests of objects that were valid before their schema became stricter.
//!
//! Their unchanged values may stay, except in type fields.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, definition, definition_version, establish};

const LISTS: &str = "/apis/ratchet.example.com/v1/namespaces/default/lists";

async fn constrain(raw: &Raw, schema: &Value) {
    let patch = json!({ "spec": { "versions": [definition_version("v1", true, schema.clone())] } });
    raw.patch(format!("{DEFINITIONS}/lists.ratchet.example.com"), MERGE, &patch).await.expect(200);
}

fn schema() -> Value {
    let inner = json!({ "type": "object", "required": ["k"], "properties": {
        "k": { "type": "string" }, "v": { "type": "string" },
    } });
    let list = json!({
        "type": "array", "items": inner, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
    });
    let spec = json!({ "type": "object", "properties": { "list": list, "other": { "type": "string" } } });
    let text = json!({ "type": "string" });
    json!({ "type": "object", "properties": { "apiVersion": text, "kind": text, "spec": spec } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_type_map_in_another_order_is_unchanged() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let versions = json!([definition_version("v1", true, schema())]);
    establish(&raw, &definition("ratchet.example.com", "lists", "List1", versions)).await;
    let item = |key: &str| json!({ "k": key, "v": "x" });
    let object = json!({ "metadata": { "name": "a" }, "spec": { "list": [item("1"), item("2"), item("3")] } });
    raw.post(LISTS, &object).await.expect(201);

    let mut bounded = schema();
    bounded["properties"]["spec"]["properties"]["list"]["maxItems"] = json!(2);
    let mut ruled = schema();
    let rules = json!([{ "rule": "self.size() < 3", "message": "too many" }]);
    ruled["properties"]["spec"]["properties"]["list"]["x-kubernetes-validations"] = rules;
    ruled["properties"]["spec"]["properties"]["list"]["maxItems"] = json!(100);
    for (constraint, order) in [(bounded, ["3", "1", "2"]), (ruled, ["2", "3", "1"])] {
        constrain(&raw, &constraint).await;
        let path = format!("{LISTS}/a");
        let reordered = json!({ "spec": { "list": order.map(item), "other": order[0] } });
        let changed = raw.patch(&*path, MERGE, &reordered).await.expect(200).json();
        assert_eq!(changed["spec"]["list"][0]["k"], order[0]);
        let mut other = reordered.clone();
        other["spec"]["list"][1]["v"] = json!("y");
        raw.patch(&*path, MERGE, &other).await.expect(422);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_type_of_an_object_is_validated_though_it_did_not_change() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let versions = json!([definition_version("v1", true, schema())]);
    establish(&raw, &definition("ratchet.example.com", "lists", "List1", versions)).await;
    raw.post(LISTS, &json!({ "metadata": { "name": "a" }, "spec": {} })).await.expect(201);
    let mut valued = schema();
    valued["properties"]["kind"]["enum"] = json!(["Other"]);
    let mut ruled = schema();
    let rules = json!([{ "rule": "self == 'Other'", "message": "no" }]);
    ruled["properties"]["kind"]["x-kubernetes-validations"] = rules;
    for (place, constraint) in [valued, ruled].into_iter().enumerate() {
        constrain(&raw, &constraint).await;
        let change = json!({ "spec": { "other": place.to_string() } });
        let refused = raw.patch(format!("{LISTS}/a"), MERGE, &change).await.expect(422).json();
        assert_eq!(refused["details"]["causes"][0]["field"], "kind", "{refused}");
    }
}
