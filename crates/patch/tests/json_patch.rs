//! JSON patch: the cases of the RFC, the exceptions that upstream accepts, the limits, and patches made from generated
//! values.
//!
//! The tests compute a patch from two values. Applying it to the first must yield the second.

use keelson_meta::ApiError;
use keelson_meta::json::{Map, Value, json};
use keelson_patch::PatchError;
use keelson_patch::json_patch::{Limits, apply};
use proptest::collection::vec;
use proptest::prelude::*;

fn gives(target: &Value, patch: &Value, expected: &Value) {
    assert_eq!(apply(target, patch, Limits::default()).as_ref(), Ok(expected), "{patch}");
}

fn fails(target: &Value, patch: &Value, expected: &str) {
    let error = apply(target, patch, Limits::default()).expect_err("the patch must not apply");
    assert_eq!(error.to_string(), expected, "{patch}");
}

#[test]
fn members_are_added_replaced_and_removed() {
    let pod = json!({"spec": {"a": 1}});
    gives(&pod, &json!([{"op": "add", "path": "/spec/b", "value": [2]}]), &json!({"spec": {"a": 1, "b": [2]}}));
    gives(&pod, &json!([{"op": "add", "path": "/spec/a", "value": 3}]), &json!({"spec": {"a": 3}}));
    gives(&pod, &json!([{"op": "replace", "path": "/spec/a", "value": {}}]), &json!({"spec": {"a": {}}}));
    gives(&pod, &json!([{"op": "remove", "path": "/spec/a"}]), &json!({"spec": {}}));
    gives(&pod, &json!([{"op": "add", "path": "/spec/c"}]), &json!({"spec": {"a": 1, "c": null}}));
    gives(&pod, &json!([{"op": "replace", "path": "", "value": []}]), &json!([]));
    gives(&pod, &json!([]), &pod);
    gives(&pod, &Value::Null, &pod);
}

#[test]
fn elements_are_inserted_and_shifted() {
    let list = json!(["a", "b"]);
    for (index, expected) in [
        ("0", json!(["x", "a", "b"])),
        ("1", json!(["a", "x", "b"])),
        ("2", json!(["a", "b", "x"])),
        ("-", json!(["a", "b", "x"])),
        ("-1", json!(["a", "b", "x"])),
        ("-3", json!(["x", "a", "b"])),
    ] {
        gives(&list, &json!([{"op": "add", "path": format!("/{index}"), "value": "x"}]), &expected);
    }
    gives(&list, &json!([{"op": "remove", "path": "/0"}]), &json!(["b"]));
    gives(&list, &json!([{"op": "remove", "path": "/-1"}]), &json!(["a"]));
    gives(&list, &json!([{"op": "replace", "path": "/1", "value": "x"}]), &json!(["a", "x"]));
    for index in ["3", "-4", "x", "1.0", ""] {
        assert!(
            apply(&list, &json!([{"op": "add", "path": format!("/{index}"), "value": 1}]), Limits::default()).is_err()
        );
    }
    for index in ["2", "-", "-3"] {
        assert!(apply(&list, &json!([{"op": "remove", "path": format!("/{index}")}]), Limits::default()).is_err());
    }
}

#[test]
fn values_are_moved_and_copied() {
    let value = json!({"a": {"b": 1}, "list": [1, 2, 3]});
    gives(&value, &json!([{"op": "move", "from": "/a/b", "path": "/c"}]), &json!({"a": {}, "list": [1, 2, 3], "c": 1}));
    gives(
        &value,
        &json!([{"op": "move", "from": "/list/0", "path": "/list/2"}]),
        &json!({"a": {"b": 1}, "list": [2, 3, 1]}),
    );
    gives(
        &value,
        &json!([{"op": "copy", "from": "/a", "path": "/a/c"}]),
        &json!({"a": {"b": 1, "c": {"b": 1}}, "list": [1, 2, 3]}),
    );
    // An absent member is copied as null, and cannot be moved.
    gives(
        &value,
        &json!([{"op": "copy", "from": "/x", "path": "/y"}]),
        &json!({"a": {"b": 1}, "list": [1, 2, 3], "y": null}),
    );
    fails(
        &value,
        &json!([{"op": "move", "from": "/x", "path": "/y"}]),
        r#"move operation does not apply: doc is missing path: "/x""#,
    );
    // A value can't move into itself: it is removed before its new place is looked up.
    fails(
        &value,
        &json!([{"op": "move", "from": "/a", "path": "/a/b"}]),
        r#"move operation does not apply: doc is missing path: "/a/b""#,
    );
    fails(
        &value,
        &json!([{"op": "copy", "from": "/list/9", "path": "/y"}]),
        r#"copy operation does not apply: doc is missing path: "/list/9""#,
    );
}

