//! Tests of horizontal pod autoscalers.
//!
//! Numbers are tested that contradict each other.

use keelson_meta::json::json;

use crate::validating::tests::check_new;

#[test]
fn autoscalers() {
    let scaler = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}, "minReplicas": 1, "maxReplicas": 3, "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]}});
    check_new(
        &scaler,
        &[("/spec/minReplicas", json!(5)), ("/spec/scaleTargetRef/name", json!(""))],
        &[
            "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
            "spec.scaleTargetRef.name: Required value",
        ],
    );
    check_new(
        &scaler,
        &[("/spec/maxReplicas", json!(0)), ("/spec/scaleTargetRef/apiVersion", json!("v1"))],
        &[
            "spec.maxReplicas: Required value: must be set and greater than 0",
            "spec.maxReplicas: Invalid value: 0: must be greater than or equal to `minReplicas`",
            "spec.scaleTargetRef.apiVersion: Invalid value: \"v1\": apiVersion must specify API group",
        ],
    );
    check_new(
        &scaler,
        &[("/spec/metrics/0/type", json!("Pods"))],
        &["spec.metrics[0].pods: Required value: must populate information for the given metric source"],
    );
}
