//! Placeholders for values that differ between runs: equal values get equal names, in order of first appearance.
//!
//! The place of a value determines its class (`metadata.uid`, `resourceVersion`, `continue`). It is then also replaced
//! inside of other texts, unless it could be part of an ordinary word.

use serde_json::Value;

use super::{RecordedServer, written};

/// The length from which a value is replaced inside of other texts. Shorter ones may be part of unrelated text.
const TELLING_LENGTH: usize = 16;
/// The class of generated names. They end in random characters, so they are replaced at any length.
const NAME: &str = "name";
/// The class of the server's address, with a free port.
const ADDRESS: &str = "address";
const REVISION: &str = "rv";
const TAG: &str = "tag";
/// The class of ports, used only in requests: too short to be recognized in texts.
const PORT: &str = "port";
/// The texts before a resourceVersion, which is too short to be distinguished from other numbers.
const BEFORE_REVISIONS: [&str; 4] = ["current: ", "in record (", "resourceVersion: \"", "too old resource version: "];
/// The number of random characters at the end of a generated name.
const SUFFIX_LENGTH: usize = 5;

/// The start of every signed token: a JSON object.
const JWT: &str = "eyJ";
/// The prefix of a token's id in a user's extra values.
const TOKEN_ID: &str = "JTI=";

