//! JSON: round trips, errors of damaged texts, and values that stay the same after indenting.
//!
//! Values come from `strategies.rs`. Benchmarks of speed are elsewhere.

use keelson_codec::json::{self, JsonError, MAX_DEPTH};
use keelson_codec::pretty;
use keelson_meta::json::{Value, json};
use keelson_meta::{ListHead, ListMeta, Revision};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::start;
use crate::strategies::{damaged_json, value};

proptest! {
    #[test]
    fn written_values_read_back(value in value()) {
        let parsed = json::parse(&json::to_vec(&value)).unwrap();
        prop_assert_eq!(parsed.value, value);
        prop_assert!(parsed.duplicates.is_empty());
    }

    #[test]
    fn the_output_equals_that_of_serde(value in value()) {
        prop_assert_eq!(json::to_vec(&value), serde_json::to_vec(&value).unwrap());
    }

    #[test]
    fn the_same_texts_are_json_as_for_serde(text in damaged_json()) {
        match (json::parse(&text), serde_json::from_slice::<Value>(&text)) {
            (Ok(ours), Ok(theirs)) => prop_assert_eq!(ours.value, theirs),
            (Err(JsonError::Refused(reason)), _) => prop_assert!(false, "no grammar rule explains: {}", reason),
            (Err(_), Err(_)) => {}
            // A lone surrogate is read as U+FFFD, as in Go. serde_json refuses it.
            (Ok(_), Err(_)) if text.windows(3).any(|part| part == b"\\ud" || part == b"\\uD") => {}
            (ours, theirs) => prop_assert!(false, "we say {:?}, serde_json says {:?}", ours, theirs),
        }
    }

    #[test]
    fn indented_bytes_are_an_indented_tree(value in value()) {
        prop_assert_eq!(json::to_vec_pretty(&value), serde_json::to_vec_pretty(&value).unwrap());
    }

    #[test]
    fn a_list_indented_item_by_item_is_an_indented_tree(items in vec(value(), 0..4), most in 0..200_usize) {
        let head = ListHead {
            kind: "PodList",
            api_version: "v1",
            meta: ListMeta { revision: Revision::new(7), position: None, continue_token: Some("token"), remaining: Some(3), shard: None },
        };
        let mut out = Vec::new();
        let writer = pretty::ListWriter::start(&start(&head), &mut out);
        for (place, item) in items.iter().enumerate() {
            let (item, before) = (json::to_vec(item), out.len());
            if !writer.item_within(&item, place == 0, most, &mut out) {
                prop_assert_eq!(out.len(), before, "nothing is written of a long item");
                let mut pieces = writer.pieces(item.into(), place == 0);
                out.extend(std::iter::from_fn(|| pieces.next(7)).flatten());
            }
        }
        writer.finish(items.is_empty(), &mut out);
        let metadata = json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3});
        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": items});
        prop_assert_eq!(out, json::to_vec_pretty(&list));
    }
}

fn duplicates(text: &str) -> Vec<String> {
    let messages = json::parse(text.as_bytes()).unwrap().duplicates;
    let path = |message: &String| message.strip_prefix("duplicate field \"")?.strip_suffix('"').map(str::to_owned);
    messages.iter().map(|message| path(message).expect(message)).collect()
}

#[test]
fn keys_that_come_twice_are_reported_with_their_path() {
    assert_eq!(duplicates(r#"{"data":{"a":"1","a":"2"}}"#), ["data.a"]);
    assert_eq!(
        duplicates(r#"{"spec":{"containers":[{"name":"a","name":"b"},{"name":"c"}],"x":1,"x":2}}"#),
        ["spec.containers[0].name", "spec.x"]
    );
    assert_eq!(duplicates(r#"{"a":1,"a":2,"a":3}"#), ["a"]);
    assert_eq!(duplicates(r#"{"a":1,"a":2,"b":{"c":1,"c":2},"d":1,"d":[{"e":1,"e":2}]}"#), ["a", "b.c", "d", "d[0].e"]);
    assert!(duplicates(r#"{"a":{"a":{"a":1}}}"#).is_empty());
}

#[test]
fn the_text_of_long_keys_is_limited() {
    let key = "k".repeat(100_000);
    let twice = |name: usize| format!(r#""{name}":0,"{name}":0"#);
    let members: Vec<String> = (0..50).map(twice).collect();
    assert_eq!(duplicates(&format!(r#"{{"{key}":{{{}}}}}"#, members.join(","))), [format!("{key}.0")]);
    let key = "k".repeat(10_000);
    let reported = duplicates(&format!(r#"{{"{key}":{{{}}}}}"#, members.join(",")));
    assert!((2..10).contains(&reported.len()), "{}", reported.len());
}

#[test]
fn half_of_a_surrogate_pair_becomes_the_replacement_character() {
    let reads = |text: &str, expected: &str| {
        let parsed = json::parse(text.as_bytes()).map(|parsed| parsed.value);
        assert_eq!(parsed, Ok(json!(expected)), "{text}");
    };
    reads(r#""\ud800""#, "\u{fffd}");
    reads(r#""a\udc00b\n""#, "a\u{fffd}b\n");
    reads(r#""\ud800\ud83d\ude00\\ud800""#, "\u{fffd}\u{1f600}\\ud800");
    assert!(json::parse(br#""\ud80""#).is_err());
}

#[test]
fn the_last_of_two_values_counts() {
    assert_eq!(json::parse(br#"{"a":1,"b":2,"a":3}"#).unwrap().value, json!({"a": 3, "b": 2}));
}

#[test]
fn floats_keep_every_bit() {
    for text in ["-1.3627868135261354e+50", "5.442916455790214e+227", "5e-324", "0.1"] {
        let value = json::parse(text.as_bytes()).unwrap().value;
        assert_eq!(value.as_f64(), text.parse().ok(), "{text}");
    }
}

#[test]
fn depth_is_bounded_and_does_not_overflow_the_stack() {
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert!(json::parse(nested(MAX_DEPTH).as_bytes()).is_ok());
    assert_eq!(json::parse(nested(MAX_DEPTH + 1).as_bytes()), Err(JsonError::TooDeep(b'[')));
    assert_eq!(json::parse("[".repeat(1_000_000).as_bytes()), Err(JsonError::TooDeep(b'[')));
}
