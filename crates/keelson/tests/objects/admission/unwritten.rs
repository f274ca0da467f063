//! Tests of the stored objects after webhooks that return invalid data, deny, or patch the identity of an object. Only
//! the recorded content is written.
//!
//! `answers` tests codes and texts of responses.

use keelson_testkit::{HookReply, HookRequest};
use serde_json::{Value, json};

use super::answers::answer;
use super::{MAPS, MERGE, WebhookServer, map, patched};

/// Invalid responses.
const BAD: [&str; 15] = [
    "uid",
    "bytes",
    "absent",
    "kind",
    "no-kind",
    "text",
    "http-500",
    "http-404",
    "http-status",
    "empty",
    "not-json",
    "closes",
    "hangs",
    "dies",
    "endless",
];

fn webhook(hooked: &WebhookServer, path: &str, policy: &str) -> Value {
    let seconds = if path == "hangs" { 1 } else { 30 };
    hooked.webhook(path, json!({ "failurePolicy": policy, "timeoutSeconds": seconds }))
}

#[tokio::test]
async fn bad_responses_block_writes_unless_they_are_ignored() {
    let hooked = WebhookServer::open(answer).await;
    for kind in ["mutating", "validating"] {
        for (policy, code, found) in [("Fail", 500, 404), ("Ignore", 201, 200)] {
            for path in BAD {
                hooked.configure(kind, "c", vec![webhook(&hooked, path, policy)]).await;
                let name = format!("{path}-{kind}-{policy}").to_lowercase();
                let response = hooked.raw.post(MAPS, &map(&name)).await;
                assert_eq!(response.status, code, "{name}: {}", response.text());
                hooked.raw.get(format!("{MAPS}/{name}")).await.expect(found);
                hooked.forget(kind, "c").await;
            }
        }
        for (path, code) in [("denied", 400), ("message", 400), ("details", 422), ("retry", 429), ("warns-no", 400)] {
            hooked.configure(kind, "c", vec![webhook(&hooked, path, "Ignore")]).await;
            hooked.raw.post(MAPS, &map(path)).await.expect(code);
            hooked.raw.get(format!("{MAPS}/{path}")).await.expect(404);
            hooked.forget(kind, "c").await;
        }
    }
}

#[tokio::test]
async fn bad_responses_leave_objects_unchanged() {
    let hooked = WebhookServer::open(answer).await;
    let made = hooked.raw.post(MAPS, &map("kept")).await.expect(201).json();
    let place = format!("{MAPS}/kept");
    for kind in ["mutating", "validating"] {
        for (path, code) in [("http-500", 500), ("closes", 500), ("uid", 500), ("denied", 400)] {
            hooked.configure(kind, "c", vec![webhook(&hooked, path, "Fail")]).await;
            let mut changed = made.clone();
            changed["data"]["a"] = json!("c");
            hooked.raw.put(&*place, &changed).await.expect(code);
            hooked.raw.patch(&*place, MERGE, &json!({ "data": { "a": "c" } })).await.expect(code);
            hooked.raw.delete(&*place).await.expect(code);
            hooked.raw.delete(MAPS).await.expect(code);
            assert_eq!(hooked.raw.get(&*place).await.expect(200).json(), made, "{kind} {path}");
            hooked.forget(kind, "c").await;
        }
    }
}

/// A patch of the metadata, which the last segment of the path selects.
fn patches(request: &HookRequest) -> HookReply {
    let replace = |path: &str, value: Value| json!([{ "op": "replace", "path": path, "value": value }]);
    let add = |path: &str, value: Value| json!([{ "op": "add", "path": path, "value": value }]);
    let remove = |path: &str| json!([{ "op": "remove", "path": path }]);
    let whole =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "all-new" }, "data": { "all": "new" } });
    patched(
        request,
        &match request.path.split('?').next().unwrap() {
            "/name" => replace("/metadata/name", json!("renamed")),
            "/namespace-removed" => remove("/metadata/namespace"),
            "/uid" => add("/metadata/uid", json!("0-1")),
            "/resourceversion" => add("/metadata/resourceVersion", json!("7")),
            "/creationtimestamp" => add("/metadata/creationTimestamp", json!("2001-01-01T00:00:00Z")),
            "/deletiontimestamp" => add("/metadata/deletionTimestamp", json!("2001-01-01T00:00:00Z")),
            "/generation" => add("/metadata/generation", json!(9)),
            "/finalizer" => add("/metadata/finalizers", json!(["example.org/f"])),
            "/whole" => replace("", whole),
            "/name-removed" => remove("/metadata/name"),
            "/name-empty" => replace("/metadata/name", json!("")),
            "/metadata-removed" => remove("/metadata"),
            "/metadata-empty" => replace("/metadata", json!({})),
            other => panic!("{other}"),
        },
    )
}

