//! Costs of expressions: the estimate, the actual cost, and the error when an evaluation exceeds its limit.
//!
//! The numbers are derived by hand from the model, since they decide which definitions are accepted.

use keelson_cel::{Environment, EvalError, Meter, Program, Type, Value, decl, values};
use keelson_meta::json::{Value as Json, json};
use std::time::{Duration, Instant};

fn estimated(expression: &str, schema: &Json) -> u64 {
    let decl = decl::from_schema(schema, "self", false).expect("a schema that is seen");
    let environment = Environment::kubernetes().with_declared("self", &decl);
    let program = Program::compile(expression, &environment);
    program.unwrap_or_else(|fault| panic!("{expression}: {fault}")).cost().max
}

fn used(expression: &str) -> u64 {
    let program = Program::compile(expression, &Environment::kubernetes()).expect("an expression");
    let mut meter = Meter::new(u64::MAX);
    program.evaluate(&[], &mut meter).expect("a value");
    meter.used()
}

fn object(properties: &Json) -> Json {
    json!({"type": "object", "properties": properties})
}

#[test]
fn declared_sizes_bound_the_estimate() {
    let ints = |most: u64| object(&json!({"l": {"type": "array", "items": {"type": "integer"}, "maxItems": most}}));
    let twice = "self.l.all(x, self.l.all(y, x <= y))";
    // The inner loop has six steps. Each loop costs three more than its steps.
    assert_eq!(estimated(twice, &ints(100)), 100 * (100 * 6 + 3 + 3) + 3);
    assert_eq!(estimated("self.i > 1", &object(&json!({"i": {"type": "integer"}}))), 3);
    let text = |limit: &Json| object(&json!({"s": limit}));
    let contains = "self.s.contains('ab')";
    assert_eq!(estimated(contains, &text(&json!({"type": "string", "maxLength": 25}))), 2 + 10);
    assert_eq!(estimated(contains, &text(&json!({"type": "string", "enum": ["a", "abcdefghij"]}))), 2 + 1);
    assert_eq!(estimated(contains, &text(&json!({"type": "string"}))), 2 + 314_573);
    // A value that is not known to be a list has elements without a size.
    assert!(estimated("dyn([1, 2]).join(',') == ''", &object(&json!({}))) < 100);
    assert!(estimated("['a'].join('/') == 'a'", &object(&json!({}))) > 1 << 60);
    assert_eq!(estimated("has(self.s)", &text(&json!({"type": "string"}))), 1);
}

#[test]
fn the_name_of_an_object_has_a_limited_length() {
    let estimated = |name: &str, schema: &Json| {
        let decl = decl::from_schema(schema, "self", true).expect("a schema that is seen");
        let environment = Environment::kubernetes().with_declared("self", &decl);
        let program = Program::compile(&format!("self.metadata.{name}.contains('x')"), &environment);
        program.expect("the expression is valid").cost().max
    };
    let bare = json!({"type": "object"});
    let shorter = |most: u64| json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": most}}}}});
    // One for each read, and a tenth of 253 characters of up to four bytes.
    assert_eq!(estimated("name", &bare), 3 + 102);
    assert_eq!(estimated("generateName", &bare), 3 + 101);
    assert_eq!(estimated("name", &shorter(25)), 3 + 10);
    assert_eq!(estimated("name", &shorter(1000)), 3 + 102);
}

