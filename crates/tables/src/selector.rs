//! Label selectors and label sets as text, in the canonical form that can be parsed again.
//!
//! Printers show them in cells, in upstream's order.

use keelson_meta::json::Value;

use crate::field_value::FieldValue;
use crate::text::join;

/// A set of labels, such as a service's selector: `a=b,c=d`, or `<none>`.
pub fn labels(set: FieldValue<'_>) -> Value {
    let mut pairs: Vec<(&str, &str)> = set.entries().map(|(key, value)| (key, value.text())).collect();
    if pairs.is_empty() {
        return "<none>".into();
    }
    pairs.sort_unstable();
    join(pairs.iter().map(|(key, value)| format!("{key}={value}")), ",").into()
}

/// A label selector. `<none>` if it is empty, `<error>` if it is malformed.
pub fn label_selector(selector: FieldValue<'_>) -> Value {
    match canonical(selector) {
        Some(text) if text.is_empty() => "<none>".into(),
        Some(text) => text.into(),
        None => "<error>".into(),
    }
}

/// A label selector in the form of the `labelSelector` parameter. `None` if it is malformed.
pub fn canonical(selector: FieldValue<'_>) -> Option<String> {
    let equal = selector.at("matchLabels").entries();
    let mut terms: Vec<(&str, String)> = equal.map(|(key, value)| (key, format!("{key}={}", value.text()))).collect();
    for expression in selector.at("matchExpressions").items() {
        terms.push((expression.at("key").text(), term(expression)?));
    }
    terms.sort_by_key(|(key, _)| *key);
    Some(join(terms.iter().map(|(_, term)| term), ","))
}

/// One entry of `matchExpressions`.
fn term(expression: FieldValue<'_>) -> Option<String> {
    let key = expression.at("key").text();
    let mut values: Vec<&str> = expression.at("values").items().map(FieldValue::text).collect();
    values.sort_unstable();
    let among = |operator: &str| format!("{key} {operator} ({})", join(&values, ","));
    match (expression.at("operator").text(), values.is_empty()) {
        ("In", false) => Some(among("in")),
        ("NotIn", false) => Some(among("notin")),
        ("Exists", true) => Some(key.to_owned()),
        ("DoesNotExist", true) => Some(format!("!{key}")),
        _ => None,
    }
}

/// A label selector as Go prints the struct, for admission policy bindings.
pub fn go_struct(selector: FieldValue<'_>) -> String {
    let mut labels: Vec<(&str, &str)> =
        selector.at("matchLabels").entries().map(|(key, value)| (key, value.text())).collect();
    labels.sort_unstable();
    let labels: String = labels.iter().map(|(key, value)| format!("{key}: {value},")).collect();
    let expressions: String = selector.at("matchExpressions").items().map(go_requirement).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )
}

fn go_requirement(expression: FieldValue<'_>) -> String {
    let values = join(expression.at("values").items().map(FieldValue::text), " ");
    let (key, operator) = (expression.at("key").text(), expression.at("operator").text());
    format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
}
