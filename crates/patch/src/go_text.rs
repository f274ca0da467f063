//! Formats values as Go's `%v` does, for upstream's messages.
//!
//! Keys are sorted, as Go sorts them.

use keelson_meta::json::{Map, Value};

/// An object: `map[a:1 b:[x y]]`, sorted by key.
pub fn object(object: &Map) -> String {
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
pub fn value(any: &Value) -> String {
    match any {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.to_string(),
        Value::Array(items) => list(items),
        Value::Object(members) => object(members),
    }
}

/// Any value as `%s` formats it, which marks values that are not strings.
pub(crate) fn as_text(any: &Value) -> String {
    match any {
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={})", type_name(any), value(any)),
        Value::String(text) => text.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(as_text).collect::<Vec<_>>().join(" ")),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_unstable_by_key(|(key, _)| *key);
            let members: Vec<_> =
                members.into_iter().map(|(key, member)| format!("{key}:{}", as_text(member))).collect();
            format!("map[{}]", members.join(" "))
        }
    }
}

/// The Go type that this JSON type decodes into.
pub fn type_name(any: &Value) -> &'static str {
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
        let text = "map[a:map[c:map[]] b:[%!s(int64=1) x y %!s(<nil>) %!s(bool=true)]]";
        assert_eq!(super::as_text(&value), text);
    }
}