#[test]
fn reading_a_text_is_estimated_by_its_length() {
    let schema =
        object(&json!({"s": {"type": "string", "maxLength": 25}, "l": {"type": "array", "items": {"type": "string"}}}));
    // The cost: two steps to read the string, a tenth for each of its 100 bytes, and one for the call.
    for (expression, cost) in [
        ("isQuantity(self.s)", 2 + 10),
        ("isIP(self.s)", 2 + 10),
        ("isCIDR(self.s)", 2 + 10),
        ("isSemver(self.s)", 2 + 10),
        ("isSemver(self.s, true)", 2 + 10),
        ("ip.isCanonical(self.s)", 2 + 20),
        ("ip(self.s).isLoopback()", 2 + 10 + 1),
        ("cidr(self.s).ip().isLoopback()", 2 + 10 + 1 + 1),
        ("cidr(self.s).prefixLength() == 24", 2 + 10 + 1 + 1),
        ("semver(self.s).major() == 1", 2 + 10 + 1 + 1),
        ("semver(self.s, true).isLessThan(semver('1.2.3'))", 2 + 10 + 1 + 1),
        ("quantity(self.s).add(quantity('1')).isGreaterThan(quantity('0'))", 2 + 10 + 1 + 1 + 1 + 1),
        ("quantity(self.s).asInteger() == 1", 2 + 10 + 1 + 1),
        ("url(self.s).getHost() == ''", 2 + 10 + 1),
        ("isURL(self.s)", 2 + 1),
    ] {
        assert_eq!(estimated(expression, &schema), cost, "{expression}");
    }
    for function in [
        "isQuantity(x)",
        "quantity(x).isGreaterThan(quantity('0'))",
        "isIP(x)",
        "ip.isCanonical(x)",
        "isCIDR(x)",
        "isSemver(x)",
    ] {
        let cost = estimated(&format!("self.l.all(x, {function})"), &schema);
        assert!(cost > 100 * keelson_cel::cost::limits::RULE, "{function}: {cost}");
    }
    assert_eq!(used("isQuantity('1234567890123')"), 2);
    assert_eq!(used("ip.isCanonical('127.0.0.1')"), 2);
}

#[test]
fn used_cost_is_counted() {
    assert_eq!(used("1 + 2 == 3"), 2);
    assert_eq!(used("'abcdefghijklmnop'.contains('ab')"), 2);
    assert_eq!(used("[1, 2, 3].all(x, x > 0)"), 3 * (3 + 2) + 1);
    assert_eq!(used("true || 1 / 0 == 1"), 0);
    assert_eq!(used("2 in [1, 2, 3]"), 3);
}

fn is_too_costly(expression: &str, object: &Json) {
    let environment = Environment::kubernetes().with("self", Type::Dyn);
    let program = Program::compile(expression, &environment).unwrap_or_else(|fault| panic!("{expression}: {fault}"));
    let start = Instant::now();
    let result = program.evaluate(&[values::from_tree(object, None)], &mut Meter::new(1_000_000));
    assert!(matches!(result, Err(EvalError::TooCostly)), "{expression}: {:?}", result.map(|value| value.type_name()));
    // A generous limit, since the test only shows that the evaluation ends.
    assert!(start.elapsed() < Duration::from_secs(20), "{expression}");
}

#[test]
fn unlimited_growth_is_stopped() {
    let object = json!({"l": vec![1; 2_000], "s": "a".repeat(100_000)});
    for expression in [
        "self.l.all(x, self.l.all(y, x <= y))",
        "self.l.all(x, self.l.all(y, x <= y)) || true",
        "self.l.map(x, self.l.map(y, self.l.map(z, z)))",
        "self.s.replace('', self.s).size() > 0",
        "self.l.map(x, self.s).join().size() > 0",
        "lists.range(100000000).size() > 0",
        "self.l.map(x, self.l).flatten().distinct()",
        "[self.l].map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)\
         .map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a).map(a, a + a)",
        "self.l.all(x, self.s.matches('a{10}' + string(x)) || true)",
    ] {
        is_too_costly(expression, &object);
    }
}

#[test]
fn work_that_upstream_does_not_count_is_limited_too() {
    let texts = |count: usize| json!({"l": (0..count).map(|index| format!("{index}")).collect::<Vec<_>>(), "s": "a".repeat(50_000)});
    let environment = Environment::kubernetes().with("self", Type::Dyn);
    let run = |expression: &str, object: &Json, meter: &mut Meter| {
        let program = Program::compile(expression, &environment).expect("an expression");
        program.evaluate(&[values::from_tree(object, None)], meter).map(|value| value.type_name())
    };
    // Each expression is different, so each must be compiled.
    let compiling = "self.l.all(x, 'a'.matches('[a-z]{40}[0-9]' + x) || true)";
    let mut meter = Meter::new(1_000_000);
    assert_eq!(run(compiling, &texts(100), &mut meter), Ok("bool"));
    assert!(meter.work() > 100 * 30_000, "{}", meter.work());
    let mut little = Meter::new(1_000_000).with_work(meter.work() / 2);
    assert_eq!(run(compiling, &texts(200), &mut little), Err(EvalError::TooCostly));
    assert!(little.used() < 1_000_000, "it is not upstream's count that ends it");
    // A short expression with many states, and a long text.
    let large = "'x'.matches('([a-z]{30}|[0-9]{30}){33}') || self.s.matches('([a-z]{30}|[0-9]{30}){33}')";
    let mut meter = Meter::new(1_000_000);
    assert_eq!(run(large, &texts(0), &mut meter), Ok("bool"));
    let mut little = Meter::new(1_000_000).with_work(meter.work() / 2);
    assert_eq!(run(large, &texts(0), &mut little), Err(EvalError::TooCostly));
    // After each match, the whole rest of the text is searched.
    let searching = "self.s.findAll('a|.*b').size() > 0";
    assert_eq!(run(searching, &json!({"s": "a".repeat(500)}), &mut Meter::new(1_000_000)), Ok("bool"));
    assert_eq!(run(searching, &texts(0), &mut Meter::new(1_000_000)), Err(EvalError::TooCostly));
}

