//! Horizontal pod autoscalers: `autoscaling/v1` and `v2`, the stored version.
//!
//! `v1` has one target, the CPU utilization. The other metrics, the behavior, the current metrics and the conditions
//! are annotations of `v1`, in upstream's form, so that clients of `v1` lose nothing. These annotations belong to the
//! server: no `v2` object has them. Malformed ones are ignored, since no schema has checked their text.
//! them. One that is not well formed is ignored, since no schema has checked this text.

mod behavior;
mod leaf;
mod metrics;

use keelson_meta::json::{Map, Value, json};
use leaf::Leaf;

use crate::converting::conversion::ConversionError;
use crate::converting::families::{Family, family, form, hub};
use crate::converting::tree::{is_unset, object, object_or_new, take};

const GROUP: &str = "autoscaling";

pub(crate) const FAMILIES: &[Family] = &[family(
    "HorizontalPodAutoscaler",
    &[
        hub(GROUP, "v2").canonical([Some(drop_annotations), None]),
        form(GROUP, "v1", v1_to_v2, v2_to_v1).canonical([Some(v1_to_v2), Some(v2_to_v1)]),
    ],
)];

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// The annotations with the values that the other version lacks. The last two belong to versions that no longer exist.
const OURS: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// The default target for the CPU utilization, in percent of the requests.
const DEFAULT_CPU_PERCENT: u8 = 80;

/// The fields of a condition, in the order of the annotation.
const CONDITION: [(&str, Leaf); 5] = [
    ("type", Leaf::Text),
    ("status", Leaf::Text),
    ("lastTransitionTime", Leaf::Time),
    ("reason", Leaf::Text),
    ("message", Leaf::Text),
];

/// Converts v1 to v2.
pub(crate) fn v1_to_v2(autoscaler: &mut Map) -> Result<(), ConversionError> {
    let notes = take_annotations(autoscaler)?;
    let list = |name| notes.get(name).and_then(Value::as_str).and_then(leaf::list);
    read_spec(
        object_or_new(autoscaler, "spec")?,
        list(METRICS).and_then(|metrics| metrics::read(&metrics, metrics::Kind::Target)),
        notes.get(BEHAVIOR).and_then(Value::as_str).and_then(behavior::read),
    );
    let current = list(CURRENT_METRICS).and_then(|metrics| metrics::read(&metrics, metrics::Kind::Current));
    let conditions = list(CONDITIONS).and_then(|conditions| read_conditions(&conditions));
    if object(autoscaler, "status")?.is_some() || current.is_some() || conditions.is_some() {
        read_status(object_or_new(autoscaler, "status")?, current, conditions);
    }
    Ok(())
}

/// Converts v2 to v1.
pub(crate) fn v2_to_v1(autoscaler: &mut Map) -> Result<(), ConversionError> {
    take_annotations(autoscaler)?;
    let mut notes = Map::new();
    if let Some(spec) = object(autoscaler, "spec")? {
        write_spec(spec, &mut notes)?;
    }
    if let Some(status) = object(autoscaler, "status")? {
        write_status(status, &mut notes)?;
    }
    if !notes.is_empty() {
        let metadata = object_or_new(autoscaler, "metadata")?;
        object_or_new(metadata, "annotations")?.extend(notes);
    }
    Ok(())
}

/// Removes the annotations that belong to the server.
pub(crate) fn drop_annotations(autoscaler: &mut Map) -> Result<(), ConversionError> {
    take_annotations(autoscaler).map(|_| ())
}

fn take_annotations(autoscaler: &mut Map) -> Result<Map, ConversionError> {
    let mut taken = Map::new();
    let Some(metadata) = object(autoscaler, "metadata")? else { return Ok(taken) };
    let Some(annotations) = object(metadata, "annotations")? else { return Ok(taken) };
    for name in OURS {
        if let Some(value) = annotations.remove(name) {
            taken.insert(name, value);
        }
    }
    if annotations.is_empty() && !taken.is_empty() {
        metadata.remove("annotations");
    }
    Ok(taken)
}

