//! YAML: round trips, of single items and of whole documents.
//!
//! Documents of other writers are in the unit tests of the reader.

use keelson_codec::yaml::{self, ListWriter};
use keelson_meta::json::{Value, integral, json};
use keelson_meta::{ListHead, ListMeta, Revision};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::start;
use crate::strategies::value;

/// YAML passes through Go's JSON writer, which does not distinguish `1.0` from `1`.
pub(crate) fn as_go_has_it(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            integral(number.as_f64().unwrap()).map_or(number.into(), Value::from)
        }
        Value::Array(items) => items.into_iter().map(as_go_has_it).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, as_go_has_it(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

proptest! {
    #[test]
    fn written_values_read_back(value in value()) {
        let text = yaml::to_vec(&value);
        let parsed = yaml::parse(&text).map_err(|error| error.to_string());
        let parsed = parsed.map_err(|error| TestCaseError::fail(format!("{error} in\n{}", String::from_utf8_lossy(&text))))?;
        prop_assert_eq!(parsed.value, as_go_has_it(value), "from\n{}", String::from_utf8_lossy(&text));
        prop_assert!(parsed.duplicates.is_empty());
        prop_assert!(text.ends_with(b"\n"));
    }

    #[test]
    fn any_text_is_yaml_or_an_error(text in any::<Vec<u8>>()) {
        drop(yaml::parse(&text));
    }

    #[test]
    fn any_words_of_yaml_are_yaml_or_an_error(
        words in vec(prop_oneof!["[-?:,\\[\\]{}#&*!|>'\"%@` \n\t]{1,3}", "[a-z0-9]{1,3}"], 0..20)
    ) {
        drop(yaml::parse(words.concat().as_bytes()));
    }

    #[test]
    fn a_streamed_list_is_the_list_as_one_document(items in vec(value(), 0..4), more in any::<bool>(), most in 0..200_usize) {
        let head = ListHead {
            kind: "ConfigMapList",
            api_version: "v1",
            meta: ListMeta { revision: Revision::new(7), position: None, continue_token: more.then_some("token"), remaining: more.then_some(3), shard: None },
        };
        let mut metadata = json!({"resourceVersion": "7"});
        if more {
            metadata = json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3});
        }
        let document = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items});
        let mut out = Vec::new();
        let writer = ListWriter::start(&start(&head), &mut out);
        for (place, item) in items.iter().enumerate() {
            let (item, before) = (item.to_string(), out.len());
            if !writer.item_within(item.as_bytes(), place == 0, most, &mut out) {
                prop_assert_eq!(out.len(), before, "nothing is written of a long item");
                let mut pieces = writer.pieces(item.as_bytes(), place == 0);
                out.extend(std::iter::from_fn(|| pieces.next(7)).flatten());
            }
        }
        writer.finish(items.is_empty(), &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(yaml::to_vec(&document)).unwrap());
    }
}

/// Below many levels each word, or each line, of a text would have a line of hundreds of spaces.
#[test]
fn a_long_text_below_many_levels_has_one_line() {
    for (text, quotes) in [("a ".repeat(300_000) + "a", 0), ("a\n".repeat(300_000), 2), ("a: ".repeat(300_000), 2)] {
        let mut value = json!(text);
        (0..400).for_each(|_| value = json!([value]));
        let written = yaml::to_vec(&value);
        assert!(written.len() < 2 * text.len(), "{} bytes of {}", written.len(), text.len());
        assert_eq!(written.iter().filter(|byte| matches!(byte, b'"' | b'\'')).count(), quotes);
        assert_eq!(yaml::parse(&written).unwrap().value, value);
        assert!(yaml::from_json_within(value.to_string().as_bytes(), 100).is_none());
    }
    // Shorter ones are as go-yaml writes them.
    let script = json!([[["echo a b\n".repeat(1000)]]]);
    assert!(yaml::to_vec(&script).starts_with(b"- - - |\n      echo a b\n      echo"));
}

fn writes(value: &Value, expected: &str) {
    assert_eq!(String::from_utf8(yaml::to_vec(value)).unwrap(), expected);
}

fn reads(text: &str, expected: &Value) {
    assert_eq!(&yaml::parse(text.as_bytes()).unwrap().value, expected, "{text}");
}

fn fails(text: &str, expected: &str) {
    assert_eq!(yaml::parse(text.as_bytes()).unwrap_err().to_string(), expected, "{text}");
}

