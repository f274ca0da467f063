//! Columns with a path to their value, as in `additionalPrinterColumns` of custom resources.
//!
//! The object's name comes first. A cell is null if the path has no value, or one of another type than the column's. A
//! string column shows values of any type. A definition may have any number of columns, so all columns of a row share
//! limits of work and output. Further cells are null.

use keelson_codec::outline::{Content, Item};
use keelson_meta::clock::parse_rfc3339;
use keelson_meta::go_format;
use keelson_meta::json::{Map, Value};

use crate::age::age;
use crate::column::{CREATED_AT, Column, NAME};
use crate::field_value::Subject;
use crate::path::{Path, PathError, VisitBudget};

/// A column, and the path of its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CustomColumn {
    /// The header of the column.
    pub name: String,
    /// The type of the cells.
    pub kind: CellType,
    /// The OpenAPI format of the cells, or empty.
    pub format: String,
    /// A description for users. An empty one is replaced by the path.
    pub description: String,
    /// 0 is always shown. Higher priorities are shown only in wide output (`-o wide`).
    pub priority: i32,
    /// A JSONPath, such as `.spec.host` or `.status.conditions[?(@.type=="Ready")].status`.
    pub path: String,
}

/// The OpenAPI types of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellType {
    /// Texts. Other values are converted.
    String,
    /// Integers.
    Integer,
    /// Numbers.
    Number,
    /// Booleans.
    Boolean,
    /// Times, shown as an age.
    Date,
}

impl CustomColumn {
    /// The age of an object.
    pub(crate) fn age() -> Self {
        Self {
            name: "Age".to_owned(),
            kind: CellType::Date,
            format: String::new(),
            description: CREATED_AT.description.to_owned(),
            priority: 0,
            path: ".metadata.creationTimestamp".to_owned(),
        }
    }
}

impl CellType {
    /// The type of this name in `additionalPrinterColumns`.
    pub fn named(name: &str) -> Option<Self> {
        [Self::String, Self::Integer, Self::Number, Self::Boolean, Self::Date]
            .into_iter()
            .find(|kind| kind.name() == name)
    }

    /// The name of the column in the header of a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
            Self::Date => "date",
        }
    }
}

/// The limit of texts in a row in bytes, whatever the object. The text that exceeds it is the last.
const SHOWN_PER_ROW: usize = 64 * 1024;
/// The additional limit of texts in a row, as a multiple of the object's size.
const SHOWN_PER_BYTE: usize = 2;

/// The columns of one kind in one version.
pub(crate) struct CustomColumns(Vec<(CustomColumn, Path)>);

impl CustomColumns {
    pub(crate) fn new(columns: Vec<CustomColumn>) -> Result<Self, PathError> {
        columns.into_iter().map(with_path).collect::<Result<_, _>>().map(Self)
    }

    pub(crate) fn until_unusable(columns: Vec<CustomColumn>) -> Self {
        Self(columns.into_iter().map_while(|column| with_path(column).ok()).collect())
    }

    pub(crate) fn columns(&self) -> Vec<Column<'_>> {
        let brought = self.0.iter().map(|(column, _)| Column {
            name: &column.name,
            kind: column.kind.name(),
            format: &column.format,
            description: &column.description,
            priority: column.priority,
        });
        std::iter::once(NAME).chain(brought).collect()
    }

    pub(crate) fn cells(&self, of: Subject<'_>) -> Vec<Value> {
        let looks = VisitBudget::at(of.object);
        let mut room = of.object.text_bytes().saturating_mul(SHOWN_PER_BYTE).saturating_add(SHOWN_PER_ROW);
        let cell = |(column, path): &(CustomColumn, Path)| match path.first(of.object, &looks) {
            Some(found) if room > 0 => {
                let cell = cell(column.kind, found, of);
                room = room.saturating_sub(cell.as_str().map_or(0, str::len));
                cell
            }
            _ => Value::Null,
        };
        std::iter::once(of.name()).chain(self.0.iter().map(cell)).collect()
    }
}

/// A column with its parsed path and a description.
fn with_path(mut column: CustomColumn) -> Result<(CustomColumn, Path), PathError> {
    let path = Path::parse(&column.path)?;
    if column.description.is_empty() {
        let path = &column.path;
        column.description = format!("Custom resource definition column (in JSONPath format): {path}");
    }
    Ok((column, path))
}