#[test]
fn errors_of_long_expressions_are_limited() {
    let told = |name: &str, times: usize| {
        let text = format!("[{}]", vec![name; times].join(", "));
        Program::compile(&text, &Environment::kubernetes()).expect_err("it is wrong").to_string()
    };
    let many = told("a", 150);
    assert!(many.ends_with("\n50 more errors were truncated"), "{}", &many[many.len() - 200..]);
    assert_eq!(many.matches("ERROR: ").count(), 100);
    let long = told("abcdefghijklmnopqrstuvwxyz", 500);
    assert!(long.len() < 150_000 && long.ends_with("\n400 more errors were truncated"), "{}", long.len());
    let one = told("a", 1);
    assert_eq!(one.matches('\n').count(), 2, "{one}");
}

#[test]
fn an_expression_runs_on_many_threads_at_once() {
    let environment = Environment::kubernetes().with("self", Type::Dyn);
    let program = Program::compile("self.l.exists(x, x == 7)", &environment).expect("an expression");
    std::thread::scope(|scope| {
        for number in 0..4_i64 {
            let program = &program;
            scope.spawn(move || {
                let object = json!({"l": [number, 7 - (number % 2)]});
                let held = program.holds(&[values::from_tree(&object, None)], &mut Meter::new(1_000));
                assert_eq!(held, Ok(number % 2 == 0));
            });
        }
    });
    assert!(program.uses("self"));
    assert!(matches!(program.evaluate(&[Value::Null], &mut Meter::new(1_000)), Err(EvalError::Failed(_))));
}

/// The stack size of a runtime thread in bytes.
const STACK: usize = 2 << 20;

#[test]
fn the_deepest_expressions_fit_a_stack() {
    let nested = |open: &str, inner: &str, close: &str, depth: usize| {
        format!("{}{inner}{}", open.repeat(depth), close.repeat(depth))
    };
    let deepest = |make: &dyn Fn(usize) -> String| {
        let compiles = |depth: &usize| Program::compile(&make(*depth), &Environment::kubernetes()).is_ok();
        (1..260).rev().step_by(9).find(compiles).unwrap_or(0)
    };
    let run = move || {
        let makers: [&dyn Fn(usize) -> String; 8] = [
            &|depth| nested("(", "true", ")", depth),
            &|depth| nested("[", "1", "]", depth),
            &|depth| nested("{'a': ", "1", "}", depth),
            &|depth| nested("[1].map(x, ", "1", ")", depth),
            &|depth| nested("[1].all(x, true && ", "true", ")", depth),
            &|depth| nested("optional.of(1).optMap(x, ", "1", ")", depth),
            &|depth| nested("true ? 1 : (", "2", ")", depth),
            &|depth| format!("dyn(1){}", " + 1".repeat(depth)),
        ];
        for make in makers {
            let depth = deepest(make);
            assert!(depth > 60, "{depth}: {}", make(3));
            let program = Program::compile(&make(depth), &Environment::kubernetes()).expect("an expression");
            let result = program.evaluate(&[], &mut Meter::new(1_000_000));
            assert!(result.is_ok(), "{}: {result:?}", make(3));
            // Formatting and conversion to JSON recurse to the same depth.
            let text = format!("'%s'.format([dyn({})])", make(depth - 10));
            if let Ok(program) = Program::compile(&text, &Environment::kubernetes()) {
                // An optional value can't be formatted, which is an error.
                let shown = program.evaluate(&[], &mut Meter::new(1_000_000));
                assert!(!matches!(shown, Err(EvalError::TooCostly)), "{}", make(3));
            }
        }
    };
    let thread = std::thread::Builder::new().stack_size(STACK).spawn(run).expect("a thread");
    thread.join().expect("no overflow");
}
