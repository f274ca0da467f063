//! Properties of any expression: parsing, checking and evaluating it do not panic, stay within the cost limit, and are
//! deterministic.
//!
//! Generated expressions consist of parts that mostly fit together, of any tokens, or of any characters.

use keelson_cel::{Environment, Meter, Program, Type, values};
use keelson_meta::json::json;
use proptest::prelude::*;

const LIMIT: u64 = 20_000;

/// Expressions that are mostly valid.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "1",
        "-9223372036854775808",
        "2u",
        "1.5",
        "''",
        "'aé'",
        "b'x'",
        "true",
        "false",
        "null",
        "self",
        "self.l",
        "self.m",
        "self.s",
        "x",
        "[]",
        "{}",
        "duration('1h')",
        "timestamp(0)",
        "optional.none()",
        "int",
        "quantity('1Gi')",
        "ip('::1')",
        "self.?s",
    ]);
    leaf.prop_map(str::to_owned).prop_recursive(5, 40, 3, |inner| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "in"]);
        let method = prop::sample::select(vec![
            "size()",
            "sort()",
            "sum()",
            "min()",
            "distinct()",
            "reverse()",
            "join('-')",
            "split('')",
            "flatten()",
            "hasValue()",
            "first()",
            "isSorted()",
            "getHours('Asia/Tokyo')",
            "trim()",
            "charAt(1)",
            "slice(0, 1)",
            "lowerAscii()",
            "format([1, self])",
            "matches('a*')",
            "find('.')",
            "getFullYear()",
        ]);
        let name = prop::sample::select(vec!["all", "exists", "exists_one", "map", "filter", "sortBy", "optMap"]);
        prop_oneof![
            (inner.clone(), operator, inner.clone()).prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (inner.clone(), method).prop_map(|(a, method)| format!("{a}.{method}")),
            (inner.clone(), name, inner.clone()).prop_map(|(a, name, b)| format!("{a}.{name}(x, {b})")),
            (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| format!("({a} ? {b} : {c})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("[{a}, {b}]")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{{{a}: {b}}}")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}[{b}]")),
            inner.clone().prop_map(|a| format!("-{a}")),
            inner.clone().prop_map(|a| format!("dyn({a})")),
            inner.prop_map(|a| format!("string({a})")),
        ]
    })
}

fn run(text: &str) -> Option<(String, u64)> {
    let environment = Environment::kubernetes().with("self", Type::Dyn).with("x", Type::Dyn);
    let program = Program::compile(text, &environment).ok()?;
    let object = json!({"l": [3, 1, 2], "m": {"a": 1, "b": [true, null]}, "s": "text"});
    let variables = [values::from_tree(&object, None), values::Value::Int(1)];
    let mut meter = Meter::new(LIMIT);
    let result = program.evaluate(&variables, &mut meter);
    Some((format!("{result:?}"), meter.used()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn evaluation_is_deterministic(text in expression()) {
        prop_assert_eq!(run(&text), run(&text));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "[\\PC\\n]{0,60}") {
        run(&text);
    }

    #[test]
    fn any_words_are_read_or_refused(words in prop::collection::vec(prop::sample::select(vec![
        "(", ")", "[", "]", "{", "}", ".", ",", "?", ":", "!", "-", "&&", "||", "in", "==", "self", "x", "1", "'a", "'", "r'",
        "all", "has", "map", "0x", "1e", "u", "\\", "`", "//", "\n", " ", "\"\"\"", "é",
    ]), 0..40)) {
        run(&words.concat());
    }

    /// The estimated maximum is never less than the actual cost if every size is known.
    #[test]
    fn the_estimated_cost_is_at_least_the_actual_cost(numbers in prop::collection::vec(0..9_i64, 1..8)) {
        let list = format!("{numbers:?}");
        for text in [
            format!("{list}.all(x, x < 20)"),
            format!("{list}.map(x, x * 2).exists(x, x == 8)"),
            format!("{list}.filter(x, x > 3).size() > 2"),
            format!("{list}.sort() == {list}.reverse()"),
        ] {
            let program = Program::compile(&text, &Environment::kubernetes()).expect("an expression");
            let mut meter = Meter::new(u64::MAX);
            prop_assert!(program.evaluate(&[], &mut meter).is_ok());
            prop_assert!(meter.used() <= program.cost().max, "{} {} {:?}", text, meter.used(), program.cost());
        }
    }
}