#[tokio::test]
async fn webhook_patches_change_only_writable_metadata() {
    let hooked = WebhookServer::open(patches).await;
    let check = async |case: &str, code: u16, expected: &dyn Fn(&Value)| {
        hooked.configure("mutating", "m", vec![hooked.webhook(case, json!({}))]).await;
        let name = format!("real-{case}");
        let response = hooked.raw.post(MAPS, &map(&name)).await;
        assert_eq!(response.status, code, "{case}: {}", response.text());
        let body = response.json();
        expected(&body);
        let stored = hooked.raw.get(format!("{MAPS}/{name}")).await;
        if code == 201 && body["metadata"]["name"] == name {
            assert_eq!(stored.expect(200).json(), body, "{case}");
        } else {
            stored.expect(404);
        }
        hooked.forget("mutating", "m").await;
        body
    };
    let is_new = |object: &Value| {
        let made = object["metadata"]["creationTimestamp"].as_str().unwrap();
        assert!(made > "2026" && object["metadata"]["uid"] != "0-1", "{object}");
    };
    let renamed = check("name", 201, &|object| assert_eq!(object["metadata"]["name"], "renamed")).await;
    assert_eq!(hooked.raw.get(format!("{MAPS}/renamed")).await.expect(200).json(), renamed);
    check("namespace-removed", 201, &|object| assert_eq!(object["metadata"]["namespace"], "hooked")).await;
    check("uid", 201, &is_new).await;
    let refused = "resourceVersion should not be set on objects to be created";
    check("resourceversion", 500, &|told| {
        assert_eq!((&told["message"], &told["reason"]), (&json!(refused), &Value::Null));
    })
    .await;
    check("creationtimestamp", 201, &is_new).await;
    check("generation", 201, &|object| assert_eq!(object["metadata"]["generation"], 9)).await;
    check("finalizer", 201, &|object| assert_eq!(object["metadata"]["finalizers"], json!(["example.org/f"]))).await;
    // An object cannot be created in deletion.
    check("deletiontimestamp", 201, &|object| assert_eq!(object["metadata"]["deletionTimestamp"], Value::Null)).await;
    let whole = check("whole", 201, &|object| assert_eq!(object["data"], json!({ "all": "new" }))).await;
    assert_eq!(hooked.raw.get(format!("{MAPS}/all-new")).await.expect(200).json(), whole);
    let nameless = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    for case in ["name-removed", "name-empty", "metadata-removed", "metadata-empty"] {
        check(case, 422, &|told| assert_eq!(told["message"], nameless, "{case}")).await;
    }
    let all = hooked.raw.get(MAPS).await.expect(200).json();
    let names: Vec<&str> =
        all["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    let expected = [
        "all-new",
        "real-creationtimestamp",
        "real-deletiontimestamp",
        "real-finalizer",
        "real-generation",
        "real-namespace-removed",
        "real-uid",
        "renamed",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn a_patch_gives_an_object_that_is_there_no_other_name() {
    let hooked = WebhookServer::open(patches).await;
    let made = hooked.raw.post(MAPS, &map("kept")).await.expect(201).json();
    let change = json!({ "data": { "c": "d" } });
    for case in ["name", "name-removed", "metadata-removed", "whole"] {
        hooked.configure("mutating", "m", vec![hooked.webhook(case, json!({}))]).await;
        let response = hooked.raw.patch(format!("{MAPS}/kept"), MERGE, &change).await;
        assert!(matches!(response.status, 400 | 409 | 422), "{case}: {} {}", response.status, response.text());
        assert_eq!(hooked.raw.get(format!("{MAPS}/kept")).await.expect(200).json(), made, "{case}");
        hooked.raw.get(format!("{MAPS}/renamed")).await.expect(404);
        hooked.forget("mutating", "m").await;
    }
    hooked.configure("mutating", "m", vec![hooked.webhook("uid", json!({}))]).await;
    let body = hooked.raw.patch(format!("{MAPS}/kept"), MERGE, &change).await.expect(200).json();
    assert_eq!(body["metadata"]["uid"], made["metadata"]["uid"], "it is the same object");
}
