//! Tests the tables of autoscalers: current and target values.
//!
//! Each metric source has its own text.

use keelson_meta::json::{Value, json};

use super::{cell, check};

fn targets(metrics: Value, current: Value) -> Value {
    let fields = json!({"spec": {"metrics": metrics}, "status": {"currentMetrics": current}});
    cell("autoscaling", "HorizontalPodAutoscaler", "Targets", fields)
}

#[test]
fn both_versions_show_the_same_row() {
    let target = json!({"kind": "Deployment", "name": "web"});
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
        "averageUtilization": 80}}});
    let now = json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 10,
        "averageValue": "20m"}}});
    let v2 = json!({"spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9, "metrics": [cpu]},
        "status": {"currentReplicas": 3, "currentMetrics": [now]}});
    let v1 = json!({"spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 9,
        "targetCPUUtilizationPercentage": 80},
        "status": {"currentReplicas": 3, "currentCPUUtilizationPercentage": 10}});
    for fields in [v1, v2] {
        check(
            "autoscaling",
            "HorizontalPodAutoscaler",
            fields,
            json!(["x", "Deployment/web", "cpu: 10%/80%", "2", 9, 3, "3d4h"]),
        );
    }
    check("autoscaling", "HorizontalPodAutoscaler", json!({}), json!(["x", "/", "<none>", "<unset>", 0, 0, "3d4h"]));
}

#[test]
fn each_source_has_its_own_form() {
    let resource = |source: &str, target: Value| {
        json!([{"type": source,
        (source[..1].to_lowercase() + &source[1..]): {"name": "cpu", "target": target}}])
    };
    for source in ["Resource", "ContainerResource"] {
        assert_eq!(targets(resource(source, json!({"averageUtilization": 50})), json!([])), "cpu: <unknown>/50%");
        assert_eq!(targets(resource(source, json!({"averageValue": "2"})), json!([])), "cpu: <unknown>/2");
        assert_eq!(targets(resource(source, json!({})), json!([])), "cpu: <unknown>/<auto>");
    }
    let pods = json!([{"type": "Pods", "pods": {"target": {"averageValue": "1k"}}}]);
    assert_eq!(
        targets(pods.clone(), json!([{"type": "Pods", "pods": {"current": {"averageValue": "400"}}}])),
        "400/1k"
    );
    assert_eq!(targets(pods, json!([])), "<unknown>/1k");
    for (kind, field) in [("Object", "object"), ("External", "external")] {
        let metric = |target: Value| json!([{"type": kind, field: {"target": target}}]);
        let current = json!([{"type": kind, field: {"current": {"value": "7", "averageValue": "3"}}}]);
        assert_eq!(targets(metric(json!({"value": "9"})), current.clone()), "7/9");
        assert_eq!(targets(metric(json!({"averageValue": "5"})), current), "3/5 (avg)");
        assert_eq!(targets(metric(json!({"averageValue": "5"})), json!([])), "<unknown>/5 (avg)");
    }
    assert_eq!(targets(json!([{"type": "Odd"}]), json!([])), "<unknown type>");
}

#[test]
fn two_metrics_are_shown_and_the_others_counted() {
    let pods = |value: &str| json!({"type": "Pods", "pods": {"target": {"averageValue": value}}});
    assert_eq!(targets(json!([pods("1"), pods("2")]), json!([])), "<unknown>/1, <unknown>/2");
    let four = json!([pods("1"), pods("2"), pods("3"), pods("4")]);
    assert_eq!(targets(four, json!([])), "<unknown>/1, <unknown>/2 + 2 more...");
}

#[test]
fn a_scale_shows_wanted_and_actual_replicas() {
    check(
        "autoscaling",
        "Scale",
        json!({"spec": {"replicas": 4}, "status": {"replicas": 2}}),
        json!(["x", 4, 2, "3d4h"]),
    );
}
