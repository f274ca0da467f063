//! Labels and selectors that workloads copy from their templates.
//!
//! Replication controllers and jobs do not require a selector, unlike newer workloads.

use keelson_meta::json::{Map, Value};

use crate::defaulting::type_defaults::{is_absent, object, peek, set};

/// The fields that workloads copy from the labels of their template.
pub(crate) const SELECTION: &[&str] = &["metadata.labels", "spec.selector", "spec.template.metadata.labels"];

/// Copies the labels of the template to an absent selector.
pub(crate) fn selector_from_template(workload: &mut Map) {
    let labels = template_labels(workload);
    if let Some(spec) = object(workload, "spec")
        && (is_absent(spec, "selector") || peek(spec, "selector").is_some_and(Map::is_empty))
        && let Some(labels) = labels
    {
        set(spec, "selector", labels);
    }
}

/// Copies the labels of the template to absent labels of the workload.
pub(crate) fn labels_from_template(workload: &mut Map) {
    let Some(labels) = template_labels(workload) else { return };
    if is_absent(workload, "metadata") {
        set(workload, "metadata", Map::new());
    }
    if let Some(metadata) = object(workload, "metadata")
        && metadata.get("labels").and_then(Value::as_object).is_none_or(Map::is_empty)
        && matches!(metadata.get("labels"), None | Some(Value::Null | Value::Object(_)))
    {
        set(metadata, "labels", labels);
    }
}

fn template_labels(workload: &Map) -> Option<Map> {
    let template = peek(peek(workload, "spec")?, "template")?;
    let labels = peek(peek(template, "metadata")?, "labels")?;
    // Other labels are refused in the template, so they are not copied.
    let are_texts = labels.iter().all(|(_, label)| label.is_string());
    (!labels.is_empty() && are_texts).then(|| labels.clone())
}
