//! Filter expressions over the fields of an object. Example:
//! `spec.replicas > 3 and not metadata.labels.app in ('a', 'b') or any(.spec.containers, .image contains 'nginx')`.
//!
//! An expression is parsed once and evaluated on an object's bytes. The time of every test, also of regular
//! expressions, is at most linear in the size of the object. A list of values costs a binary search. Regular expressions
//! read less text, since a byte may cost thousands of steps.
//!
//! A test of an absent value is false, except for `!=` and `notin`, the negations of `==` and `in`. A path with several
//! values passes a test if at least one of them passes.

mod literals;
mod parse;

use std::cell::Cell;

use keelson_codec::cursor::Cursor;
use regex::bytes::Regex;

use crate::budget::Budget;
use crate::condition::CostExceeded;
use crate::error::QueryError;
use crate::path::Path;
use crate::value::{Subject, Value};
use literals::{Literal, OneOf};

/// The maximum bytes of a text that a regular expression reads.
const MATCHED_BYTES: usize = 2048;
/// The maximum bytes of one object that all regular expressions together read. Bytes count several times for larger
/// expressions. The worst case takes a few milliseconds.
const MATCHED_BYTES_OF_OBJECT: u64 = 16 << 10;
/// The cost of one byte of regular expressions in the query's budget, in nanoseconds.
const MATCHED_BYTE: u64 = 10;

/// A condition on objects.
#[derive(Clone, Debug)]
pub struct Filter {
    root: Expr,
    text: String,
    tests: usize,
    steps: u64,
    patterns: usize,
}

#[derive(Clone, Debug)]
enum Expr {
    All(Vec<Expr>),
    Any(Vec<Expr>),
    Not(Box<Expr>),
    /// The path has a value that is not null.
    Exists(Path),
    /// One of the values passes the test.
    Value(Path, Test),
    /// One or all of the items pass.
    Items {
        of: Path,
        all: bool,
        pass: Box<Expr>,
    },
}

/// The test of a value.
#[derive(Clone, Debug)]
enum Test {
    In(OneOf),
    Less(Literal),
    LessOrEqual(Literal),
    Greater(Literal),
    GreaterOrEqual(Literal),
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    Matches(Pattern),
}

/// A regular expression.
#[derive(Clone, Debug)]
struct Pattern {
    regex: Regex,
    /// The weight of each byte that it reads.
    weight: u64,
}

/// The remaining bytes of an object for regular expressions.
struct Work {
    left: Cell<u64>,
    is_exceeded: Cell<bool>,
}

impl Work {
    const fn new() -> Self {
        Self { left: Cell::new(MATCHED_BYTES_OF_OBJECT), is_exceeded: Cell::new(false) }
    }

    /// Takes bytes. Returns false if the limit is exceeded.
    fn take(&self, bytes: u64) -> bool {
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => self.is_exceeded.set(true),
        }
        !self.is_exceeded.get()
    }
}

impl Filter {
    /// Parses an expression.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let parse::Parsed { root, tests, steps, patterns } = parse::parse(parameter, text)?;
        Ok(Self { root, text: text.trim().to_owned(), tests, steps, patterns })
    }

    /// The number of walks through an object that an evaluation usually takes.
    pub const fn tests(&self) -> usize {
        self.tests
    }

    /// The maximum cost for each byte of an object, in walks. A test of each item of a list costs more, since every
    /// second byte may be an item.
    pub const fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns true if the filter has regular expressions, each of which may take a few milliseconds for an object.
    pub const fn has_patterns(&self) -> bool {
        self.patterns > 0
    }

    /// The texts that every selected object has at single-valued paths. An index of such a path finds the objects.
    pub fn exact_texts(&self) -> impl Iterator<Item = (&Path, &str)> {
        let parts = match &self.root {
            Expr::All(parts) => parts.as_slice(),
            one => std::slice::from_ref(one),
        };
        parts.iter().filter_map(|part| {
            let Expr::Value(path, Test::In(values)) = part else { return None };
            let text = values.only_text()?;
            (path.is_single() && !path.is_revision()).then_some((path, text))
        })
    }

    /// The paths that the filter reads from the object.
    pub(crate) fn paths(&self) -> Vec<&Path> {
        let mut paths = Vec::new();
        self.root.paths(&mut paths);
        paths
    }

    /// The paths to all tested values. The path of a value within an item runs through all items of the list.
    pub fn whole_paths(&self) -> Vec<Path> {
        let mut paths = Vec::new();
        self.root.whole_paths(&Path::to_itself(), &mut paths);
        paths
    }

    /// The source text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if an object is selected. Cost: a walk over its bytes for each path. Regular expressions charge
    /// `budget`.
    ///
    /// # Errors
    /// Regular expressions would read more than the limit.
    pub fn holds(&self, subject: &Subject<'_>, budget: Option<&Budget>) -> Result<bool, CostExceeded> {
        let work = Work::new();
        let holds = self.root.holds(subject, &work);
        let spent = (MATCHED_BYTES_OF_OBJECT - work.left.get()) * MATCHED_BYTE;
        budget.filter(|_| self.has_patterns()).map_or(Ok(()), |budget| budget.spend(spent))?;
        if work.is_exceeded.get() { Err(CostExceeded::ForObject) } else { Ok(holds) }
    }
}

