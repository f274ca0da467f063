//! The order of a list: one or several paths or table columns, each with a direction and a comparison.
//!
//! Objects without a value at a path come last in either direction. Objects whose value has another type than the
//! comparison come before them. The object key follows the sort key and orders objects with equal sort keys.

use std::fmt;

use crate::cells::{comparable, is_empty};
use crate::error::QueryError;
use crate::path::Path;
use crate::scan::Scanner;
use crate::sort_key;
use crate::value::{Subject, Value};

/// The maximum number of paths.
const MAX_TERMS: usize = 8;

/// The class of a value, the first byte in its sort key, in the order of types. Descending order does not invert it.
mod class {
    pub(super) const BOOL: u8 = 0x10;
    pub(super) const NUMBER: u8 = 0x20;
    pub(super) const TEXT: u8 = 0x30;
    /// A value of the comparison's type.
    pub(super) const TYPED: u8 = 0x40;
    /// A value of another type.
    pub(super) const OTHER: u8 = 0x50;
    pub(super) const MISSING: u8 = 0x60;
}

/// The comparison of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Comparison {
    /// By JSON type: false and true, then numbers, then texts.
    #[default]
    Plain,
    /// As texts.
    Text,
    /// As numbers, including texts with a number.
    Number,
    /// As Kubernetes quantities: `100m`, `1Gi`.
    Quantity,
    /// As times.
    Time,
    /// As versions: `v1.9.0` before `v1.10.0`.
    Version,
}

const COMPARISONS: [(&str, Comparison); 5] = [
    ("string", Comparison::Text),
    ("number", Comparison::Number),
    ("quantity", Comparison::Quantity),
    ("time", Comparison::Time),
    ("version", Comparison::Version),
];

/// The source of the compared value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SortSource {
    /// The value at a path.
    Path(Path),
    /// The cell of a table column, by the name of the column.
    Column(Box<str>),
}

/// One part of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SortTerm {
    /// The source of the value.
    pub source: SortSource,
    /// The comparison.
    pub comparison: Comparison,
    /// True for the largest value first.
    pub descending: bool,
}

/// An order. Without paths, it is the order of object keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SortBy(Vec<SortTerm>);

impl SortBy {
    /// Parses comma-separated `[-]path[:comparison]`. `column('NAME')` in place of a path is the cell of a column.
    ///
    /// # Errors
    /// The fault and its position.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let mut scanner = Scanner::new(parameter, text);
        let mut terms = Vec::new();
        loop {
            scanner.skip_spaces();
            let start = scanner.position();
            let descending = scanner.take("-");
            let source = source(&mut scanner)?;
            if matches!(&source, SortSource::Path(path) if !path.is_single()) {
                return Err(scanner.error_at(start, "a list is sorted by one value of each object, and [*] has many"));
            }
            let comparison = if scanner.take(":") { comparison(&mut scanner)? } else { Comparison::Plain };
            terms.push(SortTerm { source, comparison, descending });
            if terms.len() > MAX_TERMS {
                return Err(scanner.error_at(start, format!("a list is sorted by at most {MAX_TERMS} paths")));
            }
            scanner.skip_spaces();
            if scanner.is_at_end() {
                return Ok(Self(terms));
            }
            if !scanner.take(",") {
                return Err(scanner.error("a comma is expected before the next path"));
            }
        }
    }

    /// The ascending order by one path.
    pub fn by(path: Path) -> Self {
        Self(vec![SortTerm { source: SortSource::Path(path), comparison: Comparison::Plain, descending: false }])
    }

    /// Returns true for the order of object keys.
    pub fn is_by_key(&self) -> bool {
        self.0.is_empty()
    }

    /// The parts in order of significance.
    pub fn terms(&self) -> &[SortTerm] {
        &self.0
    }

    /// The paths that it reads.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|term| match &term.source {
            SortSource::Path(path) => Some(path),
            SortSource::Column(_) => None,
        })
    }

    /// The names of the columns whose cells it reads.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|term| match &term.source {
            SortSource::Path(_) => None,
            SortSource::Column(name) => Some(&**name),
        })
    }

    /// Appends the sort key of an object.
    pub fn write_place(&self, subject: &Subject<'_>, out: &mut Vec<u8>) {
        for term in &self.0 {
            let start = out.len();
            match &term.source {
                SortSource::Path(path) => subject.visit(path, |value| {
                    term.write(&value, out);
                    false
                }),
                SortSource::Column(name) => {
                    let cell = subject.cell(name).filter(|cell| !is_empty(cell));
                    // A type compares the text of the cell.
                    let is_plain = term.comparison == Comparison::Plain;
                    let compared = cell.map(|cell| if is_plain { comparable(cell) } else { cell });
                    compared.iter().for_each(|value| term.write(value, out));
                }
            }
            if out.len() == start {
                out.push(class::MISSING);
            }
        }
    }
}

