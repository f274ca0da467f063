//! Resolves paths of fields in definitions (`.spec.names['a.b']`) through the properties and maps of a schema.
//!
//! CEL rules use them to name the field of a fault (`fieldPath`), and definitions to name selectable fields.

use keelson_meta::json::Value;

/// The field at the end of a path.
#[derive(Debug)]
pub struct FieldPath<'s> {
    /// The path in the format of field errors: `spec.names.a.b`, with keys of maps in brackets.
    pub path: String,
    /// The first field of the path.
    pub root: String,
    /// The schema of the field. Null if the schema is empty.
    pub schema: &'s Value,
}

/// Resolves a path in a schema. `brackets` allows names in brackets and quotation marks.
///
/// # Errors
/// The schema has no such field, or the path is malformed. The text is upstream's.
pub fn resolve<'s>(path: &str, schema: &'s Value, brackets: bool) -> Result<FieldPath<'s>, String> {
    const END: &str = "unexpected end of JSON path";
    let mut found = FieldPath { path: String::new(), root: String::new(), schema };
    let mut rest = path;
    while let Some(token) = next(&mut rest) {
        match token {
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let quoted = next(&mut rest).ok_or(END)?;
                let inner = quoted.strip_prefix('\'').and_then(|open| open.strip_suffix('\''));
                let inner = inner.ok_or_else(|| format!("expected single quoted string but got {quoted}"))?;
                found.step(&unescaped(inner)?)?;
                match next(&mut rest).ok_or(END)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            "." => found.step(next(&mut rest).ok_or(END)?)?,
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

impl FieldPath<'_> {
    fn step(&mut self, name: &str) -> Result<(), String> {
        const NOWHERE: &str = "does not refer to a valid field";
        let properties = self.schema.get("properties").and_then(Value::as_object).filter(|fields| !fields.is_empty());
        let others = self.schema.get("additionalProperties").filter(|others| !others.is_null());
        match (properties, others) {
            (Some(properties), _) => {
                self.schema = properties.get(name).ok_or(NOWHERE)?;
                if !self.path.is_empty() {
                    self.path.push('.');
                }
                self.path.push_str(name);
            }
            (None, Some(others)) => {
                self.schema = others;
                self.path.push_str(&format!("[{name}]"));
            }
            (None, None) => return Err(NOWHERE.to_owned()),
        }
        if self.root.is_empty() {
            name.clone_into(&mut self.root);
        }
        Ok(())
    }
}

/// Takes the next token: a delimiter, a quoted text, or the text between delimiters.
fn next<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let is_delimiter = |c: char| matches!(c, '.' | '[' | ']');
    let length = match rest.chars().next()? {
        '\'' => {
            let bytes = rest.as_bytes();
            (1..bytes.len()).find(|at| bytes[*at] == b'\'' && bytes[at - 1] != b'\\').map_or(rest.len(), |end| end + 1)
        }
        first if is_delimiter(first) => 1,
        _ => rest.find(is_delimiter).unwrap_or(rest.len()),
    };
    let (token, behind) = rest.split_at(length);
    *rest = behind;
    Some(token)
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('a') => '\u{7}',
                Some('b') => '\u{8}',
                Some('f') => '\u{c}',
                Some('n') => '\n',
                Some('r') => '\r',
                Some('t') => '\t',
                Some('v') => '\u{b}',
                Some(plain @ ('\'' | '\\')) => plain,
                Some(other) => return Err(format!("invalid string literal: invalid escape char \\{other}")),
                None => '\\',
            },
            c => c,
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn a_path_leads_through_properties_and_maps() {
        let schema = json!({"properties": {
            "a": {"properties": {"b.c": {"type": "string"}}},
            "m": {"additionalProperties": {"properties": {"x": {"type": "integer"}}}},
            "l": {"type": "array", "items": {"type": "string"}},
        }});
        let check = |path: &str, brackets: bool, expected: Result<(&str, &str), &str>| {
            let found = resolve(path, &schema, brackets);
            let found = found.as_ref().map(|found| (&*found.path, &*found.root)).map_err(|why| &**why);
            assert_eq!(found, expected, "{path}");
        };
        check(".a['b.c']", true, Ok(("a.b.c", "a")));
        check(".m['k'].x", true, Ok(("m[k].x", "m")));
        check(".m.k", true, Ok(("m[k]", "m")));
        check(".m['it\\'s']", true, Ok(("m[it's]", "m")));
        check(".a['b.c']", false, Err("array notation is not allowed"));
        check("a", true, Err("expected [ or . but got: a"));
        check(".", true, Err("unexpected end of JSON path"));
        check(".m['k'", true, Err("unexpected end of JSON path"));
        check(".l[0]", true, Err("expected single quoted string but got 0"));
        check(".l['0']", true, Err("does not refer to a valid field"));
        check(".a.z", true, Err("does not refer to a valid field"));
        check(".a['\\q']", true, Err("invalid string literal: invalid escape char \\q"));
    }
}