fn cell(kind: CellType, found: Item<'_>, of: Subject<'_>) -> Value {
    match (kind, found.content()) {
        (CellType::String, _) => text(found),
        (CellType::Boolean, Content::Bool(flag)) => flag.into(),
        (CellType::Integer, Content::Number(number)) => whole(number).map_or(Value::Null, Value::from),
        (CellType::Number, Content::Number(number)) => {
            number.parse().map_or(Value::Null, |float: f64| match whole(number) {
                // An integral number has no fraction, unless it exceeds 64 bits.
                Some(whole) if float.fract() == 0.0 && float.abs() < BEYOND_INTEGERS => whole.into(),
                _ => float.into(),
            })
        }
        (CellType::Date, Content::Text("" | NO_TIME)) => age(None, of.now).into(),
        (CellType::Date, Content::Text(time)) => match parse_rfc3339(time) {
            Some(time) => age(Some(time), of.now).into(),
            None => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// The text of null in a string column.
const NO_VALUE: &str = "<no value>";
/// Go's zero time.
const NO_TIME: &str = "0001-01-01T00:00:00Z";

/// The smallest float above 64-bit integers, 2^63.
const BEYOND_INTEGERS: f64 = 9_223_372_036_854_775_808.0;

/// A number without its fraction.
#[allow(clippy::cast_possible_truncation, reason = "a larger number saturates")]
fn whole(number: &str) -> Option<i64> {
    number.parse().ok().or_else(|| number.parse::<f64>().ok().map(|number| number as i64))
}

fn text(found: Item<'_>) -> Value {
    match found.content() {
        Content::Null => NO_VALUE.into(),
        Content::Bool(flag) => flag.to_string().into(),
        Content::Number(text) | Content::Text(text) => text.into(),
        Content::Array | Content::Object => {
            let mut value = value_of(found);
            value.sort_all_keys();
            go_format::json(&value).into()
        }
    }
}

/// An item as a tree. Outlines are not deeper than stored objects.
fn value_of(item: Item<'_>) -> Value {
    match item.content() {
        Content::Null => Value::Null,
        Content::Bool(flag) => flag.into(),
        Content::Number(number) => match (number.parse::<i64>(), number.parse::<f64>()) {
            (Ok(whole), _) => whole.into(),
            (_, Ok(float)) => float.into(),
            _ => Value::Null,
        },
        Content::Text(text) => text.into(),
        Content::Array => Value::Array(item.members().map(|(_, item)| value_of(item)).collect()),
        Content::Object => Value::Object(item.members().map(|(name, item)| (name, value_of(item))).collect::<Map>()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use keelson_codec::Outline;
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn cells_are_of_the_type_of_their_column() {
        let outline = Outline::read(concat!(
            r#"{"metadata":{"name":"a"},"text":"t","whole":3,"real":1.5,"flag":true,"#,
            r#""time":"1970-01-01T00:00:00Z","map":{"b":1,"a":"<"},"list":[1,"x"],"none":null}"#
        ));
        let now = SystemTime::UNIX_EPOCH + Duration::from_mins(5);
        let check = |kind: CellType, expected: [Value; 8]| {
            let paths = [".text", ".whole", ".real", ".flag", ".time", ".map", ".list", ".none"];
            let column = |path: &str| CustomColumn {
                name: "C".to_owned(),
                kind,
                format: String::new(),
                description: String::new(),
                priority: 0,
                path: path.to_owned(),
            };
            let columns = CustomColumns::new(paths.map(column).into()).expect("the paths are good");
            let cells = columns.cells(Subject { object: outline.root(), now });
            assert_eq!((&cells[0], &cells[1..]), (&json!("a"), &expected[..]), "{kind:?}");
        };
        let null = || Value::Null;
        let none = json!("<no value>");
        let texts = ["t", "3", "1.5", "true", "1970-01-01T00:00:00Z", r#"{"a":"\u003c","b":1}"#, r#"[1,"x"]"#];
        let [t, whole, real, flag, time, map, list] = texts.map(Value::from);
        check(CellType::String, [t, whole, real, flag, time, map, list, none]);
        check(CellType::Integer, [null(), json!(3), json!(1), null(), null(), null(), null(), null()]);
        check(CellType::Number, [null(), json!(3), json!(1.5), null(), null(), null(), null(), null()]);
        check(CellType::Boolean, [null(), null(), null(), json!(true), null(), null(), null(), null()]);
        let invalid = || json!("<invalid>");
        check(CellType::Date, [invalid(), null(), null(), null(), json!("5m"), null(), null(), null()]);
    }

    #[test]
    fn numbers_beyond_64_bits_stay_floats() {
        let now = SystemTime::UNIX_EPOCH;
        for (number, expected) in
            [("1e19", json!(1e19)), ("-1e21", json!(-1e21)), ("1e18", json!(1_000_000_000_000_000_000_i64))]
        {
            let text = format!("{{\"n\":{number}}}");
            let outline = Outline::read(&text);
            let found = Path::parse(".n").expect("the path is good");
            let found = found.first(outline.root(), &VisitBudget::at(outline.root())).expect("there is a number");
            assert_eq!(cell(CellType::Number, found, Subject { object: outline.root(), now }), expected, "{number}");
        }
    }
}
