//! Labels and label selectors in objects (`metav1.LabelSelector`): validation and matching.
//!
//! Workloads, policies and budgets share these rules and messages. The callers implement the few differences.

use keelson_meta::json::Value;

use crate::validating::at::At;
use crate::validating::formats::{LABEL_VALUE, QUALIFIED_NAME};
use crate::validating::type_rules::{Rule, Run};

/// Validates a label selector.
pub(crate) const SELECTOR: Rule = Rule::Check("label selector", label_selector);
/// Validates a map of labels.
pub(crate) const LABELS: Rule = Rule::Check("labels", labels);

/// Reports the errors of labels.
pub(crate) fn labels(at: &At<'_, '_>, run: &mut Run<'_>) {
    for (key, value) in at.tree().into_iter().flatten() {
        for fault in QUALIFIED_NAME.faults(key) {
            at.invalid(run, key, fault);
        }
        let value = value.as_str().unwrap_or_default();
        for fault in LABEL_VALUE.faults(value) {
            at.invalid(run, value, fault);
        }
    }
}

/// Reports the errors of a label selector. Unchanged values are accepted, even if no label can have them.
pub(crate) fn label_selector(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    labels(&at.field("matchLabels"), run);
    for expression in at.field("matchExpressions").items() {
        requirement(&expression, run, at.is_unchanged());
    }
}

fn requirement(at: &At<'_, '_>, run: &mut Run<'_>, lenient: bool) {
    let values = at.field("values");
    let operator = at.field("operator");
    match operator.text() {
        "In" | "NotIn" if values.list().is_empty() => {
            values.required(run, "must be specified when `operator` is 'In' or 'NotIn'");
        }
        "In" | "NotIn" => {}
        "Exists" | "DoesNotExist" if !values.list().is_empty() => {
            values.forbidden(run, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'");
        }
        "Exists" | "DoesNotExist" => {}
        other => operator.invalid(run, other, "not a valid selector operator"),
    }
    let key = at.field("key");
    key.complain(run, QUALIFIED_NAME.faults(key.text()));
    if !lenient {
        values.items().for_each(|value| value.complain(run, LABEL_VALUE.faults(value.text())));
    }
}

/// Returns true if the selector is valid, so that labels can be matched. An absent selector matches nothing.
pub(crate) fn is_sound(at: &At<'_, '_>) -> bool {
    let is_key = |key: &str| QUALIFIED_NAME.faults(key).is_empty();
    let is_value = |value: &Value| LABEL_VALUE.faults(value.as_str().unwrap_or_default()).is_empty();
    let expression = |at: At<'_, '_>| {
        let values = at.field("values").list();
        let fits = match at.field("operator").text() {
            "In" | "NotIn" => !values.is_empty(),
            "Exists" | "DoesNotExist" => values.is_empty(),
            _ => false,
        };
        fits && is_key(at.field("key").text()) && values.iter().all(is_value)
    };
    at.field("matchLabels").tree().into_iter().flatten().all(|(key, value)| is_key(key) && is_value(value))
        && at.field("matchExpressions").items().all(expression)
}

/// Returns true if the selector is empty, so that it matches everything.
pub(crate) fn is_everything(selector: &Value) -> bool {
    let empty = |field: &str| selector.get(field).is_none_or(crate::validating::at::is_empty);
    empty("matchLabels") && empty("matchExpressions")
}

/// Returns true if a selector matches labels. An invalid selector matches nothing.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let equal = |(key, value): (&str, &Value)| label(key) == value.as_str();
    let expression = |expression: &Value| {
        let value = expression.get("key").and_then(Value::as_str).and_then(label);
        let listed = || {
            let values = expression.get("values").and_then(Value::as_array);
            values.into_iter().flatten().any(|listed| listed.as_str() == value)
        };
        match expression.get("operator").and_then(Value::as_str) {
            Some("In") => value.is_some() && listed(),
            Some("NotIn") => value.is_none() || !listed(),
            Some("Exists") => value.is_some(),
            Some("DoesNotExist") => value.is_none(),
            _ => false,
        }
    };
    selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten().all(equal)
        && selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten().all(expression)
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn selectors_match_labels() {
        let labels = json!({"app": "web", "tier": "a"});
        let check = |selector: Value, expected: bool| assert_eq!(matches(&selector, &labels), expected, "{selector}");
        check(json!({}), true);
        check(json!({"matchLabels": {"app": "web"}}), true);
        check(json!({"matchLabels": {"app": "x"}}), false);
        let one = |key, operator, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        check(one("tier", "In", json!(["a", "b"])), true);
        check(one("tier", "NotIn", json!(["a"])), false);
        check(one("none", "NotIn", json!(["a"])), true);
        check(one("none", "In", json!(["a"])), false);
        check(one("app", "Exists", json!([])), true);
        check(one("app", "DoesNotExist", json!([])), false);
        check(one("app", "Like", json!([])), false);
    }
}