/// Appends the sort key of one value. `None` is a missing value.
pub(crate) fn write_value(value: Option<&Value<'_>>, out: &mut Vec<u8>) {
    match value {
        Some(value) => plain(value, false, out),
        None => out.push(class::MISSING),
    }
}

/// Writes the canonical form, which is equal for equal orders.
impl fmt::Display for SortBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, SortTerm { source, comparison, descending }) in self.0.iter().enumerate() {
            let separator = if place > 0 { "," } else { "" };
            let direction = if *descending { "-" } else { "" };
            write!(f, "{separator}{direction}")?;
            match source {
                SortSource::Path(path) => write!(f, "{path}")?,
                SortSource::Column(name) => {
                    write!(f, "column('{}')", name.replace('\\', "\\\\").replace('\'', "\\'"))?;
                }
            }
            if let Some((name, _)) = COMPARISONS.iter().find(|(_, known)| known == comparison) {
                write!(f, ":{name}")?;
            }
        }
        Ok(())
    }
}

impl SortTerm {
    fn write(&self, value: &Value<'_>, out: &mut Vec<u8>) {
        let text = value.text();
        let typed: fn(&str, &mut Vec<u8>) -> Option<()> = match self.comparison {
            Comparison::Plain => return plain(value, self.descending, out),
            Comparison::Text => |text, out| {
                sort_key::text(text, out);
                Some(())
            },
            Comparison::Number => sort_key::number,
            Comparison::Quantity => sort_key::quantity,
            Comparison::Time => sort_key::time,
            Comparison::Version => sort_key::version,
        };
        let start = out.len();
        let mut is_typed = false;
        out.push(class::TYPED);
        sort_key::directed(self.descending, out, |out| is_typed = typed(text, out).is_some());
        if !is_typed {
            out.truncate(start);
            out.push(class::OTHER);
            sort_key::directed(self.descending, out, |out| sort_key::text(text, out));
        }
    }
}

fn plain(value: &Value<'_>, descending: bool, out: &mut Vec<u8>) {
    match value {
        Value::Bool(value) => {
            out.push(class::BOOL);
            sort_key::directed(descending, out, |out| out.push((*value).into()));
        }
        Value::Number(number) => {
            let start = out.len();
            out.push(class::NUMBER);
            let mut is_number = false;
            sort_key::directed(descending, out, |out| is_number = sort_key::number(number, out).is_some());
            debug_assert!(is_number, "JSON has no such number: {number}");
            if !is_number {
                out.truncate(start);
                out.push(class::MISSING);
            }
        }
        Value::Text(text) => {
            out.push(class::TEXT);
            sort_key::directed(descending, out, |out| sort_key::text(text, out));
        }
    }
}

/// Reads a path, or the name of a column.
fn source(scanner: &mut Scanner<'_>) -> Result<SortSource, QueryError> {
    if !scanner.take("column(") {
        return Path::read(scanner).map(SortSource::Path);
    }
    let name = scanner.quoted()?;
    if !scanner.take(")") {
        return Err(scanner.error("a closing parenthesis is expected"));
    }
    Ok(SortSource::Column(name.into()))
}

