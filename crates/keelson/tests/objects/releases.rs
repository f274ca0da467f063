//! Tests of feature gates: the fields that they open.
//!
//! Gates are set as the command line sets them.

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
    check(&[("AllAlpha", true)], json!("SIGTERM")).await;
    check(&[("AllAlpha", true), ("ContainerStopSignals", false)], Value::Null).await;
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
