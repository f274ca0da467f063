//! Placeholders for what differs from run to run: the same value gets the same name, in order of first appearance.
//!
//! Where a value stands decides what it is (`metadata.uid`, `resourceVersion`, `continue`); it is then replaced inside
//! other texts too, unless it could be part of an ordinary word.

use serde_json::Value;

/// A value this short may be part of an unrelated text, so it is replaced only where it stands alone.
const TELLING_LENGTH: usize = 16;
/// Names that were generated end in random characters, so they are told from ordinary words at any length.
const NAME: &str = "name";
/// Random characters at the end of a name made by generateName.
const SUFFIX_LENGTH: usize = 5;

/// The values seen so far with their placeholders.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: Vec<Known>,
}

#[derive(Debug)]
struct Known {
    class: &'static str,
    value: String,
    placeholder: String,
}

impl Names {
    /// A request's text with the values of earlier answers in place of their placeholders.
    pub(super) fn fill(&self, text: &str) -> String {
        self.known.iter().fold(text.to_owned(), |text, known| text.replace(&known.placeholder, &known.value))
    }

    /// A body in the form that is compared: JSON indented, lines of JSON (a watch) one to a line, other text as it is.
    pub(super) fn normalise(&mut self, body: &str) -> String {
        if let Ok(value) = serde_json::from_str::<Value>(body) {
            let value = self.replace(value);
            return format!("{value:#}");
        }
        let lines: Result<Vec<Value>, _> = body.lines().map(serde_json::from_str).collect();
        match lines {
            Ok(events) => {
                events.into_iter().map(|event| self.replace(event).to_string()).collect::<Vec<_>>().join("\n")
            }
            Err(_) => self.hide(body.trim_matches('\n')),
        }
    }

    /// A text with every telling value replaced.
    pub(super) fn hide(&self, text: &str) -> String {
        let telling = self.known.iter().filter(|known| known.class == NAME || known.value.len() >= TELLING_LENGTH);
        telling.fold(text.to_owned(), |text, known| text.replace(&known.value, &known.placeholder))
    }

    fn replace(&mut self, value: Value) -> Value {
        let value = self.name_fields(value);
        self.hide_texts(value)
    }

    /// Replaces the fields whose place says what they are.
    fn name_fields(&mut self, value: Value) -> Value {
        match value {
            Value::Array(items) => items.into_iter().map(|item| self.name_fields(item)).collect(),
            Value::Object(mut fields) => {
                self.generated_name(&mut fields);
                let named = fields.into_iter().map(|(key, value)| {
                    let value = match value {
                        Value::String(text) => Value::String(self.name_field(&key, text)),
                        other => self.name_fields(other),
                    };
                    (key, value)
                });
                Value::Object(named.collect())
            }
            other => other,
        }
    }

    fn name_field(&mut self, key: &str, text: String) -> String {
        match key {
            "uid" if is_uuid(&text) => self.name("uid", text),
            "resourceVersion" if !text.is_empty() && text != "0" => self.name("rv", text),
            "continue" if !text.is_empty() => self.name("continue", text),
            _ if is_time(&text) => "{time}".to_owned(),
            _ => text,
        }
    }

    fn generated_name(&mut self, metadata: &mut serde_json::Map<String, Value>) {
        let (Some(Value::String(base)), Some(Value::String(name))) =
            (metadata.get("generateName"), metadata.get("name"))
        else {
            return;
        };
        if name.len() == base.len() + SUFFIX_LENGTH && name.starts_with(base.as_str()) {
            let placeholder = self.name(NAME, name.clone());
            metadata.insert("name".to_owned(), Value::String(placeholder));
        }
    }

    fn name(&mut self, class: &'static str, value: String) -> String {
        let same = |known: &&Known| known.class == class;
        if let Some(known) = self.known.iter().filter(same).find(|known| known.value == value) {
            return known.placeholder.clone();
        }
        let placeholder = format!("{{{class}{}}}", self.known.iter().filter(same).count() + 1);
        self.known.push(Known { class, value, placeholder: placeholder.clone() });
        placeholder
    }

    fn hide_texts(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.hide(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.hide_texts(item)).collect(),
            Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, self.hide_texts(value))).collect(),
            other => other,
        }
    }
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`
fn is_uuid(text: &str) -> bool {
    shaped(text, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh")
}

/// RFC 3339 in UTC, to the second or to the microsecond.
fn is_time(text: &str) -> bool {
    shaped(text, "dddd-dd-ddTdd:dd:ddZ") || shaped(text, "dddd-dd-ddTdd:dd:dd.ddddddZ")
}

fn shaped(text: &str, shape: &str) -> bool {
    text.len() == shape.len()
        && text.bytes().zip(shape.bytes()).all(|(byte, shape)| match shape {
            b'h' => byte.is_ascii_hexdigit(),
            b'd' => byte.is_ascii_digit(),
            exact => byte == exact,
        })
}

#[cfg(test)]
mod tests {
    use super::Names;

    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn check(names: &mut Names, body: &str, expected: &str) {
        let seen = names.normalise(body);
        let compact: serde_json::Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(compact.to_string(), expected);
    }

    #[test]
    fn equal_values_get_equal_names_across_answers() {
        let mut names = Names::default();
        let body = format!(
            r#"{{"metadata":{{"uid":"{UID}","resourceVersion":"7","creationTimestamp":"2026-01-02T03:04:05Z"}}}}"#
        );
        let named = r#"{"metadata":{"uid":"{uid1}","resourceVersion":"{rv1}","creationTimestamp":"{time}"}}"#;
        check(&mut names, &body, named);
        check(&mut names, &body.replace(r#""7""#, r#""9""#), &named.replace("rv1", "rv2"));
        check(&mut names, &body, named);
    }

    #[test]
    fn telling_values_are_replaced_in_other_texts_and_short_ones_are_not() {
        let mut names = Names::default();
        check(
            &mut names,
            &format!(r#"{{"uid":"{UID}","resourceVersion":"7"}}"#),
            r#"{"uid":"{uid1}","resourceVersion":"{rv1}"}"#,
        );
        let message = format!(r#"{{"message":"UID {UID} at 7"}}"#);
        check(&mut names, &message, r#"{"message":"UID {uid1} at 7"}"#);
    }

    #[test]
    fn a_request_is_filled_with_what_was_seen() {
        let mut names = Names::default();
        check(
            &mut names,
            r#"{"continue":"abc","resourceVersion":"0"}"#,
            r#"{"continue":"{continue1}","resourceVersion":"0"}"#,
        );
        assert_eq!(names.fill("/x?continue={continue1}&limit={other}"), "/x?continue=abc&limit={other}");
    }

    #[test]
    fn generated_names_and_lines_of_events_are_known() {
        let mut names = Names::default();
        check(&mut names, r#"{"generateName":"a-","name":"a-x7k2p"}"#, r#"{"generateName":"a-","name":"{name1}"}"#);
        assert_eq!(names.normalise("{\"a\":1}\n{\"b\":2}\n"), "{\"a\":1}\n{\"b\":2}");
        assert_eq!(names.normalise("plain\n"), "plain");
    }
}
