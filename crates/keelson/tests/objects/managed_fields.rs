//! Tests of `metadata.managedFields`: owners in several versions and subresources, changes of owners by clients, and
//! the limit of their number.

use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

fn deployment(image: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
        },
    })
}

async fn patch(raw: &Raw, path: &str, form: &str, body: &Value) -> Value {
    raw.patch(path, form, body).await.expect(200).json()
}

/// The fields of the owner with this name and subresource; null if there is none.
fn owned<'a>(object: &'a Value, manager: &str, subresource: &str) -> &'a Value {
    let entries = object["metadata"]["managedFields"].as_array().map_or(&[][..], Vec::as_slice);
    let is_it = |entry: &&Value| {
        entry["manager"] == manager && entry["subresource"].as_str().unwrap_or_default() == subresource
    };
    entries.iter().find(is_it).map_or(&Value::Null, |entry| &entry["fieldsV1"])
}

#[tokio::test]
async fn unchanged_fields_get_no_owner() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(DEPLOYMENTS, &deployment("a:1")).await.expect(201);
    let path = format!("{DEPLOYMENTS}/web");
    let change = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {"seen": "yes"}}, "spec": {"replicas": 9}, "status": {"replicas": 3},
    });
    let below = patch(&raw, &format!("{path}/status?fieldManager=watcher"), MERGE, &change).await;
    assert_eq!((&below["status"]["replicas"], &below["spec"]["replicas"]), (&json!(3), &json!(1)));
    assert_eq!(
        (&below["metadata"]["labels"], &below["metadata"]["annotations"]["seen"]),
        (&Value::Null, &json!("yes"))
    );
    let expected = json!({
        "f:metadata": {"f:annotations": {".": {}, "f:seen": {}}}, "f:status": {"f:replicas": {}},
    });
    assert_eq!(owned(&below, "watcher", "status"), &expected);

    let change = json!({"metadata": {"labels": {"a": "b"}}, "status": {"replicas": 4}});
    let above = patch(&raw, &format!("{path}?fieldManager=writer"), MERGE, &change).await;
    assert_eq!(above["status"]["replicas"], 3);
    assert_eq!(owned(&above, "writer", ""), &json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}));
}

#[tokio::test]
async fn owners_of_several_versions_meet() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let scaler = |version: &str, rest: Value| {
        let mut scaler = json!({
            "apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "maxReplicas": 5},
        });
        scaler["spec"].as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        scaler
    };
    let path = |version: &str| format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers/a");
    let first = scaler("v1", json!({"targetCPUUtilizationPercentage": 60}));
    raw.patch(format!("{}?fieldManager=old", path("v1")), APPLY, &first).await.expect(201);
    let metric = |target: u32| {
        let target = json!({"type": "Utilization", "averageUtilization": target});
        json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]})
    };
    // An equal value in the other version causes no conflict. Another value does, and the conflict names the owner of
    // the first version.
    let second = format!("{}?fieldManager=new", path("v2"));
    patch(&raw, &second, APPLY, &scaler("v2", metric(60))).await;
    let refused = raw.patch(&second, APPLY, &scaler("v2", metric(70))).await.expect(409).json();
    assert_eq!(
        refused["message"],
        "Apply failed with 1 conflict: conflict with \"old\": .spec.targetCPUUtilizationPercentage"
    );
    let forced = patch(&raw, &format!("{second}&force=true"), APPLY, &scaler("v2", metric(70))).await;
    assert!(owned(&forced, "old", "")["f:spec"]["f:targetCPUUtilizationPercentage"].is_null(), "{forced}");
    assert!(owned(&forced, "new", "")["f:spec"]["f:metrics"].is_object(), "{forced}");
}

