//! A printer: what a kind offers for its table.
//!
//! It has columns, a function that fills the cells of a row, and marks for kinds whose rows differ from the usual. Kinds without a
//! printer are shown by name and age.

use std::cmp::Ordering;
use std::time::SystemTime;

use keelson_codec::Outline;
use keelson_meta::Object;
use keelson_meta::json::Value;

use crate::column::{CREATED_AT, Column, NAME};
use crate::groups;
use crate::part::Subject;

/// How the objects of one kind are shown.
#[derive(Clone, Copy)]
pub struct Printer {
    columns: &'static [Column<'static>],
    cells: fn(Subject<'_>) -> Vec<Value>,
    conditions: fn(Subject<'_>) -> &'static [RowCondition],
    order: Option<fn(&Object, &Object) -> Ordering>,
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
    /// The printer of this kind. A kind that has none, custom resources among them, shows name and time of creation.
    ///
    /// The version makes no difference: a printer understands its kind in all versions that are served.
    pub fn of(group: &str, kind: &str) -> Self {
        groups::printer(group, kind).unwrap_or(Self::generic())
    }

    /// The printer of a kind that has none of its own.
    pub const fn generic() -> Self {
        Self::new(GENERIC, generic)
    }

    pub(crate) const fn new(columns: &'static [Column<'static>], cells: fn(Subject<'_>) -> Vec<Value>) -> Self {
        Self { columns, cells, conditions: |_| &[], order: None }
    }

    /// The same printer, with rows that carry marks.
    pub(crate) const fn marked(self, conditions: fn(Subject<'_>) -> &'static [RowCondition]) -> Self {
        Self { conditions, ..self }
    }

    /// The same printer, with rows in an order of their own.
    pub(crate) const fn ordered(self, order: fn(&Object, &Object) -> Ordering) -> Self {
        Self { order: Some(order), ..self }
    }

    /// The columns, in order.
    pub fn columns(&self) -> &'static [Column<'static>] {
        self.columns
    }

    /// The row of this object as it looks at `now`.
    pub fn cells(&self, object: &Outline<'_>, now: SystemTime) -> Vec<Value> {
        (self.cells)(Subject { object: object.root(), now })
    }

    /// The marks on the row of this object; mostly none.
    pub fn conditions(&self, object: &Outline<'_>) -> &'static [RowCondition] {
        (self.conditions)(Subject { object: object.root(), now: SystemTime::UNIX_EPOCH })
    }

    /// How the rows of one list are sorted, for the few kinds whose rows do not stand in the order of the keys.
    /// A page is sorted by itself.
    pub fn order(&self) -> Option<fn(&Object, &Object) -> Ordering> {
        self.order
    }
}

/// The columns of this kind.
pub fn columns(group: &str, kind: &str) -> &'static [Column<'static>] {
    Printer::of(group, kind).columns()
}

/// The row of an object of this kind as it looks at `now`. For many rows, ask for the [`Printer`] once.
pub fn cells(group: &str, kind: &str, object: &Outline<'_>, now: SystemTime) -> Vec<Value> {
    Printer::of(group, kind).cells(object, now)
}

fn generic(of: Subject<'_>) -> Vec<Value> {
    // The text is Go's zero time, which is what an object without a time of creation has.
    vec![of.name(), of.at("metadata").at("creationTimestamp").cell_or("0001-01-01T00:00:00Z")]
}
