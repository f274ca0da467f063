//! CEL expressions, parsed, checked and evaluated on a small object, and regular expressions.
//!
//! The cost limit is low, so that unlimited work is detected.

use super::{Target, refused};
use keelson_cel::decl::Decl;
use keelson_cel::library::regex;
use keelson_cel::{Environment, Meter, Program, Type, decl, values};
use keelson_meta::json::{Value, json};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock};

/// The cost limit of an expression.
const LIMIT: u64 = 20_000;
/// The limit of work outside of the cost model, in nanoseconds.
const WORK: u64 = 2_000_000;

/// The data of expressions, created once.
struct ExpressionInputs {
    decl: Arc<Decl>,
    environment: Environment,
    object: Value,
    any: Value,
}

static WORLD: LazyLock<ExpressionInputs> = LazyLock::new(|| {
    let schema = json!({"type": "object", "properties": {
        "i": {"type": "integer"},
        "s": {"type": "string", "maxLength": 20},
        "l": {"type": "array", "maxItems": 5, "items": {"type": "string", "maxLength": 20}}
    }});
    let decl = decl::from_schema(&schema, "self", false).expect("the schema has a type");
    ExpressionInputs {
        environment: Environment::kubernetes().with_declared("self", &decl).with("any", Type::Dyn),
        decl,
        object: json!({"i": 7, "s": "text", "l": ["ab", "a", "c"]}),
        any: json!({"spec": {"x": [1, 2.5, null, "t", {"y": true}]}}),
    }
});

/// Rules of objects and of requests.
pub(super) const CEL: Target = Target {
    name: "cel",
    seeds: &[
        b"self.i > 5 && has(self.s)",
        b"self.l.all(x, x.startsWith('a') || self.l.exists(y, y == x + 'b'))",
        b"self.?s.optMap(s, s.size()).orValue(0) in [1, 2, 3]",
        b"'%s of %d'.format([self.l.map(i, v, string(i) + v).sortBy(e, -e.size()).join(','), self.i])",
        b"{'a': 1, ?'b': optional.of(2)}.transformMap(k, v, v > 1, v * 2)[?'b'].hasValue()",
        b"timestamp('2001-09-09T01:46:40Z').getHours('Europe/Berlin') < 5 ? quantity('1Gi') == quantity('1024Mi') : false",
        b"cidr('10.0.0.0/8').containsIP(ip('10.1.2.3')) && url('https://a/b?c=d').getQuery()['c'][0].matches('^[d-f]+$')",
        b"any.spec.x.map(y, y + 1)[0] != dyn(1.5)",
    ],
    words: &[
        "self", "any", "oldSelf", "has(", ".all(x, ", ".exists(", ".map(", ".filter(", ".sortBy(", ".optMap(", "in", "&&",
        "||", "?", "[?", "true", "null", "size()", ".sort()", ".format([", "duration('1h')", "dyn(", "int(", "string(",
    ],
    check: |bytes| {
        let Ok(text) = std::str::from_utf8(bytes) else { return 0 };
        let ExpressionInputs { decl, environment, object, any } = &*WORLD;
        let program = match Program::compile(text, environment) {
            Ok(program) => program,
            Err(fault) => return refused(&fault),
        };
        let variables = [values::from_tree(object, Some(decl)), values::from_tree(any, None)];
        let mut meter = Meter::new(LIMIT).with_work(WORK);
        let result = program.evaluate(&variables, &mut meter);
        let mut hasher = DefaultHasher::new();
        program.result().to_string().hash(&mut hasher);
        match result {
            Ok(value) => {
                let (used, work) = (meter.used(), meter.work());
                assert!(used <= LIMIT && work <= WORK, "a value was had for {used} and {work} ns");
                value.type_name().hash(&mut hasher);
            }
            Err(fault) => refused(&fault).hash(&mut hasher),
        }
        hasher.finish()
    },
};

/// Regular expressions of definitions and rules.
pub(super) const REGULAR_EXPRESSION: Target = Target {
    name: "regular-expression",
    seeds: &[
        br"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        br"(?i)^(?P<n>k{2,5}?|[^\pL\d_]+)\b$",
        br"\Qa.b\E\x{1F600}\101[[:^alpha:]\-\]]",
        br"(?s-m:.)|(?U:x*)|\p{^Greek}\PN(){0}",
    ],
    words: &[
        "(?i)",
        "(?:",
        "(?P<a>",
        "(?U:",
        ")",
        "[",
        "]",
        "[^",
        "[:alpha:]",
        "-",
        "\\",
        "\\p{",
        "\\pL",
        "}",
        "\\d",
        "\\b",
        "\\Q",
        "\\E",
        "\\x{",
        "\\0",
        "{2,",
        "{1000}",
        "*",
        "+?",
        "|",
        "^",
        "$",
        ".",
    ],
    check: |bytes| {
        let Ok(pattern) = std::str::from_utf8(bytes) else { return 0 };
        let (checked, compiled) = (regex::check(pattern), regex::compiled(pattern));
        assert_eq!(checked.as_ref().err(), compiled.as_ref().err(), "an expression is checked as it is compiled");
        match compiled {
            Err(fault) => refused(&fault),
            Ok((compiled, _)) => {
                assert!(compiled.states <= regex::MAX_STATES);
                let found = compiled.regex.find(pattern).map(|found| found.range());
                assert!(
                    found.clone().is_none_or(|range| pattern.get(range).is_some()),
                    "a match is of whole characters"
                );
                let mut hasher = DefaultHasher::new();
                (found.map(|range| range.is_empty()), compiled.states.max(1).ilog2()).hash(&mut hasher);
                hasher.finish()
            }
        }
    },
};