fn comparison(scanner: &mut Scanner<'_>) -> Result<Comparison, QueryError> {
    let start = scanner.position();
    let name = scanner.take_while(char::is_alphanumeric);
    let known = COMPARISONS.iter().find(|(known, _)| *known == name).map(|(_, comparison)| *comparison);
    known.ok_or_else(|| {
        let known = COMPARISONS.map(|(known, _)| known).join(", ");
        scanner.error_at(start, format!("unknown comparison: it must be one of {known}"))
    })
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;

    use super::*;

    fn place(order: &str, json: &str) -> Vec<u8> {
        let order = SortBy::parse("sortBy", order).unwrap();
        let mut out = Vec::new();
        order.write_place(&Subject::new(json.as_bytes(), Revision::new(7)), &mut out);
        out
    }

    #[track_caller]
    fn check_ascends(order: &str, values: &[&str]) {
        let places: Vec<_> = values.iter().map(|value| place(order, &format!("{{\"a\":{value}}}"))).collect();
        for (at, pair) in places.windows(2).enumerate() {
            assert!(pair[0] < pair[1], "{order}: {} comes before {}", values[at], values[at + 1]);
        }
    }

    #[test]
    fn missing_values_come_last_in_both_directions() {
        check_ascends("a", &["false", "true", "-1", "2", "10", "\"\"", "\"a\"", "\"b\"", "null"]);
        check_ascends("-a", &["true", "false", "10", "2", "-1", "\"b\"", "\"a\"", "\"\"", "{}"]);
        check_ascends("a:quantity", &["\"100m\"", "1", "\"2k\"", "\"lots\"", "\"many\"", "[]"]);
        check_ascends("-a:quantity", &["\"2k\"", "1", "\"100m\"", "\"many\"", "\"lots\"", "null"]);
        check_ascends("a:number", &["2", "\"10\"", "\"x\"", "null"]);
        check_ascends("a:version", &["\"v1.9\"", "\"1.10\"", "\"main\"", "null"]);
        check_ascends("-a:time", &["\"2026-01-02T00:00:00Z\"", "\"2026-01-01T00:00:00Z\"", "\"soon\"", "null"]);
        check_ascends("a:string", &["10", "\"9\"", "true", "null"]);
    }

    #[test]
    fn later_paths_decide_where_earlier_ones_do_not() {
        assert!(place("a,-b", r#"{"a":1,"b":2}"#) < place("a,-b", r#"{"a":1,"b":1}"#));
        assert!(place("a,-b", r#"{"a":1,"b":1}"#) < place("a,-b", r#"{"a":2,"b":2}"#));
        assert_eq!(place("a", r#"{"a":1,"b":1}"#), place("a", r#"{"a":1.0,"b":2}"#));
        assert!(!place("metadata.resourceVersion", "{}").is_empty());
    }

    #[derive(Debug)]
    struct Row(&'static str);

    impl crate::cells::Cells for Row {
        fn cell(&self, column: &str) -> Option<Value<'_>> {
            (column == "Restarts").then_some(Value::Text(self.0.into()))
        }
    }

    #[test]
    fn cells_are_compared_as_people_read_them() {
        let place = |order: &str, cell: &'static str| {
            let mut out = Vec::new();
            let row = Row(cell);
            SortBy::parse("s", order)
                .unwrap()
                .write_place(&Subject::new(b"{}", Revision::ZERO).with_cells(&row), &mut out);
            out
        };
        let order = "column('Restarts')";
        assert!(place(order, "9") < place(order, "50 (3m ago)"));
        assert!(place("-column('Restarts')", "50 (3m ago)") < place("-column('Restarts')", "9"));
        assert!(place(order, "50") < place(order, "<none>"));
        assert_eq!(place("column('None')", "50"), place("column('None')", "9"));
        let order = "column('Restarts'):quantity";
        assert!(place(order, "500Mi") < place(order, "2Gi"));
        let order = SortBy::parse("s", "-column('Port(s)'), column(\"It's\"):number").unwrap();
        assert_eq!(order.to_string(), "-column('Port(s)'),column('It\\'s'):number");
        assert_eq!(SortBy::parse("s", &order.to_string()).unwrap(), order);
        assert!(SortBy::parse("s", "column('a'").is_err());
        assert!(SortBy::parse("s", "column(a)").is_err());
    }

    #[test]
    fn orders_are_written_alike_and_refused_where_they_are_wrong() {
        let order = SortBy::parse("s", " -{.spec.nodeName} , metadata.creationTimestamp:time").unwrap();
        assert_eq!(order.to_string(), "-.spec.nodeName,.metadata.creationTimestamp:time");
        let check = |text: &str, expect: &str| {
            assert_eq!(SortBy::parse("s", text).unwrap_err().to_string(), expect, "{text}");
        };
        check("", "s: the name of a field is expected at character 1 of \"\"");
        check("a,", "s: the name of a field is expected at character 3 of \"a,\"");
        check("a b", "s: a comma is expected before the next path at character 3 of \"a b\"");
        check(
            "a:size",
            "s: unknown comparison: it must be one of string, number, quantity, time, version at character 3 of \"a:size\"",
        );
        check(
            "a,b[*]",
            "s: a list is sorted by one value of each object, and [*] has many at character 3 of \"a,b[*]\"",
        );
        assert!(SortBy::parse("s", &["a"; 9].join(",")).unwrap_err().to_string().contains("at most 8 paths"));
    }
}
