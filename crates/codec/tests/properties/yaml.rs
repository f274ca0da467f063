//! YAML: it is read as it was written, item by item and whole.
//!
//! Documents of other writers are in the unit tests of the reader.

use keelson_codec::yaml::{self, ListWriter};
use keelson_meta::json::{Value, json};
use keelson_meta::{ListHead, ListMeta, Revision};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::start;
use crate::strategies::value;

/// Go's JSON writer, which stands between YAML and a value, does not tell `1.0` from `1`.
fn as_go_has_it(value: Value) -> Value {
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap();
            if float.fract() == 0.0 && float.abs() < 2f64.powi(63) { json!(float as i64) } else { number.into() }
        }
        Value::Array(items) => items.into_iter().map(as_go_has_it).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, as_go_has_it(value))).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back(value in value()) {
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
    fn a_streamed_list_is_the_list_as_one_document(items in vec(value(), 0..4), more in any::<bool>()) {
        let head = ListHead {
            kind: "ConfigMapList",
            api_version: "v1",
            meta: ListMeta { revision: Revision::new(7), continue_token: more.then_some("token"), remaining: more.then_some(3) },
        };
        let mut metadata = json!({"resourceVersion": "7"});
        if more {
            metadata = json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3});
        }
        let document = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items});
        let mut out = Vec::new();
        let writer = ListWriter::start(&start(&head), &mut out);
        for (place, item) in items.iter().enumerate() {
            writer.item(item.to_string().as_bytes(), place == 0, &mut out);
        }
        writer.finish(items.is_empty(), &mut out);
        prop_assert_eq!(String::from_utf8(out).unwrap(), String::from_utf8(yaml::to_vec(&document)).unwrap());
    }
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
fn keys_that_are_no_texts_and_come_twice_are_reported_as_they_are() {
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
fn what_cannot_be_an_object_is_refused() {
    fails("a: &x 1\nb: *x\n", "yaml: line 1: anchors and aliases are not supported");
    fails("a: 1\n---\nb: 2\n", "yaml: line 2: more than one document");
    fails("a: .inf\n", "yaml: line 1: JSON cannot hold the number `.inf`");
    fails("a:\n  <<: {b: 1}\n", "yaml: line 2: merge keys are not supported");
    fails("? [a]\n: b\n", "yaml: line 1: a key must be a scalar");
    fails("a: !!int x\n", "yaml: line 1: cannot decode `x` as a !!int");
    assert!(yaml::parse(b"a: b: c\n").is_err());
    assert!(yaml::parse(b"\xff").is_err());
    assert!(yaml::parse("[".repeat(100_000).as_bytes()).is_err());
}
