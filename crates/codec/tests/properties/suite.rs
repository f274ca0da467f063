//! The public test suite of YAML, which `cargo xtask test` fetches. Each case has the data of the suite, or those of
//! `go-yaml` where it is a YAML 1.1, or is refused. Without the suite the test reports that it did not run.

use std::path::Path;

use keelson_codec::yaml;
use keelson_meta::json::{Value, json};

/// The variable with the directory of the suites; `cargo xtask npm` prints it.
const VARIABLE: &str = "KEELSON_TEST_NPM";

/// The data of the cases that `go-yaml` reads otherwise than YAML 1.2, or for which the suite has no data in JSON.
fn otherwise(id: &str) -> Option<Value> {
    Some(match id {
        // A text that breaks a rule of YAML 1.2 alone: indentation, comments without a space, tags with a comma.
        "9C9N" => json!({ "flow": ["a", "b", "c"] }),
        "9JBA" | "CVW2" => json!(["a", "b", "c"]),
        "DK95/1" => json!({ "foo": "bar baz" }),
        "G5U8" => json!([["-", "-"]]),
        "HRE5" => json!({ "double": "quoted ' scalar" }),
        "QB6E" => json!({ "quoted": "a b c" }),
        "S98Z" => json!({ "empty block scalar": "" }),
        "SU5Z" => json!({ "key": "value" }),
        "U99R" => json!(["xxx"]),
        "X4QW" => json!({ "block": "scalar\n" }),
        "Y79Y/3" => json!([["foo", "foo"]]),
        "YJV2" => json!(["-"]),
        // A question mark begins a key, and a colon before a comma belongs to it.
        "652Z" => json!({ "foo": "bar", "bar": 42 }),
        "HM87/1" => json!([{ "x": null }]),
        "4ABK" => json!({ "unquoted": "separate", "http://foo.com": null, "omitted value:": null }),
        // The last line of a text gets no line break.
        "L24T/1" => json!({ "foo": "x\n " }),
        "2G84/3" | "UKK6/2" => json!(""),
        "JEF9/2" => json!([""]),
        // An empty document, and a first document before an empty one.
        "MUS6/0" | "MUS6/3" | "MUS6/4" | "6XDY" | "8G76" | "98YD" | "AVM7" => Value::Null,
        "PUW8" => json!({ "a": "b" }),
        _ => return None,
    })
}

#[test]
fn the_suite_is_read_as_go_yaml_reads_it_or_refused() {
    let Some(directory) = std::env::var_os(VARIABLE).filter(|path| !path.is_empty()) else {
        println!("not run: {VARIABLE} names no suites");
        return;
    };
    let cases = std::fs::read(Path::new(&directory).join("suites/yaml.json")).unwrap();
    let cases: Vec<serde_json::Value> = serde_json::from_slice(&cases).unwrap();
    let (mut equal, mut refused, mut other) = (0, 0, 0);
    let mut faults = Vec::new();
    for case in &cases {
        let id = case["id"].as_str().unwrap();
        let Ok(parsed) = yaml::parse(case["yaml"].as_str().unwrap().as_bytes()) else {
            refused += 1;
            continue;
        };
        let expected = match otherwise(id) {
            Some(value) => {
                other += 1;
                Some(value)
            }
            None if case["fail"] == true => None,
            None => {
                equal += 1;
                case["json"]
                    .as_str()
                    .and_then(|text| keelson_codec::json::parse(text.as_bytes()).ok())
                    .map(|json| json.value)
            }
        };
        if expected.is_none_or(|expected| expected != crate::yaml::as_go_has_it(parsed.value.clone())) {
            faults.push(format!("{id}: {} is read as {}", case["yaml"], parsed.value));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!((cases.len(), equal, refused, other), (402, 185, 189, 28));
}
