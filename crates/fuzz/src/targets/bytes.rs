//! Bodies and stored bytes: JSON, YAML, protobuf, stored objects, and the schema walk of each body.
//!
//! The properties hold for every input: refusals do not panic, and accepted values survive a round trip.

use bytes::Bytes;
use keelson_codec::{StoredObject, json, pretty, yaml};
use keelson_meta::json::{Map, Value};
use keelson_meta::{Object, Revision};
use keelson_schema::{Schemas, WalkOptions, WalkReport};

use super::{Target, form, refused};

const JSON_WORDS: &[&str] = &[
    "{\"a\":",
    "{}",
    "[]",
    "[[",
    "\"\\u",
    "\\ud800",
    "\\udc00",
    "null",
    "true",
    "false",
    "-0",
    "1e",
    "1e400",
    "0.1",
    "\"a\":",
    ",",
    "18446744073709551616",
    "\"\\\\\"",
    "\u{feff}",
    "\u{2028}",
];

pub(super) const JSON: Target = Target {
    name: "json",
    seeds: &[
        br#"{"a":1,"b":[true,false,null,-1.5e3,"x\n\u00e9\ud83d\ude00"],"a":{"c":{}}}"#,
        b" [ 1 , 2 ] ",
        b"\"text\"",
        b"18446744073709551615",
    ],
    words: JSON_WORDS,
    check: |input| {
        let oracle = serde_json::from_slice::<serde_json::Value>(input);
        match json::parse(input) {
            Ok(parsed) => {
                let text = json::to_vec(&parsed.value);
                let again = json::parse(&text).unwrap_or_else(|error| panic!("the output is not JSON: {error}"));
                assert_eq!(again.value, parsed.value, "the output reads differently");
                // Lone surrogates, which serde_json refuses, become U+FFFD.
                if let Ok(oracle) = oracle {
                    let theirs = serde_json::to_vec(&oracle).unwrap_or_default();
                    let theirs = json::parse(&theirs).unwrap_or_else(|error| panic!("no JSON for us: {error}"));
                    assert_eq!(theirs.value, parsed.value, "serde_json reads another value");
                } else {
                    assert!(has_surrogate(input), "serde_json refuses what is read");
                }
                check_indented(&text);
                form(&parsed.value)
            }
            Err(error) => {
                let deep = input.iter().filter(|byte| matches!(byte, b'{' | b'[')).count() > json::MAX_DEPTH;
                assert!(oracle.is_err() || deep, "serde_json reads what is refused: {error}");
                refused(&error)
            }
        }
    },
};

/// Returns true if a text may contain an escaped surrogate.
fn has_surrogate(input: &[u8]) -> bool {
    input.windows(3).any(|bytes| bytes[..2] == *b"\\u" && bytes[2].eq_ignore_ascii_case(&b'd'))
}

/// Checks that indented JSON and YAML have the same value, and that the pieces of a form equal the whole.
fn check_indented(compact: &[u8]) {
    let mut indented = Vec::new();
    pretty::write(compact, 0, &mut indented);
    assert_eq!(indented.len(), pretty::length(compact), "the length of the indented form");
    let (ours, other) = (json::parse(compact), json::parse(&indented));
    assert_eq!(ours.ok().map(|parsed| parsed.value), other.ok().map(|parsed| parsed.value), "the indented form");
    let mut pieces = pretty::Pieces::new(Bytes::copy_from_slice(compact));
    let together: Vec<u8> = std::iter::from_fn(|| pieces.next(7)).flatten().collect();
    assert_eq!(together, indented, "the pieces of the indented form");
    let whole = yaml::from_json(compact);
    let mut pieces = yaml::Pieces::of_json(compact);
    let together: Vec<u8> = std::iter::from_fn(|| pieces.next(7)).flatten().collect();
    assert_eq!(together, whole, "the pieces of the YAML form");
}

pub(super) const YAML: Target = Target {
    name: "yaml",
    seeds: &[
        b"a: 1\nb:\n- x\n- {c: d, e: [f, 'g', \"h\\n\"]}\nk: |\n  text\n  more\nl: >-\n  folded\n",
        b"{a: b, c: [1, 2.5, ~, yes, 0x1f, 1:30], \"d\": 'e'}",
        b"--- # comment\n? a\n: !!str 1\n...\n",
        b"- - 1\n  - 2\n-\n  a: 2001-01-01\n",
    ],
    words: &[
        ": ",
        "- ",
        "? ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "|\n",
        ">\n",
        "|2+\n",
        "&a ",
        "*a",
        "!!int ",
        "!!binary ",
        "<<: ",
        "---\n",
        "...\n",
        "#",
        "'",
        "\"",
        "\\x",
        "\n  ",
        "\n",
        "\t",
        "~",
        "yes",
        "0o7",
        ".inf",
        "%YAML 1.1\n",
        "\u{feff}",
        "\u{85}",
        "\u{2028}",
        "\\\n",
        "\r\n",
        "!e!x ",
        "%TAG !e! x:\n",
        "|\n\n  \t",
        "a: ",
    ],
    check: |input| match yaml::parse(input) {
        Ok(parsed) => {
            let written = yaml::to_vec(&parsed.value);
            let again = yaml::parse(&written).unwrap_or_else(|error| {
                panic!("the output is not YAML: {error}: {}", String::from_utf8_lossy(&written))
            });
            assert_eq!(
                again.value,
                parsed.value,
                "the output reads differently: {}",
                String::from_utf8_lossy(&written)
            );
            form(&parsed.value)
        }
        Err(error) => refused(&error.problem),
    },
};

