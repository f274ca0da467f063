//! Memory of the largest accepted bodies: at most twenty times their length, in every encoding.
//!
//! Bodies have the content that needs the most memory for each byte. The peak of requested bytes is counted.

use std::fmt::Write as _;

use bytes::Bytes;
use keelson_codec::{Outline, json, pretty, yaml};
use keelson_fuzz::memory::measure;
use keelson_meta::Object;

/// The maximum size of a body.
const BODY_BYTES: usize = 3 * 1024 * 1024;
/// The size of YAML bodies, which take ten times as long to parse, without costing more for each byte when longer.
const YAML_BYTES: usize = 1024 * 1024;
/// The allowed bytes held for each byte of a body.
const HELD_PER_BYTE: usize = 20;

fn check<T>(what: &str, length: usize, work: impl FnOnce() -> T) -> T {
    let (done, cost) = measure(work);
    let times = cost.peak / length;
    assert!(
        cost.peak <= HELD_PER_BYTE * length,
        "{what}: {length} bytes made {} be held, {times} times as many",
        cost.peak
    );
    done
}

/// `part` repeated to the given length between a start and an end.
fn repeated_to(length: usize, start: &str, part: impl Fn(usize) -> String, end: &str) -> String {
    let mut text = start.to_owned();
    let mut number = 0;
    while text.len() < length - 64 {
        text.push_str(&part(number));
        number += 1;
    }
    text.truncate(text.trim_end_matches(',').len());
    text.push_str(end);
    text
}

/// Adjacent arrays of the maximum depth.
fn deep(length: usize, levels: usize) -> String {
    repeated_to(length, "[", |_| format!("{}{},", "[".repeat(levels), "]".repeat(levels)), "]")
}

fn bodies(length: usize) -> Vec<(&'static str, String)> {
    let repeated = |start, part: fn(usize) -> String, end| repeated_to(length, start, part, end);
    vec![
        ("numbers", repeated("[", |_| "0,".to_owned(), "]")),
        ("texts", repeated("[", |_| "\"\",".to_owned(), "]")),
        ("empty arrays", repeated("[", |_| "[],".to_owned(), "]")),
        ("small objects", repeated("[", |_| "{\"a\":0},".to_owned(), "]")),
        ("members", repeated("{", |number| format!("\"{number}\":0,"), "}")),
        ("a long text", repeated("\"", |_| "text ".to_owned(), "\"")),
        ("deep arrays", deep(length, 500)),
    ]
}

#[test]
fn json_is_read() {
    for (what, body) in bodies(BODY_BYTES) {
        check(what, body.len(), || json::parse(body.as_bytes()).expect("a body is JSON"));
    }
}

#[test]
fn yaml_in_flow_style_is_read_or_refused() {
    for (what, body) in bodies(YAML_BYTES) {
        let _ = check(what, body.len(), || yaml::parse(body.as_bytes()));
    }
    for (what, body) in [
        ("a mapping without values", repeated_to(YAML_BYTES, "{", |_| "a,".to_owned(), "}")),
        ("a collection in a sequence", repeated_to(YAML_BYTES, "- {", |_| "a,".to_owned(), "}")),
        ("collections in collections", repeated_to(YAML_BYTES, "[[", |_| "[],".to_owned(), "]]")),
        ("colons", repeated_to(YAML_BYTES, "- {", |_| ": ".to_owned(), "}")),
        ("an open collection", repeated_to(YAML_BYTES, "{", |_| "{".to_owned(), "")),
    ] {
        let _ = check(what, body.len(), || yaml::parse(body.as_bytes()));
    }
    // A document in flow style is accepted at any length.
    let body = repeated_to(YAML_BYTES, "{", |number| format!("k{number}: [v],"), "}");
    let parsed = check("a mapping", body.len(), || yaml::parse(body.as_bytes()).expect("a body is YAML"));
    assert!(parsed.value.as_object().is_some_and(|map| map.len() > 40_000));
}

