//! Converts the metrics of an autoscaler between the nested form of v2 and the flat form in annotations of v1.
//!
//! Annotations have the values that `v1` cannot express, with the names of older servers, so that a round trip loses
//! nothing.

use keelson_meta::json::{Map, Value, json};

use super::leaf::{Leaf, field};

/// The role of a metric: a target, or a current value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A target, in the spec.
    Target,
    /// A current value, in the status.
    Current,
}

/// The path of a value in v2, and its name in v1.
struct MetricField {
    /// The object below the source in v2; empty for the source itself.
    outer: &'static str,
    /// The field in v2.
    inner: &'static str,
    /// The name in v1.
    flat: &'static str,
    leaf: Leaf,
    /// True if v1 writes an absent value as the zero value of its type, since the Go type has no absent value.
    always: bool,
}

/// The fields of a metric source, in v1's order.
type Source = (&'static str, &'static [MetricField]);

const fn place(outer: &'static str, inner: &'static str, flat: &'static str, leaf: Leaf) -> MetricField {
    MetricField { outer, inner, flat, leaf, always: false }
}

const fn always(outer: &'static str, inner: &'static str, flat: &'static str, leaf: Leaf) -> MetricField {
    MetricField { outer, inner, flat, leaf, always: true }
}

const DESCRIBED: MetricField = always("", "describedObject", "target", Leaf::Reference);
const METRIC: MetricField = always("metric", "name", "metricName", Leaf::Text);
const SELECTOR: MetricField = place("metric", "selector", "selector", Leaf::Selector);
const EXTERNAL_SELECTOR: MetricField = place("metric", "selector", "metricSelector", Leaf::Selector);
const NAME: MetricField = always("", "name", "name", Leaf::Text);
const CONTAINER: MetricField = always("", "container", "container", Leaf::Text);

const TARGET_VALUE: MetricField = place("target", "value", "targetValue", Leaf::Quantity);
const TARGET_AVERAGE: MetricField = place("target", "averageValue", "targetAverageValue", Leaf::Quantity);
const TARGET_PERCENT: MetricField = place("target", "averageUtilization", "targetAverageUtilization", Leaf::Number);

const CURRENT_VALUE: MetricField = always("current", "value", "currentValue", Leaf::Quantity);
const CURRENT_AVERAGE: MetricField = always("current", "averageValue", "currentAverageValue", Leaf::Quantity);
const CURRENT_PERCENT: MetricField = place("current", "averageUtilization", "currentAverageUtilization", Leaf::Number);

const TARGETS: [Source; 5] = [
    (
        "object",
        &[
            DESCRIBED,
            METRIC,
            always("target", "value", "targetValue", Leaf::Quantity),
            SELECTOR,
            place("target", "averageValue", "averageValue", Leaf::Quantity),
        ],
    ),
    ("pods", &[METRIC, always("target", "averageValue", "targetAverageValue", Leaf::Quantity), SELECTOR]),
    ("resource", &[NAME, TARGET_PERCENT, TARGET_AVERAGE]),
    ("containerResource", &[NAME, TARGET_PERCENT, TARGET_AVERAGE, CONTAINER]),
    ("external", &[METRIC, EXTERNAL_SELECTOR, TARGET_VALUE, TARGET_AVERAGE]),
];

const CURRENTS: [Source; 5] = [
    (
        "object",
        &[DESCRIBED, METRIC, CURRENT_VALUE, SELECTOR, place("current", "averageValue", "averageValue", Leaf::Quantity)],
    ),
    ("pods", &[METRIC, CURRENT_AVERAGE, SELECTOR]),
    ("resource", &[NAME, CURRENT_PERCENT, CURRENT_AVERAGE]),
    ("containerResource", &[NAME, CURRENT_PERCENT, CURRENT_AVERAGE, CONTAINER]),
    (
        "external",
        &[
            METRIC,
            EXTERNAL_SELECTOR,
            CURRENT_VALUE,
            place("current", "averageValue", "currentAverageValue", Leaf::Quantity),
        ],
    ),
];

impl Kind {
    fn sources(self) -> &'static [Source; 5] {
        match self {
            Self::Target => &TARGETS,
            Self::Current => &CURRENTS,
        }
    }

    /// The object of v2 that holds the values.
    fn outer(self) -> &'static str {
        match self {
            Self::Target => "target",
            Self::Current => "current",
        }
    }
}

