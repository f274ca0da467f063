//! The printer of a kind for its table.
//!
//! A printer has columns, a function for the cells of a row, and row conditions for some kinds, or custom columns with
//! paths (`custom.rs`). Kinds without a printer show name and creation time.

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

/// The table form of a kind's objects.
#[derive(Clone)]
pub struct Printer(Form);

#[derive(Clone)]
enum Form {
    Coded(Coded),
    Custom(Arc<CustomColumns>),
    Headed(Arc<Headed>),
}

/// A printer with an annotation in its first column.
struct Headed {
    column: Column<'static>,
    annotation: &'static str,
    rest: Printer,
}

/// The columns of a built-in kind, and the code that fills them.
#[derive(Clone, Copy)]
struct Coded {
    columns: &'static [Column<'static>],
    cells: fn(Subject<'_>) -> Vec<Value>,
    conditions: fn(Subject<'_>) -> &'static [RowCondition],
    order: Option<fn(&Object, &Object) -> Ordering>,
    unshown: &'static [&'static str],
}

/// A condition of a row, which clients may use for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCondition {
    /// The type of the condition. Only `Completed` exists.
    pub kind: &'static str,
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// The reason for programs.
    pub reason: &'static str,
    /// The reason for users.
    pub message: &'static str,
}

/// The columns of kinds without a printer.
const GENERIC: &[Column<'_>] = &[NAME, CREATED_AT];

impl Printer {
    /// The printer of kinds without their own.
    pub const fn generic() -> Self {
        Self::new(GENERIC, generic)
    }

    /// The printer of a kind with these columns after the name.
    ///
    /// # Errors
    /// An invalid path.
    pub fn custom(columns: Vec<CustomColumn>) -> Result<Self, PathError> {
        Ok(Self(Form::Custom(Arc::new(CustomColumns::new(columns)?))))
    }

    /// The printer of the columns before the first with an invalid path. Without any columns it shows the age.
    pub fn custom_until_unusable(columns: Vec<CustomColumn>) -> Self {
        let columns = if columns.is_empty() { vec![CustomColumn::age()] } else { columns };
        Self(Form::Custom(Arc::new(CustomColumns::until_unusable(columns))))
    }

    /// A printer with these columns, and a function for the cells.
    pub const fn new(columns: &'static [Column<'static>], cells: fn(Subject<'_>) -> Vec<Value>) -> Self {
        Self::marked(columns, cells, |_| &[])
    }

    /// A printer with row conditions.
    pub const fn marked(
        columns: &'static [Column<'static>],
        cells: fn(Subject<'_>) -> Vec<Value>,
        conditions: fn(Subject<'_>) -> &'static [RowCondition],
    ) -> Self {
        Self(Form::Coded(Coded { columns, cells, conditions, order: None, unshown: &[] }))
    }

    /// A printer with its own order of rows.
    pub const fn ordered(
        columns: &'static [Column<'static>],
        cells: fn(Subject<'_>) -> Vec<Value>,
        order: fn(&Object, &Object) -> Ordering,
    ) -> Self {
        Self(Form::Coded(Coded { columns, cells, conditions: |_| &[], order: Some(order), unshown: &[] }))
    }

    /// Returns the printer with a first column that shows an annotation.
    #[must_use]
    pub fn headed_by(self, column: Column<'static>, annotation: &'static str) -> Self {
        Self(Form::Headed(Arc::new(Headed { column, annotation, rest: self })))
    }

    /// Returns the printer with these annotations hidden in rows. Upstream keeps their values in internal fields and
    /// restores them for whole objects only.
    pub fn without_annotations(self, unshown: &'static [&'static str]) -> Self {
        match self.0 {
            Form::Coded(coded) => Self(Form::Coded(Coded { unshown, ..coded })),
            Form::Custom(_) | Form::Headed(_) => self,
        }
    }

    /// The annotations hidden in the metadata of a row.
    pub fn unshown_annotations(&self) -> &'static [&'static str] {
        match &self.0 {
            Form::Coded(coded) => coded.unshown,
            Form::Custom(_) => &[],
            Form::Headed(headed) => headed.rest.unshown_annotations(),
        }
    }

    /// The columns, in order.
    pub fn columns(&self) -> Cow<'_, [Column<'_>]> {
        match &self.0 {
            Form::Coded(coded) => Cow::Borrowed(coded.columns),
            Form::Custom(custom) => Cow::Owned(custom.columns()),
            Form::Headed(headed) => {
                let mut columns = vec![headed.column];
                columns.extend_from_slice(&headed.rest.columns());
                Cow::Owned(columns)
            }
        }
    }

    /// Returns true if the cells may show any field, so that the whole object is read.
    pub fn reads_all(&self) -> bool {
        match &self.0 {
            Form::Coded(_) => false,
            Form::Custom(_) => true,
            Form::Headed(headed) => headed.rest.reads_all(),
        }
    }

    /// The row of this object at `now`.
    pub fn cells(&self, object: &Outline<'_>, now: SystemTime) -> Vec<Value> {
        let subject = Subject { object: object.root(), now };
        match &self.0 {
            Form::Coded(coded) => (coded.cells)(subject),
            Form::Custom(custom) => custom.cells(subject),
            Form::Headed(headed) => {
                let mut cells = headed.rest.cells(object, now);
                cells.insert(0, subject.annotation(headed.annotation).unwrap_or_default().into());
                cells
            }
        }
    }

    /// The conditions of this object's row, usually none.
    pub fn conditions(&self, object: &Outline<'_>) -> &'static [RowCondition] {
        match &self.0 {
            Form::Coded(coded) => (coded.conditions)(Subject { object: object.root(), now: SystemTime::UNIX_EPOCH }),
            Form::Custom(_) => &[],
            Form::Headed(headed) => headed.rest.conditions(object),
        }
    }

    /// The order of rows for the few kinds that are not sorted by key. Each page is sorted by itself.
    pub fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        match &self.0 {
            Form::Coded(coded) => coded.order,
            // The rows of several clusters keep their common order.
            Form::Custom(_) | Form::Headed(_) => None,
        }
    }
}

fn generic(of: Subject<'_>) -> Vec<Value> {
    // Go's zero time, for an object without a creation time.
    vec![of.name(), of.at("metadata").at("creationTimestamp").cell_or("0001-01-01T00:00:00Z")]
}