/// RFC 3339 in UTC, to the second and to the microsecond; `d` is a digit.
const TIME_SHAPES: [&str; 2] = ["dddd-dd-ddTdd:dd:ddZ", "dddd-dd-ddTdd:dd:dd.ddddddZ"];

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
    /// Creates an empty set that knows only the server's address, as `host:port`.
    pub(super) fn of_server(address: &str) -> Self {
        let placeholder = format!("{{{ADDRESS}}}");
        Self { known: vec![Known { class: ADDRESS, value: address.to_owned(), placeholder }] }
    }

    /// Adds a further server.
    pub(super) fn add_server(&mut self, RecordedServer { name, port, ca_bundle }: &RecordedServer) {
        let mut known = |class, value: String, placeholder| self.known.push(Known { class, value, placeholder });
        known(ADDRESS, format!("localhost:{port}"), format!("{{{name}}}"));
        known(PORT, port.to_string(), format!("{{{name}.port}}"));
        known(ADDRESS, ca_bundle.clone(), format!("{{{name}.ca}}"));
    }

    /// The placeholder of an ETag.
    pub(super) fn tag(&mut self, value: &str) -> String {
        self.name(TAG, value.to_owned())
    }

    /// The name of a uid.
    pub(super) fn uid(&mut self, value: &str) -> String {
        self.name("uid", value.to_owned())
    }

    /// A request's text in which values of earlier responses replace their placeholders, and function calls are
    /// expanded.
    pub(super) fn fill(&self, text: &str) -> String {
        let filled =
            self.known.iter().fold(text.to_owned(), |text, known| text.replace(&known.placeholder, &known.value));
        written::expand(&filled)
    }

    /// A body in the form for comparison: indented JSON, one line for each JSON line of a watch, or unchanged text.
    /// With pointers, only these parts of JSON.
    pub(super) fn normalise(&mut self, body: &str, only: Option<&str>) -> String {
        if let Ok(value) = serde_json::from_str::<Value>(body) {
            let value = only.map_or_else(|| value.clone(), |pointers| parts(&value, pointers));
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

    /// Replaces every known value in a text.
    pub(super) fn hide(&self, text: &str) -> String {
        let telling = |known: &&Known| {
            matches!(known.class, NAME | ADDRESS) || known.class != TAG && known.value.len() >= TELLING_LENGTH
        };
        let hidden = self
            .known
            .iter()
            .filter(telling)
            .fold(hide_times(text), |text, known| text.replace(&known.value, &known.placeholder));
        BEFORE_REVISIONS.iter().fold(hidden, |text, before| self.hide_revisions(&text, before))
    }

    /// Replaces numbers after `before`: a known resourceVersion by its name, an unknown one by `{rv}`. In `before: A
    /// (B)`, the message for a watch that starts too early, B counts.
    fn hide_revisions(&self, text: &str, before: &str) -> String {
        let mut parts = text.split(before);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            out.push_str(before);
            let (asked, rest) = part.split_at(digits(part));
            match rest.strip_prefix(" (") {
                Some(oldest) if digits(oldest) > 0 => {
                    let (oldest, rest) = oldest.split_at(digits(oldest));
                    out.push_str(&format!("{} ({}{rest}", self.revision(asked, asked), self.revision(oldest, "{rv}")));
                }
                _ if asked.is_empty() => out.push_str(rest),
                _ => out.push_str(&format!("{}{rest}", self.revision(asked, "{rv}"))),
            }
        }
        out
    }

    fn revision<'a>(&'a self, value: &str, unknown: &'a str) -> &'a str {
        let same = |known: &&Known| known.class == REVISION && known.value == value;
        self.known.iter().find(same).map_or(unknown, |known| &known.placeholder)
    }

    fn replace(&mut self, value: Value) -> Value {
        let value = self.name_fields(value);
        self.hide_texts(value)
    }

    /// Replaces fields whose name determines the class of their value.
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
            Value::String(text) => Value::String(self.credential(text)),
            other => other,
        }
    }

    fn name_field(&mut self, key: &str, text: String) -> String {
        // With several parts of a body, the key is the part's pointer.
        match key.rsplit('/').next().unwrap_or(key) {
            "uid" if is_uuid(&text) => self.name("uid", text),
            "resourceVersion" if !text.is_empty() && text != "0" => self.name(REVISION, text),
            "continue" if !text.is_empty() => self.token(text),
            "token" if text.starts_with(JWT) => self.name("token", text),
            _ if is_time(&text) => "{time}".to_owned(),
            _ => text,
        }
    }

    /// Replaces the unique id of a token or certificate in a user's extra values.
    fn credential(&mut self, text: String) -> String {
        match text.strip_prefix(TOKEN_ID) {
            Some(id) if is_uuid(id) => format!("{TOKEN_ID}{}", self.name("id", id.to_owned())),
            _ => text,
        }
    }

    /// A continue token with its content, so that a record shows the position.
    fn token(&mut self, text: String) -> String {
        match written::token(&text) {
            Some((revision, start)) if revision > 0 => {
                format!("token({} {start})", self.name(REVISION, revision.to_string()))
            }
            Some((revision, start)) => format!("token({revision} {start})"),
            None => self.name("continue", text),
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

/// The parts at the pointers: the value itself for one, an object by pointer for several.
fn parts(value: &Value, pointers: &str) -> Value {
    let mut found: Vec<(String, Value)> =
        pointers.split_whitespace().map(|pointer| (pointer.to_owned(), part(value, pointer))).collect();
    match found.as_mut_slice() {
        [(_, one)] => one.take(),
        _ => Value::Object(found.into_iter().collect()),
    }
}

fn part(value: &Value, pointer: &str) -> Value {
    let marked = ["/*", "/@"].into_iter().filter_map(|mark| pointer.find(mark)).min();
    let Some((list, rest)) = marked.map(|place| pointer.split_at(place)) else {
        return value.pointer(pointer).cloned().unwrap_or_default();
    };
    let mut items = value.pointer(list).and_then(Value::as_array).into_iter().flatten();
    let Some(named) = rest.strip_prefix("/@") else {
        return items.map(|item| part(item, &rest["/*".len()..])).collect();
    };
    let (name, rest) = named.split_at(named.find('/').unwrap_or(named.len()));
    items.find(|item| is_called(item, name)).map_or(Value::Null, |item| part(item, rest))
}

fn is_called(item: &Value, name: &str) -> bool {
    item["metadata"]["name"] == name || ["name", "version", "resource"].iter().any(|field| item[field] == name)
}

/// The number of leading digits.
fn digits(text: &str) -> usize {
    text.bytes().take_while(u8::is_ascii_digit).count()
}

/// Replaces times inside of a text.
fn hide_times(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let time = TIME_SHAPES.iter().filter_map(|shape| rest.get(..shape.len())).find(|start| is_time(start));
        let taken = time.map_or(next.len_utf8(), str::len);
        out.push_str(if time.is_some() { "{time}" } else { &rest[..taken] });
        rest = &rest[taken..];
    }
    out
}

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`
fn is_uuid(text: &str) -> bool {
    shaped(text, "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh")
}

/// RFC 3339 in UTC, to the second or to the microsecond.
fn is_time(text: &str) -> bool {
    TIME_SHAPES.iter().any(|shape| shaped(text, shape))
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
    use serde_json::json;

    use super::{Names, RecordedServer, parts};

    const UID: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";

    fn check(names: &mut Names, body: &str, expected: &str) {
        let seen = names.normalise(body, None);
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
        let parts = names.normalise(&body, Some("/metadata/uid /metadata/resourceVersion"));
        assert!(parts.contains("{uid1}") && parts.contains("{rv1}"), "{parts}");
    }

    #[test]
    fn long_recorded_values_are_replaced_within_texts() {
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
    fn servers_that_run_beside_have_names() {
        let mut names = Names::default();
        names.add_server(&RecordedServer { name: "ferry", port: 4000, ca_bundle: "Y2E=".to_owned() });
        assert_eq!(names.fill("{ferry} {ferry.port} {ferry.ca}"), "localhost:4000 4000 Y2E=");
        check(
            &mut names,
            r#"{"at":"https://localhost:4000/","ca":"Y2E=","n":"4000"}"#,
            r#"{"at":"https://{ferry}/","ca":"{ferry.ca}","n":"4000"}"#,
        );
        assert_eq!(
            (names.tag("\"a\""), names.tag("\"b\""), names.tag("\"a\"")),
            ("{tag1}".to_owned(), "{tag2}".to_owned(), "{tag1}".to_owned())
        );
        assert_eq!(names.fill("{tag2}"), "\"b\"");
    }

    #[test]
    fn placeholders_in_requests_are_filled_with_recorded_values() {
        let mut names = Names::default();
        check(
            &mut names,
            r#"{"continue":"abc","resourceVersion":"0"}"#,
            r#"{"continue":"{continue1}","resourceVersion":"0"}"#,
        );
        assert_eq!(names.fill("/x?continue={continue1}&limit={other}"), "/x?continue=abc&limit={other}");
    }

    #[test]
    fn listed_tokens_authenticate_their_users() {
        let mut names = Names::default();
        check(&mut names, r#"{"token":"eyJh.b.c"}"#, r#"{"token":"{token1}"}"#);
        check(&mut names, r#"{"token":"ann"}"#, r#"{"token":"ann"}"#);
        assert_eq!(names.fill("Bearer {token1}"), "Bearer eyJh.b.c");
        check(&mut names, &format!(r#"{{"ids":["JTI={UID}","JTI=x"]}}"#), r#"{"ids":["JTI={id1}","JTI=x"]}"#);
    }

    #[test]
    fn generated_names_and_lines_of_events_are_known() {
        let mut names = Names::default();
        check(&mut names, r#"{"generateName":"a-","name":"a-x7k2p"}"#, r#"{"generateName":"a-","name":"{name1}"}"#);
        assert_eq!(names.normalise("{\"a\":1}\n{\"b\":2}\n", None), "{\"a\":1}\n{\"b\":2}");
        assert_eq!(names.normalise("plain\n", None), "plain");
    }

    #[test]
    fn revisions_and_times_in_texts_are_recognized_by_context() {
        let mut names = Names::of_server("127.0.0.1:6443");
        check(&mut names, r#"{"resourceVersion":"7"}"#, r#"{"resourceVersion":"{rv1}"}"#);
        for (text, hidden) in [
            ("Too large resource version: 77, current: 9 at 7", "Too large resource version: 77, current: {rv} at 7"),
            ("the one in record (7)", "the one in record ({rv1})"),
            ("too old resource version: 7 (8)", "too old resource version: {rv1} ({rv})"),
            ("too old resource version: 1 (8)", "too old resource version: 1 ({rv})"),
            ("from 2026-01-02T03:04:05Z at 127.0.0.1:6443", "from {time} at {address}"),
        ] {
            assert_eq!(names.hide(text), hidden);
        }
    }

    #[test]
    fn continue_tokens_are_shown_and_written_by_content() {
        let mut names = Names::default();
        let token = names.fill("token(7 /b)");
        let body = format!(r#"{{"resourceVersion":"7","continue":"{token}"}}"#);
        check(&mut names, &body, r#"{"resourceVersion":"{rv1}","continue":"token({rv1} /b)"}"#);
        assert_eq!(names.fill("token({rv1} /b)"), token);
    }

    #[test]
    fn a_selection_normalises_parts_of_a_body() {
        let mut names = Names::default();
        assert_eq!(names.normalise(r#"{"a":[1,2]}"#, Some("/a/1")), "2");
        assert_eq!(names.normalise(r#"{"a":[1,2]}"#, Some("/b")), "null");
        assert_eq!(parts(&json!({"a": [{"b": 1}, {"b": 2}], "c": 3}), "/a/*/b /c"), json!({"/a/*/b": [1, 2], "/c": 3}));
        let named =
            json!({"a": [{"metadata": {"name": "x"}, "b": [{"version": "v1", "c": 1}, {"version": "v2", "c": 2}]}]});
        assert_eq!(parts(&named, "/a/@x/b/@v2/c"), json!(2));
        assert_eq!(parts(&named, "/a/@x/b/*/c"), json!([1, 2]));
        assert_eq!(parts(&named, "/a/*/b/@v1/c"), json!([1]));
        assert_eq!(parts(&named, "/a/@y/b"), json!(null));
    }
}