#[test]
fn tests_compare_by_value() {
    let value = json!({"n": 1, "o": {"a": 1, "b": [null]}, "s": "1"});
    let test = |path: &str, wanted: Value| {
        apply(&value, &json!([{"op": "test", "path": path, "value": wanted}]), Limits::default())
    };
    assert!(test("/n", json!(1.0)).is_ok());
    assert!(test("/o", json!({"b": [null], "a": 1})).is_ok());
    assert!(test("/absent", Value::Null).is_ok());
    assert!(test("", value.clone()).is_ok());
    let failed = |path: &str| Err(PatchError::TestFailed { path: path.to_owned() });
    assert_eq!(test("/n", json!("1")), failed("/n"));
    assert_eq!(test("/o", json!({"a": 1})), failed("/o"));
    assert_eq!(test("/absent", json!(1)), failed("/absent"));
    assert!(matches!(test("/absent/deeper", Value::Null), Err(PatchError::MissingPath { .. })));
}

#[test]
fn pointers_are_unescaped_once() {
    let value = json!({"a/b": 1, "m~n": 2, "~1": 3, "": {"": 4}});
    for (path, found) in [("/a~1b", 1), ("/m~0n", 2), ("/~01", 3), ("//", 4)] {
        gives(&value, &json!([{"op": "test", "path": path, "value": found}]), &value);
    }
}

#[test]
fn text_before_the_first_slash_of_a_pointer_is_ignored() {
    let value = json!({"a": {"b": 1}, "": 2});
    gives(&value, &json!([{"op": "add", "path": "x/a/b", "value": 3}]), &json!({"a": {"b": 3}, "": 2}));
    gives(&value, &json!([{"op": "replace", "path": "/", "value": 3}]), &json!({"a": {"b": 1}, "": 3}));
    fails(
        &value,
        &json!([{"op": "test", "path": "a", "value": 1}]),
        r#"test operation does not apply: doc is missing path: "a""#,
    );
}

#[test]
fn a_member_that_is_replaced_need_not_be_there() {
    gives(&json!({"a": {}}), &json!([{"op": "replace", "path": "/a/b", "value": 1}]), &json!({"a": {"b": 1}}));
    gives(&json!({"a": [1]}), &json!([{"op": "replace", "path": "/a/-1", "value": 2}]), &json!({"a": [2]}));
    for path in ["/b/c", "/a/1", "/a/-", "b"] {
        let patch = json!([{"op": "replace", "path": path, "value": 1}]);
        assert!(apply(&json!({"a": [1]}), &patch, Limits::default()).is_err(), "{path}");
    }
}

/// Each operation costs a visit of the whole object. Without a limit, this took 14 seconds.
#[test]
fn work_is_bounded() {
    let numbers = Value::Array(vec![json!(0); 500_000]);
    let shifts = Value::Array(vec![json!({"op": "move", "from": "/a/0", "path": "/a/0"}); 9_998]);
    let shifted = apply(&json!({"a": numbers}), &shifts, Limits::default());
    assert!(matches!(shifted, Err(PatchError::TooMuchWork { .. })), "{:?}", shifted.err());
    // A move between members of objects does not visit the value, however large it is.
    let forth = json!({"op": "move", "from": "/a", "path": "/b/c"});
    let back = json!({"op": "move", "from": "/b/c", "path": "/a"});
    let moves = |turns: usize| -> Value {
        (0..turns).map(|turn| if turn % 2 == 0 { forth.clone() } else { back.clone() }).collect()
    };
    let value = json!({"a": numbers, "b": {}});
    assert_eq!(apply(&value, &moves(900), Limits::default()).as_ref().map(|moved| moved == &value), Ok(true));
    assert!(matches!(apply(&value, &moves(9_998), Limits::default()), Err(PatchError::TooMuchWork { .. })));
    // Measuring the depth counts as work.
    let mut deep = json!({"a": numbers, "b": {}});
    deep["d"] = (0..510).fold(json!(1), |inner, _| json!([inner]));
    assert!(matches!(apply(&deep, &moves(900), Limits::default()), Err(PatchError::TooMuchWork { .. })));
}

#[test]
fn operations_that_do_not_apply_stop_the_patch() {
    let value = json!({"spec": {"a": "text"}});
    for patch in [
        json!([{"op": "remove", "path": "/spec/nope"}]),
        json!([{"op": "replace", "path": "", "value": 1}]),
        json!([{"op": "add", "path": "", "value": {}}]),
        json!([{"op": "add"}]),
        json!([{"op": "move", "path": "/spec"}]),
        json!([null]),
        json!([{"op": "add", "path": "/nope/a", "value": 1}]),
        json!([{"op": "add", "path": "/spec/a/b", "value": 1}]),
        json!([{"op": "remove", "path": ""}]),
        json!([{"op": "frob", "path": "/spec"}]),
        json!([{"path": "/spec"}]),
        json!([{"op": "add", "path": "/ok", "value": 1}, {"op": "test", "path": "/ok", "value": 2}]),
    ] {
        let error = apply(&value, &patch, Limits::default()).unwrap_err();
        assert_eq!(ApiError::from(error).code(), 422, "{patch}");
    }
}

