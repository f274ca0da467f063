//! Compares the tree with `serde_json`'s tree as a model, to the byte.
//!
//! Random steps are applied to both trees, so that the order of fields, duplicates and numbers are compared in every
//! state.

use proptest::prelude::*;
use serde_json as model;

use super::map::SEARCHED_IN_ORDER;
use super::{Entry, Map, Slot, Text, Value, is_same_name, json, to_value};

/// Names with repetitions, some too long to be inline.
fn key(many: usize) -> impl Strategy<Value = String> {
    (0..many).prop_map(|number| match number % 3 {
        0 => format!("key{number}"),
        1 => format!("a name that is longer than others {number}"),
        _ => format!("ключ{number}"),
    })
}

fn leaf() -> impl Strategy<Value = model::Value> {
    prop_oneof![
        Just(model::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<u64>().prop_map(Into::into),
        (-1e9..1e9_f64).prop_map(Into::into),
        "[a-z\"\\\\\n\u{1F600}]{0,40}".prop_map(Into::into),
    ]
}

fn tree() -> impl Strategy<Value = model::Value> {
    leaf().prop_recursive(4, 100, 50, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec((key(60), inner), 0..50)
                .prop_map(|fields| model::Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// An operation on a map.
#[derive(Clone, Debug)]
enum Step {
    Insert(String, i64),
    Remove(String),
    Entry(String, i64),
    First(String, i64),
    Retain(i64),
    Sort,
    /// Ranks each field by its value, drops the fields of one rank, sorts the others, and adds one.
    Rank(u32),
    Append(Vec<String>),
    Clear,
}

fn step(many: usize) -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => (key(many), 0..100_i64).prop_map(|(key, value)| Step::Insert(key, value)),
        20 => key(many).prop_map(Step::Remove),
        10 => (key(many), 0..100_i64).prop_map(|(key, value)| Step::Entry(key, value)),
        2 => (key(many), 0..100_i64).prop_map(|(key, value)| Step::First(key, value)),
        1 => (50..100_i64).prop_map(Step::Retain),
        1 => Just(Step::Sort),
        2 => (0..12_u32).prop_map(Step::Rank),
        3 => prop::collection::vec(key(many), 0..many).prop_map(Step::Append),
        1 => Just(Step::Clear),
    ]
}

fn run(step: &Step, map: &mut Map, model: &mut model::Map<String, model::Value>) {
    match step {
        Step::Insert(key, value) => same_value(map.insert(key, *value), model.insert(key.clone(), (*value).into())),
        Step::Remove(key) => same_value(map.remove(key), model.shift_remove(key)),
        Step::Entry(key, value) => {
            let is_new = matches!(map.entry(key), Entry::Vacant(_));
            assert_eq!(is_new, matches!(model.entry(key), model::map::Entry::Vacant(_)));
            assert_eq!(map.entry(key).or_insert(*value).as_i64(), model.entry(key).or_insert((*value).into()).as_i64());
        }
        Step::First(key, value) => {
            map.insert_first(key, *value);
            model.shift_insert(0, key.clone(), (*value).into());
        }
        Step::Retain(limit) => {
            map.retain(|_, value| value.as_i64() < Some(*limit));
            model.retain(|_, value| value.as_i64() < Some(*limit));
        }
        Step::Sort => {
            map.sort_keys();
            model.sort_keys();
        }
        Step::Rank(dropped) => {
            let rank = |value: Option<i64>| u32::try_from(value.unwrap_or_default() / 10).unwrap_or_default();
            map.ranked_mut().for_each(|(_, value, place)| *place = rank(value.as_i64()));
            map.remove_rank(*dropped);
            map.sort_by_rank();
            assert!(!map.has_rank(*dropped));
            let mut fields: Vec<_> = std::mem::take(model).into_iter().collect();
            fields.retain(|(_, value)| rank(value.as_i64()) != *dropped);
            fields.sort_by_key(|(_, value)| rank(value.as_i64()));
            model.extend(fields);
            if !map.contains_key("ranked") {
                map.push_ranked("ranked", Value::from(7), *dropped);
                model.insert("ranked".to_owned(), 7.into());
            }
        }
        Step::Append(keys) => {
            map.append(&mut keys.iter().map(|key| (key, 7)).collect());
            model.append(&mut keys.iter().map(|key| (key.clone(), 7.into())).collect());
        }
        Step::Clear => {
            map.clear();
            model.clear();
        }
    }
}

fn same_value(value: Option<Value>, model: Option<model::Value>) {
    assert_eq!(value.map(|value| value.to_string()), model.map(|value| value.to_string()));
}

fn same(map: &mut Map, model: &mut model::Map<String, model::Value>) {
    assert_eq!(map.len(), model.len());
    assert_eq!(map.is_empty(), model.is_empty());
    assert_eq!(Value::Object(map.clone()).to_string(), model::Value::Object(model.clone()).to_string());
    assert!(map.keys().rev().eq(model.keys().rev()));
    assert_eq!(map.iter().len(), map.iter().count());
    for (key, value) in map.iter() {
        assert_eq!(value.as_i64(), model[key].as_i64());
    }
    for (key, value) in model {
        assert_eq!(map.get(key).and_then(Value::as_i64), value.as_i64());
        assert_eq!(map.get_mut(key).and_then(|value| value.as_i64()), value.as_i64());
    }
    assert!(!map.contains_key("none"));
}

proptest! {
    #[test]
    fn maps_behave_as_the_model(
        (few, steps) in prop_oneof![Just(8), Just(80)].prop_flat_map(|many| (Just(many), prop::collection::vec(step(many), 0..200)))
    ) {
        let (mut map, mut model) = (Map::new(), model::Map::new());
        for step in &steps {
            run(step, &mut map, &mut model);
        }
        prop_assert!(map.len() <= few + 1);
        same(&mut map, &mut model);
        let others: Map = model.iter().rev().map(|(key, value)| (key, value.as_i64())).collect();
        prop_assert_eq!(&map, &others, "the order does not matter");
        prop_assert!(map.is_empty() || map != Map::new());
    }

    #[test]
    fn duplicate_fields_keep_the_first_position_and_last_value(
        keys in prop_oneof![Just(8), Just(80)].prop_flat_map(|many| prop::collection::vec(key(many), 0..120))
    ) {
        let (mut model, mut again) = (model::Map::new(), Vec::new());
        for (number, key) in keys.iter().enumerate() {
            if model.insert(key.clone(), number.into()).is_some() {
                again.push((number, key.clone()));
            }
        }
        let mut slots: Vec<_> = keys.iter().enumerate().map(|(n, key)| Slot::new(key.into(), n.into())).collect();
        let mut told = Vec::new();
        let mut map = Map::from_slots(slots.drain(..), |number, key| told.push((number, key.to_owned())));
        prop_assert_eq!(told, again);
        same(&mut map, &mut model);
    }

    #[test]
    fn names_are_the_same_if_their_bytes_are(name in "[ab]{0,40}", other in "[ab]{0,40}", place in 0..40_usize) {
        let mut changed = name.clone().into_bytes();
        prop_assert!(is_same_name(name.as_bytes(), &changed));
        prop_assert_eq!(is_same_name(name.as_bytes(), other.as_bytes()), name == other);
        if let Some(byte) = changed.get_mut(place) {
            *byte = b'c';
            prop_assert!(!is_same_name(name.as_bytes(), &changed));
        }
    }

    #[test]
    fn trees_read_and_write_as_the_model_does(tree in tree()) {
        let text = tree.to_string();
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.to_string(), text);
        prop_assert_eq!(format!("{read:#}"), format!("{tree:#}"));
        prop_assert_eq!(&to_value(&tree).unwrap(), &read);
        prop_assert_eq!(&serde_json::to_value(&read).unwrap(), &tree);
        prop_assert_eq!(&to_value(&read).unwrap(), &read);
    }

    #[test]
    fn equality_is_that_of_the_model(left in tree(), right in tree()) {
        prop_assert_eq!(to_value(&left).unwrap() == to_value(&right).unwrap(), left == right);
    }

    #[test]
    fn pointers_lead_where_those_of_the_model_do(tree in tree(), pointer in "(/[key0-9~]{0,4}){0,3}|[a/]{0,3}") {
        let mut value = to_value(&tree).unwrap();
        let expected = tree.pointer(&pointer).map(ToString::to_string);
        prop_assert_eq!(value.pointer(&pointer).map(ToString::to_string), expected.clone());
        prop_assert_eq!(value.pointer_mut(&pointer).map(|value| value.to_string()), expected);
    }
}

#[test]
fn values_and_fields_are_small() {
    // A field has the size of a cache line.
    assert_eq!((size_of::<Text>(), size_of::<Value>(), size_of::<Slot>()), (24, 32, 64));
}

#[test]
fn removing_many_fields_moves_each_a_bounded_number_of_times() {
    const MANY: usize = 10_000;
    let mut map: Map = (0..MANY).map(|number| (format!("key{number}"), number)).collect();
    let mut closed = 0;
    for number in (0..MANY).rev().step_by(2).chain((0..MANY).step_by(2)) {
        let before = map.slots();
        assert_eq!(map.remove(&format!("key{number}")), Some(number.into()));
        if map.slots() < before && before > SEARCHED_IN_ORDER {
            closed += before;
        }
    }
    assert!(map.is_empty());
    assert!(closed < 3 * MANY, "{closed} slots were passed while holes were closed");
}

#[test]
fn json_is_written_with_expressions_in_it() {
    let (name, words, none) = ("web".to_owned(), vec!["a", "b"], None::<u8>);
    let value = json!({
        "name": name,
        (format!("{name}-1")): [1, -2, 3.5, null, true, [], {}, [name.len() + 1]],
        name: {"inner": null, "words": words, "none": none, "block": if words.is_empty() { 1 } else { 2 }},
    });
    let expected = r#"{"name":"web","web-1":[1,-2,3.5,null,true,[],{},[4]],"web":{"inner":null,"words":["a","b"],"none":null,"block":2}}"#;
    assert_eq!(value.to_string(), expected);
    assert_eq!((json!(null), json!([]), json!("a")), (Value::Null, Value::Array(Vec::new()), "a".into()));
}

#[test]
fn types_come_out_as_serde_json_shows_them() {
    #[derive(serde::Serialize)]
    enum Shape {
        Unit,
        New(u8),
        Pair(u8, char),
        Named { a: Option<u8>, b: () },
    }
    #[derive(serde::Serialize)]
    struct All {
        shapes: Vec<Shape>,
        float: f64,
        text: std::borrow::Cow<'static, str>,
        tuple: (i8, bool),
    }
    let shapes = vec![Shape::Unit, Shape::New(1), Shape::Pair(2, 'x'), Shape::Named { a: None, b: () }];
    let all = All { shapes, float: f64::NAN, text: "t".into(), tuple: (-1, true) };
    assert_eq!(to_value(&all).unwrap().to_string(), serde_json::to_string(&all).unwrap());
    assert!(to_value(&std::collections::BTreeMap::from([((1, 2), 3)])).is_err());
}

#[test]
fn absent_values_read_as_null_and_can_be_written() {
    let mut value = json!({"list": [1, 2]});
    assert_eq!(value["none"]["deeper"][3], Value::Null);
    value["made"]["deeper"] = json!("x");
    value["list"][1] = json!(3);
    assert_eq!(value.to_string(), r#"{"list":[1,3],"made":{"deeper":"x"}}"#);
    assert_eq!(value["list"].take(), json!([1, 3]));
    assert_eq!(
        (value.get("list"), value.get(0), value["made"].get("deeper")),
        (Some(&Value::Null), None, Some(&json!("x")))
    );
}

#[test]
#[should_panic(expected = "has no element 2")]
fn an_element_that_is_not_there_can_not_be_written() {
    json!([1, 2])[2] = json!(3);
}

#[test]
#[should_panic(expected = "can't have a field \"a\"")]
fn a_text_has_no_fields() {
    json!("text")["a"] = json!(3);
}

#[test]
fn json_values_compare_with_rust_values() {
    let value = json!({"text": "a", "int": -1, "large": u64::MAX, "float": 1.0, "truth": true});
    assert_eq!((&value["int"], &value["truth"]), (&json!(-1), &json!(true)));
    assert_eq!(value["text"], "a");
    assert_eq!("a", value["text"]);
    assert_eq!(value["text"], String::from("a"));
    assert_eq!(value["int"], -1);
    assert_ne!(value["int"], u64::MAX);
    assert_eq!(value["large"], u64::MAX);
    assert_ne!(value["large"], -1);
    assert_eq!(value["float"], 1.0);
    assert_ne!(value["float"], 1);
    assert_eq!(value["truth"], true);
    assert_ne!(value["none"], false);
}
