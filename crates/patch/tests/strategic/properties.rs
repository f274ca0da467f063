//! Laws for generated values of a small recursive schema. The tests compute patches from them.
//!
//! Applying a patch must yield the value from which it was computed, whatever the order of lists.

use keelson_meta::json::{Map, Value, json};
use keelson_patch::strategic::{GoKind, MergeSchema, Strategy as Merging, apply};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

/// A struct with every kind of field: `text`, `map`, `node` (the struct again), `whole` (the same, replaced), `items`
/// (merged by `name`), `words` (merged), `atoms` (replaced).
#[derive(Clone, Copy, Debug)]
enum Toy {
    Text,
    Map,
    Node,
    Whole,
    Items,
    Words,
    Atoms,
}

impl MergeSchema<'static> for Toy {
    fn go_kind(self) -> GoKind {
        match self {
            Self::Text => GoKind::Scalar,
            Self::Map => GoKind::Map,
            Self::Node | Self::Whole => GoKind::Struct,
            Self::Items | Self::Words | Self::Atoms => GoKind::List,
        }
    }

    fn type_name(self) -> &'static str {
        "Node"
    }

    fn field(self, name: &str) -> Option<Self> {
        let fields = match self {
            Self::Node | Self::Whole => true,
            Self::Text | Self::Map | Self::Items | Self::Words | Self::Atoms => false,
        };
        match name {
            "name" | "text" if fields => Some(Self::Text),
            "map" if fields => Some(Self::Map),
            "node" if fields => Some(Self::Node),
            "whole" if fields => Some(Self::Whole),
            "items" if fields => Some(Self::Items),
            "words" if fields => Some(Self::Words),
            "atoms" if fields => Some(Self::Atoms),
            _ => None,
        }
    }

    fn items(self) -> Option<Self> {
        match self {
            Self::Items | Self::Atoms => Some(Self::Node),
            Self::Words => Some(Self::Text),
            Self::Text | Self::Map | Self::Node | Self::Whole => None,
        }
    }

    fn strategy(self) -> Merging<'static> {
        match self {
            Self::Text | Self::Map | Self::Node | Self::Atoms => Merging::Unset,
            Self::Whole => Merging::Replace,
            Self::Items => Merging::MergeByKey("name"),
            Self::Words => Merging::Merge,
        }
    }
}

fn words() -> impl Strategy<Value = Value> {
    btree_set("[a-e]", 0..5).prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle().prop_map(Value::from)
}

fn named(items: Vec<(String, Value)>) -> Value {
    let mut named: Vec<Value> = Vec::new();
    for (name, mut item) in items {
        if named.iter().all(|other| other["name"] != name.as_str()) {
            item["name"] = name.into();
            named.push(item);
        }
    }
    named.into()
}

fn node() -> impl Strategy<Value = Value> {
    let leaf = (option::of("[x-z]"), option::of(words()))
        .prop_map(|(text, words)| object([("text", text.map(Value::from)), ("words", words)]));
    leaf.prop_recursive(3, 40, 4, |inner| {
        let map = vec(("[a-c]", "[x-z]"), 0..3);
        let map = map.prop_map(|map| map.into_iter().collect::<Map>().into());
        let items = vec(("[a-e]", inner.clone()), 0..5).prop_map(named);
        let atoms = vec(inner.clone(), 0..3).prop_map(Value::from);
        let text = option::of("[x-z]".prop_map(Value::from));
        let parts = (option::of(inner.clone()), option::of(inner));
        let lists = (option::of(words()), option::of(items), option::of(atoms));
        (text, option::of(map), parts, lists).prop_map(|(text, map, (node, whole), (words, items, atoms))| {
            object([
                ("text", text),
                ("map", map),
                ("node", node),
                ("whole", whole),
                ("words", words),
                ("items", items),
                ("atoms", atoms),
            ])
        })
    })
}

fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map>().into()
}

/// The patch that turns `from` into `to`.
fn diff(from: &Value, to: &Value) -> Value {
    let (from, to) = (from.as_object().unwrap(), to.as_object().unwrap());
    let mut patch: Map = from.keys().filter(|name| !to.contains_key(name)).map(|name| (name, Value::Null)).collect();
    for (name, to) in to {
        match from.get(name) {
            Some(from) if from == to => {}
            Some(from) => diff_member(name, from, to, &mut patch),
            None => {
                patch.insert(name, to.clone());
            }
        }
    }
    patch.into()
}

fn diff_member(name: &str, from: &Value, to: &Value, patch: &mut Map) {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let (old, new) = (list(from), list(to));
    let value = match name {
        "map" | "node" => diff(from, to),
        "words" => {
            let deleted: Vec<_> = old.iter().filter(|word| !new.contains(word)).cloned().collect();
            patch.insert("$deleteFromPrimitiveList/words", deleted);
            patch.insert("$setElementOrder/words", to.clone());
            new.into_iter().filter(|word| !old.contains(word)).collect()
        }
        "items" => {
            let order: Value = new.iter().map(|item| json!({"name": item["name"]})).collect();
            patch.insert("$setElementOrder/items", order);
            let find = |list: &[Value], name: &Value| list.iter().find(|item| &item["name"] == name).cloned();
            let gone = old.iter().filter(|item| find(&new, &item["name"]).is_none());
            let gone = gone.map(|item| json!({"name": item["name"], "$patch": "delete"}));
            let changed = new.iter().filter_map(|item| match find(&old, &item["name"]) {
                Some(from) if from == *item => None,
                Some(from) => {
                    let mut patch = diff(&from, item);
                    patch["name"] = item["name"].clone();
                    Some(patch)
                }
                None => Some(item.clone()),
            });
            changed.chain(gone).collect()
        }
        _ => to.clone(),
    };
    patch.insert(name.to_owned(), value);
}

fn patched(target: &Value, patch: &Value) -> Value {
    apply(target.as_object().unwrap().clone(), patch.as_object().unwrap(), Toy::Node).unwrap().into()
}

/// Any JSON. Names of fields and directives occur in it.
fn mess() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        (0..3).prop_map(Value::from),
        "delete|replace|merge|[a-c]".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let name = "(\\$setElementOrder/|\\$deleteFromPrimitiveList/)?(name|text|map|node|whole|items|words|atoms)";
        let name = prop_oneof![name, "\\$patch|\\$retainKeys|name|name"];
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((name, inner), 0..5).prop_map(|members| members.into_iter().collect::<Map>().into()),
        ]
    })
}

proptest! {
    #[test]
    fn a_difference_applied_gives_the_other_value(from in node(), to in node()) {
        let patch = diff(&from, &to);
        let once = patched(&from, &patch);
        prop_assert_eq!(&once, &to, "{}", &patch);
        prop_assert_eq!(patched(&once, &patch), to);
    }

    #[test]
    fn applying_a_value_twice_is_applying_it_once(target in node(), patch in node()) {
        let once = patched(&target, &patch);
        prop_assert_eq!(patched(&once, &patch).to_string(), once.to_string());
    }

    #[test]
    fn an_empty_patch_changes_nothing(target in node()) {
        prop_assert_eq!(patched(&target, &json!({})).to_string(), target.to_string());
    }

    #[test]
    fn any_patch_applies_or_is_refused(target in mess(), patch in mess()) {
        if let (Value::Object(target), Value::Object(patch)) = (target, patch) {
            drop(apply(target, &patch, Toy::Node));
        }
    }
}
