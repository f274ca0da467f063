//! Tests of expensive schemas: their cost limit, and the responsiveness for others while an object is validated.
//!
//! Without a limit one definition could keep a server busy.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{DEFINITIONS, MERGE, definition, establish};

const GROUP: &str = "costly.example.com";

fn place(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/{plural}")
}

/// A definition of a kind whose `spec` has these properties.
fn kind_definition(plural: &str, kind: &str, properties: &Value) -> Value {
    let spec = json!({ "type": "object", "properties": properties });
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    let versions = json!([{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema } }]);
    definition(GROUP, plural, kind, versions)
}

fn named(name: &str, spec: &Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// The message of a refusal.
async fn refusal(raw: &Raw, path: &str, object: &Value) -> String {
    let answer = raw.post(path, object).await.expect(422).json();
    answer["message"].as_str().unwrap().to_owned()
}

/// Waits for a write, and counts the requests answered meanwhile.
async fn answered_during(raw: &Raw, write: impl Future<Output = ()>) -> usize {
    let mut write = std::pin::pin!(write);
    let mut answered = 0;
    loop {
        tokio::select! {
            biased;
            () = &mut write => return answered,
            answer = raw.get("/api/v1/namespaces/default") => {
                answer.expect(200);
                answered += 1;
            }
        }
    }
}

// The server has one thread for all connections: anything that blocks it delays all clients.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn others_are_answered_while_much_is_compared() {
    let server = TestServer::start().await;
    let (raw, other) = (server.raw(), server.raw());
    // A small body, and values that every alternative is tried on.
    let alternative = |index: usize| json!({ "minLength": 10 + index });
    let alternatives: Vec<Value> = (0..1_000).map(alternative).collect();
    let of_items = json!({ "type": "string", "anyOf": alternatives });
    let list = json!({ "list": { "type": "array", "items": of_items } });
    let rule = |index: usize| json!({ "rule": format!("self.all(x, x != '{index}')") });
    let mut schema = list.clone();
    schema["list"]["maxItems"] = json!(1_000);
    schema["list"]["items"]["maxLength"] = json!(10);
    schema["list"]["x-kubernetes-validations"] = (0..400).map(rule).collect();
    let answered = answered_during(&other, async {
        raw.post(DEFINITIONS, &kind_definition("trials", "Trial", &schema)).await.expect(201);
    });
    let answered = answered.await;
    assert!(answered >= 5, "{answered} were answered while a definition was validated");
    establish(&raw, &kind_definition("attempts", "Attempt", &list)).await;
    let spec = json!({ "list": vec!["a"; 1_500] });
    let answered = answered_during(&other, async {
        assert!(refusal(&raw, &place("attempts"), &named("a", &spec)).await.contains("at least one schema (anyOf)"));
    });
    let answered = answered.await;
    assert!(answered >= 5, "{answered} were answered while an object was validated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definition_with_many_patterns_is_served_and_they_are_all_kept() {
    let mut server = TestServer::builder().sqlite().start().await;
    let raw = server.raw();
    let property = |index: usize| {
        let pattern = format!("^[a-z\\p{{L}}]{{0,200}}x{index}$");
        (format!("p{index}"), json!({ "type": "string", "pattern": pattern }))
    };
    let properties: serde_json::Map<String, Value> = (0..300).map(property).collect();
    establish(&raw, &kind_definition("forms", "Form", &json!(properties))).await;
    let filled = |wrong: usize| {
        let text = |index: usize| if index == wrong { "no".to_owned() } else { format!("zäx{index}") };
        let fields: serde_json::Map<String, Value> =
            (0..12).map(|index| (format!("p{index}"), json!(text(index)))).collect();
        json!(fields)
    };
    raw.post(place("forms"), &named("good", &filled(12))).await.expect(201);
    server.restart().await;
    let raw = server.raw();
    raw.post(place("forms"), &named("also-good", &filled(12))).await.expect(201);
    let refused = refusal(&raw, &place("forms"), &named("bad", &filled(7))).await;
    let why = "spec.p7: Invalid value: \"no\": spec.p7 in body should match '^[a-z\\p{L}]{0,200}x7$'";
    assert!(refused.ends_with(why), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_of_which_its_schema_asks_too_much_is_refused() {
    let server = TestServer::start().await;
    let raw = server.raw();
    // Thirty thousand states, each of which may be visited for each of a million characters.
    let pattern = "(ab?c?d?e?f?g?h?i?j?k?){1000}";
    let properties = json!({ "text": { "type": "string", "pattern": pattern } });
    establish(&raw, &kind_definition("novels", "Novel", &properties)).await;
    raw.post(place("novels"), &named("short", &json!({ "text": "a".repeat(1_000) }))).await.expect(201);
    let long = named("long", &json!({ "text": "x".repeat(1_000_000) }));
    let refused = refusal(&raw, &place("novels"), &long).await;
    let why = "it would take too long to compare the object with all that its schema asks for";
    assert!(refused.ends_with(why), "{}", &refused[refused.len() - 300..]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_texts_of_rules_and_values_are_limited() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let wrong = format!("[{}] == []", vec!["unknown"; 600].join(", "));
    let rules = json!([{ "rule": wrong }]);
    let mut rooms = kind_definition("rooms", "Room", &json!({ "n": { "type": "integer" } }));
    rooms["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = rules;
    let told = refusal(&raw, DEFINITIONS, &rooms).await;
    assert!(told.len() < 200_000 && told.contains("500 more errors were truncated"), "{} bytes", told.len());
    // Each fault would contain the key that all of them are below.
    let below = json!({ "type": "object", "additionalProperties": { "type": "string", "maxLength": 1 } });
    let halls = json!({ "byName": { "type": "object", "additionalProperties": below } });
    establish(&raw, &kind_definition("halls", "Hall", &halls)).await;
    let many: serde_json::Map<String, Value> = (0..1_500).map(|index| (format!("k{index}"), json!("long"))).collect();
    let key = "k".repeat(100_000);
    let told = refusal(&raw, &place("halls"), &named("a", &json!({ "byName": { key: many } }))).await;
    assert!(told.len() < 1_000_000 && told.contains("more"), "{} bytes", told.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_sets_are_compared_in_any_order() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let unchanged = json!([{ "rule": "self == oldSelf" }]);
    let text = json!({ "type": "string" });
    let item = json!({ "type": "object", "properties": { "k": text }, "required": ["k"] });
    let lists = json!({
        "set": { "type": "array", "items": text, "x-kubernetes-list-type": "set", "x-kubernetes-validations": unchanged },
        "map": { "type": "array", "items": item, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
            "x-kubernetes-validations": unchanged },
    });
    establish(&raw, &kind_definition("sets", "Set", &lists)).await;
    // As many as are stored with their owners.
    const COUNT: usize = 12_000;
    let filled = |names: &[String]| {
        let items: Vec<Value> = names.iter().map(|name| json!({ "k": name })).collect();
        json!({ "set": names, "map": items })
    };
    let mut names: Vec<String> = (0..COUNT).map(|index| format!("e{index}")).collect();
    raw.post(place("sets"), &named("a", &filled(&names))).await.expect(201);
    names.reverse();
    let path = format!("{}/a", place("sets"));
    raw.patch(&*path, MERGE, &json!({ "spec": filled(&names) })).await.expect(200);
    names[COUNT / 2] = "another".to_owned();
    let body = raw.patch(&*path, MERGE, &json!({ "spec": filled(&names) })).await.expect(422).json();
    assert_eq!(body["details"]["causes"].as_array().unwrap().len(), 2, "{}", body["details"]["causes"][0]["field"]);
}