impl Expr {
    fn paths<'e>(&'e self, out: &mut Vec<&'e Path>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.paths(out)),
            Self::Not(part) => part.paths(out),
            // Paths within an item start at the list.
            Self::Exists(path) | Self::Value(path, _) | Self::Items { of: path, .. } => out.push(path),
        }
    }

    fn whole_paths(&self, above: &Path, out: &mut Vec<Path>) {
        match self {
            Self::All(parts) | Self::Any(parts) => parts.iter().for_each(|part| part.whole_paths(above, out)),
            Self::Not(part) => part.whole_paths(above, out),
            Self::Exists(path) | Self::Value(path, _) => out.push(above.then(path)),
            Self::Items { of, pass, .. } => pass.whole_paths(&above.then(of).then(&Path::to_each()), out),
        }
    }

    fn holds(&self, subject: &Subject<'_>, work: &Work) -> bool {
        match self {
            Self::All(parts) => parts.iter().all(|part| part.holds(subject, work)),
            Self::Any(parts) => parts.iter().any(|part| part.holds(subject, work)),
            Self::Not(part) => !part.holds(subject, work),
            Self::Exists(path) => {
                let mut exists = path.is_revision();
                subject.visit_json(path, |value| {
                    exists |= value != b"null";
                    !exists
                });
                exists
            }
            Self::Value(path, test) => {
                let mut holds = false;
                subject.visit(path, |value| {
                    holds = test.holds(&value, work);
                    !holds && !work.is_exceeded.get()
                });
                holds
            }
            Self::Items { of, all, pass } => {
                let mut decided = *all;
                subject.visit_json(of, |value| {
                    decided = items_hold(value, *all, pass, (subject, work));
                    decided == *all && !work.is_exceeded.get()
                });
                decided
            }
        }
    }
}

