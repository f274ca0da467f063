//! Faults of expressions that can't be compiled, with their places.
//!
//! Places and texts are those of upstream, which users know.

use keelson_cel::{Environment, Program, decl};
use keelson_meta::json::json;

/// The faults of an expression, each with its place and message.
fn faults(expression: &str) -> Vec<String> {
    let schema = json!({"type": "object", "properties": {
        "s": {"type": "string", "maxLength": 10},
        "i": {"type": "integer"},
        "l": {"type": "array", "items": {"type": "string"}},
        "o": {"type": "object", "properties": {"a": {"type": "string"}}},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        "any": {"x-kubernetes-preserve-unknown-fields": true},
        "namespace": {"type": "string"},
        "if": {"type": "object", "properties": {"while": {"type": "boolean"}}}
    }});
    let decl = decl::from_schema(&schema, "self", false).expect("a schema that is seen");
    let environment = Environment::kubernetes().with_declared("self", &decl).with_declared("oldSelf", &decl);
    match Program::compile(expression, &environment) {
        Ok(_) => Vec::new(),
        Err(fault) => fault
            .to_string()
            .lines()
            .filter_map(|line| line.split_once("ERROR: <input>:"))
            .map(|(_, rest)| rest.to_owned())
            .collect(),
    }
}

fn check(table: &[(&str, &[&str])]) {
    for (expression, expected) in table {
        assert_eq!(faults(expression), *expected, "{expression}");
    }
}

const OPERAND: &str = "expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, \
                       STRING, BYTES, IDENTIFIER}";

/// Since Kubernetes 1.31 a reserved word names a field after a dot and in `has()`, where it has no other meaning.
#[test]
fn reserved_words_name_fields_after_a_dot() {
    check(&[
        ("self.namespace == 'a' && self.__namespace__ == 'a'", &[]),
        ("has(self.if) && self.if.while && self.?if.?while.orValue(true)", &[]),
        ("self.for == 1", &["1:5: undefined field 'for'"]),
        ("namespace == 'a'", &["1:1: reserved identifier: namespace"]),
    ]);
}

#[test]
fn names_of_types_and_fields_are_those_of_the_language() {
    check(&[
        ("dyn == type(self.i)", &["1:1: undeclared reference to 'dyn' (in container '')"]),
        ("type + 1 == 2", &["1:6: found no matching overload for '_+_' applied to '(type(type), int)'"]),
        (
            "[1].map(i, [dyn(i), i]).map(c, [c, type(c)]) + 1 == 2",
            &["1:46: found no matching overload for '_+_' applied to '(list(list(dyn)), int)'"],
        ),
        ("int{} == 1", &["1:4: 'int' is not a message type"]),
        ("Missing{`if`: 1} == 1", &["1:9: unsupported syntax: '`'"]),
        (r"'\ud800' == 'a'", &["1:1: invalid unicode code point"]),
    ]);
}

#[test]
fn the_parser_continues_after_a_mistake() {
    let at = |place: &str, said: &str| format!("{place}: Syntax error: {said} {OPERAND}");
    assert_eq!(faults("self.i =="), [at("1:10", "mismatched input '<EOF>'")]);
    assert_eq!(
        faults("self.i >\n|| self.s ==\n&& ]"),
        [at("2:1", "extraneous input '||'"), at("3:1", "mismatched input '&&'"), at("3:4", "mismatched input ']'")]
    );
    check(&[
        ("(self.i > 2", &["1:12: Syntax error: missing ')' at '<EOF>'"]),
        ("self.i 2", &["1:8: Syntax error: extraneous input '2' expecting <EOF>"]),
        ("self.i > 2 ? 1", &["1:15: Syntax error: mismatched input '<EOF>' expecting ':'"]),
        ("{'k': 2", &["1:8: Syntax error: mismatched input '<EOF>' expecting {'}', ','}"]),
        ("X{", &["1:3: Syntax error: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"]),
        ("[2, 3}]", &["1:6: Syntax error: extraneous input '}' expecting {']', ','}"]),
        (
            "self.i @ 2",
            &[
                "1:8: Syntax error: token recognition error at: '@'",
                "1:10: Syntax error: extraneous input '2' expecting <EOF>",
            ],
        ),
        ("self.1", &["1:5: Syntax error: extraneous input '.1' expecting <EOF>"]),
        ("self. > 1", &["1:7: Syntax error: no viable alternative at input '. >'"]),
        ("9223372036854775808 > 1", &["1:1: invalid int literal"]),
        ("package == 1", &["1:1: reserved identifier: package"]),
    ]);
}

