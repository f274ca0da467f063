//! Tests of contributed resources with structural schemas: pruned fields, defaults, errors with causes, merges of
//! objects, and a schema for each version.

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_registry::{Converter, ResourceRegistration};
use keelson_schema::Schema;
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::converted::Pilot;
use super::{GROUP, resource};

const BERTHS: &str = "/apis/harbour.example.org/v1/namespaces/default/berths";
const OTHER: &str = "/apis/harbour.example.org/v2/namespaces/default/berths";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The schema of berths in a version, with this schema of `spec`.
#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
pub(super) fn schema(version: &str, spec: Value) -> Schema {
    let kind = GroupVersionKind { group: GROUP.into(), version: version.into(), kind: "Berth".into() };
    let document = json!({ "type": "object", "properties": {
        "spec": { "type": "object", "properties": spec },
        "status": { "type": "object", "properties": { "full": { "type": "boolean" } } },
    } });
    let document = serde_json::from_value(document).unwrap();
    Schema::structural(&kind, &document).unwrap()
}

fn first() -> Schema {
    schema(
        "v1",
        json!({
            "host": { "type": "string", "default": "quay", "maxLength": 8, "pattern": "^[a-z]+$" },
            "port": { "x-kubernetes-int-or-string": true, "maximum": 100 },
            "kind": { "type": "string", "enum": ["dry", "wet"] },
            "ships": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": { "type": "object", "required": ["name"], "properties": {
                    "name": { "type": "string" }, "tons": { "type": "integer", "minimum": 1 } } },
            },
            "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        }),
    )
}

