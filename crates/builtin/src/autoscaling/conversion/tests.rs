//! Examples of autoscalers in both versions. The round-trip test has random ones.
//!
//! The expected results are those of upstream's conversion.

use keelson_meta::json::{Value, json};

use super::*;
use crate::converting::conversion::ConvertFn;

fn run(step: ConvertFn, from: &Value) -> Value {
    let Value::Object(mut tree) = from.clone() else { panic!("not an object") };
    step(&mut tree).expect("it converts");
    Value::Object(tree)
}

fn annotation(autoscaler: &Value, name: &str) -> Value {
    let text = autoscaler["metadata"]["annotations"][name].as_str().unwrap_or_else(|| panic!("no {name}"));
    serde_json::from_str(text).expect("JSON")
}

fn check(v2: &Value, v1: &Value) {
    assert_eq!(run(v2_to_v1, v2).to_string(), v1.to_string(), "order counts");
    assert_eq!(&run(v1_to_v2, v1), v2);
}

fn cpu(percent: u8) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": percent}}})
}

#[test]
fn a_target_of_the_cpu_is_a_field_of_v1() {
    check(
        &json!({"metadata": {"name": "a"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "a"}, "minReplicas": 1, "maxReplicas": 3, "metrics": [cpu(55)]},
            "status": {"currentReplicas": 2, "desiredReplicas": 1, "currentMetrics": null}}),
        &json!({"metadata": {"name": "a"},
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "a"}, "minReplicas": 1, "maxReplicas": 3, "targetCPUUtilizationPercentage": 55},
            "status": {"currentReplicas": 2, "desiredReplicas": 1}}),
    );
}

#[test]
fn v1_without_any_target_means_eighty_percent_of_the_cpu() {
    let v2 =
        run(v1_to_v2, &json!({"spec": {"maxReplicas": 3}, "status": {"currentReplicas": 0, "desiredReplicas": 0}}));
    assert_eq!(v2["spec"]["metrics"], json!([cpu(80)]));
    assert_eq!(v2["status"], json!({"desiredReplicas": 0, "currentMetrics": null}));
    let memory =
        json!([{"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 5}}]).to_string();
    let v2 = run(v1_to_v2, &json!({"metadata": {"annotations": {METRICS: memory}}, "spec": {}}));
    assert_eq!(v2["spec"]["metrics"].as_array().map(Vec::len), Some(1), "another metric is enough");
}

#[test]
fn metrics_that_v1_does_not_know_are_noted_in_upstreams_form() {
    let object = json!({"kind": "Service", "name": "web", "apiVersion": "v1"});
    let selector = json!({"matchLabels": {"a": "b"}});
    let metrics = json!([
        {"type": "Object", "object": {"describedObject": object, "target": {"type": "AverageValue", "averageValue": "5"},
            "metric": {"name": "hits", "selector": selector}}},
        {"type": "Object", "object": {"describedObject": object, "target": {"type": "Value", "value": "2k"},
            "metric": {"name": "hits"}}},
        {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "100m"}}},
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "AverageValue", "averageValue": "300m"}}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "app",
            "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "External", "external": {"metric": {"name": "queue", "selector": selector},
            "target": {"type": "Value", "value": "30"}}},
        cpu(70)
    ]);
    let v2 = json!({"metadata": {}, "spec": {"metrics": metrics}});
    let v1 = run(v2_to_v1, &v2);
    assert_eq!(v1["spec"], json!({"targetCPUUtilizationPercentage": 70}));
    let expected = json!([
        {"type": "Object", "object": {"target": object, "metricName": "hits", "targetValue": "0", "selector": selector,
            "averageValue": "5"}},
        {"type": "Object", "object": {"target": object, "metricName": "hits", "targetValue": "2k"}},
        {"type": "Pods", "pods": {"metricName": "qps", "targetAverageValue": "100m"}},
        {"type": "Resource", "resource": {"name": "cpu", "targetAverageValue": "300m"}},
        {"type": "ContainerResource", "containerResource": {"name": "cpu", "targetAverageUtilization": 60, "container": "app"}},
        {"type": "External", "external": {"metricName": "queue", "metricSelector": selector, "targetValue": "30"}}
    ]);
    assert_eq!(v1["metadata"]["annotations"][METRICS], expected.to_string(), "order counts");
    assert_eq!(run(v1_to_v2, &v1)["spec"], v2["spec"]);
}

#[test]
fn a_second_target_of_the_cpu_is_not_lost() {
    let v1 = run(v2_to_v1, &json!({"metadata": {}, "spec": {"metrics": [cpu(50), cpu(60)]}}));
    assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 50);
    assert_eq!(run(v1_to_v2, &v1)["spec"]["metrics"], json!([cpu(60), cpu(50)]));
}