/// The percentage of a CPU utilization metric; `None` for other metrics.
pub(super) fn cpu_percent<'a>(metric: &'a Value, outer: &str) -> Option<&'a Value> {
    let source = metric.get("resource").filter(|source| metric["type"] == "Resource" && source["name"] == "cpu")?;
    source.get(outer)?.get("averageUtilization").filter(|percent| !percent.is_null())
}

/// A target for the CPU utilization.
pub(super) fn cpu_target(percent: &Value) -> Value {
    let target = json!({"type": "Utilization", "averageUtilization": percent});
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

/// A current value of the CPU utilization.
pub(super) fn cpu_current(percent: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": percent}}})
}

/// Converts the metrics of v2 to the form of v1.
pub(super) fn write(metrics: &[Value], kind: Kind) -> Value {
    metrics.iter().map(|metric| write_metric(metric, kind)).collect()
}

/// Converts the metrics from the form of v1 to v2; `None` if one is malformed.
pub(super) fn read(metrics: &[Value], kind: Kind) -> Option<Vec<Value>> {
    metrics.iter().map(|metric| read_metric(metric.as_object()?, kind)).collect()
}

fn write_metric(metric: &Value, kind: Kind) -> Value {
    let mut written = Map::new();
    written.insert("type", metric.get("type").cloned().unwrap_or_else(|| json!("")));
    for (name, places) in kind.sources() {
        if let Some(source) = metric.get(name).filter(|source| !source.is_null()) {
            let values = places.iter().filter_map(|place| Some((place.flat.to_owned(), place.find(source)?)));
            written.insert((*name).to_owned(), Value::Object(values.collect()));
        }
    }
    Value::Object(written)
}

fn read_metric(metric: &Map, kind: Kind) -> Option<Value> {
    let mut read = Map::new();
    let name = field(metric, "type").map_or_else(|| Some(json!("")), |name| Leaf::Text.read(name));
    read.insert("type", name?);
    for (name, places) in kind.sources() {
        if let Some(flat) = field(metric, name) {
            let mut source = read_source(flat.as_object()?, places, kind)?;
            if kind == Kind::Target {
                let target = source.entry("target").or_insert_with(|| json!({})).as_object_mut()?;
                target.insert_first("type", json!(target_type(name, target)));
            }
            read.insert((*name).to_owned(), Value::Object(source));
        }
    }
    Some(Value::Object(read))
}

fn read_source(flat: &Map, places: &[MetricField], kind: Kind) -> Option<Map> {
    let mut source = Map::new();
    for place in places {
        let Some(value) = field(flat, place.flat) else { continue };
        let value = place.leaf.read(value)?;
        let holder = match place.outer {
            "" => &mut source,
            outer => source.entry(outer).or_insert_with(|| json!({})).as_object_mut()?,
        };
        holder.insert(place.inner, value);
    }
    drop_written_zero(source.entry(kind.outer()).or_insert_with(|| json!({})).as_object_mut()?);
    Some(source)
}

/// Removes the zero that v1 writes beside an average. A target is never zero, and no metric has both values.
fn drop_written_zero(values: &mut Map) {
    if values.contains_key("averageValue") && values.get("value").is_some_and(|value| *value == "0") {
        values.remove("value");
    }
}

/// The type of a target. v1 does not state it, so it follows from the values that are present.
fn target_type(source: &str, target: &Map) -> &'static str {
    let has = |name| target.contains_key(name);
    match source {
        "object" if has("averageValue") => "AverageValue",
        "object" => "Value",
        "external" if has("value") => "Value",
        "resource" | "containerResource" if has("averageUtilization") => "Utilization",
        _ => "AverageValue",
    }
}

impl MetricField {
    /// The value in a source of v2.
    fn find(&self, source: &Value) -> Option<Value> {
        let holder = if self.outer.is_empty() { Some(source) } else { source.get(self.outer) };
        let found = holder.and_then(|holder| holder.get(self.inner)).filter(|value| !value.is_null());
        found.cloned().or_else(|| self.always.then(|| self.zero()))
    }

    fn zero(&self) -> Value {
        match self.leaf {
            Leaf::Quantity => json!("0"),
            Leaf::Number => json!(0),
            Leaf::Text => json!(""),
            Leaf::Reference => json!({"kind": "", "name": ""}),
            Leaf::Time | Leaf::Selector => Value::Null,
        }
    }
}
