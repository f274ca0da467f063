//! Merge patch: the cases of the RFC and patches made from generated values.
//!
//! The tests compute a patch from two values. Applying it to the first must yield the second.

use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_patch::merge_patch::{apply, apply_to_object};
use proptest::collection::vec;
use proptest::prelude::*;

fn gives(mut target: Value, patch: &Value, expected: &Value) {
    apply(&mut target, patch);
    assert_eq!(&target, expected, "{patch}");
}

#[test]
fn members_are_set_removed_and_merged() {
    gives(json!({"a": "b"}), &json!({"a": "c"}), &json!({"a": "c"}));
    gives(json!({"a": "b"}), &json!({"b": "c"}), &json!({"a": "b", "b": "c"}));
    gives(json!({"a": "b"}), &json!({"a": null}), &json!({}));
    gives(json!({"a": "b", "c": 1}), &json!({"a": null, "x": null}), &json!({"c": 1}));
    gives(json!({"a": {"b": 1, "c": 2}}), &json!({"a": {"b": 3, "c": null}}), &json!({"a": {"b": 3}}));
}

#[test]
fn anything_but_an_object_is_replaced_as_a_whole() {
    gives(json!({"a": [1, {"b": 2}]}), &json!({"a": [null, {"b": null}]}), &json!({"a": [null, {"b": null}]}));
    gives(json!({"a": "b"}), &json!({"a": {"c": 1}}), &json!({"a": {"c": 1}}));
    gives(json!({"a": {"c": 1}}), &json!({"a": "b"}), &json!({"a": "b"}));
    gives(json!([1, 2]), &json!({"a": 1, "b": null}), &json!({"a": 1}));
    gives(json!({"a": 1}), &json!(["x"]), &json!(["x"]));
    gives(json!({"a": 1}), &Value::Null, &Value::Null);
}

#[test]
fn nulls_do_not_come_in_with_new_objects() {
    gives(json!({}), &json!({"a": {"b": {"c": null}}}), &json!({"a": {"b": {}}}));
}

#[test]
fn removing_keeps_the_order_of_the_rest() {
    let mut target = json!({"a": 1, "b": 2, "c": 3, "d": 4});
    apply(&mut target, &json!({"b": null}));
    assert_eq!(target.to_string(), r#"{"a":1,"c":3,"d":4}"#);
}

#[test]
fn only_an_object_can_patch_an_object() {
    let mut object = Object::default();
    assert_eq!(apply_to_object(&mut object, &json!({"metadata": {"name": "n"}})), Ok(()));
    assert_eq!(object.name(), "n");
    let error = apply_to_object(&mut object, &json!([])).unwrap_err();
    let expected = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}";
    assert_eq!(error.to_string(), expected);
    assert_eq!(ApiError::from(error).code(), 400);
}

/// Values without null, which a merge patch can't set.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..4).prop_map(Value::from)];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-d]", inner), 0..5).prop_map(|members| members.into_iter().collect::<Map>().into()),
        ]
    })
}

/// The patch that turns `from` into `to`.
fn diff(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return to.clone();
    };
    let removed = from.keys().filter(|key| !to.contains_key(key)).map(|key| (key, Value::Null));
    let changed = to.iter().filter_map(|(key, to)| match from.get(key) {
        Some(from) if from == to => None,
        Some(from) => Some((key, diff(from, to))),
        None => Some((key, to.clone())),
    });
    removed.chain(changed).collect::<Map>().into()
}

proptest! {
    #[test]
    fn a_difference_applied_gives_the_other_value(from in value(), to in value()) {
        let mut target = from.clone();
        apply(&mut target, &diff(&from, &to));
        prop_assert_eq!(target, to);
    }

    #[test]
    fn applying_twice_is_applying_once(target in value(), patch in value()) {
        let mut once = target;
        apply(&mut once, &patch);
        let mut twice = once.clone();
        apply(&mut twice, &patch);
        prop_assert_eq!(once, twice);
    }
}