#[test]
fn objects_are_written_as_kubectl_shows_them() {
    let object = json!({
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {
            "name": "e1",
            "resourceVersion": "405",
            "creationTimestamp": "2026-01-02T03:04:05Z",
            "managedFields": [{"manager": "m", "apiVersion": "v1", "fieldsV1": {"f:data": {"f:i": {}, ".": {}}}}],
        },
        "data": {"i": "1", "empty": "", "script": "#!/bin/sh\necho hi\n", "on": "off"},
        "list": [[1, 2], [], [{"a": null, "b": true}]],
    });
    let expected = r##"apiVersion: v1
data:
  empty: ""
  i: "1"
  "on": "off"
  script: |
    #!/bin/sh
    echo hi
kind: ConfigMap
list:
- - 1
  - 2
- []
- - a: null
    b: true
metadata:
  creationTimestamp: "2026-01-02T03:04:05Z"
  managedFields:
  - apiVersion: v1
    fieldsV1:
      f:data:
        .: {}
        f:i: {}
    manager: m
  name: e1
  resourceVersion: "405"
"##;
    writes(&object, expected);
}

#[test]
fn strings_are_quoted_only_where_they_must_be() {
    let quoted = [
        ("plain words", "plain words"),
        ("yes", "\"yes\""),
        ("0644", "\"0644\""),
        ("1.5", "\"1.5\""),
        ("1:30", "\"1:30\""),
        ("10.0.0.1:80", "10.0.0.1:80"),
        ("a: b", "'a: b'"),
        ("it's", "it's"),
        ("'tis", "'''tis'"),
        ("*", "'*'"),
        ("- x", "'- x'"),
        ("-x", "-x"),
        ("trailing ", "'trailing '"),
        ("tab\t", "\"tab\\t\""),
        ("😀", "\"\\U0001F600\""),
        ("é", "é"),
        ("one\ntwo", "|-\n  one\n  two"),
        ("one\n\n", "|+\n  one\n"),
        (" one\n", "|2\n   one"),
        ("one \ntwo", "\"one \\ntwo\""),
    ];
    for (text, expected) in quoted {
        writes(&json!({"k": text}), &format!("k: {expected}\n"));
    }
}

#[test]
fn long_lines_are_folded_and_long_keys_marked() {
    let words = "word ".repeat(20);
    let words = words.trim_end();
    let first = "word ".repeat(16);
    writes(&json!({ "k": words }), &format!("k: {}\n  word word word word\n", first.trim_end()));
    let key = "k".repeat(129);
    writes(&json!({ &key: {"a": 1, "b": 2} }), &format!("? {key}\n: a: 1\n  b: 2\n"));
    writes(&json!({ &key: [1, 2] }), &format!("? {key}\n: - 1\n  - 2\n"));
}

#[test]
fn numbers_are_written_as_go_writes_them() {
    let cases = [
        (json!(1.0), "1"),
        (json!(0.5), "0.5"),
        (json!(1e21), "1e+21"),
        (json!(0.00001), "1e-05"),
        (json!(1234567.5), "1.2345675e+06"),
        (json!(u64::MAX), "18446744073709551615"),
    ];
    for (number, expected) in cases {
        writes(&json!([number]), &format!("- {expected}\n"));
    }
}

#[test]
fn plain_text_gets_the_types_of_go_yaml() {
    reads("", &Value::Null);
    reads("# nothing\n", &Value::Null);
    reads(
        "{a: yes, b: 0644, c: ~, d: 1.0, e: 2026-01-02, f: 'yes'}",
        &json!({"a": true, "b": 420, "c": null, "d": 1, "e": "2026-01-02", "f": "yes"}),
    );
    reads("1: a\ntrue: b\n1.5: c\n", &json!({"1": "a", "true": "b", "1.5": "c"}));
    reads("a: !!str 5\nb: !!int \"5\"\nc: !mine 5\n", &json!({"a": "5", "b": 5, "c": "5"}));
    reads(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: yam}\n",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "yam"}}),
    );
    reads("---\na: |\n  x\n   y\n...\n", &json!({"a": "x\n y\n"}));
}

