//! Compares bodies that kubectl 1.36 has sent with its output for the same command with `-o json`.
//!
//! The bodies were captured from kubectl, so the table of messages is compared with an independent source.

use keelson_meta::Object;
use keelson_meta::json::Value;
use keelson_protobuf::{decode, encode};

/// Blocks of three lines: the command, the object as JSON, the body in hexadecimal.
const BODIES: &str = include_str!("kubectl.txt");

fn blocks() -> impl Iterator<Item = (&'static str, &'static str, Vec<u8>)> {
    BODIES.split("\n\n").filter(|block| !block.is_empty()).map(|block| {
        let lines: Vec<_> = block.lines().collect();
        let [command, json, hex] = lines[..] else { panic!("not three lines: {block}") };
        (command, json, bytes(hex))
    })
}

fn bytes(hex: &str) -> Vec<u8> {
    let pairs = hex.as_bytes().chunks(2);
    pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("hexadecimal")).collect()
}

#[test]
fn decoded_bodies_equal_the_json_of_kubectl() {
    for (command, json, body) in blocks() {
        let decoded = decode(&body).unwrap_or_else(|error| panic!("{command}: {error}"));
        let expected: Value = serde_json::from_str(json).unwrap();
        let expected = serde_json::to_string(&expected).unwrap();
        let found = serde_json::to_string(&decoded.object).unwrap();
        assert_eq!(found, expected, "{command}");
    }
}

#[test]
fn written_yaml_reads_as_the_sent_object() {
    for (command, json, body) in blocks() {
        let object = Object::from_value(serde_json::from_str(json).unwrap()).unwrap();
        let (api_version, kind) = (object.api_version().unwrap(), object.kind().unwrap());
        let written = encode(api_version, kind, &object).unwrap();
        assert_eq!(decode(&written), decode(&body), "{command}");
        assert!(written.len() <= body.len(), "{command}: zero values need not be written");
    }
}
