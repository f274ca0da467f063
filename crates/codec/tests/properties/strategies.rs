//! Generators of texts, values, objects and broken JSON.
//!
//! The generators prefer the unusual characters and numbers for which encoders differ.

use keelson_meta::json::{Map, Value, json};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Texts that are difficult for some format.
const AWKWARD: [&str; 46] = [
    "",
    " ",
    "  x",
    "x ",
    "yes",
    "N",
    "null",
    "~",
    "true",
    "0644",
    "0x1f",
    "1e3",
    ".5",
    "1:30",
    "2026-01-02",
    "2026-01-02T03:04:05Z",
    "<<",
    "a: b",
    "a:",
    ":",
    "- a",
    "-",
    "--- a",
    "...",
    "# c",
    "a #b",
    "'",
    "it's",
    "\"",
    "\\",
    "a\\nb",
    "line\n",
    "one\ntwo",
    "one\n\n",
    "\n",
    "\n x",
    "x \ny",
    "tab\there",
    "\r\n",
    "\u{85}",
    "\u{2028}x",
    "\u{feff}",
    "😀 smile",
    "é",
    "\u{7f}\u{0}",
    "{{ .Values }}",
];

pub(crate) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "[a-z]{0,9}",
        2 => select(&AWKWARD[..]).prop_map(str::to_owned),
        1 => any::<String>(),
        1 => vec(prop_oneof!["[a-z]{1,12}", Just(String::new()), select(&AWKWARD[..]).prop_map(str::to_owned)], 1..30)
            .prop_map(|words| words.join(" ")),
        1 => "[a-z/.]{120,140}",
    ]
}

pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("JSON has no such number", |number| number.is_finite()).prop_map(Value::from),
        (-1000i32..1000).prop_map(|number| Value::from(f64::from(number) / 8.0)),
        text().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec((text(), inner), 0..6).prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// An object with kind, apiVersion and metadata, its keys in any order.
pub(crate) fn object() -> impl Strategy<Value = Map> {
    let metadata = [
        ("name", text().prop_map(Value::from).boxed()),
        ("generateName", text().prop_map(Value::from).boxed()),
        ("namespace", text().prop_map(Value::from).boxed()),
        ("uid", text().prop_map(Value::from).boxed()),
        ("resourceVersion", text().prop_map(Value::from).boxed()),
        ("selfLink", text().prop_map(Value::from).boxed()),
        ("generation", any::<i64>().prop_map(Value::from).boxed()),
        ("deletionTimestamp", text().prop_map(Value::from).boxed()),
        ("labels", labels().boxed()),
        ("ownerReferences", prop_oneof![Just(Value::Null), vec(text(), 0..3).prop_map(Value::from)].boxed()),
        ("finalizers", vec(text(), 0..3).prop_map(Value::from).boxed()),
        ("unknown", value().boxed()),
    ];
    let metadata = metadata.map(|(key, strategy)| proptest::option::of(strategy.prop_map(move |value| (key, value))));
    let metadata = metadata.to_vec().prop_shuffle_members();
    let rest = vec((text(), value()), 0..4);
    let spec = proptest::option::of((text(), any::<bool>(), value()).prop_map(
        |(node, flag, other)| json!({ "nodeName": node, "unschedulable": flag, "other": other, "replicas": 3 }),
    ));
    (metadata, rest, spec, "[A-Z][a-z]{1,8}", "[a-z]{1,5}/v1", any::<Index>()).prop_map(
        |(metadata, rest, spec, kind, api_version, split)| {
            let mut members: Vec<(String, Value)> = rest;
            members.retain(|(key, _)| !["kind", "apiVersion", "metadata", "spec"].contains(&key.as_str()));
            members.extend(spec.map(|spec| ("spec".to_owned(), spec)));
            members.push(("metadata".to_owned(), Value::Object(metadata)));
            members.push(("kind".to_owned(), kind.into()));
            members.push(("apiVersion".to_owned(), api_version.into()));
            let middle = split.index(members.len());
            members.rotate_left(middle);
            members.into_iter().collect()
        },
    )
}

fn labels() -> impl Strategy<Value = Value> {
    vec((text(), text()), 0..4).prop_map(|labels| Value::Object(labels.into_iter().collect()))
}

/// Combines strategies of optional members into a strategy of objects with their members in any order.
trait ShuffleMembers {
    fn prop_shuffle_members(self) -> BoxedStrategy<Map>;
}

impl<S: Strategy<Value = Option<(&'static str, Value)>> + 'static> ShuffleMembers for Vec<S> {
    fn prop_shuffle_members(self) -> BoxedStrategy<Map> {
        self.prop_shuffle()
            .prop_map(|members| members.into_iter().flatten().map(|(key, value)| (key.to_owned(), value)).collect())
            .boxed()
    }
}

/// JSON with a few bytes changed, most of it broken.
pub(crate) fn damaged_json() -> impl Strategy<Value = Vec<u8>> {
    let edit = (any::<Index>(), 0..3u8, select(&b"{}[]:,\"\\ \n0123456789-+.eEutfnalsr\x00\xff\xc3"[..]));
    (value(), any::<bool>(), vec(edit, 0..6)).prop_map(|(value, pretty, edits)| {
        let mut text = if pretty { serde_json::to_vec_pretty(&value) } else { serde_json::to_vec(&value) }.unwrap();
        for (index, action, byte) in edits {
            let at = index.index(text.len() + 1);
            match action {
                0 => text.insert(at, byte),
                1 if at < text.len() => drop(text.remove(at)),
                2 if at < text.len() => text[at] = byte,
                _ => text.truncate(at),
            }
        }
        text
    })
}