#[tokio::test]
async fn clients_bring_owners_along_or_forget_them() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let mut brought = deployment("a:1");
    let entry = |manager: &str, fields: Value| json!({"manager": manager, "operation": "Apply", "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
    brought["metadata"]["managedFields"] =
        json!([entry("elsewhere", json!({"f:metadata": {"f:labels": {"f:x": {}}}}))]);
    let made = raw.post(format!("{DEPLOYMENTS}?fieldManager=maker"), &brought).await.expect(201).json();
    assert!(owned(&made, "elsewhere", "").is_object() && owned(&made, "maker", "").is_object(), "{made}");

    let path = format!("{DEPLOYMENTS}/web?fieldManager=editor");
    let edited = json!({"metadata": {"managedFields": [entry("other", json!({"f:spec": {"f:replicas": {}}}))]}});
    let edited = patch(&raw, &path, MERGE, &edited).await;
    assert_eq!(edited["metadata"]["managedFields"].as_array().map(Vec::len), Some(1));
    assert!(owned(&edited, "other", "").is_object(), "{edited}");
    for nobody in [json!([]), json!([{}])] {
        let kept = patch(&raw, &path, MERGE, &json!({"metadata": {"labels": {"n": "m"}}})).await;
        let forgotten = patch(&raw, &path, MERGE, &json!({"metadata": {"managedFields": nobody}})).await;
        assert!(forgotten["metadata"]["managedFields"].is_null(), "{kept} {forgotten}");
    }
    let still = patch(&raw, &path, MERGE, &json!({"metadata": {"labels": {"o": "p"}}})).await;
    assert!(still["metadata"]["managedFields"].is_null(), "what nobody owned is not given to the next who writes");
}

#[tokio::test]
async fn many_updaters_are_merged_into_few_owners() {
    let server = TestServer::start().await;
    let raw = server.raw();
    raw.post(format!("{DEPLOYMENTS}?fieldManager=maker"), &deployment("a:1")).await.expect(201);
    let mut last = Value::Null;
    for number in 0..15 {
        let labels = json!({"metadata": {"labels": {format!("l{number}"): "x"}}});
        last = patch(&raw, &format!("{DEPLOYMENTS}/web?fieldManager=m{number:02}"), MERGE, &labels).await;
    }
    assert_eq!(last["metadata"]["managedFields"].as_array().map(Vec::len), Some(10));
    assert!(owned(&last, "ancient-changes", "")["f:metadata"]["f:labels"]["f:l0"].is_object(), "{last}");
    assert_eq!(owned(&last, "m14", ""), &json!({"f:metadata": {"f:labels": {"f:l14": {}}}}));
}

/// A field that every object of a kind has is also set in an item that omits it, so that the item has a key.
#[tokio::test]
async fn an_applied_item_gets_the_default_of_its_missing_key() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let check = async |path: &str, applied: Value, status: u16, expected: &str| {
        let refused = raw.patch(format!("{path}?fieldManager=m"), APPLY, &applied).await.expect(status).json();
        assert_eq!(refused["message"], expected);
    };
    let ports = json!([{"name": "http", "port": 80}, {"name": "https", "targetPort": 8443}]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": ports}});
    let text =
        r#"Service "a" is invalid: spec.ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive"#;
    check("/api/v1/namespaces/default/services/a", service, 422, text).await;
    let containers = json!([{"image": "work:1"}, {"image": "work:1"}]);
    let template = json!({"spec": {"restartPolicy": "Never", "containers": containers}});
    let job =
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, "spec": {"template": template}});
    let text = "failed to create typed patch object (/a; batch/v1, Kind=Job): .spec.template.spec.containers: duplicate entries \
                for key [name=\"\"]";
    check("/apis/batch/v1/namespaces/default/jobs/a", job, 500, text).await;
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "binaryData": {"bin": "zz"}});
    let text = "failed to convert new object (/a; /v1, Kind=ConfigMap) to proper version: unable to convert unstructured object \
                to /v1, Kind=ConfigMap: error decoding from json: illegal base64 data at input byte 0";
    check("/api/v1/namespaces/default/configmaps/a", map, 500, text).await;
}