#[test]
fn patches_of_the_wrong_shape_are_bad_requests() {
    let cases = [
        (json!({"op": "x"}), "object into Go value of type []handlers.jsonPatchOp"),
        (json!(["x"]), "string into Go value of type handlers.jsonPatchOp"),
        (json!([{"op": 1}]), "number into Go struct field jsonPatchOp.op of type string"),
    ];
    for (patch, text) in cases {
        fails(&json!({}), &patch, &format!("error decoding patch: json: cannot unmarshal {text}"));
        let error = apply(&json!({}), &patch, Limits::default()).unwrap_err();
        assert_eq!(ApiError::from(error).code(), 400);
    }
}

#[test]
fn limits_hold() {
    let test = json!({"op": "test", "path": "", "value": {}});
    let patch = Value::Array(vec![test; 10_001]);
    fails(&json!({}), &patch, "The allowed maximum operations in a JSON patch is 10000, got 10001");
    let error = apply(&json!({}), &patch, Limits::default()).unwrap_err();
    assert_eq!(ApiError::from(error).code(), 413);

    let doubling = Value::Array(vec![json!({"op": "copy", "from": "/a", "path": "/a/-"}); 40]);
    let bomb = apply(&json!({"a": ["x".repeat(100)]}), &doubling, Limits::default());
    assert!(matches!(bomb, Err(PatchError::CopyTooLarge { limit: 3_145_728, .. })));

    let limits = Limits { depth: 3, ..Limits::default() };
    let add = |value: Value| apply(&json!({"a": {}}), &json!([{"op": "add", "path": "/a/b", "value": value}]), limits);
    assert!(add(json!([])).is_ok());
    assert_eq!(add(json!([[]])), Err(PatchError::TooDeep { limit: 3 }));
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..4).prop_map(Value::from),
        "[ab~/]{0,2}".prop_map(Value::from)
    ];
    leaf.prop_recursive(4, 30, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::from),
            vec(("[ab~/]{0,2}", inner), 0..5).prop_map(|members| members.into_iter().collect::<Map>().into()),
        ]
    })
}

/// Appends the operations that turn `from` into `to`.
fn diff(path: &str, from: &Value, to: &Value, operations: &mut Vec<Value>) {
    match (from, to) {
        (Value::Object(from), Value::Object(to)) => {
            for key in from.keys().filter(|key| !to.contains_key(key)) {
                operations.push(json!({"op": "remove", "path": below(path, key)}));
            }
            for (key, to) in to {
                match from.get(key) {
                    Some(from) => diff(&below(path, key), from, to, operations),
                    None => operations.push(json!({"op": "add", "path": below(path, key), "value": to})),
                }
            }
        }
        (Value::Array(from), Value::Array(to)) => {
            for (index, (from, to)) in from.iter().zip(to).enumerate() {
                diff(&format!("{path}/{index}"), from, to, operations);
            }
            for _ in to.len()..from.len() {
                operations.push(json!({"op": "remove", "path": format!("{path}/-1")}));
            }
            for item in to.iter().skip(from.len()) {
                operations.push(json!({"op": "add", "path": format!("{path}/-"), "value": item}));
            }
        }
        (from, to) if from == to => operations.push(json!({"op": "test", "path": path, "value": to})),
        (_, to) => operations.push(json!({"op": "replace", "path": path, "value": to})),
    }
}

fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

proptest! {
    #[test]
    fn a_difference_applied_gives_the_other_value(from in value(), to in value()) {
        let (from, to) = (json!({"root": from}), json!({"root": to}));
        let mut operations = Vec::new();
        diff("", &from, &to, &mut operations);
        prop_assert_eq!(apply(&from, &operations.into(), Limits::default()), Ok(to));
    }

    #[test]
    fn any_operations_apply_or_fail(
        target in value(),
        operations in vec((0..7usize, "[/ab~01-]{0,5}", "[/ab~01-]{0,5}", value()), 0..8),
    ) {
        let names = ["add", "remove", "replace", "move", "copy", "test", "other"];
        let patch: Value = operations
            .into_iter()
            .map(|(name, path, from, value)| json!({"op": names[name], "path": path, "from": from, "value": value}))
            .collect();
        drop(apply(&target, &patch, Limits::default()));
    }
}