#[test]
fn current_metrics_and_conditions_are_kept_in_annotations() {
    let current = json!([
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 40, "averageValue": "10m"}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"averageValue": "3"}}},
        {"type": "Object", "object": {"metric": {"name": "hits"}, "current": {"value": "0"},
            "describedObject": {"kind": "Service", "name": "web"}}}
    ]);
    let conditions = json!([
        {"type": "AbleToScale", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "reason": "Ready",
            "message": "a < b"},
        {"type": "ScalingActive", "status": "False", "lastTransitionTime": null}
    ]);
    let v2 = json!({"metadata": {"annotations": {"mine": "x"}}, "spec": {"metrics": [cpu(80)]},
        "status": {"desiredReplicas": 1, "currentMetrics": current, "conditions": conditions}});
    let v1 = run(v2_to_v1, &v2);
    assert_eq!(
        v1["status"],
        json!({"desiredReplicas": 1, "currentReplicas": 0, "currentCPUUtilizationPercentage": 40})
    );
    assert_eq!(annotation(&v1, CONDITIONS), conditions);
    assert_eq!(
        annotation(&v1, CURRENT_METRICS)[1]["external"],
        json!({"metricName": "queue", "currentValue": "0",
        "currentAverageValue": "3"})
    );
    assert_eq!(run(v1_to_v2, &v1), v2);
}

#[test]
fn a_current_percentage_without_an_annotation_is_kept() {
    let v1 = json!({"spec": {"targetCPUUtilizationPercentage": 5}, "status": {"currentCPUUtilizationPercentage": 7}});
    assert_eq!(
        run(v1_to_v2, &v1)["status"]["currentMetrics"],
        json!([{"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 7}}}])
    );
}

#[test]
fn the_behavior_annotation_uses_go_field_names() {
    let v2 = json!({"metadata": {}, "spec": {"metrics": [cpu(80)], "behavior": {
        "scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Max",
            "policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "tolerance": "50m"}}}});
    let v1 = run(v2_to_v1, &v2);
    let expected = r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":60,"SelectPolicy":"Max","Policies":[{"Type":"Pods","Value":4,"PeriodSeconds":15}],"Tolerance":"50m"}}"#;
    assert_eq!(v1["metadata"]["annotations"][BEHAVIOR], expected);
    assert_eq!(run(v1_to_v2, &v1), run(drop_annotations, &v2));
}

#[test]
fn a_behavior_written_by_hand_is_read_in_any_case() {
    let text = r#"{"scaleUp": {"policies": [{"TYPE": "Percent"}]}, "scaledown": null}"#;
    let v1 = json!({"metadata": {"annotations": {BEHAVIOR: text}}, "spec": {}});
    let expected = json!({"scaleUp": {"policies": [{"type": "Percent", "value": 0, "periodSeconds": 0}]}});
    assert_eq!(run(v1_to_v2, &v1)["spec"]["behavior"], expected);
}

#[test]
fn malformed_notes_are_dropped_whole() {
    let notes = [
        (METRICS, ""),
        (METRICS, "abc"),
        (METRICS, "{}"),
        (METRICS, r#"[{"type": "Pods", "pods": {"metricName": 1}}]"#),
        (METRICS, r#"[{"type": "Pods", "pods": {"metricName": "a", "targetAverageValue": "much"}}]"#),
        (METRICS, r#"[{"type": 1}]"#),
        (METRICS, "[1]"),
        (BEHAVIOR, "{}"),
        (BEHAVIOR, r#"{"ScaleUp": {"Policies": [1]}}"#),
        (BEHAVIOR, r#"{"ScaleUp": {"StabilizationWindowSeconds": "1"}}"#),
        (BEHAVIOR, "null"),
        (CURRENT_METRICS, r#"[{"resource": []}]"#),
        (CONDITIONS, r#"[{"type": "A", "lastTransitionTime": "soon"}]"#),
        (CONDITIONS, r#"["A"]"#),
        (OURS[4], "1"),
    ];
    let plain = json!({"metadata": {}, "spec": {"metrics": [cpu(80)]}});
    for (name, text) in notes {
        let v1 = json!({"metadata": {"annotations": {name: text}}, "spec": {}});
        assert_eq!(run(v1_to_v2, &v1), plain, "{name}: {text}");
        let v2 = json!({"metadata": {"annotations": {name: text, "mine": "x"}}, "spec": {"metrics": [cpu(80)]}});
        assert_eq!(run(drop_annotations, &v2)["metadata"], json!({"annotations": {"mine": "x"}}));
        assert_eq!(run(v2_to_v1, &v2)["metadata"], json!({"annotations": {"mine": "x"}}));
    }
}

#[test]
fn unknown_fields_of_annotations_are_dropped() {
    let text = r#"[{"type": "Pods", "pods": {"metricName": "a", "targetAverageValue": 3, "more": 1}, "more": {}}]"#;
    let v1 = json!({"metadata": {"annotations": {METRICS: text}}, "spec": {}});
    let expected = json!([{"type": "Pods", "pods": {"metric": {"name": "a"},
        "target": {"type": "AverageValue", "averageValue": "3"}}}]);
    assert_eq!(run(v1_to_v2, &v1)["spec"]["metrics"], expected);
}

#[test]
fn wrong_shapes_are_refused() {
    for wrong in [json!({"spec": 1}), json!({"status": []}), json!({"metadata": {"annotations": []}})] {
        for step in [v1_to_v2 as ConvertFn, v2_to_v1] {
            let mut wrong = wrong.clone();
            assert!(step(wrong.as_object_mut().expect("an object")).is_err(), "{wrong}");
        }
    }
    let mut wrong = json!({"spec": {"metrics": {}}});
    assert!(v2_to_v1(wrong.as_object_mut().expect("an object")).is_err());
}
