//! Tests of patterns and rules in definitions: regular expressions as in Go, reserved words, estimated costs.
//!
//! The crate `cel` has tables of Go's results. These tests cover the differences that clients see.

use keelson_testkit::{Answer, DEFINITIONS, Raw, TestServer, definition_version};
use serde_json::{Value, json};

use super::{definition, establish};

const GROUP: &str = "patterns.example.com";

/// A definition with this schema of `spec`.
fn defined(plural: &str, kind: &str, spec: &Value) -> Value {
    let schema = json!({ "type": "object", "properties": { "spec": spec } });
    definition(GROUP, plural, kind, vec![definition_version("v1", true, schema)])
}

async fn create(raw: &Raw, plural: &str, spec: Value) -> Answer {
    let path = format!("/apis/{GROUP}/v1/namespaces/default/{plural}?dryRun=All");
    raw.post(path, &json!({ "metadata": { "name": "a" }, "spec": spec })).await
}

/// Patterns of definitions, with a text that each matches in Go and one that it does not.
const PATTERNS: [(&str, &str, &str); 15] = [
    (r"^a\ b$", "a b", "a\tb"),
    ("^a\\\tb$", "a\tb", "a b"),
    ("^a\\\nb$", "a\nb", "a b"),
    (r"^[\w-.]+$", "a-b.c", "a b"),
    (r"^\p{^Greek}$", "a", "ω"),
    (r"^(?P<n>a)(?P<n>b)$", "ab", "a"),
    (r"^\<b\>$", "<b>", "b"),
    (r"^[\<\>]$", ">", "b"),
    (r"^\Q[a]\E$", "[a]", "a"),
    (r"^[[a]$", "[", "b"),
    (r"^[a&&b]+$", "a&b", "c"),
    (r"^(?i)k$", "\u{212a}", "x"),
    (r"^\d+$", "12", "١"),
    (r"^(?U)a+$", "aa", "b"),
    (r"^\pN\p{Letter}$", "1a", "a1"),
];

/// Patterns that Go refuses, each with its error.
const REFUSED: [(&str, &str); 10] = [
    ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
    ("[a--b]", "invalid character class range: `a--`"),
    (r"\p{Script=Greek}", r"invalid character class range: `\p{Script=Greek}`"),
    (r"[\Q]\E]", r"invalid escape sequence: `\Q`"),
    (r"a\Z", r"invalid escape sequence: `\Z`"),
    (r"\C", r"invalid escape sequence: `\C`"),
    ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
    ("a(", "missing closing ): `a(`"),
    ("a{1001}", "invalid repeat count: `{1001}`"),
    ("a**", "invalid nested repetition operator: `**`"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_and_rules_match_as_in_go() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let field = |at: usize| format!("f{at}");
    let mut properties = json!({});
    for (at, (pattern, ..)) in PATTERNS.iter().enumerate() {
        properties[field(at)] = json!({ "type": "string", "pattern": pattern });
        let literal = pattern.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n");
        let rule = json!([{ "rule": format!("self.matches('{literal}')"), "message": "does not match" }]);
        properties[format!("r{at}")] = json!({ "type": "string", "maxLength": 10, "x-kubernetes-validations": rule });
    }
    let spec = json!({ "type": "object", "properties": properties });
    establish(&raw, &defined("widgets", "Widget", &spec)).await;
    for (at, (pattern, good, bad)) in PATTERNS.into_iter().enumerate() {
        for name in [field(at), format!("r{at}")] {
            let status = async |text: &str| create(&raw, "widgets", json!({ name.clone(): text })).await.status;
            assert_eq!((status(good).await, status(bad).await), (201, 422), "{name}: {pattern:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patterns_that_go_refuses_are_refused_with_its_errors() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (pattern, error) in REFUSED {
        let spec = json!({ "type": "object", "properties": { "f": { "type": "string", "pattern": pattern } } });
        let answer = raw.post(format!("{DEFINITIONS}?dryRun=All"), &defined("gadgets", "Gadget", &spec)).await;
        assert_eq!(answer.status, 422, "{pattern}: {}", answer.text());
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        let expected = format!("must be a valid regular expression, but isn't: error parsing regexp: {error}");
        assert!(message.ends_with(&expected), "{pattern}: {message}");
        let rule = json!([{ "rule": format!("self.matches('{}')", pattern.replace('\\', "\\\\")) }]);
        let spec = json!({ "type": "string", "maxLength": 10, "x-kubernetes-validations": rule });
        let spec = json!({ "type": "object", "properties": { "f": spec } });
        let answer = raw.post(format!("{DEFINITIONS}?dryRun=All"), &defined("gadgets", "Gadget", &spec)).await;
        assert!(
            answer.status == 422 && answer.text().contains("invalid matches argument"),
            "{pattern}: {}",
            answer.text()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_read_texts_without_a_limit_are_too_costly() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let spec = |rule: &str, most: Option<u64>| {
        let mut item = json!({ "type": "string" });
        let mut list =
            json!({ "type": "array", "x-kubernetes-validations": [{ "rule": format!("self.all(x, {rule})") }] });
        if let Some(most) = most {
            (item["maxLength"], list["maxItems"]) = (json!(most), json!(most));
        }
        list["items"] = item;
        json!({ "type": "object", "properties": { "l": list } })
    };
    for rule in [
        "quantity(x).isGreaterThan(quantity('0'))",
        "quantity(x).add(1).isInteger()",
        "isQuantity(x)",
        "isIP(x)",
        "ip(x).family() == 4",
        "ip.isCanonical(x)",
        "isCIDR(x)",
        "cidr(x).prefixLength() > 8",
        "isSemver(x)",
        "semver(x).major() > 1",
    ] {
        let sent = async |most| {
            raw.post(format!("{DEFINITIONS}?dryRun=All"), &defined("parts", "Part", &spec(rule, most))).await
        };
        let refused = sent(None).await;
        assert_eq!(refused.status, 422, "{rule}: {}", refused.text());
        let expected = "estimated rule cost exceeds budget by factor of more than 100x";
        assert!(refused.text().contains(expected), "{rule}: {}", refused.text());
        assert_eq!(sent(Some(20)).await.status, 201, "{rule}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserved_words_name_fields_in_rules() {
    const WORDS: [&str; 17] = [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let server = TestServer::start().await;
    let raw = server.raw();
    let properties: Value = WORDS
        .iter()
        .map(|word| ((*word).to_owned(), json!({ "type": "integer" })))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let rules = WORDS.iter().flat_map(|word| {
        [format!("!has(self.{word}) || self.{word} > 1"), format!("!has(self.__{word}__) || self.__{word}__ > 2")]
    });
    let rules: Vec<Value> = rules.map(|rule| json!({ "rule": rule })).collect();
    let spec = json!({ "type": "object", "properties": properties, "x-kubernetes-validations": rules });
    establish(&raw, &defined("words", "Word", &spec)).await;
    for word in WORDS {
        assert_eq!(create(&raw, "words", json!({ word: 3 })).await.status, 201, "{word}");
        let refused = create(&raw, "words", json!({ word: 1 })).await;
        let causes = refused.json()["details"]["causes"].as_array().map_or(0, Vec::len);
        assert_eq!((refused.status, causes), (422, 2), "{word}: {}", refused.text());
    }
}