/// The CPU target comes after the metrics from the annotation. Without any metrics, the default of v1 applies.
fn read_spec(spec: &mut Map, metrics: Option<Vec<Value>>, behavior: Option<Value>) {
    let mut metrics = metrics.unwrap_or_default();
    let percent = take(spec, "targetCPUUtilizationPercentage");
    let percent = percent.or_else(|| metrics.is_empty().then(|| json!(DEFAULT_CPU_PERCENT)));
    metrics.extend(percent.as_ref().map(metrics::cpu_target));
    spec.insert("metrics", Value::Array(metrics));
    if let Some(behavior) = behavior {
        spec.insert("behavior", behavior);
    }
}

/// The first CPU target becomes the field of v1. A second one goes into the annotation with the other metrics.
fn write_spec(spec: &mut Map, notes: &mut Map) -> Result<(), ConversionError> {
    let mut others = take_list(spec, "metrics")?;
    if let Some(index) = others.iter().position(|metric| metrics::cpu_percent(metric, "target").is_some()) {
        let percent = metrics::cpu_percent(&others.remove(index), "target").cloned();
        spec.extend(percent.map(|percent| ("targetCPUUtilizationPercentage".to_owned(), percent)));
    }
    if !others.is_empty() {
        note(notes, METRICS, &metrics::write(&others, metrics::Kind::Target));
    }
    if let Some(behavior) = take(spec, "behavior") {
        note(notes, BEHAVIOR, &behavior::write(&behavior));
    }
    Ok(())
}

/// In v2, the current metrics are null if there are none, and zero current replicas are omitted.
fn read_status(status: &mut Map, current: Option<Vec<Value>>, conditions: Option<Vec<Value>>) {
    let percent = take(status, "currentCPUUtilizationPercentage");
    let current = current.or_else(|| Some(vec![metrics::cpu_current(&percent?)]));
    if status.get("currentReplicas").is_some_and(is_unset) {
        status.remove("currentReplicas");
    }
    status.insert("currentMetrics", current.map_or(Value::Null, Value::Array));
    if let Some(conditions) = conditions {
        status.insert("conditions", Value::Array(conditions));
    }
}

/// All current metrics go into the annotation, even if there is only the CPU utilization. The field of v1 cannot have
/// the raw value.
fn write_status(status: &mut Map, notes: &mut Map) -> Result<(), ConversionError> {
    let current = take_list(status, "currentMetrics")?;
    for field in ["currentReplicas", "desiredReplicas"] {
        status.entry(field).or_insert_with(|| json!(0));
    }
    if let Some(percent) = current.iter().rev().find_map(|metric| metrics::cpu_percent(metric, "current")) {
        status.insert("currentCPUUtilizationPercentage", percent.clone());
    }
    if !current.is_empty() {
        note(notes, CURRENT_METRICS, &metrics::write(&current, metrics::Kind::Current));
    }
    let conditions = take_list(status, "conditions")?;
    if !conditions.is_empty() {
        note(notes, CONDITIONS, &Value::Array(conditions.iter().map(write_condition).collect()));
    }
    Ok(())
}

fn read_conditions(conditions: &[Value]) -> Option<Vec<Value>> {
    let read = |condition: &Value| Some(Value::Object(leaf::pick(condition.as_object()?, &CONDITION)?));
    conditions.iter().map(read).collect()
}

fn write_condition(condition: &Value) -> Value {
    let field = |(name, leaf): &(&str, Leaf)| {
        let value = condition.get(*name).cloned().or_else(|| matches!(leaf, Leaf::Time).then_some(Value::Null));
        Some(((*name).to_owned(), value?))
    };
    Value::Object(CONDITION.iter().filter_map(field).collect())
}

fn take_list(tree: &mut Map, field: &'static str) -> Result<Vec<Value>, ConversionError> {
    match take(tree, field) {
        None => Ok(Vec::new()),
        Some(Value::Array(list)) => Ok(list),
        Some(_) => Err(ConversionError::WrongType { field, wanted: "a list" }),
    }
}

fn note(notes: &mut Map, name: &str, value: &Value) {
    notes.insert(name, value.to_string());
}

#[cfg(test)]
mod tests;
