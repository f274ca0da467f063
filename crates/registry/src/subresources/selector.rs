//! A label selector as objects hold it (`matchLabels`, `matchExpressions`), as the text that list requests take.
//!
//! What can't be understood has no text, so that a damaged selector is never taken for one that selects everything.

use keelson_meta::json::{Map, Value};
use keelson_meta::label_selector::LabelSelector;

/// The text of a selector. Replication controllers have bare labels there.
pub(super) fn text(selector: Option<&Value>) -> Option<String> {
    let Some(Value::Object(selector)) = selector else { return Some(String::new()) };
    let structured = selector.contains_key("matchLabels") || selector.contains_key("matchExpressions");
    let labels = if structured { selector.get("matchLabels").and_then(Value::as_object) } else { Some(selector) };
    let mut terms: Vec<(&str, String)> = labels.into_iter().flatten().map(equality).collect();
    for expression in selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten() {
        terms.push(term(expression)?);
    }
    terms.sort();
    Some(terms.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(","))
}

/// The meaning of a structured selector; `None` for one that can't be understood, or that is not there.
pub(super) fn parse(selector: Option<&Value>) -> Option<LabelSelector> {
    let selector = selector?.as_object()?;
    let empty = Map::is_empty(selector);
    if empty {
        Some(LabelSelector::everything())
    } else {
        LabelSelector::parse(&text(Some(&selector.clone().into()))?).ok()
    }
}

fn equality<'a>((key, value): (&'a str, &Value)) -> (&'a str, String) {
    (key, format!("{key}={}", value.as_str().unwrap_or_default()))
}

/// One entry of `matchExpressions`.
fn term(expression: &Value) -> Option<(&str, String)> {
    let key = expression.get("key")?.as_str()?;
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let mut values: Vec<&str> = values.filter_map(Value::as_str).collect();
    values.sort_unstable();
    // A text with an empty list would mean the empty value.
    let listed = !values.is_empty();
    let values = values.join(",");
    let text = match expression.get("operator")?.as_str()? {
        "In" if listed => format!("{key} in ({values})"),
        "NotIn" if listed => format!("{key} notin ({values})"),
        "Exists" => key.to_owned(),
        "DoesNotExist" => format!("!{key}"),
        _ => return None,
    };
    Some((key, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::json;

    #[test]
    fn a_replication_controller_has_bare_labels() {
        assert_eq!(text(Some(&json!({"b": "2", "a": "1"}))).unwrap(), "a=1,b=2");
        assert_eq!(text(None).unwrap(), "");
    }

    #[test]
    fn what_is_not_understood_selects_nothing_rather_than_everything() {
        let check = |selector: Value, labels: &[(&str, &str)], expect: Option<bool>| {
            let of = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
            assert_eq!(parse(Some(&selector)).map(|parsed| parsed.matches(of)), expect, "{selector}");
        };
        check(json!({}), &[], Some(true));
        check(json!({"matchLabels": {"app": "web"}}), &[("app", "web")], Some(true));
        check(json!({"matchLabels": {"app": "web"}}), &[("app", "db")], Some(false));
        check(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), &[("a", "1")], Some(true));
        check(json!({"matchExpressions": [{"key": "a", "operator": "Like"}]}), &[("a", "1")], None);
        check(json!({"matchExpressions": [{"key": "a", "operator": "In", "values": []}]}), &[("a", "")], None);
        assert!(parse(None).is_none());
    }
}
