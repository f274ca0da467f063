//! Tests of CEL rules of contributed resources: the fields in errors, the requests for which rules are evaluated, and
//! objects that violated a rule before it existed.

use keelson_meta::GroupVersionKind;
use keelson_registry::ResourceRegistration;
use keelson_schema::Schema;
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};

use super::{GROUP, resource};

const BERTHS: &str = "/apis/harbour.example.org/v1/namespaces/default/berths";
const MERGE: &str = "application/merge-patch+json";

/// A contribution of berths with this schema of `spec` and these rules on the whole object.
#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn berths(spec: Value, rules: Value) -> ResourceRegistration {
    let kind = GroupVersionKind { group: GROUP.into(), version: "v1".into(), kind: "Berth".into() };
    let document = json!({ "type": "object", "x-kubernetes-validations": rules, "properties": {
        "spec": { "type": "object", "properties": spec },
        "status": { "type": "object", "properties": { "full": { "type": "boolean" } } },
    } });
    let schema = Schema::structural(&kind, &serde_json::from_value(document).unwrap()).unwrap();
    ResourceRegistration::new(resource("berths", "Berth", &["v1"])).with_schema("v1", &schema)
}

async fn harbour(contribution: ResourceRegistration) -> (TestServer, Raw) {
    let server = TestServer::start().await;
    server.running().registry().surfaces().put(vec![contribution]).await.expect("it can be served");
    let raw = server.raw();
    (server, raw)
}

