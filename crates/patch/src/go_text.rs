//! Values as Go's `%v` prints them, which is how upstream puts them into its messages.

use keelson_meta::json::{Map, Value};

/// An object: `map[a:1 b:[x y]]`, sorted by key.
pub(crate) fn object(object: &Map) -> String {
    let mut keys: Vec<_> = object.iter().collect();
    keys.sort_unstable_by_key(|(key, _)| *key);
    let members: Vec<_> = keys.into_iter().map(|(key, member)| format!("{key}:{}", value(member))).collect();
    format!("map[{}]", members.join(" "))
}

/// A list: `[x y]`.
pub(crate) fn list(items: &[Value]) -> String {
    format!("[{}]", items.iter().map(value).collect::<Vec<_>>().join(" "))
}

/// Any value.
pub(crate) fn value(any: &Value) -> String {
    match any {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => list(items),
        Value::Object(members) => object(members),
    }
}

/// The Go type that JSON of this form is decoded into.
pub(crate) fn type_name(any: &Value) -> &'static str {
    match any {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    #[test]
    fn values_read_as_go_prints_them() {
        let value = json!({"b": [1, "x y", null, true], "a": {"c": {}}});
        assert_eq!(super::value(&value), "map[a:map[c:map[]] b:[1 x y <nil> true]]");
    }
}
