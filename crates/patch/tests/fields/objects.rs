//! Laws between extraction, comparison, merge and removal.
//!
//! Objects are generated for schemas of every granularity.

use keelson_meta::json::{Map, Value, json};
use keelson_patch::fields::{
    Duplicates, FieldSchema, FieldSet, Granularity, Member, Scalar, compare, extract, merge, remove, validate,
    with_named_fields,
};
use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;

/// A struct with every kind of field: `text`, `map`, `node` (the struct again), `whole` (the same, atomic), `items`
/// (keyed by `name` and `zone`, which defaults to `z`), `words` (a set), `atoms` (an atomic list), `free` (no schema).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Toy {
    Text,
    Map,
    Node,
    Whole,
    Items,
    Words,
    Atoms,
    Free,
}

impl FieldSchema<'static> for Toy {
    fn form(self) -> Granularity {
        match self {
            Self::Text => Granularity::Scalar(Scalar::String),
            Self::Map | Self::Node => Granularity::Map,
            Self::Whole => Granularity::AtomicMap,
            Self::Items => Granularity::KeyedList,
            Self::Words => Granularity::Set,
            Self::Atoms => Granularity::AtomicList,
            Self::Free => Granularity::Deduced,
        }
    }

    fn member(self, name: &str) -> Member<Self> {
        match (self, name) {
            (Self::Map, _) => Member::Entry(Self::Text),
            (Self::Node | Self::Whole, "name" | "zone" | "text") => Member::Field(Self::Text),
            (Self::Node | Self::Whole, "map") => Member::Field(Self::Map),
            (Self::Node | Self::Whole, "node") => Member::Field(Self::Node),
            (Self::Node | Self::Whole, "whole") => Member::Field(Self::Whole),
            (Self::Node | Self::Whole, "items") => Member::Field(Self::Items),
            (Self::Node | Self::Whole, "words") => Member::Field(Self::Words),
            (Self::Node | Self::Whole, "atoms") => Member::Field(Self::Atoms),
            (Self::Node | Self::Whole, "free") => Member::Field(Self::Free),
            (Self::Free, _) => Member::Unknown,
            _ => Member::Undeclared,
        }
    }

    fn items(self) -> Option<Self> {
        match self {
            Self::Items | Self::Atoms => Some(Self::Node),
            Self::Words => Some(Self::Text),
            Self::Text | Self::Map | Self::Node | Self::Whole | Self::Free => None,
        }
    }

    fn keys(self) -> impl Iterator<Item = &'static str> {
        let keys: &[&str] = if self == Self::Items { &["name", "zone"] } else { &[] };
        keys.iter().copied()
    }

    fn key_default(self, key: &str) -> Option<Value> {
        (self == Self::Items && key == "zone").then(|| json!("z"))
    }
}

fn words() -> impl Strategy<Value = Value> {
    btree_set("[a-e]", 0..5).prop_map(|set| set.into_iter().collect::<Vec<_>>()).prop_shuffle().prop_map(Value::from)
}

fn keyed(items: Vec<(String, Option<String>, Value)>) -> Value {
    let mut keyed: Vec<Value> = Vec::new();
    for (name, zone, mut item) in items {
        let key = |item: &Value| (item["name"].clone(), item.get("zone").cloned().unwrap_or(json!("z")));
        item["name"] = name.into();
        if let Some(zone) = zone {
            item["zone"] = zone.into();
        }
        if keyed.iter().all(|other| key(other) != key(&item)) {
            keyed.push(item);
        }
    }
    keyed.into()
}

fn free() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(1)), Just(json!("x")), Just(json!([1, {"a": 2}]))];
    leaf.prop_recursive(2, 6, 3, |inner| {
        vec(("[a-b]", inner), 0..3).prop_map(|members| members.into_iter().collect::<Map>().into())
    })
}

pub(super) fn node() -> impl Strategy<Value = Value> {
    let text = || option::of("[x-z]".prop_map(Value::from));
    let leaf = (text(), option::of(words())).prop_map(|(text, words)| object([("text", text), ("words", words)]));
    leaf.prop_recursive(3, 40, 4, move |inner| {
        let map = vec(("[a-c]", "[x-z]"), 0..3);
        let map = map.prop_map(|map| map.into_iter().collect::<Map>().into());
        let items = vec(("[a-c]", option::of("[yz]"), inner.clone()), 0..5).prop_map(keyed);
        let atoms = vec(inner.clone(), 0..3).prop_map(Value::from);
        let parts = (option::of(inner.clone()), option::of(inner), option::of(free()));
        let lists = (option::of(words()), option::of(items), option::of(atoms));
        (text(), option::of(map), parts, lists).prop_map(|(text, map, (node, whole, free), (words, items, atoms))| {
            object([
                ("text", text),
                ("map", map),
                ("node", node),
                ("whole", whole),
                ("free", free),
                ("words", words),
                ("items", items),
                ("atoms", atoms),
            ])
        })
    })
}

