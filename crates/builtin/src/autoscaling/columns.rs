//! The columns of autoscaling: horizontal pod autoscalers, and the scale of workloads.
//!
//! The targets are one text with the current and target value of each metric, in upstream's form.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME, UNMARKED_NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;
use keelson_tables::text::join;

use crate::autoscaling::column_docs as docs;

/// The number of metrics that a cell shows.
const SHOWN: usize = 2;
const UNKNOWN: &str = "<unknown>";

/// The fields of version 2 that version 1 lacks.
const OF_VERSION_1: &[&str] = &[
    "autoscaling.alpha.kubernetes.io/behavior",
    "autoscaling.alpha.kubernetes.io/conditions",
    "autoscaling.alpha.kubernetes.io/current-metrics",
    "autoscaling.alpha.kubernetes.io/metrics",
];

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    Some(match kind {
        "HorizontalPodAutoscaler" => Printer::new(AUTOSCALER, autoscaler).without_annotations(OF_VERSION_1),
        "Scale" => Printer::new(SCALE, scale),
        _ => return None,
    })
}

const AUTOSCALER: &[Column<'_>] = &[
    NAME,
    Column::text("Reference", docs::HORIZONTAL_POD_AUTOSCALER_REFERENCE),
    Column::text("Targets", docs::HORIZONTAL_POD_AUTOSCALER_TARGETS),
    Column::text("MinPods", docs::HORIZONTAL_POD_AUTOSCALER_MIN_PODS),
    Column::text("MaxPods", docs::HORIZONTAL_POD_AUTOSCALER_MAX_PODS),
    Column::text("Replicas", docs::HORIZONTAL_POD_AUTOSCALER_REPLICAS),
    AGE,
];

fn autoscaler(of: Subject<'_>) -> Vec<Value> {
    let (spec, status) = (of.at("spec"), of.at("status"));
    let target = spec.at("scaleTargetRef");
    vec![
        of.name(),
        format!("{}/{}", target.at("kind").text(), target.at("name").text()).into(),
        metrics(spec, status),
        spec.at("minReplicas").printed().map_or_else(|| "<unset>".into(), Value::from),
        spec.at("maxReplicas").int_cell(),
        status.at("currentReplicas").int_cell(),
        of.age(),
    ]
}

/// The current and target value of each metric: `cpu: 10%/80%, 12/50 (avg) + 1 more...`.
fn metrics(spec: FieldValue<'_>, status: FieldValue<'_>) -> Value {
    let current = status.at("currentMetrics");
    let mut shown: Vec<String> =
        spec.at("metrics").items().enumerate().map(|(place, metric)| one_metric(metric, current.nth(place))).collect();
    shown.extend(cpu_of_v1(spec, status));
    if shown.is_empty() {
        return "<none>".into();
    }
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    let joined = join(shown, ", ");
    if more > 0 { format!("{joined} + {more} more...").into() } else { joined.into() }
}

/// The CPU metric of version 1, the only one with its own fields there.
fn cpu_of_v1(spec: FieldValue<'_>, status: FieldValue<'_>) -> Option<String> {
    let target = spec.at("targetCPUUtilizationPercentage").set_int()?;
    let current = percent(status.at("currentCPUUtilizationPercentage"), UNKNOWN);
    Some(format!("cpu: {current}/{target}%"))
}

fn one_metric(spec: FieldValue<'_>, status: FieldValue<'_>) -> String {
    let source = match spec.at("type").text() {
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let (metric, current) = (spec.at(source), status.at(source).at("current"));
    let target = metric.at("target");
    let pair = |field: &str| {
        let known = current.at(field).printed().unwrap_or_else(|| UNKNOWN.to_owned());
        format!("{known}/{}", target.at(field).quantity())
    };
    let averaged = target.at("averageValue").is_set();
    match (source, averaged) {
        ("pods", _) => pair("averageValue"),
        ("external" | "object", true) => format!("{} (avg)", pair("averageValue")),
        ("external" | "object", false) => pair("value"),
        (_, true) => format!("{}: {}", metric.at("name").text(), pair("averageValue")),
        (_, false) => {
            let current = percent(current.at("averageUtilization"), UNKNOWN);
            let target = percent(target.at("averageUtilization"), "<auto>");
            format!("{}: {current}/{target}", metric.at("name").text())
        }
    }
}

fn percent(part: FieldValue<'_>, absent: &str) -> String {
    part.set_int().map_or_else(|| absent.to_owned(), |percent| format!("{percent}%"))
}

const SCALE: &[Column<'_>] = &[
    UNMARKED_NAME,
    Column::integer("Desired", "replicas is the desired number of instances for the scaled object."),
    Column::integer("Available", "replicas is the actual number of observed instances of the scaled object."),
    AGE,
];

fn scale(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("replicas").int_cell(), of.at("status").at("replicas").int_cell(), of.age()]
}
