//! Tests of custom objects: refused writes to their main endpoint, their status and their scale.
//!
//! The crate `schema` tests validation. Here are codes, causes and texts over the wire.

use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::{APPLY, MERGE, definition, establish, until};

const GROUP: &str = "objects.example.com";

fn place(plural: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/default/{plural}")
}

/// Defines a kind with this schema of the whole object, and these subresources.
async fn define(raw: &Raw, (plural, kind): (&str, &str), properties: &Value, subresources: &Value) {
    let schema = json!({ "type": "object", "properties": properties });
    let versions = json!([{
        "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema },
        "subresources": subresources,
    }]);
    establish(raw, &definition(GROUP, plural, kind, versions)).await;
}

/// The causes of a 422: each field with its message.
fn causes(answer: &Answer) -> Vec<(String, String)> {
    assert_eq!(answer.status, 422, "{}", answer.text());
    let status = answer.json();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().cloned().unwrap_or_default();
    causes.iter().map(|cause| (text(cause, "field"), text(cause, "message"))).collect()
}

fn check(answer: &Answer, field: &str, message: &str) {
    assert_eq!(causes(answer), [(field.to_owned(), format!("Invalid value: {message}"))]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_scale_of_an_object_is_validated_at_every_write() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let scale = json!({
        "specReplicasPath": ".spec.nested.replicas", "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".spec.sel",
    });
    let subresources = json!({ "scale": scale, "status": {} });
    define(&raw, ("crews", "Crew"), &json!({ "spec": free, "status": free }), &subresources).await;
    let crew = |spec: Value| json!({ "metadata": { "name": "a" }, "spec": spec });
    let replicas = ".spec.nested.replicas";
    for (spec, message) in [
        (
            json!({ "nested": "s" }),
            format!("0: {replicas} accessor error: s is of the type string, expected map[string]interface{{}}"),
        ),
        (
            json!({ "nested": { "replicas": "3" } }),
            format!("0: {replicas} accessor error: 3 is of the type string, expected int64"),
        ),
        (
            json!({ "nested": { "replicas": 1.5 } }),
            format!("0: {replicas} accessor error: 1.5 is of the type float64, expected int64"),
        ),
        (json!({ "nested": { "replicas": -1 } }), "-1: should be a non-negative integer".to_owned()),
        (
            json!({ "nested": { "replicas": 2_147_483_648_u64 } }),
            "2147483648: should be less than or equal to 2147483647".to_owned(),
        ),
    ] {
        check(&raw.post(place("crews"), &crew(spec)).await, replicas, &message);
    }
    let listed = raw.post(place("crews"), &crew(json!({ "sel": [] }))).await;
    check(&listed, ".spec.sel", "\"\": .spec.sel accessor error: [] is of the type []interface {}, expected string");

    raw.post(place("crews"), &crew(json!({ "nested": { "replicas": 1 } }))).await.expect(201);
    let one = format!("{}/a", place("crews"));
    let less = raw.patch(format!("{one}/scale"), super::MERGE, &json!({ "spec": { "replicas": -2 } })).await;
    check(&less, replicas, "-2: should be a non-negative integer");
    assert_eq!(less.json()["details"]["kind"], "Crew");
    let scale = |replicas: i64| json!({ "metadata": { "name": "a" }, "spec": { "replicas": replicas } });
    let scaled = raw.put(format!("{one}/scale"), &scale(5)).await.expect(200).json();
    assert_eq!(scaled["spec"]["replicas"], 5, "from whatever state it is in");
    let status = raw.patch(format!("{one}/status"), super::MERGE, &json!({ "status": { "replicas": "x" } })).await;
    check(&status, ".status.replicas", "0: .status.replicas accessor error: x is of the type string, expected int64");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_of_the_status_is_validated_by_the_status_alone() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let number = json!({ "type": "integer", "maximum": 9 });
    let spec = json!({ "type": "object", "required": ["a"], "properties": { "a": { "type": "string" } } });
    let wide = json!({ "type": "integer", "format": "int32" });
    let status = json!({ "type": "object", "properties": { "x": { "type": "string" }, "n": number, "w": wide } });
    define(&raw, ("stats", "Stat"), &json!({ "spec": spec, "status": status }), &json!({ "status": {} })).await;
    let made = raw.post(place("stats"), &json!({ "metadata": { "name": "a" }, "spec": { "a": "1" } })).await;
    let mut sent = made.expect(201).json();
    let path = format!("{}/a/status", place("stats"));
    for (spec, x) in [(json!({ "a": 5 }), "1"), (Value::Null, "2")] {
        (sent["spec"], sent["status"]) = (spec, json!({ "x": x }));
        sent = raw.put(&*path, &sent).await.expect(200).json();
        assert_eq!((&sent["spec"], &sent["status"]["x"]), (&json!({ "a": "1" }), &json!(x)));
    }
    sent["status"] = json!({ "n": 10 });
    check(&raw.put(&*path, &sent).await, "status.n", "10: n in body should be less than or equal to 9");
    sent["status"] = json!("up");
    check(&raw.put(&*path, &sent).await, "status", "\"string\":  in body must be of type object: \"string\"");
    sent["status"] = json!({ "w": 1_i64 << 40 });
    let wide = "\"\": Checked value must be of type integer with format int32 in w";
    check(&raw.put(&*path, &sent).await, "status", wide);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_validated_behind_a_wrong_length_or_type() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let spec = json!({ "type": "object", "minProperties": 1, "properties": {
        "id": { "type": "string", "minLength": 36, "pattern": "^[0-9a-f-]+$", "format": "uuid" },
        "one": { "type": "string", "enum": ["a", "b"] },
        "port": { "x-kubernetes-int-or-string": true, "format": "int32" },
        "n": { "type": "integer", "x-kubernetes-validations": [{ "rule": "self > 1" }] },
    }});
    define(&raw, ("tells", "Tell"), &json!({ "spec": spec }), &json!({})).await;
    let sent = async |spec: Value| {
        let object = json!({ "metadata": { "name": "x" }, "spec": spec });
        raw.post(format!("{}?dryRun=All", place("tells")), &object).await
    };
    let told = |field: &str, message: &str| (field.to_owned(), message.to_owned());
    let unchecked = "Invalid value: null: some validation rules were not checked because the object was invalid; correct the \
                     existing errors to complete validation";
    let expected = [
        told("spec.id", "Invalid value: \"z\": spec.id in body should be at least 36 chars long"),
        told("spec.id", "Invalid value: \"z\": spec.id in body must be of type uuid: \"z\""),
        told("<nil>", unchecked),
    ];
    assert_eq!(causes(&sent(json!({ "id": "z" })).await), expected);
    let expected = [
        told("spec.one", "Invalid value: \"integer\": spec.one in body must be of type string: \"integer\""),
        told("spec.one", "Unsupported value: 5: supported values: \"a\", \"b\""),
        told("<nil>", unchecked),
    ];
    assert_eq!(causes(&sent(json!({ "one": 5 })).await), expected);
    check(&sent(json!({})).await, "spec", "0: spec in body should have at least 1 properties");
    sent(json!({ "port": 1_i64 << 40 })).await.expect(201);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_are_distinguished_as_upstream_does() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let embedded = json!({
        "type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true,
    });
    let spec = json!({ "type": "object", "properties": {
        "i64": { "type": "integer", "format": "int64" }, "i": { "type": "integer" },
        "host": { "type": "string", "format": "hostname" }, "a": { "type": "string" }, "free": embedded,
    }});
    define(&raw, ("checks", "Check"), &json!({ "spec": spec }), &json!({})).await;
    let object = |spec: Value| json!({ "metadata": { "name": "x" }, "spec": spec });
    let sent = async |spec: Value| raw.post(format!("{}?dryRun=All", place("checks")), &object(spec)).await;

    let large = causes(&sent(json!({ "i64": 9_223_372_036_854_775_808_u64 })).await);
    let told = |field: &str, message: &str| (field.to_owned(), format!("Invalid value: {message}"));
    let expected = [
        told("spec.i64", "\"float64\": spec.i64 in body must be of type int64: \"float64\""),
        told("<nil>", "\"\": Checked value must be of type integer with format int64 in spec.i64"),
    ];
    assert_eq!(large, expected);
    assert_eq!(sent(json!({ "i": 9_007_199_254_740_993_i64, "i64": i64::MIN })).await.status, 201);
    for good in ["example.com", "a", "a-b", "xn--4ca.com", "ä.com"] {
        sent(json!({ "host": good })).await.expect(201);
    }
    for bad in ["a.b.c.d.e.f", "a.", "a-.b", "1.2.3.4", "*.example.com", ""] {
        let message = format!("\"{bad}\": spec.host in body must be of type hostname: \"{bad}\"");
        check(&sent(json!({ "host": bad })).await, "spec.host", &message);
    }

    // In an apply, null does not mean an absent field.
    assert_eq!(sent(json!({ "a": null })).await.expect(201).json()["spec"], json!({}));
    let applied = json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "Check", "metadata": { "name": "x" }, "spec": { "a": null },
    });
    let refused = raw.patch(format!("{}/x?fieldManager=m", place("checks")), APPLY, &applied).await;
    check(&refused, "spec.a", "\"null\": spec.a in body must be of type string: \"null\"");

    // An embedded object is decoded before it is validated.
    let undecoded = async |free: Value, why: &str| {
        let answer = sent(json!({ "free": free })).await;
        let message = format!("Check in version \"v1\" cannot be handled as a Check: {why}");
        assert_eq!((answer.status, answer.json()["message"].as_str().unwrap()), (400, message.as_str()));
    };
    undecoded(json!({ "apiVersion": 1, "kind": "Pod" }), "spec.free.apiVersion: Invalid value: 1: must be a string")
        .await;
    let no_metadata = "json: cannot unmarshal string into Go value of type v1.ObjectMeta";
    let pod = |metadata: Value| json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata });
    undecoded(pod(json!("x")), &format!("spec.free.metadata: Invalid value: \"x\": {no_metadata}")).await;
    let no_labels = "json: cannot unmarshal array into Go struct field ObjectMeta.labels of type map[string]string";
    undecoded(
        pod(json!({ "labels": ["x"] })),
        &format!("spec.free.metadata: Invalid value: {{\"labels\":[\"x\"]}}: {no_labels}"),
    )
    .await;
    let own = raw.post(place("checks"), &json!({ "metadata": "x" })).await.expect(400).json();
    assert_eq!(own["message"], format!("Check in version \"v1\" cannot be handled as a Check: {no_metadata}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn defaults_make_no_small_object_larger_than_any_store_takes() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let item = |default: Option<&str>| {
        let mut text = json!({ "type": "string" });
        if let Some(default) = default {
            text["default"] = json!(default);
        }
        let of_items = json!({ "type": "object", "properties": { "text": text } });
        json!({ "spec": { "type": "object", "properties": { "items": { "type": "array", "items": of_items } } } })
    };
    let default = "d".repeat(20_000);
    let many = |name: &str, count: usize| {
        json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "Chest", "metadata": { "name": name },
            "spec": { "items": vec![json!({}); count] },
        })
    };
    define(&raw, ("chests", "Chest"), &item(None), &json!({})).await;
    raw.post(place("chests"), &many("before", 10_000)).await.expect(201);
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/chests.{GROUP}");
    let properties = "/spec/versions/0/schema/openAPIV3Schema/properties";
    let patch = json!([{ "op": "replace", "path": properties, "value": item(Some(&default)) }]);
    raw.patch(path, "application/json-patch+json", &patch).await.expect(200);
    // An earlier stored object shows as many defaults as fit.
    let before = format!("{}/before", place("chests"));
    let shown = until(&raw, &before, |chest| chest["spec"]["items"][0]["text"] == json!(default)).await;
    let items = shown["spec"]["items"].as_array().unwrap();
    assert!(items.len() == 10_000 && items[9_999].get("text").is_none(), "{} items", items.len());
    let few = raw.post(place("chests"), &many("few", 3)).await.expect(201).json();
    assert_eq!(few["spec"]["items"][2]["text"], json!(default));
    let refused = raw.post(place("chests"), &many("many", 10_000)).await.expect(400).json();
    let message = refused["message"].as_str().unwrap();
    assert!(message.ends_with("its defaults would make it too large to be stored"), "{message}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scale_errors_precede_skipped_rules() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let spec = json!({
        "type": "object", "required": ["color"],
        "properties": { "color": { "type": "string" }, "replicas": { "type": "integer" } },
        "x-kubernetes-validations": [{ "rule": "self.color != 'pink'" }],
    });
    let scale = json!({ "scale": { "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas" } });
    let status = json!({ "type": "object", "properties": { "replicas": { "type": "integer" } } });
    define(&raw, ("dyes", "Dye"), &json!({ "spec": spec, "status": status }), &scale).await;
    let dye = json!({ "metadata": { "name": "a" }, "spec": { "replicas": -1 } });
    let response = causes(&raw.post(place("dyes"), &dye).await);
    let fields: Vec<&str> = response.iter().map(|(field, _)| field.as_str()).collect();
    assert_eq!(fields, ["spec.color", ".spec.replicas", "<nil>"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_cannot_set_the_deletion_timestamp() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    define(&raw, ("stays", "Stay"), &json!({ "spec": free }), &json!({})).await;
    let maps = "/api/v1/namespaces/default/configmaps".to_owned();
    // For a custom resource upstream reports it twice.
    for (path, times) in [(place("stays"), 2), (maps, 1)] {
        let held = json!({ "metadata": { "name": "a", "finalizers": ["example.com/held"] } });
        raw.post(&*path, &held).await.expect(201);
        let object = format!("{path}/a");
        let change = |metadata: Value| raw.patch(&*object, MERGE, &json!({ "metadata": metadata }));
        for (field, value, shown) in [
            ("deletionTimestamp", json!("1999-01-01T00:00:00Z"), "\"1999-01-01T00:00:00Z\""),
            ("deletionGracePeriodSeconds", json!(5), "5"),
        ] {
            let told = causes(&change(json!({ field: value })).await);
            let cause = (format!("metadata.{field}"), format!("Invalid value: {shown}: field is immutable"));
            assert_eq!(told, vec![cause; times]);
        }
        raw.delete(&*object).await.expect(200);
        // A deletion in progress can't be changed, and sending the earlier object is not an error.
        let begun = change(json!({ "deletionTimestamp": "1999-01-01T00:00:00Z" })).await.expect(200).json();
        assert_ne!(begun["metadata"]["deletionTimestamp"], "1999-01-01T00:00:00Z");
        let kept = change(json!({ "deletionTimestamp": null, "labels": { "a": "b" } })).await.expect(200).json();
        assert!(kept["metadata"]["deletionTimestamp"].is_string(), "{kept}");
        let told = causes(&change(json!({ "finalizers": ["example.com/held", "example.com/new"] })).await);
        let message = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers \
                       []string{\"example.com/new\"}";
        assert_eq!(told, vec![("metadata.finalizers".to_owned(), message.to_owned()); times]);
        change(json!({ "finalizers": null })).await.expect(200);
        raw.get(&*object).await.expect(404);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_fields_are_reset_only_on_request() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let free = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    define(&raw, ("owned", "Owned"), &json!({ "spec": free }), &json!({})).await;
    let object = format!("{}/a", place("owned"));
    let made = json!({ "metadata": { "name": "a" }, "spec": { "s": "1" } });
    let owners = raw.post(place("owned"), &made).await.expect(201).json()["metadata"]["managedFields"].clone();
    assert_eq!(owners.as_array().map(Vec::len), Some(1));
    let change = async |owners: Value| {
        let patch = json!({ "metadata": { "managedFields": owners } });
        raw.patch(&*object, MERGE, &patch).await.expect(200).json()["metadata"]["managedFields"].clone()
    };
    assert_eq!(change(json!([])).await, owners);
    let nonsense = json!([{ "manager": "m", "operation": "Sing", "fieldsType": "FieldsV1", "fieldsV1": {} }]);
    assert_eq!(change(nonsense).await, owners);
    assert_eq!(change(json!([{}])).await, Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_of_a_create_shows_the_resource_version_that_was_sent() {
    let server = TestServer::start().await;
    let raw = server.raw();
    define(&raw, ("dries", "Dry"), &json!({ "spec": { "type": "object" } }), &json!({})).await;
    for place in [place("dries"), "/api/v1/namespaces/default/configmaps".to_owned()] {
        let named = |version: &str| json!({ "metadata": { "name": "a", "resourceVersion": version } });
        for version in ["5", "0", "abc"] {
            let tried = raw.post(format!("{place}?dryRun=All"), &named(version)).await.expect(201).json();
            assert_eq!(tried["metadata"]["resourceVersion"], version, "{place}");
        }
        let tried = raw.post(format!("{place}?dryRun=All"), &json!({ "metadata": { "name": "a" } })).await;
        assert_eq!(tried.expect(201).json()["metadata"]["resourceVersion"], Value::Null);
        raw.post(&*place, &named("5")).await.expect(500);
        let made = raw.post(&*place, &named("abc")).await.expect(201).json();
        assert_ne!(made["metadata"]["resourceVersion"], "abc");
    }
}