/// Nodes with repeated items, items without keys, and nulls.
pub(super) fn repeating_node() -> impl Strategy<Value = Value> {
    (node(), any::<u8>()).prop_map(|(mut node, how)| {
        for (bit, list) in ["items", "words"].into_iter().enumerate() {
            if let Some(Value::Array(items)) = node.get_mut(list) {
                items.extend(items.first().cloned().filter(|_| how & (1 << bit) != 0));
                items.extend(Some(json!({"zone": "z"})).filter(|_| how & (4 << bit) != 0));
            }
        }
        for (bit, name) in ["map", "node", "free", "atoms"].into_iter().enumerate() {
            if how & (16 << bit) != 0 {
                node[name] = Value::Null;
            }
        }
        node
    })
}

fn object<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map>().into()
}

proptest! {
    #[test]
    fn generated_objects_are_valid(object in node()) {
        prop_assert_eq!(validate(Toy::Node, &object, Duplicates::Refused), Ok(()));
    }

    #[test]
    fn differences_mirror_each_other(a in node(), b in node()) {
        prop_assert!(compare(Toy::Node, &a, &a).is_same());
        let (there, back) = (compare(Toy::Node, &a, &b), compare(Toy::Node, &b, &a));
        prop_assert_eq!(there.added, back.removed);
        prop_assert_eq!(there.removed, back.added);
        prop_assert_eq!(there.modified, back.modified);
    }

    #[test]
    fn extracted_fields_are_those_added_by_the_object(object in node()) {
        let fields = extract(Toy::Node, &object);
        let added = compare(Toy::Node, &json!({}), &object).added;
        prop_assert_eq!(fields.difference(&added), FieldSet::new());
    }

    #[test]
    fn applied_fields_are_in_the_result(object in node(), applied in node()) {
        let merged = merge(Toy::Node, &object, &applied);
        prop_assert_eq!(validate(Toy::Node, &merged, Duplicates::Refused), Ok(()));
        let changes = compare(Toy::Node, &applied, &merged);
        prop_assert!(changes.removed.is_empty());
        prop_assert!(changes.modified.is_empty());
        let lost = compare(Toy::Node, &object, &merged).removed.difference(&extract(Toy::Node, &applied));
        prop_assert!(lost.paths().iter().all(|path| path.to_string().contains(".free")), "{:?}", lost.paths());
    }

    #[test]
    fn applying_twice_is_applying_once(object in node(), applied in node()) {
        let once = merge(Toy::Node, &object, &applied);
        prop_assert_eq!(merge(Toy::Node, &once, &applied).to_string(), once.to_string());
        prop_assert_eq!(merge(Toy::Node, &object, &object).to_string(), object.to_string());
    }

    #[test]
    fn removed_fields_are_gone_and_the_others_stay(a in node(), b in node()) {
        let (all, some) = (extract(Toy::Node, &a), extract(Toy::Node, &b));
        let left = remove(Toy::Node, &a, &some);
        prop_assert_eq!(extract(Toy::Node, &left).intersection(&some), FieldSet::new());
        let stays = all.recursive_difference(&some);
        let keys_gone = |path: &str| path.contains(".items[");
        let lost = stays.difference(&extract(Toy::Node, &left));
        prop_assert!(lost.paths().iter().all(|path| keys_gone(&path.to_string())), "{:?}", lost.paths());
        prop_assert_eq!(remove(Toy::Node, &a, &FieldSet::new()), a);
    }

    #[test]
    fn a_set_with_named_fields_keeps_its_leaves(object in node()) {
        let fields = extract(Toy::Node, &object);
        let named = with_named_fields(&fields, Toy::Node);
        prop_assert_eq!(fields.difference(&named), FieldSet::new());
        prop_assert_eq!(named.leaves(), fields.leaves());
        prop_assert_eq!(with_named_fields(&named, Toy::Node), named);
    }
}