#[test]
fn plain_scalars_have_the_types_of_the_table() {
    let table: Value = serde_json::from_str(include_str!("../scalars.json")).unwrap();
    for row in table.as_array().unwrap() {
        let (text, value) = (row[0].as_str().unwrap(), &row[1]);
        reads(&format!("a: {text}\n"), &json!({ "a": value }));
        reads(&format!("- {text}\n"), &json!([value]));
        for quoted in [format!("'{text}'"), format!("\"{text}\"")] {
            reads(&format!("a: {quoted}\n"), &json!({ "a": text }));
        }
        // A text stays a text, even as a key.
        for object in [json!({ "a": text }), json!({ text: "a" }), json!([text])] {
            let written = yaml::to_vec(&object);
            assert_eq!(yaml::parse(&written).unwrap().value, object, "{}", String::from_utf8_lossy(&written));
        }
        if value.as_str().is_none() {
            writes(&json!({ "a": text }), &format!("a: \"{text}\"\n"));
        }
    }
}

#[test]
fn the_layout_is_that_of_yaml_1_1() {
    reads("a: -0\nb: -0.0\nc: 1e400\n", &json!({"a": 0, "b": 0, "c": "1e400"}));
    // No line break is added. The line breaks of other systems count too.
    reads("a: |\n  x", &json!({"a": "x"}));
    reads("a: |\r\n  x\r\n  w\r\n", &json!({"a": "x\nw\n"}));
    reads("a: |\n  x\n\n\n", &json!({"a": "x\n"}));
    reads("a: |+\n  x\n\n", &json!({"a": "x\n\n"}));
    reads("a: >-\n  x\n  w\n\n   z\n  w\n", &json!({"a": "x w\n\n z\nw"}));
    reads("a: |2\n   x\n", &json!({"a": " x\n"}));
    reads("a: x\u{85}  w\n", &json!({"a": "x w"}));
    reads("a: \"x\u{2028}  w\"\n", &json!({"a": "x\u{2028}w"}));
    // Quotes and flow collections may continue at any column.
    reads("a: \"x\nw\"\n", &json!({"a": "x w"}));
    reads("a: 'x\n\n  w'\n", &json!({"a": "x\nw"}));
    reads("a: \"x \\\n   w\\tz\"\n", &json!({"a": "x w\tz"}));
    reads("a: [x,\nw\n]\nb: {c: d\n}\n", &json!({"a": ["x", "w"], "b": {"c": "d"}}));
    // Tabs separate tokens, but do not indent.
    reads("a:\tx\n", &json!({"a": "x"}));
    reads("a: \"\tx\"\nb: [\tx\t]\n", &json!({"a": "\tx", "b": ["x"]}));
    fails("\ta: x\n", "yaml: found character that cannot start any token");
    fails("a: x\n\t\nb: w\n", "yaml: line 2: found a tab character that violates indentation");
    // Keys and pairs.
    reads("{a, b: , \"c\":d, e: f}", &json!({"a": null, "b": null, "c": "d", "e": "f"}));
    reads("[a: b, {c: d}]", &json!([{"a": "b"}, {"c": "d"}]));
    reads("? a\n: b\n? c\n", &json!({"a": "b", "c": null}));
    reads("a:\n- x\n- w\nb:\n  - z\n", &json!({"a": ["x", "w"], "b": ["z"]}));
    reads("- - x\n  - w\n-\n- a: b\n  c: d\n", &json!([["x", "w"], null, {"a": "b", "c": "d"}]));
    reads("1e10: a\n0x10: b\n.inf: c\n", &json!({"1e+10": "a", "16": "b", ".inf": "c"}));
    // Documents.
    reads("---\na: x\n---\n", &json!({"a": "x"}));
    reads("a: x\n...\n---\n...\n", &json!({"a": "x"}));
    reads("%YAML 1.1\n%TAG !e! tag:example.com,2026:\n---\na: !e!x 1\n", &json!({"a": "1"}));
    reads("\u{feff}a: x\n", &json!({"a": "x"}));
    reads("a: <<\nb: [<<]\n\"<<\": c\n", &json!({"a": "<<", "b": ["<<"], "<<": "c"}));
    reads(
        "a: ! 1\nb: !<tag:yaml.org,2002:str> 2\nc: !!float 3\nd: !!str\n",
        &json!({"a": "1", "b": "2", "c": 3, "d": ""}),
    );
}

