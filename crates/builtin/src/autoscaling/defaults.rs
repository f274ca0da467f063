//! Defaults of horizontal pod autoscalers.
//!
//! Metrics from annotations of `v1` get their defaults in `v2`. Only `v2` has a default target, the CPU utilization.

use keelson_meta::json::{Map, Value, json};

use crate::defaulting::type_defaults::Rule::{Always, In, Number, TextIfAbsent};
use crate::defaulting::type_defaults::{FollowUp, TypeDefaults, list, set};

/// The defaults of a kind of `autoscaling` in a version.
pub(crate) fn defaults(version: &str, kind: &str) -> Option<&'static TypeDefaults> {
    match (version, kind) {
        ("v1", "HorizontalPodAutoscaler") => Some(&V1),
        ("v2", "HorizontalPodAutoscaler") => Some(&V2),
        _ => None,
    }
}

const V1: TypeDefaults = TypeDefaults {
    fields: &[("spec", Always(&const { TypeDefaults::new(&[("minReplicas", Number(1))]) }))],
    then: &[FollowUp::Run(&["metadata.annotations", "spec.targetCPUUtilizationPercentage"], implied_target)],
};

/// The annotation of `v1` with the metrics that it has no fields for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";

/// The default target for the CPU utilization, in percent of the requests.
const CPU_PERCENT: i64 = 80;

fn implied_target(autoscaler: &mut Map) {
    let annotations = autoscaler.get("metadata").and_then(|metadata| metadata.get("annotations"));
    if annotations.and_then(|annotations| annotations.get(METRICS)).is_none()
        && let Some(Value::Object(spec)) = autoscaler.get_mut("spec")
    {
        Number(CPU_PERCENT).apply(spec, "targetCPUUtilizationPercentage");
    }
}

const V2: TypeDefaults = TypeDefaults::new(&[(
    "spec",
    Always(
        &const {
            TypeDefaults {
                fields: &[("minReplicas", Number(1)), ("behavior", In(&BEHAVIOR))],
                then: &[FollowUp::Run(&["metrics"], metrics)],
            }
        },
    ),
)]);

fn metrics(spec: &mut Map) {
    let absent = matches!(spec.get("metrics"), None | Some(Value::Null | Value::Array(_)));
    if absent && list(spec, "metrics").is_empty() {
        let target = json!({ "type": "Utilization", "averageUtilization": CPU_PERCENT });
        set(spec, "metrics", json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]));
    }
}

const BEHAVIOR: TypeDefaults = TypeDefaults::new(&[("scaleUp", Always(&SCALE_UP)), ("scaleDown", Always(&SCALE_DOWN))]);

const SCALE_UP: TypeDefaults = TypeDefaults {
    fields: &[("stabilizationWindowSeconds", Number(0)), ("selectPolicy", TextIfAbsent("Max"))],
    then: &[FollowUp::Run(&["policies"], |rules| policies(rules, json!([policy("Pods", 4), policy("Percent", 100)])))],
};

const SCALE_DOWN: TypeDefaults = TypeDefaults {
    fields: &[("selectPolicy", TextIfAbsent("Max"))],
    then: &[FollowUp::Run(&["policies"], |rules| policies(rules, json!([policy("Percent", 100)])))],
};

/// The period of a scaling policy, in seconds.
const PERIOD_SECONDS: i64 = 15;

fn policy(of: &str, value: i64) -> Value {
    json!({ "type": of, "value": value, "periodSeconds": PERIOD_SECONDS })
}

fn policies(rules: &mut Map, usual: Value) {
    if matches!(rules.get("policies"), None | Some(Value::Null)) {
        set(rules, "policies", usual);
    }
}
