//! Tests of limit ranges and quotas.
//!
//! Amounts are tested that contradict each other.

use keelson_meta::json::json;

use crate::validating::tests::{check_new, check_update};

#[test]
fn limits_and_quotas() {
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "100m"}, "max": {"cpu": "2"}, "default": {"cpu": "1"}}]}});
    check_new(
        &range,
        &[("/spec/limits/0/min/cpu", json!("3"))],
        &[
            "spec.limits[0].min[cpu]: Invalid value: \"3\": min value 3 is greater than max value 2",
            "spec.limits[0].default[cpu]: Invalid value: \"3\": min value 3 is greater than default value 1",
        ],
    );
    check_new(
        &range,
        &[("/spec/limits/0/maxLimitRequestRatio", json!({"cpu": "50"}))],
        &[
            "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"50\": ratio 50 is greater than max/min = 20.000000",
        ],
    );
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}});
    check_new(
        &quota,
        &[("/spec/hard/pods", json!("1500m")), ("/spec/hard/widgets", json!("1"))],
        &[
            "spec.hard[pods]: Invalid value: \"1500m\": must be an integer",
            "spec.hard[widgets]: Invalid value: \"widgets\": must be a standard resource type or fully qualified",
            "spec.hard[widgets]: Invalid value: \"widgets\": must be a standard resource for quota",
        ],
    );
    check_new(
        &quota,
        &[("/spec/scopes", json!(["BestEffort", "NotBestEffort"]))],
        &["spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes"],
    );
    check_update(
        &quota,
        &[("/spec/scopes", json!(["BestEffort"]))],
        &["spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable"],
    );
}
