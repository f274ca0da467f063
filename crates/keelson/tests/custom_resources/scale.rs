//! Tests of the scale of a custom resource: read and written at the definition's paths, by all verbs for objects.
//!
//! Autoscalers and `kubectl scale` use only this.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

use super::{APPLY, MERGE, definition, establish, version};

const CREWS: &str = "/apis/scaled.example.com/v1/namespaces/default/crews";
const JSON_PATCH: &str = "application/json-patch+json";

/// A kind with its replicas deep in the spec, and two objects: `a` with all fields, and `bare` with none.
async fn crews() -> (TestServer, Raw) {
    let server = TestServer::start().await;
    let raw = server.raw();
    let integer = json!({ "type": "integer" });
    let spec = json!({ "type": "object", "properties": {
        "other": { "type": "string" },
        "size": { "type": "object", "properties": { "replicas": integer } },
    } });
    let status = json!({ "type": "object", "properties": { "replicas": integer, "selector": { "type": "string" } } });
    let mut version = version("v1", true);
    version["schema"]["openAPIV3Schema"]["properties"] = json!({ "spec": spec, "status": status });
    version["subresources"] = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.size.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    });
    establish(&raw, &definition("scaled.example.com", "crews", "Crew", json!([version]))).await;
    let a = json!({ "metadata": { "name": "a" }, "spec": { "other": "x", "size": { "replicas": 3 } } });
    raw.post(CREWS, &a).await.expect(201);
    raw.patch(format!("{CREWS}/a/status"), MERGE, &json!({ "status": { "replicas": 2, "selector": "app=a" } }))
        .await
        .expect(200);
    raw.post(CREWS, &json!({ "metadata": { "name": "bare" } })).await.expect(201);
    (server, raw)
}

async fn scale(raw: &Raw, name: &str) -> Value {
    raw.get(format!("{CREWS}/{name}/scale")).await.expect(200).json()
}

