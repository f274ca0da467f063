//! Tests of feature gates and of the two releases of Kubernetes that can be served.
//!
//! Gates and releases are set as the command line sets them.

use keelson_meta::Release;
use keelson_testkit::TestServer;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with these gates.
async fn with_gates(gates: &[(&str, bool)]) -> TestServer {
    let gates: Vec<_> = gates.iter().map(|(name, on)| ((*name).to_owned(), *on)).collect();
    TestServer::builder()
        .configure(|config| {
            config.registry.gates.set(&gates).unwrap();
        })
        .start()
        .await
}

fn pod_with_stop_signal(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "os": {"name": "linux"},
        "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}],
    }})
}

#[tokio::test]
async fn a_field_is_kept_once_its_gate_is_on() {
    let check = async |gates: &[(&str, bool)], expected: Value| {
        let server = with_gates(gates).await;
        let made = server.raw().post(PODS, &pod_with_stop_signal("p")).await.expect(201).json();
        assert_eq!(made["spec"]["containers"][0]["lifecycle"]["stopSignal"], expected, "{gates:?}");
    };
    check(&[], Value::Null).await;
    check(&[("ContainerStopSignals", true)], json!("SIGTERM")).await;
    check(&[("AllAlpha", true), ("AllBeta", true)], json!("SIGTERM")).await;
    check(&[("AllAlpha", true), ("AllBeta", true), ("ContainerStopSignals", false)], Value::Null).await;
}

#[tokio::test]
async fn a_dropped_field_is_no_change() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let server = with_gates(&[]).await;
    let raw = server.raw();
    let template = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "os": {"name": "linux"},
            "containers": [{"name": "c", "image": "i", "lifecycle": {"stopSignal": "SIGTERM"}}],
        },
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    });
    let stored = raw.post(DEPLOYMENTS, &deployment).await.expect(201).json();
    assert_eq!(stored["metadata"]["generation"], 1);
    let again = raw.put(format!("{DEPLOYMENTS}/d"), &deployment).await.expect(200).json();
    let of = |object: &Value| (object["metadata"]["generation"].clone(), object["metadata"]["resourceVersion"].clone());
    assert_eq!(of(&again), of(&stored));
}

#[tokio::test]
async fn the_metric_shows_every_gate_of_the_release() {
    let server = with_gates(&[("ContainerStopSignals", true)]).await;
    let text = server.raw().get("/metrics").await.expect(200).text();
    for series in [
        r#"{name="ContainerStopSignals",stage="ALPHA"} 1"#,
        r#"{name="WatchList",stage="BETA"} 1"#,
        r#"{name="DynamicResourceAllocation",stage=""} 1"#,
        r#"{name="KMSv1",stage="DEPRECATED"} 0"#,
        r#"{name="CBORServingAndStorage",stage="ALPHA"} 0"#,
    ] {
        assert!(text.contains(&format!("kubernetes_feature_enabled{series}")), "{series}");
    }
    assert!(text.matches("kubernetes_feature_enabled{").count() > 150);
}

/// A server with the API of Kubernetes 1.36.
async fn of_1_36() -> TestServer {
    TestServer::builder().emulating(Release::V1_36).start().await
}

fn pod_with_mode(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "volumes": [{"name": "v", "emptyDir": {"mode": 448}}],
    }})
}

#[tokio::test]
async fn each_release_has_its_versions_of_kinds() {
    let check = async |server: &TestServer, path: &str, expected: [bool; 3]| {
        let status = server.raw().get("/apis").await.expect(200).json();
        let groups = status["groups"].as_array().unwrap().clone();
        let group = groups.into_iter().find(|group| group["name"] == path).unwrap();
        let versions: Vec<&str> =
            group["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap()).collect();
        let found = ["v1", "v1beta1", "v1alpha1"].map(|version| versions.contains(&version));
        assert_eq!(found, expected, "{path}: {versions:?}");
    };
    let (older, newer) = (of_1_36().await, TestServer::start().await);
    check(&older, "storagemigration.k8s.io", [false, true, false]).await;
    check(&newer, "storagemigration.k8s.io", [true, true, false]).await;
    let bundles = "/apis/certificates.k8s.io/v1/clustertrustbundles";
    older.raw().get(bundles).await.expect(404);
    let bundle = json!({"kind": "ClusterTrustBundle", "apiVersion": "certificates.k8s.io/v1",
        "metadata": {"name": "b"}, "spec": {"trustBundle": ""}});
    let refused = newer.raw().post(bundles, &bundle).await.expect(422);
    assert!(refused.text().contains("trustBundle"), "{}", refused.text());
    let rules = "/apis/resource.k8s.io/v1/devicetaintrules";
    older.raw().get(rules).await.expect(404);
    let rule = json!({"kind": "DeviceTaintRule", "apiVersion": "resource.k8s.io/v1", "metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d.example.com"}, "taint": {"key": "k", "effect": "NoSchedule"}}});
    newer.raw().post(rules, &rule).await.expect(201);
    let read = newer.raw().get(format!("{rules}/r")).await.expect(200).json();
    assert_eq!((&read["apiVersion"], &read["spec"]["taint"]["key"]), (&json!("resource.k8s.io/v1"), &json!("k")));
}

