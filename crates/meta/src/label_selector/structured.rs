//! Label selectors in objects: `matchLabels` and `matchExpressions`, or plain labels.
//!
//! For a malformed selector there is no result, so that a damaged selector never selects everything. `parse.rs` has the
//! text form.

use std::collections::BTreeSet;

use super::{LabelSelector, Operator, Requirement};
use crate::json::{Map, Value};

impl LabelSelector {
    /// The selector of `matchLabels` and `matchExpressions`. `None` if it is malformed. The empty one selects
    /// everything.
    pub fn of_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let none = Map::default();
        let labels = selector.get("matchLabels").map_or(Some(&none), Value::as_object)?;
        let mut requirements: Vec<Requirement> = labels.iter().map(equality).collect::<Option<_>>()?;
        if let Some(expressions) = selector.get("matchExpressions") {
            for expression in expressions.as_array()? {
                requirements.push(requirement(expression)?);
            }
        }
        Some(Self::sorted(requirements))
    }

    /// The selector of objects that have all these labels. `None` if the labels are malformed.
    pub fn of_labels(labels: &Value) -> Option<Self> {
        labels.as_object()?.iter().map(equality).collect::<Option<_>>().map(Self::sorted)
    }

    /// Returns a selector that also requires this label.
    #[must_use]
    pub fn and_label(self, key: &str, value: &str) -> Self {
        self.and(with_values(key, Operator::Equals, [value.to_owned()].into()))
    }

    /// Returns a selector that also requires one of these values of the label.
    #[must_use]
    pub fn and_label_in<'v>(self, key: &str, values: impl IntoIterator<Item = &'v str>) -> Self {
        self.and(with_values(key, Operator::In, values.into_iter().map(str::to_owned).collect()))
    }

    fn and(self, requirement: Requirement) -> Self {
        let mut requirements = self.requirements;
        requirements.push(requirement);
        Self::sorted(requirements)
    }
}

fn equality((key, value): (impl AsRef<str>, &Value)) -> Option<Requirement> {
    Some(with_values(key.as_ref(), Operator::Equals, [value.as_str()?.to_owned()].into()))
}

/// One entry of `matchExpressions`.
fn requirement(expression: &Value) -> Option<Requirement> {
    let key = expression.get("key")?.as_str()?;
    let values = match expression.get("values") {
        None | Some(Value::Null) => BTreeSet::new(),
        Some(values) => {
            values.as_array()?.iter().map(|value| value.as_str().map(str::to_owned)).collect::<Option<_>>()?
        }
    };
    let operator = match expression.get("operator")?.as_str()? {
        "In" => Operator::In,
        "NotIn" => Operator::NotIn,
        "Exists" => Operator::Exists,
        "DoesNotExist" => Operator::DoesNotExist,
        _ => return None,
    };
    let needs_values = matches!(operator, Operator::In | Operator::NotIn);
    (needs_values != values.is_empty()).then(|| with_values(key, operator, values))
}

fn with_values(key: &str, operator: Operator, values: BTreeSet<String>) -> Requirement {
    Requirement { key: key.to_owned(), operator, values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::json;

    #[test]
    fn invalid_selectors_select_nothing() {
        let check = |selector: Value, labels: &[(&str, &str)], expect: Option<bool>| {
            let of = |key: &str| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value);
            assert_eq!(LabelSelector::of_object(&selector).map(|read| read.matches(of)), expect, "{selector}");
        };
        check(json!({}), &[], Some(true));
        check(json!({"matchLabels": {"app": "web"}}), &[("app", "web")], Some(true));
        check(json!({"matchLabels": {"app": "web"}}), &[("app", "db")], Some(false));
        check(json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]}), &[("a", "1")], Some(true));
        let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        check(expression("In", json!(["1", "2"])), &[("a", "2")], Some(true));
        check(expression("NotIn", json!(["1", "2"])), &[("a", "2")], Some(false));
        check(expression("DoesNotExist", Value::Null), &[("b", "")], Some(true));
        check(expression("Like", json!(["1"])), &[("a", "1")], None);
        check(expression("In", json!([])), &[("a", "")], None);
        check(expression("In", json!([1])), &[("a", "1")], None);
        check(json!({"matchLabels": {"a": 1}}), &[("a", "1")], None);
        check(json!({"matchLabels": ["a"]}), &[], None);
        check(json!({"matchExpressions": {}}), &[], None);
        check(json!("a=1"), &[("a", "1")], None);
    }

    #[test]
    fn structured_selectors_are_written_in_query_form() {
        let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["y", "x"]}, {"key": "c", "operator": "DoesNotExist"}]});
        let read = LabelSelector::of_object(&selector).unwrap();
        assert_eq!(read.to_string(), "a=1,b=2,!c,tier in (x,y)");
        assert_eq!(LabelSelector::parse(&read.to_string()), Ok(read));
        assert_eq!(LabelSelector::of_labels(&json!({"b": "2", "a": "1"})).unwrap().to_string(), "a=1,b=2");
        assert_eq!(LabelSelector::everything().and_label("b", "2").and_label("a", "1").to_string(), "a=1,b=2");
        assert_eq!(LabelSelector::everything().and_label_in("a", ["y", "x"]).to_string(), "a in (x,y)");
        assert_eq!(LabelSelector::of_labels(&json!({"a": 1})), None);
    }
}