fn message(answer: &Value) -> &str {
    answer["message"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_shows_the_values_at_its_paths() {
    let (_server, raw) = crews().await;
    let shown = scale(&raw, "a").await;
    let object = raw.get(format!("{CREWS}/a")).await.expect(200).json();
    assert_eq!((&shown["kind"], &shown["apiVersion"]), (&json!("Scale"), &json!("autoscaling/v1")));
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        assert_eq!(shown["metadata"][field], object["metadata"][field], "{field}");
    }
    assert_eq!(shown["metadata"].as_object().unwrap().len(), 5, "nothing else of the object: {shown}");
    assert_eq!(shown["spec"], json!({ "replicas": 3 }));
    assert_eq!(shown["status"], json!({ "replicas": 2, "selector": "app=a" }));
    let without = raw.get(format!("{CREWS}/bare/scale")).await.expect(500).json();
    assert!(message(&without).contains("the spec replicas field \".spec.size.replicas\" does not exist"), "{without}");
    let missing = raw.get(format!("{CREWS}/nobody/scale")).await.expect(404).json();
    assert_eq!(message(&missing), "crews.scaled.example.com \"nobody\" not found");
    raw.post(format!("{CREWS}/a/scale"), &shown).await.expect(405);
    raw.delete(format!("{CREWS}/a/scale")).await.expect(405);
    let discovered = raw.get("/apis/scaled.example.com/v1").await.expect(200).json();
    let found = discovered["resources"].as_array().unwrap().iter().find(|it| it["name"] == "crews/scale").unwrap();
    assert_eq!(
        (&found["group"], &found["version"], &found["kind"], &found["verbs"]),
        (&json!("autoscaling"), &json!("v1"), &json!("Scale"), &json!(["get", "patch", "update"]))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_or_patch_of_a_scale_changes_the_wanted_number_alone() {
    let (_server, raw) = crews().await;
    let place = format!("{CREWS}/a/scale");
    let read = scale(&raw, "a").await;
    let sent = |replicas: Value| {
        json!({ "apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": { "name": "a", "resourceVersion": read["metadata"]["resourceVersion"], "labels": { "x": "y" } },
            "spec": { "replicas": replicas }, "status": { "replicas": 99 } })
    };
    let put = raw.put(&*place, &sent(json!(5))).await.expect(200).json();
    assert_eq!((&put["spec"], &put["status"]["replicas"]), (&json!({ "replicas": 5 }), &json!(2)));
    let object = raw.get(format!("{CREWS}/a")).await.expect(200).json();
    assert_eq!(object["spec"], json!({ "other": "x", "size": { "replicas": 5 } }));
    assert_eq!((&object["metadata"]["generation"], &object["metadata"]["labels"]), (&json!(2), &Value::Null));

    let merged = raw.patch(&*place, MERGE, &json!({ "spec": { "replicas": 6 } })).await.expect(200).json();
    assert_eq!(merged["spec"]["replicas"], 6);
    let operations = json!([{ "op": "test", "path": "/spec/replicas", "value": 6 }, { "op": "replace", "path": "/spec/replicas", "value": 7 }]);
    assert_eq!(raw.patch(&*place, JSON_PATCH, &operations).await.expect(200).json()["spec"]["replicas"], 7);
    let rehearsed = raw.patch(format!("{place}?dryRun=All"), MERGE, &json!({ "spec": { "replicas": 9 } })).await;
    assert_eq!(rehearsed.expect(200).json()["spec"]["replicas"], 9);
    assert_eq!(scale(&raw, "a").await["spec"]["replicas"], 7);

    raw.put(&*place, &sent(json!(1))).await.expect(409);
    let mut unconditional = sent(json!(1));
    unconditional["metadata"] = json!({ "name": "a" });
    raw.put(&*place, &unconditional).await.expect(200);
    raw.patch(&*place, "application/strategic-merge-patch+json", &json!({})).await.expect(415);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_scale_is_put_to_a_scale() {
    let (_server, raw) = crews().await;
    let place = format!("{CREWS}/a/scale");
    let sent = |version: &str, kind: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "a" }, "spec": { "replicas": 1 } });
    for (version, kind) in
        [("scaled.example.com/v1", "Crew"), ("autoscaling/v2", "Scale"), ("extensions/v1beta1", "Scale"), ("v1", "Pod")]
    {
        let body = raw.put(&*place, &sent(version, kind)).await.expect(400).json();
        assert!(message(&body).contains("cannot be handled as a Scale"), "{version} {kind}: {body}");
    }
    for replicas in [json!("5"), json!(1.5), json!(2_147_483_648_i64)] {
        let mut wrong = sent("autoscaling/v1", "Scale");
        wrong["spec"]["replicas"] = replicas;
        raw.put(&*place, &wrong).await.expect(400);
    }
    let mut more = sent("autoscaling/v1", "Scale");
    more["zz"] = json!(1);
    raw.put(format!("{place}?fieldValidation=Strict"), &more).await.expect(400);
    assert_eq!(scale(&raw, "a").await["spec"]["replicas"], 3, "nothing was written");
    let warned = raw.put(&*place, &more).await.expect(200);
    assert_eq!(warned.header("warning"), "299 - \"unknown field \\\"zz\\\"\"");
    let untyped = json!({ "metadata": { "name": "a" }, "spec": { "replicas": 4 } });
    assert_eq!(raw.put(&*place, &untyped).await.expect(200).json()["spec"]["replicas"], 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scale_of_an_object_without_a_wanted_number_is_set() {
    let (_server, raw) = crews().await;
    let place = format!("{CREWS}/bare/scale");
    let untold = raw.patch(&*place, MERGE, &json!({})).await.expect(400).json();
    assert_eq!(message(&untold), "the spec replicas field \".spec.size.replicas\" cannot be empty");
    raw.get(&*place).await.expect(500);
    let set = raw.patch(&*place, MERGE, &json!({ "spec": { "replicas": 2 } })).await.expect(200).json();
    assert_eq!((&set["spec"], &set["status"]), (&json!({ "replicas": 2 }), &json!({ "replicas": 0 })));
    assert_eq!(raw.get(format!("{CREWS}/bare")).await.expect(200).json()["spec"], json!({ "size": { "replicas": 2 } }));
    raw.post(CREWS, &json!({ "metadata": { "name": "other" } })).await.expect(201);
    let put = json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": "other" }, "spec": { "replicas": 3 } });
    let put = raw.put(format!("{CREWS}/other/scale"), &put).await.expect(200).json();
    assert_eq!(put["spec"], json!({ "replicas": 3 }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn applying_a_scale_owns_the_replicas_field() {
    let (_server, raw) = crews().await;
    let applied = |name: &str, replicas: i64| json!({ "apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": { "name": name }, "spec": { "replicas": replicas } });
    let place = format!("{CREWS}/a/scale?fieldManager=hpa");
    let body = raw.patch(&*place, APPLY, &applied("a", 4)).await.expect(409).json();
    assert_eq!(body["details"]["causes"][0]["field"], ".spec.size.replicas", "{body}");
    let forced = raw.patch(format!("{place}&force=true"), APPLY, &applied("a", 4)).await.expect(200).json();
    assert_eq!(forced["spec"]["replicas"], 4);
    let object = raw.get(format!("{CREWS}/a")).await.expect(200).json();
    let owners = object["metadata"]["managedFields"].as_array().unwrap();
    let hpa = owners.iter().find(|entry| entry["manager"] == "hpa").unwrap_or_else(|| panic!("{owners:?}"));
    assert_eq!(
        (&hpa["operation"], &hpa["subresource"], &hpa["apiVersion"]),
        (&json!("Apply"), &json!("scale"), &json!("scaled.example.com/v1"))
    );
    assert_eq!(hpa["fieldsV1"], json!({ "f:spec": { "f:size": { "f:replicas": {} } } }));
    let whole = json!({ "apiVersion": "scaled.example.com/v1", "kind": "Crew", "metadata": { "name": "a" }, "spec": { "size": { "replicas": 1 } } });
    let conflict = raw.patch(format!("{CREWS}/a?fieldManager=user"), APPLY, &whole).await.expect(409).json();
    assert!(message(&conflict).contains("conflict with \"hpa\" with subresource \"scale\""), "{conflict}");
}
