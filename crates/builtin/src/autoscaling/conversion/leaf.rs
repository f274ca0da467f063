//! Reads typed values from the JSON of an annotation, which no schema has checked.
//!
//! Like Go's decoder, field names match in any case, null means absent, and one wrong type makes the whole text
//! invalid.

use keelson_meta::clock::parse_rfc3339;
use keelson_meta::json::{Map, Value, json};

/// The type of a value that is copied as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaf {
    /// A string.
    Text,
    /// A 32-bit integer.
    Number,
    /// A quantity such as `100m`, as a string or a number.
    Quantity,
    /// A time, or null if it is unknown.
    Time,
    /// The kind, name and version of an object.
    Reference,
    /// A label selector.
    Selector,
}

/// Parses a text that is a JSON list.
pub(super) fn list(text: &str) -> Option<Vec<Value>> {
    serde_json::from_str::<Value>(text).ok().and_then(|value| match value {
        Value::Array(list) => Some(list),
        _ => None,
    })
}

/// A field whose name matches in any case; null counts as absent.
pub(super) fn field<'a>(tree: &'a Map, name: &str) -> Option<&'a Value> {
    let any_case = || tree.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    tree.get(name).or_else(any_case).filter(|value| !value.is_null())
}

/// The fields with these names and types. Returns `None` if one has another type. Absent times become null.
pub(super) fn pick(tree: &Map, fields: &[(&str, Leaf)]) -> Option<Map> {
    let mut picked = Map::new();
    for (name, leaf) in fields {
        match field(tree, name) {
            Some(value) => picked.insert((*name).to_owned(), leaf.read(value)?),
            None if *leaf == Leaf::Time => picked.insert((*name).to_owned(), Value::Null),
            None => None,
        };
    }
    Some(picked)
}

impl Leaf {
    /// The value in the form of its schema; `None` if it has another type.
    pub(super) fn read(self, value: &Value) -> Option<Value> {
        match self {
            Self::Text => value.is_string().then(|| value.clone()),
            Self::Number => i32::try_from(value.as_i64()?).ok().map(Value::from),
            Self::Quantity => match value {
                Value::String(text) => is_quantity(text).then(|| value.clone()),
                Value::Number(number) => Some(json!(number.to_string())).filter(|_| is_quantity(&number.to_string())),
                _ => None,
            },
            Self::Time => value.as_str().and_then(parse_rfc3339).map(|_| value.clone()),
            Self::Reference => {
                let fields = [("kind", Self::Text), ("name", Self::Text), ("apiVersion", Self::Text)];
                pick(value.as_object()?, &fields).map(Value::Object)
            }
            Self::Selector => selector(value.as_object()?).map(Value::Object),
        }
    }
}

fn selector(tree: &Map) -> Option<Map> {
    let mut read = Map::new();
    if let Some(labels) = field(tree, "matchLabels") {
        let texts = labels.as_object()?.values().all(Value::is_string);
        read.extend(texts.then(|| ("matchLabels".to_owned(), labels.clone())));
        texts.then_some(())?;
    }
    if let Some(expressions) = field(tree, "matchExpressions") {
        let expressions: Option<Vec<Value>> = expressions.as_array()?.iter().map(expression).collect();
        read.insert("matchExpressions", Value::Array(expressions?));
    }
    Some(read)
}

fn expression(value: &Value) -> Option<Value> {
    let tree = value.as_object()?;
    let mut read = pick(tree, &[("key", Leaf::Text), ("operator", Leaf::Text)])?;
    if let Some(values) = field(tree, "values") {
        values.as_array()?.iter().all(Value::is_string).then_some(())?;
        read.insert("values", values.clone());
    }
    Some(Value::Object(read))
}

/// Returns true for a quantity: a decimal number, optionally with a binary or decimal suffix or an exponent.
fn is_quantity(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    let is_number = digits > 0 && number.len() - digits <= 1;
    is_number && (SUFFIXES.contains(&suffix) || is_exponent(suffix))
}

const SUFFIXES: [&str; 16] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "n", "u", "m", "k", "M", "G", "T", "P", "E"];

fn is_exponent(suffix: &str) -> bool {
    let digits = suffix.strip_prefix(['e', 'E']).map(|power| power.strip_prefix(['+', '-']).unwrap_or(power));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_numbers_with_a_known_suffix() {
        for good in ["0", "100m", "1.5Gi", ".5", "5.", "-1", "+2k", "1e3", "1E-3", "2E"] {
            assert!(is_quantity(good), "{good}");
        }
        for bad in ["", ".", "m", "1.2.3", "1 Gi", "1Kib", "1e", "1e+", "ten", "--1"] {
            assert!(!is_quantity(bad), "{bad}");
        }
    }

    #[test]
    fn values_of_other_types_are_refused() {
        let cases = [
            (Leaf::Text, json!("a"), json!(1)),
            (Leaf::Number, json!(7), json!(i64::MAX)),
            (Leaf::Number, json!(-7), json!(7.5)),
            (Leaf::Quantity, json!("100m"), json!("many")),
            (Leaf::Time, json!("2026-01-02T03:04:05Z"), json!("yesterday")),
            (Leaf::Reference, json!({"kind": "Pod", "name": "a"}), json!({"kind": 1})),
            (Leaf::Selector, json!({"matchLabels": {"a": "b"}}), json!({"matchLabels": {"a": 1}})),
            (
                Leaf::Selector,
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}),
                json!({"matchExpressions": [{"key": "a", "operator": "In", "values": [1]}]}),
            ),
        ];
        for (leaf, good, bad) in cases {
            assert_eq!(leaf.read(&good).as_ref(), Some(&good), "{leaf:?}");
            assert_eq!(leaf.read(&bad), None, "{leaf:?}");
        }
        assert_eq!(Leaf::Quantity.read(&json!(2)), Some(json!("2")));
        assert_eq!(Leaf::Selector.read(&json!({"matchLabels": {}, "other": 1})), Some(json!({"matchLabels": {}})));
    }
}