pub(super) const YAML_TEXT: Target = Target {
    name: "yaml-text",
    seeds: &[
        b"0o14",
        b"<<",
        b"a: b # c\n  d\n",
        b" x \ny\t\n\n",
        "\u{85}\u{2028}\u{7f}\u{feff}".as_bytes(),
        b"- |+\n\tx",
    ],
    words: &[
        ": ", " #", "\n", "\n ", " \n", "\t", "- ", "? ", "---", "...", "0X1f", "1_0", ".5", "~", "yes", "'", "\"",
        "\u{2029}", "%",
    ],
    check: |input| {
        let text = String::from_utf8_lossy(input);
        let mut value = Map::new();
        value.insert(&*text, Value::Array(vec![Value::from(&*text)]));
        value.insert("text of a member", &*text);
        let value = Value::Object(value);
        let written = yaml::to_vec(&value);
        let read = yaml::parse(&written).map(|parsed| parsed.value);
        assert_eq!(read, Ok(value), "a text is written as {}", String::from_utf8_lossy(&written));
        // The style follows the key.
        written
            .iter()
            .rev()
            .take(8)
            .filter(|byte| !byte.is_ascii_alphanumeric())
            .fold(0, |kind, byte| kind << 8 | u64::from(*byte))
    },
};

pub(super) const PROTOBUF: Target = Target {
    name: "protobuf",
    seeds: &[
        b"k8s\0\n\x0f\n\x02v1\x12\tConfigMap\x12\x15\n\x05\n\x03cm1\x12\x06\n\x01a\x12\x01b\x12\x04\n\x01c\x12",
        b"k8s\0\n\t\n\x02v1\x12\x03Pod\x12\x26\n\x06\n\x04pod1\x12\x1c\x12\x1a\n\x04name\x12\x05image:\x0b\n\x09\n\x03cpu\x12\x02\n\x001",
        b"k8s\0\n\x15\n\x07apps/v1\x12\nDeployment\x12\x0c\n\x03\n\x01d\x12\x05\x08\x03\x12\x01\n",
    ],
    words: &["k8s\0", "\n\x02v1", "\x12\x03Pod", "\x08\x7f", "\x0a\x00", "\x12\x00", "\x1a\x04", "Secret", "Event", "Lease", "\x22\x02\x08\x01"],
    check: |input| match keelson_protobuf::decode(input) {
        Ok(decoded) => {
            let (version, kind) = (decoded.object.api_version().unwrap_or_default(), decoded.object.kind().unwrap_or_default());
            // Accepted objects have the shape of their kind, so they survive a round trip.
            let Ok(written) = keelson_protobuf::encode(version, kind, &decoded.object) else {
                return form(&decoded.object.into_value());
            };
            let again = keelson_protobuf::decode(&written)
                .unwrap_or_else(|error| panic!("the output can't be read: {error}"));
            assert_eq!(again.object, decoded.object, "the output reads differently");
            form(&decoded.object.into_value())
        }
        Err(error) => refused(&error),
    },
};

pub(super) const STORED: Target = Target {
    name: "stored",
    seeds: &[
        br#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"b","uid":"c","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"x":"y"}},"data":{"k":"v"}}"#,
    ],
    words: &["\"kind\":", "\"apiVersion\":", "\"metadata\":{", "\"name\":\"", "\"managedFields\":[{}]", "\"labels\":{\"a\":\"b\"}", "{", "}", ",", "null"],
    check: |input| match StoredObject::parse(Bytes::copy_from_slice(input)) {
        Ok(stored) => {
            let object = stored.decode(Revision::new(7));
            let mut written = Vec::new();
            stored.write_object(Revision::new(7), &mut written);
            assert_eq!(written.len(), stored.object_len(Revision::new(7)), "the length of a stored object");
            let read = json::parse(&written).unwrap_or_else(|error| panic!("a stored object is not JSON: {error}"));
            assert_eq!(Some(&object), Object::from_value(read.value).as_ref(), "a stored object reads differently");
            form(&object.into_value())
        }
        Err(error) => refused(&error),
    },
};

pub(super) const SCHEMA: Target = Target {
    name: "schema",
    seeds: &[
        br#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","labels":{"b":"c"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1","memory":2}}}],"volumes":[{"configMap":{"name":"m","items":[{"key":"k","path":"p"}]}}]}}"#,
        br#"{"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","items":{"type":"string"},"additionalProperties":false}}}]}}"#,
        br#"{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","spec":{"renewTime":"2026-01-02T03:04:05.000001Z","leaseDurationSeconds":5}}"#,
    ],
    words: &["null", "\"\"", "0", "1.5", "-1", "4294967296", "[]", "{}", "true", "\"1Gi\"", "\"2026-01-02T03:04:05Z\"", "\"bogus\":1,", "YQ=="],
    check: |input| {
        let Some(object) = json::parse(input).ok().and_then(|parsed| Object::from_value(parsed.value)) else { return 0 };
        let (api_version, kind) = (object.api_version().unwrap_or_default(), object.kind().unwrap_or_default());
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let Some(schema) = Schemas::builtin().kind(group, version, kind) else { return 1 };
        let (mut checked, mut walked) = (WalkReport::default(), WalkReport::default());
        schema.walk(&mut object.clone(), &mut checked, WalkOptions::CHECK);
        let mut stored = object;
        schema.walk(&mut stored, &mut walked, WalkOptions::STORE);
        assert_eq!(walked.fault(), checked.fault(), "one walk finds a fault and the other none");
        if let Some(fault) = walked.type_error() {
            return refused(&fault);
        }
        let mut again = stored.clone();
        let mut report = WalkReport::default();
        schema.walk(&mut again, &mut report, WalkOptions::STORE);
        assert!(report.is_clean(), "what was stored has faults: {report:?}");
        assert_eq!(Value::from(again.0).to_string(), Value::from(stored.0.clone()).to_string(), "a second walk changes more");
        form(&stored.into_value())
    },
};
