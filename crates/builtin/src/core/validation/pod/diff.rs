//! The difference between two values, for the error about a forbidden update.
//!
//! Upstream prints Go structures in a randomly varying form. Here, each changed field is listed with its old and new
//! value.

use std::fmt::Write as _;

use keelson_meta::json::Value;

/// The largest number of fields listed.
const MOST: usize = 16;

/// The fields that differ, with a line for the old and the new value each.
pub fn difference(old: &Value, new: &Value) -> String {
    let mut lines = Vec::new();
    collect(&mut String::new(), old, new, &mut lines);
    let left_out = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    let mut text = lines.concat();
    if left_out > 0 {
        text.push_str(&format!("  ... and {left_out} more\n"));
    }
    text
}

fn collect(path: &mut String, old: &Value, new: &Value, lines: &mut Vec<String>) {
    if old == new {
        return;
    }
    let length = path.len();
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|name| !before.contains_key(name));
            for name in before.keys().chain(added) {
                let dot = if path.is_empty() { "" } else { "." };
                let written = write!(path, "{dot}{name}");
                debug_assert!(written.is_ok(), "writing to a string cannot fail");
                let get = |tree: &Value| tree.get(name).cloned().unwrap_or_default();
                collect(path, &get(old), &get(new), lines);
                path.truncate(length);
            }
        }
        (Value::Array(before), Value::Array(after)) if before.len() == after.len() => {
            for (index, (before, after)) in before.iter().zip(after).enumerate() {
                path.push_str(&format!("[{index}]"));
                collect(path, before, after, lines);
                path.truncate(length);
            }
        }
        _ => lines.push(format!("- {path}: {old}\n+ {path}: {new}\n")),
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::difference;

    #[test]
    fn changed_fields_are_listed() {
        let old = json!({"a": 1, "list": [{"b": 1}, {"b": 2}], "gone": true});
        let new = json!({"a": 1, "list": [{"b": 1}, {"b": 3}], "new": {}});
        let expected = "- list[1].b: 2\n+ list[1].b: 3\n- gone: true\n+ gone: null\n- new: null\n+ new: {}\n";
        assert_eq!(difference(&old, &new), expected);
        assert_eq!(difference(&old, &old), "");
    }
}