#[test]
fn names_and_types_that_do_not_fit_are_reported() {
    check(&[
        ("this.i > 1", &["1:1: undeclared reference to 'this' (in container '')"]),
        ("self.z > 1", &["1:5: undefined field 'z'"]),
        ("self.free.z", &["1:10: undefined field 'z'"]),
        ("has(self.any)", &["1:4: undefined field 'any'"]),
        ("self.s.z", &["1:7: type 'string' does not support field selection"]),
        ("call(self.s)", &["1:5: undeclared reference to 'call' (in container '')"]),
        ("self.s.endsWith(2)", &["1:16: found no matching overload for 'endsWith' applied to 'string.(int)'"]),
        ("self.i == 2.0", &["1:8: found no matching overload for '_==_' applied to '(int, double)'"]),
        (
            "self.o == {'a': 'x'}",
            &["1:8: found no matching overload for '_==_' applied to '(self.o, map(string, string))'"],
        ),
        ("self.s == null", &["1:8: found no matching overload for '_==_' applied to '(string, null)'"]),
        ("self.i || true", &["1:5: expected type 'bool' but found 'int'"]),
        ("[2, 'x', true]", &["1:5: expected type 'int' but found 'string'"]),
        ("{'k': 2, 'l': 'x'}", &["1:15: expected type 'int' but found 'string'"]),
        (
            "self.s.all(x, true)",
            &["1:5: expression of type 'string' cannot be range of a comprehension (must be list, map, or dynamic)"],
        ),
        ("self.l.all(x, x > 2)", &["1:17: found no matching overload for '_>_' applied to '(string, int)'"]),
        ("self.l.all('x', true)", &["1:12: argument must be a simple name"]),
        ("self.l.all(i, i, true)", &["1:15: duplicate variable name: i"]),
        ("has(self)", &["1:5: invalid argument to has() macro"]),
        ("Thing{a: 2}", &["1:6: undeclared reference to 'Thing' (in container '')"]),
        ("'ab'.reverse()", &["1:13: found no matching overload for 'reverse' applied to 'string.()'"]),
        (
            "cel.bind(x, 1, x)",
            &[
                "1:1: undeclared reference to 'cel' (in container '')",
                "1:9: undeclared reference to 'bind' (in container '')",
                "1:10: undeclared reference to 'x' (in container '')",
                "1:16: undeclared reference to 'x' (in container '')",
            ],
        ),
    ]);
}

#[test]
fn literals_that_cannot_be_read_are_reported_beforehand() {
    check(&[
        ("duration('2d')", &["1:10: invalid duration argument"]),
        ("timestamp('now')", &["1:11: invalid timestamp argument"]),
        ("self.s.matches('(?!a)')", &["1:16: invalid matches argument"]),
        (
            "'%d'.format(['x'])",
            &["1:14: error during formatting: decimal clause can only be used on integers, was given string"],
        ),
        ("'%s %s'.format([2])", &["1:15: index 1 out of range"]),
        ("'%s'.format([2, 3])", &["1:12: too many arguments supplied to string.format (expected 1, got 2)"]),
        ("'%'.format([])", &["1:11: unexpected end of string"]),
    ]);
}

#[test]
fn a_place_behind_a_wide_character_is_marked_wide() {
    let environment = Environment::kubernetes();
    let fault = Program::compile("'é' > é", &environment).expect_err("no name");
    assert_eq!(
        fault.to_string(),
        format!(
            "compilation failed: ERROR: <input>:1:7: Syntax error: token recognition error at: 'é'\n | 'é' > é\n | .．....＾\n\
             ERROR: <input>:1:8: Syntax error: mismatched input '<EOF>' {OPERAND}\n | 'é' > é\n | .．....．^"
        )
    );
}

#[test]
fn size_and_depth_are_bounded() {
    let fault =
        |expression: &str| Program::compile(expression, &Environment::kubernetes()).expect_err("too much").to_string();
    let deep = format!("{}true{}", "(".repeat(300), ")".repeat(300));
    assert_eq!(fault(&deep), "compilation failed: ERROR: <input>:-1:0: expression recursion limit exceeded: 250");
    let long = format!("true{}", " ".repeat(100_000));
    assert_eq!(
        fault(&long),
        "compilation failed: ERROR: <input>:-1:0: expression code point size exceeds limit: size: 100004, limit 100000"
    );
    let chain = format!("1{}", "+1".repeat(400));
    assert!(fault(&chain).contains("recursion limit"));
    // Each of these macros copies its target.
    let doubled = format!("optional.of(1){}", ".optMap(x, x)".repeat(60));
    assert!(fault(&doubled).contains("limit exceeded") || fault(&doubled).contains("exceeds limit"));
    // Each step doubles the type of the loop variable, which is shortened at the limit.
    let typed = format!("[1]{}", ".map(x, {x: x})".repeat(200));
    assert!(Program::compile(&typed, &Environment::kubernetes()).is_ok());
    let row = format!("true{}", " && true".repeat(2_000));
    assert!(Program::compile(&row, &Environment::kubernetes()).is_ok());
}
