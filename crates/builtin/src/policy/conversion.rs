//! Disruption budgets of `policy/v1beta1`, where an empty selector selects no pods. In `v1` it selects all.
//!
//! To express the meaning of the other version, the selector gets a label that no pod has.

use keelson_meta::json::{Map, Value, json};

use crate::converting::conversion::ConversionError;
use crate::converting::retired::{BETA, RetiredVersions, row};
use crate::converting::tree::object;

pub(crate) const RETIRED: &[RetiredVersions] = &[row("PodDisruptionBudget", "policy", BETA).by(budget_from_v1beta1)];

/// The label that no pod has.
const NO_POD: &str = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match";

/// Converts from v1beta1 to v1.
pub(crate) fn budget_from_v1beta1(budget: &mut Map) -> Result<(), ConversionError> {
    let Some(spec) = object(budget, "spec")? else { return Ok(()) };
    let Some(selector) = object(spec, "selector")? else { return Ok(()) };
    let requirements = selector.get("matchExpressions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let has_labels = selector.get("matchLabels").and_then(Value::as_object).is_some_and(|labels| !labels.is_empty());
    let replaced = match requirements {
        [] if !has_labels => Some(json!({ "matchExpressions": [{ "key": NO_POD, "operator": "Exists" }] })),
        [all] if !has_labels && all["key"] == NO_POD && all["operator"] == "DoesNotExist" => Some(json!({})),
        _ => None,
    };
    if let Some(replaced) = replaced {
        spec.insert("selector", replaced);
    }
    Ok(())
}
