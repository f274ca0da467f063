//! Tests of server-side apply to custom resources: objects, maps and lists that it empties, and nulls with and without
//! a default.
//!
//! Each state is applied twice, and the second apply changes nothing.

use keelson_testkit::{Raw, TestServer, definition_version};
use serde_json::{Value, json};

use super::{APPLY, MERGE, definition, establish};

const GROUP: &str = "apply.example.com";
const SHIPS: &str = "/apis/apply.example.com/v1/namespaces/default/ships";

async fn start() -> TestServer {
    let text = json!({ "type": "string" });
    let map = json!({ "type": "object", "additionalProperties": text });
    let part = json!({ "type": "object", "required": ["name"], "properties": {
        "name": text, "color": { "type": "string", "default": "grey" }, "weight": { "type": "integer" } } });
    let mut hold = map.clone();
    hold["nullable"] = json!(true);
    let spec = json!({ "type": "object", "properties": {
        "a": text,
        "map": map,
        "maps": { "type": "object", "additionalProperties": map },
        "hold": hold,
        "parts": { "type": "array", "items": part, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"] },
        "flags": { "type": "array", "items": text, "x-kubernetes-list-type": "set" },
        "speed": { "type": "integer", "default": 7 },
        "engine": { "type": "object", "default": { "fuel": "oil" }, "properties": { "fuel": text, "power": { "type": "number", "default": 1.5 } } },
        "port": { "type": "string", "nullable": true, "default": "home" },
        "crew": { "type": "array", "nullable": true, "items": text },
        "cargo": { "type": "array", "nullable": true, "items": part, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"] },
        "marks": { "type": "array", "nullable": true, "items": text, "x-kubernetes-list-type": "set" },
        "rig": { "type": "object", "nullable": true, "properties": { "mast": text } },
    } });
    let server = TestServer::start().await;
    let version = definition_version("v1", true, json!({ "type": "object", "properties": { "spec": spec } }));
    establish(&server.raw(), &definition(GROUP, "ships", "Ship", json!([version]))).await;
    server
}

/// An apply of a ship with this specification.
struct Apply<'r> {
    raw: &'r Raw,
    manager: &'static str,
    name: &'static str,
}

impl Apply<'_> {
    async fn spec(&self, spec: Value, code: u16) -> Value {
        let ship = json!({ "apiVersion": "apply.example.com/v1", "kind": "Ship", "metadata": { "name": self.name }, "spec": spec });
        let path = format!("{SHIPS}/{}?fieldManager={}", self.name, self.manager);
        self.raw.patch(path, APPLY, &ship).await.expect(code).json()
    }

    /// Applies twice, the second time without a change, and compares these members of the `spec`.
    async fn twice(&self, spec: Value, expected: Value) {
        let first = self.spec(spec.clone(), 200).await;
        for (name, member) in expected.as_object().unwrap() {
            assert_eq!(first["spec"].get(name).unwrap_or(&json!("none")), member, "{name} after {spec}: {first}");
        }
        assert_eq!(self.spec(spec, 200).await, first, "the second of two equal applies changes nothing");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_emptied_by_an_apply_stay_empty() {
    let server = start().await;
    let raw = server.raw();
    let (one, two) = (Apply { raw: &raw, manager: "one", name: "x" }, Apply { raw: &raw, manager: "two", name: "x" });
    one.spec(
        json!({ "a": "1", "map": { "x": "1" }, "hold": { "x": "1" }, "flags": ["f"], "parts": [{ "name": "p" }] }),
        201,
    )
    .await;
    one.twice(
        json!({ "map": {}, "hold": {}, "flags": [], "parts": [] }),
        json!({ "a": "none", "map": {}, "hold": {}, "flags": [], "parts": [] }),
    )
    .await;
    let whole = Apply { name: "y", ..one };
    whole.spec(json!({ "a": "1" }), 201).await;
    // The defaults return.
    let empty = json!({ "speed": 7, "engine": { "fuel": "oil", "power": 1.5 }, "port": "home" });
    whole.twice(json!({}), empty.clone()).await;
    let emptied = whole.spec(json!({}), 200).await;
    assert_eq!(emptied["spec"], empty);

    let (one, two) = (Apply { name: "z", ..one }, Apply { name: "z", ..two });
    one.spec(json!({ "map": { "x": "1" }, "maps": { "m": { "n": "1" } } }), 201).await;
    two.spec(json!({ "map": { "y": "1" }, "maps": { "m": { "o": "1" } } }), 200).await;
    one.twice(json!({ "maps": { "m": {} } }), json!({ "map": { "y": "1" }, "maps": { "m": { "o": "1" } } })).await;
    two.twice(json!({ "map": {}, "maps": {} }), json!({ "map": {}, "maps": { "m": {} } })).await;
    two.twice(json!({}), json!({ "map": "none", "maps": { "m": {} } })).await;
    one.twice(json!({}), json!({ "maps": "none" })).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_empties_an_object_or_stands_where_it_may_be() {
    let server = start().await;
    let raw = server.raw();
    let one = Apply { raw: &raw, manager: "one", name: "x" };
    one.spec(json!({ "map": { "x": "1" }, "hold": { "x": "1" }, "maps": { "m": { "x": "1" } } }), 201).await;
    one.twice(
        json!({ "map": null, "hold": null, "maps": { "m": null } }),
        json!({ "map": {}, "hold": null, "maps": { "m": {} } }),
    )
    .await;
    // Without an earlier value it is refused.
    let refused = one.spec(json!({ "a": null }), 422).await;
    assert_eq!(
        refused["message"],
        "Ship.apply.example.com \"x\" is invalid: spec.a: Invalid value: \"null\": spec.a in body must be of type string: \"null\""
    );
}

/// A release candidate of structured-merge-diff refused these with 422.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_is_accepted_for_objects_maps_and_lists_that_may_be_null() {
    let server = start().await;
    let raw = server.raw();
    let one = Apply { raw: &raw, manager: "one", name: "x" };
    let nulls = json!({ "crew": null, "cargo": null, "marks": null, "rig": null, "hold": null });
    let made = one.spec(nulls.clone(), 201).await;
    for field in ["crew", "cargo", "marks", "rig", "hold"] {
        assert_eq!(made["spec"].get(field), Some(&Value::Null), "{field}: {made}");
    }
    one.twice(nulls.clone(), nulls.clone()).await;
    let full = json!({ "crew": ["a"], "cargo": [{ "name": "c" }], "marks": ["m"], "rig": { "mast": "1" }, "hold": { "h": "1" } });
    one.spec(full, 200).await;
    one.twice(nulls.clone(), nulls).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn null_is_the_default_where_there_is_one() {
    let server = start().await;
    let raw = server.raw();
    let one = Apply { raw: &raw, manager: "one", name: "x" };
    let nulls = json!({ "speed": null, "engine": null, "port": null, "parts": [{ "name": "p", "color": null }] });
    let made = one.spec(nulls.clone(), 201).await;
    let expected = json!({
        "speed": 7, "engine": { "fuel": "oil", "power": 1.5 }, "port": null, "parts": [{ "name": "p", "color": "grey" }],
    });
    assert_eq!(made["spec"], expected);
    one.twice(nulls.clone(), expected.clone()).await;
    // As with every other write.
    let posted = json!({ "metadata": { "name": "y" }, "spec": nulls });
    assert_eq!(raw.post(SHIPS, &posted).await.expect(201).json()["spec"], expected);
    let change = json!({ "spec": { "speed": 9, "engine": { "power": 2 } } });
    let changed = raw.patch(format!("{SHIPS}/x"), MERGE, &change).await.expect(200).json();
    assert_eq!(changed["spec"]["speed"], 9);
    let engine = Apply { manager: "two", ..one };
    let applied = engine.spec(json!({ "engine": { "power": null } }), 409).await;
    assert!(applied["message"].as_str().unwrap().contains(".spec.engine.power"), "{applied}");
    one.spec(json!({ "a": null }), 422).await;
}