#[tokio::test]
async fn the_version_names_the_release() {
    let check = async |server: &TestServer, emulated: &str, least: &str, description: &str| {
        let found = server.raw().get("/version").await.expect(200).json();
        let expected = [("minor", "37"), ("emulationMinor", emulated), ("minCompatibilityMinor", least)];
        expected.iter().for_each(|(field, value)| assert_eq!(found[*field], *value, "{field}"));
        assert!(found["gitVersion"].as_str().unwrap().starts_with("v1.37."), "{found}");
        let openapi = server.raw().get("/openapi/v3/version").await.expect(200).json();
        assert!(openapi["info"]["version"].as_str().unwrap().starts_with(description), "{}", openapi["info"]);
    };
    check(&of_1_36().await, "36", "35", "v1.36.").await;
    check(&TestServer::start().await, "37", "36", "v1.37.").await;
}

#[tokio::test]
async fn release_1_36_does_not_know_gated_1_37_fields() {
    let strict = format!("{PODS}?fieldValidation=Strict");
    let older = of_1_36().await;
    let refused = older.raw().post(&strict, &pod_with_mode("p")).await.expect(400);
    assert!(refused.text().contains(r#"unknown field \"spec.volumes[0].emptyDir.mode\""#), "{}", refused.text());
    let check = async |gates: &[(&str, bool)], expected: Value| {
        let server = with_gates(gates).await;
        let made = server.raw().post(&strict, &pod_with_mode("p")).await.expect(201).json();
        assert_eq!(made["spec"]["volumes"][0]["emptyDir"]["mode"], expected, "{gates:?}");
        let read = server.raw().get(format!("{PODS}/p")).header("accept", "application/yaml").await.expect(200).text();
        assert_eq!(read.contains("mode: 448"), !expected.is_null(), "{read}");
    };
    check(&[], Value::Null).await;
    check(&[("EmptyDirVolumeMode", true)], json!(448)).await;
}

/// The columns of a table, without the wide ones.
async fn columns(server: &TestServer, path: &str) -> Vec<String> {
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server.raw().get(path).header("accept", accept).await.expect(200).json();
    let columns = table["columnDefinitions"].as_array().unwrap().clone();
    let narrow = columns.iter().filter(|column| column["priority"] == 0);
    narrow.map(|column| column["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn tables_of_definitions_show_scope_and_versions_since_1_37() {
    const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(columns(&of_1_36().await, DEFINITIONS).await, ["Name", "Created At"]);
    let server = TestServer::start().await;
    let version = |name: &str, served: bool, storage: bool| json!({"name": name, "served": served, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let definition = json!({"metadata": {"name": "boats.example.org"}, "spec": {
        "group": "example.org", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat", "shortNames": ["bo", "bt"]},
        "versions": [version("v2", true, true), version("v1", true, false), version("v0", false, false)],
    }});
    server.raw().post(DEFINITIONS, &definition).await.expect(201);
    assert_eq!(columns(&server, DEFINITIONS).await, ["Name", "Scope", "Versions", "Created At"]);
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server.raw().get(DEFINITIONS).header("accept", accept).await.expect(200).json();
    let cells = &table["rows"][0]["cells"];
    assert_eq!((&cells[1], &cells[2]), (&json!("Namespaced"), &json!("v1,v2(storage)")));
    assert_eq!((&cells[4], &cells[5], &cells[6]), (&json!("example.org"), &json!("Boat"), &json!("bo,bt")));
}

#[tokio::test]
async fn autoscalers_count_generations_and_scale_to_zero_since_1_37() {
    const AUTOSCALERS: &str = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let autoscaler = json!({"metadata": {"name": "a"}, "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 0, "maxReplicas": 3,
        "metrics": [{"type": "External", "external": {
            "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"},
        }}],
    }});
    let older = of_1_36().await;
    let refused = older.raw().post(AUTOSCALERS, &autoscaler).await.expect(422).text();
    assert!(refused.contains("spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"), "{refused}");
    let mut from_one = autoscaler.clone();
    from_one["spec"]["minReplicas"] = json!(1);
    let made = older.raw().post(AUTOSCALERS, &from_one).await.expect(201).json();
    assert_eq!(made["metadata"]["generation"], Value::Null);
    let server = TestServer::start().await;
    let made = server.raw().post(AUTOSCALERS, &autoscaler).await.expect(201).json();
    assert_eq!((&made["metadata"]["generation"], &made["spec"]["minReplicas"]), (&json!(1), &json!(0)));
    let change = json!({"spec": {"maxReplicas": 4}});
    let changed = server.raw().patch(format!("{AUTOSCALERS}/a"), "application/merge-patch+json", &change).await;
    assert_eq!(changed.expect(200).json()["metadata"]["generation"], 2);
    let closed = with_gates(&[("HPAScaleToZero", false)]).await;
    closed.raw().post(AUTOSCALERS, &autoscaler).await.expect(422);
}

#[tokio::test]
async fn slices_are_selected_by_pool_since_1_37() {
    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.pool.name%3Dp";
    of_1_36().await.raw().get(SLICES).await.expect(400);
    let server = TestServer::start().await;
    for pool in ["p", "q"] {
        let slice = json!({"metadata": {"name": pool}, "spec": {
            "driver": "d.example.org", "nodeName": "n", "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        }});
        server.raw().post("/apis/resource.k8s.io/v1/resourceslices", &slice).await.expect(201);
    }
    let found = server.raw().get(SLICES).await.expect(200).json();
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
    assert_eq!(found["items"][0]["metadata"]["name"], "p");
}

#[tokio::test]
async fn webhooks_get_no_reviews_since_1_37() {
    const REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    const HOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    // The webhook can't be reached, so that each call fails.
    let hook = json!({"metadata": {"name": "h"}, "webhooks": [{
        "name": "h.example.org", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
        "clientConfig": {"url": "https://127.0.0.1:1/"}, "failurePolicy": "Fail",
        "rules": [{"apiGroups": ["authentication.k8s.io"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"]}],
    }]});
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let check = async |server: TestServer, code: u16| {
        server.raw().post(HOOKS, &hook).await.expect(201);
        let found = server.raw().post(REVIEWS, &review).await;
        assert_eq!(found.status, code, "{}", found.text());
    };
    check(of_1_36().await, 500).await;
    check(TestServer::start().await, 201).await;
    check(with_gates(&[("ExcludeAdmissionWebhookVirtualResources", false)]).await, 500).await;
}

#[tokio::test]
async fn an_update_that_creates_sets_the_metadata_as_a_create_does() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    const APPLY: &str = "application/apply-patch+yaml";
    for server in [of_1_36().await, TestServer::start().await] {
        let raw = server.raw();
        let old = "2001-01-01T00:00:00Z";
        let metadata = |name: &str| {
            json!({"name": name, "creationTimestamp": old, "deletionTimestamp": old, "deletionGracePeriodSeconds": 5,
                "generation": 7, "selfLink": "/x"})
        };
        let lease = |name: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata(name), "spec": {}});
        let updated = raw.put(format!("{LEASES}/a"), &lease("a")).await.expect(201).json();
        let applied = raw.patch(format!("{LEASES}/b?fieldManager=m"), APPLY, &lease("b")).await.expect(201).json();
        for made in [updated, applied] {
            let metadata = &made["metadata"];
            assert_ne!(metadata["creationTimestamp"], old, "{made}");
            assert!(metadata["uid"].as_str().is_some_and(|uid| uid.len() == 36), "{made}");
            for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
                assert!(metadata[field].is_null(), "{field} of {made}");
            }
        }
        let mut with_uid = lease("c");
        with_uid["metadata"]["uid"] = json!("0f8fad5b-d9cb-469f-a165-70867728950e");
        raw.put(format!("{LEASES}/c"), &with_uid).await.expect(409);
    }
}

#[tokio::test]
async fn mutating_policies_are_stored_in_v1_since_1_37() {
    const POLICIES: &str = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies";
    const EXPRESSION: &str = "[JSONPatch{op: 'add', path: '/data', value: {'a': 'b'}}]";
    let policy = json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"],
        }]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EXPRESSION}}],
    }});
    let check = async |server: TestServer, expected: &str| {
        server.raw().post(POLICIES, &policy).await.expect(201);
        let states = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions/admissionregistration.k8s.io.mutatingadmissionpolicies";
        let state = server.raw().get(states).await.expect(200).json();
        let stored = &state["status"]["storageVersions"][0]["encodingVersion"];
        assert_eq!(stored, &format!("admissionregistration.k8s.io/{expected}"), "{state}");
    };
    check(of_1_36().await, "v1beta1").await;
    check(TestServer::start().await, "v1").await;
}