#[test]
fn invalid_yaml_has_the_errors_of_go_yaml() {
    for (text, expected) in [
        ("a: b: c\n", "yaml: mapping values are not allowed in this context"),
        ("x: y\na: b: c\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: [x\n", "yaml: line 1: did not find expected ',' or ']'"),
        ("a: {x\n", "yaml: line 1: did not find expected ',' or '}'"),
        ("a: [x,, y]\n", "yaml: did not find expected node content"),
        ("a: \"x\n", "yaml: line 2: found unexpected end of stream"),
        ("a: \"\\/\"\n", "yaml: found unknown escape character"),
        ("a: \"\\ud83d\"\n", "yaml: found invalid Unicode character escape code"),
        ("a: \"\\xz0\"\n", "yaml: did not find expected hexdecimal number"),
        ("a: [|\n  x]\n", "yaml: found character that cannot start any token"),
        ("a: @x\n", "yaml: found character that cannot start any token"),
        ("a: x\nb\nc: d\n", "yaml: line 3: could not find expected ':'"),
        ("a: x\n - y: z\n", "yaml: line 2: mapping values are not allowed in this context"),
        ("a: [x]\n  b: c\n", "yaml: line 1: did not find expected key"),
        ("- a\nb: c\n", "yaml: line 1: did not find expected '-' indicator"),
        ("a: |x\n", "yaml: did not find expected comment or line break"),
        ("a: |0\n", "yaml: found an indentation indicator equal to 0"),
        ("a: |\n\tx\n", "yaml: line 2: found a tab character where an indentation space is expected"),
        ("a: \u{1}\n", "yaml: control characters are not allowed"),
        ("\u{feff}\u{feff}a: x\n", "yaml: found a second byte order mark"),
        ("a: x\u{7f}\n", "yaml: control characters are not allowed"),
        ("%YAML 1.2\n---\na: b\n", "yaml: found incompatible YAML document"),
        ("%FOO\n---\na: b\n", "yaml: found unknown directive name"),
        ("a: !e!x y\n", "yaml: found undefined tag handle"),
        ("{a: b} c\n", "yaml: did not find expected <document start>"),
    ] {
        fails(text, expected);
    }
    let key = "k".repeat(1025);
    fails(&format!("a: b\n{key}: c\n"), "yaml: line 2: could not find expected ':'");
    reads(&format!("{}: c\n", &key[..1000]), &json!({ &key[..1000]: "c" }));
}

#[test]
fn duplicate_keys_that_are_no_strings_are_reported_verbatim() {
    let parsed = yaml::parse(b"{1: a, 1: b, true: c, \"true\": d}").unwrap();
    assert_eq!(parsed.duplicates, ["line 1: key 1 already set in map", "line 1: key \"true\" already set in map"]);
}

#[test]
fn keys_that_come_twice_are_reported() {
    let parsed = yaml::parse(b"data:\n  a: 1\n  a: 2\nitems:\n- {x: 1, x: 2}\n").unwrap();
    assert_eq!(parsed.duplicates, ["line 3: key \"a\" already set in map", "line 5: key \"x\" already set in map"]);
    assert_eq!(parsed.value["data"]["a"], json!(2));
}

#[test]
fn documents_that_are_not_objects_are_refused() {
    fails("a: &x 1\nb: *x\n", "yaml: line 1: anchors and aliases are not supported");
    fails("a: 1\n---\nb: 2\n", "yaml: line 3: more than one document");
    fails("a: .inf\n", "yaml: line 1: JSON cannot hold the number `.inf`");
    fails("a:\n  <<: {b: 1}\n", "yaml: line 2: merge keys are not supported");
    fails("!!null x\n", "yaml: line 1: cannot decode `x` as a !!null");
    fails("~: x\n", "yaml: line 1: a key must not be null");
    fails("? {a: b}\n: c\n", "yaml: line 1: a key must be a scalar");
    fails("a: !!binary eA==\n", "yaml: line 1: the tag !!binary is not supported");
    assert!(yaml::parse("? ".repeat(100_000).as_bytes()).is_err());
    assert!(yaml::parse("- ".repeat(100_000).as_bytes()).is_err());
    fails("? [a]\n: b\n", "yaml: line 1: a key must be a scalar");
    fails("a: !!int x\n", "yaml: line 1: cannot decode `x` as a !!int");
    assert!(yaml::parse(b"a: b: c\n").is_err());
    assert!(yaml::parse(b"\xff").is_err());
    assert!(yaml::parse("[".repeat(100_000).as_bytes()).is_err());
}