async fn harbour(contribution: impl FnOnce(ResourceRegistration) -> ResourceRegistration) -> (TestServer, Raw) {
    let server = TestServer::start().await;
    let berths = contribution(ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"])));
    server.running().registry().surfaces().put(vec![berths]).await.expect("it can be served");
    let raw = server.raw();
    (server, raw)
}

#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn berth(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// The causes of a 422: field and reason.
fn causes(answer: Answer) -> Vec<(String, String)> {
    let status = answer.expect(422).json();
    let of = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().unwrap().clone();
    causes.iter().map(|cause| (of(cause, "field"), of(cause, "reason"))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_pruned_filled_in_and_refused_with_every_cause() {
    let (_server, raw) = harbour(|berths| berths.with_schema("v1", &first())).await;
    let sent =
        berth("a", json!({ "port": "http", "zz": 1, "free": { "x": null }, "ships": [{ "name": "s", "aa": 1 }] }));
    let made = raw.post(BERTHS, &sent).await.expect(201);
    let warnings = made.header("warning").to_owned();
    assert!(warnings.contains("unknown field \\\"spec.ships[0].aa\\\""), "{warnings}");
    let expected = json!({ "host": "quay", "port": "http", "free": { "x": null }, "ships": [{ "name": "s" }] });
    assert_eq!(made.json()["spec"], expected);
    let strict = raw.post(format!("{BERTHS}?fieldValidation=Strict"), &sent).await.expect(400).json();
    let unknown = "unknown field \"spec.ships[0].aa\", unknown field \"spec.zz\"";
    let message = format!("Berth in version \"v1\" cannot be handled as a Berth: strict decoding error: {unknown}");
    assert_eq!(strict["message"], message);
    let metadata = json!({ "metadata": { "name": "b", "labels": ["x"] } });
    let message = raw.post(BERTHS, &metadata).await.expect(400).json()["message"].clone();
    assert!(
        message.as_str().unwrap().contains("Go struct field ObjectMeta.labels of type map[string]string"),
        "{message}"
    );

    let wrong = berth("B", json!({ "host": "Quay", "port": 101, "kind": "odd", "ships": [{ "tons": 0 }, "x"] }));
    let expected = [
        ("metadata.name", "FieldValueInvalid"),
        ("spec.host", "FieldValueInvalid"),
        ("spec.kind", "FieldValueNotSupported"),
        ("spec.port", "FieldValueInvalid"),
        ("spec.ships[0].tons", "FieldValueInvalid"),
        ("spec.ships[0].name", "FieldValueRequired"),
        ("spec.ships[1]", "FieldValueTypeInvalid"),
        ("spec.ships[1]", "FieldValueInvalid"),
    ];
    let expected = expected.map(|(field, reason)| (field.to_owned(), reason.to_owned()));
    assert_eq!(causes(raw.post(BERTHS, &wrong).await), expected);
    let one = raw.post(BERTHS, &berth("b", json!({ "kind": "odd" }))).await.expect(422).json();
    let message = format!(
        "Berth.{GROUP} \"b\" is invalid: spec.kind: Unsupported value: \"odd\": supported values: \"dry\", \"wet\""
    );
    assert_eq!(one["message"], message);
    for (kind, body) in [(MERGE, json!({ "spec": { "kind": "odd" } })), (APPLY, berth("a", json!({ "kind": "odd" })))] {
        let mut body = body;
        body["apiVersion"] = json!(format!("{GROUP}/v1"));
        body["kind"] = json!("Berth");
        let answer = raw.patch(format!("{BERTHS}/a?fieldManager=m"), kind, &body).await;
        assert_eq!(causes(answer), [("spec.kind".to_owned(), "FieldValueNotSupported".to_owned())]);
    }
    raw.patch(format!("{BERTHS}/a"), STRATEGIC, &json!({})).await.expect(415);
    let status = raw.patch(format!("{BERTHS}/a/status"), MERGE, &json!({ "status": { "full": "no" } })).await;
    assert_eq!(causes(status), [("status.full".to_owned(), "FieldValueTypeInvalid".to_owned())]);
    assert_eq!(
        raw.get(format!("{BERTHS}/a")).await.expect(200).json()["metadata"]["generation"],
        1,
        "nothing was written"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_field_that_is_forbidden_is_refused_and_not_pruned() {
    let none = schema("v1", json!({ "none": { "type": "object", "additionalProperties": false } }));
    let (_server, raw) = harbour(|berths| berths.with_schema("v1", &none)).await;
    raw.post(BERTHS, &berth("a", json!({ "none": {} }))).await.expect(201);
    let refused = raw.post(BERTHS, &berth("b", json!({ "none": { "a": 1 } }))).await;
    assert_eq!(causes(refused), [("spec.none".to_owned(), "FieldValueInvalid".to_owned())]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stricter_schemas_accept_unchanged_invalid_values() {
    let (server, raw) =
        harbour(|berths| berths.with_schema("v1", &schema("v1", json!({ "host": { "type": "string" } })))).await;
    raw.post(BERTHS, &berth("a", json!({ "host": "LONG-HOST-NAME" }))).await.expect(201);
    let stricter = ResourceRegistration::new(resource("berths", "Berth", &["v1", "v2"])).with_schema("v1", &first());
    server.running().registry().surfaces().put(vec![stricter]).await.unwrap();
    let one = format!("{BERTHS}/a");
    raw.patch(&*one, MERGE, &json!({ "spec": { "kind": "wet" } })).await.expect(200);
    let changed = raw.patch(&*one, MERGE, &json!({ "spec": { "host": "OTHER" } })).await;
    assert_eq!(causes(changed), [("spec.host".to_owned(), "FieldValueInvalid".to_owned())]);
    raw.patch(&*one, MERGE, &json!({ "spec": { "host": "quay" } })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_side_apply_merges_owners_in_different_versions() {
    let pilot = Arc::new(Pilot::default());
    let converter: Arc<dyn Converter> = pilot.clone();
    let second =
        schema("v2", json!({ "address": { "type": "string" }, "note": { "type": "string", "default": "none" } }));
    let (_server, raw) =
        harbour(|berths| berths.with_schema("v1", &first()).with_schema("v2", &second).converted_by(&converter)).await;
    let applied = |version: &str, spec: Value| json!({ "apiVersion": format!("{GROUP}/{version}"), "kind": "Berth", "metadata": { "name": "a" }, "spec": spec });
    let apply = |path: &str, manager: &str, force: bool, body: Value| {
        raw.patch(format!("{path}/a?fieldManager={manager}&force={force}"), APPLY, &body)
    };
    apply(BERTHS, "one", false, applied("v1", json!({ "ships": [{ "name": "s", "tons": 1 }] }))).await.expect(201);
    let both =
        apply(BERTHS, "two", false, applied("v1", json!({ "ships": [{ "name": "t" }] }))).await.expect(200).json();
    assert_eq!(both["spec"]["ships"], json!([{ "name": "s", "tons": 1 }, { "name": "t" }]));
    apply(BERTHS, "two", false, applied("v1", json!({ "ships": [{ "name": "s", "tons": 2 }] }))).await.expect(409);

    let host = apply(BERTHS, "one", true, applied("v1", json!({ "host": "h", "port": 7 }))).await.expect(200).json();
    assert_eq!(host["spec"]["host"], "h");
    let shown = raw.get(format!("{OTHER}/a")).await.expect(200).json();
    assert_eq!(shown["spec"], json!({ "address": "h:7" }), "defaults come before a conversion, not behind it");
    let conflict = apply(OTHER, "three", false, applied("v2", json!({ "address": "x:8" }))).await.expect(409).json();
    assert_eq!(conflict["details"]["causes"][0]["reason"], "FieldManagerConflict", "{conflict}");
    let taken = apply(OTHER, "three", true, applied("v2", json!({ "address": "x:8" }))).await.expect(200).json();
    assert_eq!(taken["spec"]["address"], "x:8");
    assert_eq!(raw.get(format!("{BERTHS}/a")).await.expect(200).json()["spec"]["host"], "x");
    let wrong = raw.patch(format!("{OTHER}/a"), MERGE, &json!({ "spec": { "address": 5 } })).await;
    assert_eq!(
        causes(wrong),
        [("spec.address".to_owned(), "FieldValueTypeInvalid".to_owned())],
        "before it is converted"
    );
}