#[allow(clippy::needless_pass_by_value, reason = "callers write the value where they need it")]
fn berth(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// The causes of a 422: field, reason and text.
fn causes(answer: Answer) -> Vec<[String; 3]> {
    let status = answer.expect(422).json();
    let of = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    let causes = status["details"]["causes"].as_array().unwrap().clone();
    causes.iter().map(|cause| ["field", "reason", "message"].map(|name| of(cause, name))).collect()
}

fn check(answer: Answer, expected: &[[&str; 3]]) {
    let expected: Vec<[String; 3]> = expected
        .iter()
        .map(|[field, reason, message]| [(*field).to_owned(), format!("FieldValue{reason}"), (*message).to_owned()])
        .collect();
    assert_eq!(causes(answer), expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_rule_is_reported_as_a_cause() {
    let spec = json!({
        "port": { "type": "integer", "default": 7, "x-kubernetes-validations": [
            { "rule": "self < 100", "messageExpression": "'port %d is too high'.format([self])" } ] },
        "ships": { "type": "array", "items": { "type": "object", "properties": {
            "tons": { "type": "integer" }, "crew": { "type": "integer", "maximum": 50 } },
            "x-kubernetes-validations": [
                { "rule": "!has(self.crew) || self.crew <= self.tons", "fieldPath": ".crew", "reason": "FieldValueForbidden",
                    "message": "too many for her" } ] } },
        "any": { "x-kubernetes-int-or-string": true, "x-kubernetes-validations": [{ "rule": "self > 5" }] },
    });
    let rules = json!([
        { "rule": "self.metadata.name.startsWith('b')", "message": "names begin with b" },
        { "rule": "!has(self.status)", "message": "status comes later" },
    ]);
    let (_server, raw) = harbour(berths(spec, rules)).await;
    let made = raw.post(BERTHS, &berth("b", json!({ "ships": [{ "tons": 3, "crew": 3 }], "any": 6 }))).await;
    assert_eq!(made.expect(201).json()["spec"]["port"], 7, "a default is there before the rules");
    let wrong =
        berth("a", json!({ "port": 100, "ships": [{ "tons": 1, "crew": 1 }, { "tons": 2, "crew": 3 }], "any": "x" }));
    check(
        raw.post(BERTHS, &wrong).await,
        &[
            ["<nil>", "Invalid", "Invalid value: names begin with b"],
            [
                "spec.any",
                "Invalid",
                "Invalid value: \"\": 'no such overload': call arguments did not match a supported operator, function or macro \
                 signature for rule: self > 5",
            ],
            ["spec.port", "Invalid", "Invalid value: 100: port 100 is too high"],
            ["spec.ships[1].crew", "Forbidden", "Forbidden: too many for her"],
        ],
    );
    // Rules are not evaluated on values of a wrong type or size.
    check(
        raw.post(BERTHS, &berth("b2", json!({ "port": "x" }))).await,
        &[
            [
                "spec.port",
                "TypeInvalid",
                "Invalid value: \"string\": spec.port in body must be of type integer: \"string\"",
            ],
            [
                "<nil>",
                "Invalid",
                "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing \
                 errors to complete validation",
            ],
        ],
    );
    let named = json!({ "metadata": { "generateName": "a-" } });
    check(raw.post(BERTHS, &named).await, &[["<nil>", "Invalid", "Invalid value: names begin with b"]]);
    let with_status = json!({ "metadata": { "name": "b3" }, "status": { "full": true } });
    raw.post(BERTHS, &with_status).await.expect(201);
    let status = json!({ "status": { "full": true } });
    let refused = raw.patch(format!("{BERTHS}/b3/status"), MERGE, &status).await;
    check(refused, &[["<nil>", "Invalid", "Invalid value: status comes later"]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transition_rules_run_on_correlatable_values() {
    let growing = json!([{ "rule": "self >= oldSelf", "message": "it shrinks" }]);
    let spec = json!({
        "host": { "type": "string", "maxLength": 9, "x-kubernetes-validations": [{ "rule": "self == oldSelf", "message": "it stays" }] },
        "ships": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": { "type": "object", "required": ["name"], "properties": {
                "name": { "type": "string" }, "tons": { "type": "integer", "x-kubernetes-validations": growing } } },
        },
        "cranes": { "type": "object", "additionalProperties": { "type": "integer", "x-kubernetes-validations": growing } },
        "count": { "type": "integer", "x-kubernetes-validations": [
            { "rule": "oldSelf.orValue(0) + 1 == self", "optionalOldSelf": true, "message": "by one" } ] },
    });
    let (_server, raw) = harbour(berths(spec, json!([]))).await;
    let one = format!("{BERTHS}/a");
    let change = |spec: Value| raw.patch(one.clone(), MERGE, &json!({ "spec": spec }));
    let first = json!({ "host": "quay", "ships": [{ "name": "s", "tons": 5 }, { "name": "t", "tons": 5 }], "cranes": { "x": 5 } });
    check(
        raw.post(BERTHS, &berth("a", json!({ "count": 2 }))).await,
        &[["spec.count", "Invalid", "Invalid value: 2: by one"]],
    );
    raw.post(BERTHS, &berth("a", first)).await.expect(201);
    check(change(json!({ "host": "pier" })).await, &[["spec.host", "Invalid", "Invalid value: \"pier\": it stays"]]);
    // Items are matched by their names, independent of their positions.
    let moved =
        json!({ "ships": [{ "name": "n", "tons": 0 }, { "name": "t", "tons": 6 }, { "name": "s", "tons": 4 }] });
    check(change(moved).await, &[["spec.ships[2].tons", "Invalid", "Invalid value: 4: it shrinks"]]);
    check(
        change(json!({ "cranes": { "x": 4 } })).await,
        &[["spec.cranes[x]", "Invalid", "Invalid value: 4: it shrinks"]],
    );
    change(json!({ "cranes": { "y": 1 }, "ships": [{ "name": "s", "tons": 5 }] })).await.expect(200);
    // A value that is removed and added again has no old value.
    change(json!({ "host": null })).await.expect(200);
    change(json!({ "host": "pier", "count": 1 })).await.expect(200);
    check(
        raw.patch(one.clone(), MERGE, &json!({ "metadata": { "labels": { "l": "1" } } })).await,
        &[["spec.count", "Invalid", "Invalid value: 1: by one"]],
    );
    raw.delete(one.clone()).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unchanged_violations_are_only_warned_of() {
    let list =
        |rules: Value| json!({ "type": "array", "items": { "type": "integer", "x-kubernetes-validations": rules } });
    let spec = |rules: Value| json!({ "port": { "type": "integer", "x-kubernetes-validations": rules }, "tides": list(rules.clone()), "other": { "type": "integer" } });
    let (server, raw) = harbour(berths(spec(json!([])), json!([]))).await;
    raw.post(BERTHS, &berth("a", json!({ "port": 9, "tides": [9, 1] }))).await.expect(201);
    let stricter = berths(spec(json!([{ "rule": "self < 5", "message": "below five" }])), json!([]));
    server.running().registry().surfaces().put(vec![stricter]).await.unwrap();
    let change = |spec: Value| raw.patch(format!("{BERTHS}/a"), MERGE, &json!({ "spec": spec }));
    let kept = change(json!({ "other": 1 })).await.expect(200);
    let warnings: Vec<&str> = kept.headers.get_all("warning").iter().filter_map(|text| text.to_str().ok()).collect();
    let told = ["spec.port", "spec.tides[0]"].map(|field| format!("299 - \"{field}: Invalid value: 9: below five\""));
    assert_eq!(warnings, told);
    // An item of a list without keys counts as changed when the list does.
    check(change(json!({ "tides": [9] })).await, &[["spec.tides[0]", "Invalid", "Invalid value: 9: below five"]]);
    check(change(json!({ "port": 8 })).await, &[["spec.port", "Invalid", "Invalid value: 8: below five"]]);
    change(json!({ "port": 4, "tides": [1] })).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_cost_an_object_no_more_than_its_budget() {
    let each = json!([{ "rule": "[1, 2, 3, 4, 5, 6, 7, 8, 9].all(x, [1, 2, 3, 4, 5, 6, 7, 8, 9].all(y, x + y + self >= 0))" }]);
    let twice = json!([{ "rule": "self.all(x, self.all(y, x <= y))", "message": "all alike" }]);
    let spec = json!({
        "many": { "type": "array", "items": { "type": "integer", "x-kubernetes-validations": each } },
        "long": { "type": "array", "items": { "type": "integer" }, "x-kubernetes-validations": twice },
    });
    let (_server, raw) = harbour(berths(spec, json!([]))).await;
    raw.post(BERTHS, &berth("a", json!({ "many": vec![0; 500], "long": vec![0; 300] }))).await.expect(201);
    let answer = raw.post(BERTHS, &berth("b", json!({ "long": vec![0; 700] }))).await;
    let cost = "Invalid value: \"array\": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run \
                due to call cost exceeds limit for rule: all alike";
    check(answer, &[["spec.long", "Invalid", cost]]);
    let found = causes(raw.post(BERTHS, &berth("c", json!({ "many": vec![0; 40_000] }))).await);
    let [[field, _, message]] = &found[..] else { panic!("one cause: {found:?}") };
    let budget = "validation failed due to running out of cost budget, no further validation rules will be run";
    assert_eq!(*message, format!("Invalid value: \"integer\": {budget}"));
    assert!(field.starts_with("spec.many["), "{field}");
}
