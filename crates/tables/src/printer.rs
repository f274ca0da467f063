//! A printer: what a kind offers for its table.
//!
//! It has columns, a function that fills the cells of a row, and marks for kinds whose rows differ from the usual; or columns that a
//! contributor brings, each with the path to what it shows (`custom.rs`). Kinds without a printer are shown by name and age.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;
use std::time::SystemTime;

use keelson_codec::Outline;
use keelson_meta::Object;
use keelson_meta::json::Value;

use crate::column::{CREATED_AT, Column, NAME};
use crate::custom::{CustomColumn, CustomColumns};
use crate::field_value::Subject;
use crate::path::PathError;

/// How the objects of one kind are shown.
#[derive(Clone)]
pub struct Printer(Form);

#[derive(Clone)]
enum Form {
    Coded(Coded),
    Custom(Arc<CustomColumns>),
}

/// The columns of a built-in kind, and code that fills them.
#[derive(Clone, Copy)]
struct Coded {
    columns: &'static [Column<'static>],
    cells: fn(Subject<'_>) -> Vec<Value>,
    conditions: fn(Subject<'_>) -> &'static [RowCondition],
    order: Option<fn(&Object, &Object) -> Ordering>,
    unshown: &'static [&'static str],
}

/// A mark on a row, which clients may use to show it otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    /// What the mark says; only `Completed` is known.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// Why, for machines.
    pub reason: &'static str,
    /// Why, for people.
    pub message: &'static str,
}

/// The columns of kinds that have no printer of their own.
const GENERIC: &[Column<'_>] = &[NAME, CREATED_AT];

impl Printer {
    /// The printer of a kind that has none of its own.
    pub const fn generic() -> Self {
        Self::new(GENERIC, generic)
    }

    /// The printer of a kind that brings its columns: its objects are shown by name and by these.
    ///
    /// # Errors
    /// When a path can't be used.
    pub fn custom(columns: Vec<CustomColumn>) -> Result<Self, PathError> {
        Ok(Self(Form::Custom(Arc::new(CustomColumns::new(columns)?))))
    }

    /// The same as far as the paths can be used: columns up to the first whose path can't. A kind that brings none at all shows how
    /// old its objects are.
    pub fn custom_until_unusable(columns: Vec<CustomColumn>) -> Self {
        let columns = if columns.is_empty() { vec![CustomColumn::age()] } else { columns };
        Self(Form::Custom(Arc::new(CustomColumns::until_unusable(columns))))
    }

    /// A printer with these columns, and a function that fills a row.
    pub const fn new(columns: &'static [Column<'static>], cells: fn(Subject<'_>) -> Vec<Value>) -> Self {
        Self::marked(columns, cells, |_| &[])
    }

    /// A printer with rows that carry marks.
    pub const fn marked(
        columns: &'static [Column<'static>],
        cells: fn(Subject<'_>) -> Vec<Value>,
        conditions: fn(Subject<'_>) -> &'static [RowCondition],
    ) -> Self {
        Self(Form::Coded(Coded { columns, cells, conditions, order: None, unshown: &[] }))
    }

    /// A printer with rows in an order of their own.
    pub const fn ordered(
        columns: &'static [Column<'static>],
        cells: fn(Subject<'_>) -> Vec<Value>,
        order: fn(&Object, &Object) -> Ordering,
    ) -> Self {
        Self(Form::Coded(Coded { columns, cells, conditions: |_| &[], order: Some(order), unshown: &[] }))
    }

    /// A printer whose rows do not show these annotations: upstream keeps what they say in fields of its own, of which it makes them for
    /// whole objects and not for rows.
    pub fn without_annotations(self, unshown: &'static [&'static str]) -> Self {
        match self.0 {
            Form::Coded(coded) => Self(Form::Coded(Coded { unshown, ..coded })),
            Form::Custom(_) => self,
        }
    }

    /// The annotations that the metadata in a row lacks.
    pub fn unshown_annotations(&self) -> &'static [&'static str] {
        match &self.0 {
            Form::Coded(coded) => coded.unshown,
            Form::Custom(_) => &[],
        }
    }

    /// The columns, in order.
    pub fn columns(&self) -> Cow<'_, [Column<'_>]> {
        match &self.0 {
            Form::Coded(coded) => Cow::Borrowed(coded.columns),
            Form::Custom(custom) => Cow::Owned(custom.columns()),
        }
    }

    /// Whether the cells may show any field of an object, so that all of it has to be read.
    pub fn reads_all(&self) -> bool {
        matches!(self.0, Form::Custom(_))
    }

    /// The row of this object as it looks at `now`.
    pub fn cells(&self, object: &Outline<'_>, now: SystemTime) -> Vec<Value> {
        let subject = Subject { object: object.root(), now };
        match &self.0 {
            Form::Coded(coded) => (coded.cells)(subject),
            Form::Custom(custom) => custom.cells(subject),
        }
    }

    /// The marks on the row of this object; mostly none.
    pub fn conditions(&self, object: &Outline<'_>) -> &'static [RowCondition] {
        match &self.0 {
            Form::Coded(coded) => (coded.conditions)(Subject { object: object.root(), now: SystemTime::UNIX_EPOCH }),
            Form::Custom(_) => &[],
        }
    }

    /// How the rows of one list are sorted, for the few kinds whose rows do not stand in the order of the keys.
    /// A page is sorted by itself.
    pub fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        match &self.0 {
            Form::Coded(coded) => coded.order,
            Form::Custom(_) => None,
        }
    }
}

fn generic(of: Subject<'_>) -> Vec<Value> {
    // The text is Go's zero time, which is what an object without a time of creation has.
    vec![of.name(), of.at("metadata").at("creationTimestamp").cell_or("0001-01-01T00:00:00Z")]
}