/// Returns true if one or all items of a list pass. Other values have no items.
fn items_hold(list: &[u8], all: bool, pass: &Expr, (of, work): (&Subject<'_>, &Work)) -> bool {
    let mut cursor = Cursor::new(list, 0);
    if cursor.peek() != b'[' {
        return all;
    }
    cursor.step();
    while !matches!(cursor.peek(), b']' | 0) {
        let item = Subject::new(cursor.raw(), of.revision);
        if pass.holds(&item, work) != all || work.is_exceeded.get() {
            return !all;
        }
        if cursor.peek() == b',' {
            cursor.step();
        }
    }
    all
}

impl Test {
    fn holds(&self, value: &Value<'_>, work: &Work) -> bool {
        let text = |test: &dyn Fn(&str) -> bool| matches!(value, Value::Text(text) if test(text));
        match self {
            Self::In(values) => values.hold(value),
            Self::Less(literal) => literal.compared(value).is_some_and(std::cmp::Ordering::is_lt),
            Self::LessOrEqual(literal) => literal.compared(value).is_some_and(std::cmp::Ordering::is_le),
            Self::Greater(literal) => literal.compared(value).is_some_and(std::cmp::Ordering::is_gt),
            Self::GreaterOrEqual(literal) => literal.compared(value).is_some_and(std::cmp::Ordering::is_ge),
            Self::StartsWith(start) => text(&|text| text.starts_with(&**start)),
            Self::EndsWith(end) => text(&|text| text.ends_with(&**end)),
            Self::Contains(part) => text(&|text| text.contains(&**part)),
            Self::Matches(Pattern { regex, weight }) => text(&|text| {
                let looked_at = &text.as_bytes()[..text.len().min(MATCHED_BYTES)];
                // An empty text counts as one byte, since an object may have many.
                work.take((looked_at.len() as u64 + 1) * weight) && regex.is_match(looked_at)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;
    use proptest::prelude::*;

    use super::*;

    const POD: &str = concat!(
        r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0","labels":{"app":"web"},"ownerReferences":"#,
        r#"[{"kind":"ReplicaSet","name":"web","uid":"u"}],"creationTimestamp":"2026-01-02T03:04:05Z"},"#,
        r#""spec":{"nodeName":"n1","priority":10,"hostNetwork":true,"containers":[{"name":"a","image":"nginx:1.9","memory":"500Mi"},"#,
        r#"{"name":"b","image":"redis:7"}],"none":null,"tolerated":["x","y1"],"grid":[[1],[2,3]]},"status":{"version":"v1.10.2"}}"#
    );

    fn holds(text: &str, json: &str) -> bool {
        let filter = Filter::parse("filter", text).unwrap_or_else(|error| panic!("{error}"));
        filter.holds(&Subject::new(json.as_bytes(), Revision::new(7)), None).unwrap()
    }

    #[track_caller]
    fn check(holding: &[&str], failing: &[&str]) {
        for text in holding {
            assert!(holds(text, POD), "{text}");
        }
        for text in failing {
            assert!(!holds(text, POD), "{text}");
        }
    }

    #[test]
    fn values_are_compared_by_their_type() {
        check(
            &[
                "spec.nodeName == 'n1'",
                ".spec.nodeName='n1'",
                "spec.nodeName != 'n2'",
                "spec.missing != 'n2'",
                "spec.priority > 9.5",
                "spec.priority >= 10 and spec.priority <= 1e1",
                "spec.priority < 11",
                "spec.hostNetwork = true",
                "spec.nodeName > 'm' && spec.nodeName < 'n2'",
                "metadata.creationTimestamp < time('2026-01-02T05:04:06+02:00')",
                "status.version > version('1.9') and status.version < version(v1.11)",
                "spec.containers[0].memory >= quantity(500Mi)",
                "spec.containers[0].memory == quantity('512000Ki')",
                "spec.priority == quantity(10)",
                "metadata.resourceVersion == 7",
            ],
            &[
                "spec.nodeName == 'N1'",
                "spec.priority == '10'",
                "spec.nodeName == 1",
                "spec.missing == 'n2'",
                "spec.missing < 5",
                "spec.priority != 10",
                "spec.hostNetwork == false",
                "spec.nodeName < 5",
                "status.version == time('2026-01-02T05:04:06Z')",
                "spec.containers == 'a'",
            ],
        );
    }

    #[test]
    fn texts_lists_and_owners_are_looked_into() {
        check(
            &[
                "metadata.name startsWith 'web-'",
                "metadata.name endsWith '-0'",
                "metadata.name contains 'eb-'",
                "metadata.name matches '^web-[0-9]+$'",
                "metadata.labels['app'] in ('db', \"web\")",
                "spec.priority in (1, 10)",
                "spec.nodeName notin ('n2', 'n3')",
                "spec.missing notin ('n2')",
                "exists(spec.nodeName) and !exists(.spec.none) and not exists(spec.missing)",
                "exists(spec.containers)",
                "spec.containers[*].image startsWith 'redis'",
                "spec.containers[*].image notin ('mysql')",
                "any(spec.containers, .image contains 'redis' and .name == 'b')",
                "all(spec.containers, exists(.image))",
                "all(spec.missing, exists(.image))",
                "not any(spec.missing, exists(.image))",
                "owner(ReplicaSet)",
                "owner('ReplicaSet', 'web')",
                "any(spec.tolerated, . == 'x')",
                "any(spec.tolerated, . startsWith 'y' and not . in ('x'))",
                "all(spec.tolerated, exists(.))",
                "any(spec.grid, any(., . == 2))",
            ],
            &[
                "metadata.name matches '^eb'",
                "spec.priority startsWith '1'",
                "any(spec.containers, .image contains 'redis' and .name == 'a')",
                "all(spec.containers, .name == 'a')",
                "spec.containers[*].image notin ('redis:7')",
                "owner(Job)",
                "owner(ReplicaSet, other)",
                "any(spec.tolerated, . == 'z')",
                "all(spec.tolerated, . == 'x')",
                "any(spec.containers, . == 'a')",
            ],
        );
    }

    #[test]
    fn operators_have_the_usual_precedence() {
        let (yes, no) = ("exists(kind)", "exists(no)");
        check(
            &[
                &format!("{yes} or {no} and {no}"),
                &format!("not {no} and {yes}"),
                &format!("!({yes} and {no})"),
                &format!("{no} || {yes}"),
            ],
            &[&format!("({yes} or {no}) and {no}"), &format!("not {yes} or {no}"), &format!("not not {no}")],
        );
        // Only a whole word is an operator. A field may begin like one.
        assert!(holds("a == 1 and android == 2 and .or == 3", r#"{"a":1,"android":2,"or":3}"#));
    }

    #[test]
    fn faults_are_reported_with_their_position() {
        let check = |text: &str, expect: &str| {
            let error = Filter::parse("f", text).unwrap_err().to_string();
            assert!(error.starts_with("f: ") && error.contains(expect), "{text}: {error}");
        };
        check("", "the name of a field is expected at character 1");
        check("a", "a comparison is expected at character 2");
        check("a ==", "a value is expected at character 5");
        check("a == b", "a value is expected at character 6");
        check("a == 1 b == 2", "\"and\" or \"or\" is expected at character 8");
        check("(a == 1", "the bracket should be closed at character 8");
        check("a in 1", "a list of values in brackets is expected at character 6");
        check("a in ()", "a value is expected at character 7");
        check("a < true", "only texts, numbers, quantities, times and versions are larger or smaller at character 5");
        check("a startsWith 1", "a text in quotes is expected at character 14");
        check("a matches '('", "invalid regular expression");
        check("a matches 'a{1000}{1000}'", "invalid regular expression");
        check(&["a matches 'b'"; 17].join(" or "), "at most 16 regular expressions");
        check("a == quantity(5Q)", "invalid quantity at character 6");
        check("a == time('soon')", "invalid time at character 6");
        check(". == 1", "the name of a field is expected at character 2");
        check("any(a == 1)", "a comma is expected at character 7");
        check(&"not ".repeat(40), "nested too deeply");
        check(&["a == 1"; 65].join(" or "), "at most 64 tests");
    }

    #[test]
    fn an_index_finds_all_matching_objects() {
        let check = |text: &str, expect: &[(&str, &str)]| {
            let filter = Filter::parse("f", text).unwrap();
            let found: Vec<_> = filter.exact_texts().map(|(path, text)| (path.to_string(), text.to_owned())).collect();
            let expect: Vec<_> = expect.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("a == 'x'", &[(".a", "x")]);
        check(
            "a.b in ('x') and c > 5 and metadata.labels['d/e'] = \"y\"",
            &[(".a.b", "x"), (".metadata.labels.d/e", "y")],
        );
        for none in [
            "a != 'x'",
            "a == 'x' or b == 'y'",
            "not a == 'x'",
            "a[*] == 'x'",
            "a == 5",
            "a in ('x', 'y')",
            "a in ('x', 1)",
        ] {
            check(none, &[]);
        }
    }

    #[test]
    fn a_value_is_looked_for_among_many_as_among_few() {
        let numbers: Vec<String> = (0..250).map(|number| format!("quantity({number}Ki)")).collect();
        let list = format!("{},'b','a','b',true,1.50,time('2026-01-02T03:04:05Z')", numbers.join(","));
        for (json, expect) in [
            (r#"{"a":"249Ki"}"#, true),
            (r#"{"a":1024}"#, true),
            (r#"{"a":"250Ki"}"#, false),
            (r#"{"a":"a"}"#, true),
            (r#"{"a":"c"}"#, false),
            (r#"{"a":true}"#, true),
            (r#"{"a":false}"#, false),
            (r#"{"a":15e-1}"#, true),
            (r#"{"a":"2026-01-02T05:04:05+02:00"}"#, true),
            (r#"{"a":null}"#, false),
        ] {
            assert_eq!(holds(&format!("a in ({list})"), json), expect, "{json}");
            assert_eq!(holds(&format!("a notin ({list})"), json), !expect, "{json}");
        }
        // Each value is read once, whatever the size of the set.
        let Expr::Value(_, Test::In(values)) = Filter::parse("f", &format!("a in ({list})")).unwrap().root else {
            panic!("this is one test");
        };
        assert_eq!(values.places.iter().map(|(_, places)| places.len()).collect::<Vec<_>>(), [250, 2, 1, 1, 1]);
    }

    #[test]
    fn filter_steps_grow_with_tests_of_list_items() {
        let check = |text: &str, steps: u64| assert_eq!(Filter::parse("f", text).unwrap().steps(), steps, "{text}");
        check("a == 1", 1);
        check("a == 1 and exists(b)", 2);
        check("a[*] in (1, 2)", 8);
        check("any(a, .b == 1 and .c == 2) or d == 1", 18);
        check("owner(Job, a)", 3);
    }

    #[test]
    fn regular_expressions_look_at_no_more_of_an_object_than_they_may() {
        let of = |values: usize, bytes: usize| {
            let values: Vec<String> = (0..values).map(|_| format!("\"{}\"", "a".repeat(bytes))).collect();
            format!("{{\"a\":[{}]}}", values.join(","))
        };
        let check = |pattern: &str, json: &str| {
            let filter = Filter::parse("f", &format!("a[*] matches '{pattern}'")).unwrap();
            filter.holds(&Subject::new(json.as_bytes(), Revision::new(7)), None)
        };
        assert_eq!(check("b$", &of(100, 100)), Ok(false));
        assert_eq!(check("b$", &of(1000, 100)), Err(CostExceeded::ForObject));
        assert_eq!(check("b$", &of(100_000, 0)), Err(CostExceeded::ForObject));
        // A match before the limit is reported.
        assert_eq!(check("a$", &of(1000, 100)), Ok(true));
        // Only the first bytes of a long text count, and fewer with a large expression.
        assert_eq!(check("b$", &of(7, 1 << 20)), Ok(false));
        assert_eq!(check("(a|b){0,100}c", &of(7, 1 << 20)), Err(CostExceeded::ForObject));
        assert_eq!(check("(a|b){0,100}c", &of(30, 10)), Ok(false));
        for (connected, expect) in [("not ", Err(CostExceeded::ForObject)), ("a[0] == 'x' and ", Ok(false))] {
            let filter = Filter::parse("f", &format!("{connected}a[*] matches 'b$'")).unwrap();
            let json = of(1000, 100);
            assert_eq!(filter.holds(&Subject::new(json.as_bytes(), Revision::new(7)), None), expect);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(a|any\\(|all\\(|owner\\(|and|or|not|in|matches|==|<|'b'|1|[ .,()\\[\\]*!&|-]){0,12}") {
            if let Ok(filter) = Filter::parse("f", &text) {
                let _ = filter.holds(&Subject::new(POD.as_bytes(), Revision::new(1)), None);
            }
        }

        #[test]
        fn a_filter_and_its_contrary_divide_all_objects(a in "[ab]{0,3}", b in -3..3i32, value in "[ab]{0,3}", number in -3..3i32) {
            let json = format!("{{\"a\":\"{value}\",\"b\":{number}}}");
            for (text, expected) in [
                (format!("a == '{a}'"), value == a),
                (format!("a < '{a}'"), value < a),
                (format!("a contains '{a}'"), value.contains(&a)),
                (format!("b >= {b}"), number >= b),
                (format!("a == '{a}' and b > {b} or b == {b}"), value == a && number > b || number == b),
            ] {
                prop_assert_eq!(holds(&text, &json), expected, "{}", text);
                prop_assert_eq!(holds(&format!("not ({text})"), &json), !expected, "{}", text);
            }
        }
    }
}