#[test]
fn yaml_in_block_style_is_read() {
    for (what, body) in [
        ("a sequence", repeated_to(YAML_BYTES, "", |_| "- 0\n".to_owned(), "")),
        ("a mapping", repeated_to(YAML_BYTES, "", |number| format!("k{number}: v\n"), "")),
        ("a literal", repeated_to(YAML_BYTES, "a: |\n", |_| "  some text\n".to_owned(), "")),
        ("objects", repeated_to(YAML_BYTES, "", |number| format!("- a: {number}\n  b: [x]\n"), "")),
    ] {
        check(what, body.len(), || yaml::parse(body.as_bytes()).expect("a body is YAML"));
    }
}

#[test]
fn deep_objects_are_indented_piece_by_piece() {
    for (what, body) in bodies(YAML_BYTES) {
        let compact = Bytes::from(body);
        let (mut length, mut pieces) = (0, pretty::Pieces::new(compact.clone()));
        check(what, compact.len(), || {
            while let Some(piece) = pieces.next(64 * 1024) {
                length += piece.len();
            }
        });
        assert_eq!(length, pretty::length(&compact), "{what}");
        check(what, compact.len(), || {
            let mut pieces = yaml::Pieces::of_json(&compact);
            while pieces.next(64 * 1024).is_some() {}
        });
    }
}

/// The rows of a table are created from an outline of the stored text.
#[test]
fn large_objects_are_outlined_for_tables() {
    for (what, body) in bodies(YAML_BYTES) {
        let text = format!(
            r#"{{"kind":"ControllerRevision","apiVersion":"apps/v1","metadata":{{"name":"a"}},"data":{body}}}"#
        );
        check(what, text.len(), || Outline::read_sparsely(&text, &[]).root().get("metadata").is_some());
    }
}

/// A message of as many repeated fields as fit.
fn protobuf_of(api_version: &str, kind: &str, object: &[u8]) -> Vec<u8> {
    let mut envelope_type = Vec::new();
    for (tag, text) in [(0x0a, api_version), (0x12, kind)] {
        envelope_type.push(tag);
        push_length(&mut envelope_type, text.len());
        envelope_type.extend_from_slice(text.as_bytes());
    }
    let mut body = b"k8s\0\x0a".to_vec();
    push_length(&mut body, envelope_type.len());
    body.extend(envelope_type);
    body.push(0x12);
    push_length(&mut body, object.len());
    body.extend_from_slice(object);
    body
}

fn push_length(out: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f | 0x80).expect("seven bits and a mark"));
        length >>= 7;
    }
    out.push(u8::try_from(length).expect("less than a byte"));
}

#[test]
fn protobuf_is_read_or_refused() {
    // Minimal entries of a config map's `data`, containers of a pod, and items of its lists.
    let entries = b"\x12\x04\x0a\x00\x12\x00".repeat(BODY_BYTES / 7);
    let containers = {
        let items = b"\x12\x00".repeat(BODY_BYTES / 2 - 16);
        let mut spec = vec![0x12];
        push_length(&mut spec, items.len());
        spec.extend(items);
        spec
    };
    for (kind, object) in [("ConfigMap", entries), ("Pod", containers)] {
        let body = protobuf_of("v1", kind, &object);
        let _ = check(kind, body.len(), || keelson_protobuf::decode(&body));
    }
}

#[test]
fn protobuf_is_written() {
    let mut text = String::from(r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"#);
    let mut number = 0;
    while text.len() < BODY_BYTES {
        write!(text, "\"k{number}\":\"v\",").expect("writing to a String cannot fail");
        number += 1;
    }
    text.pop();
    text.push_str("}}");
    check("a config map", text.len(), || {
        keelson_protobuf::encode_json("v1", "ConfigMap", text.as_bytes(), None).expect("written")
    });
    let object = Object::from_value(json::parse(text.as_bytes()).expect("JSON").value).expect("an object");
    check("a tree", text.len(), || keelson_protobuf::encode("v1", "ConfigMap", &object).expect("written"));
}
