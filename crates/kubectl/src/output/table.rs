//! Rows, aligned as in kubectl.
//!
//! The server defines the columns. All rows are collected before the first is printed, since the widest cell sets the
//! width.

use std::fmt::Write as _;

use keelson_meta::control_characters::visible;
use keelson_meta::json::Value;

use super::answer;
use crate::args::Output;

/// The space between columns, and the smallest width of a column including it.
const APART: usize = 3;
const NARROWEST: usize = 6;

/// Rows below column names.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|name| (*name).to_owned()).collect()] }
    }

    /// Creates a table for the server's columns. Also returns the indexes of the shown ones.
    pub(crate) fn of_columns(defined: &Value, output: Output, with_namespace: bool) -> (Self, Vec<usize>) {
        let defined = defined.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
        let is_shown = |column: &Value| output == Output::Wide || column["priority"].as_i64().unwrap_or(0) == 0;
        let shown: Vec<(usize, String)> = defined
            .filter(|(_, column)| is_shown(column))
            .map(|(place, column)| (place, column["name"].as_str().unwrap_or_default().to_uppercase()))
            .collect();
        let names =
            with_namespace.then_some("NAMESPACE").into_iter().chain(shown.iter().map(|(_, name)| name.as_str()));
        (Self::new(&names.collect::<Vec<_>>()), shown.iter().map(|(place, _)| *place).collect())
    }

    /// Adds a row. Escapes control characters here, since they affect the widths.
    pub(crate) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row.into_iter().map(|cell| visible(&cell).into_owned()).collect());
    }

    /// Prints all rows.
    ///
    /// # Errors
    /// They can't be written.
    pub(crate) fn print(&self, with_names: bool) -> anyhow::Result<()> {
        let rows = &self.rows[usize::from(!with_names)..];
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let widest = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
            (widest.unwrap_or(0) + APART).max(NARROWEST)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        rows.iter().try_for_each(|row| answer(line(row, &widths)))
    }
}

/// Formats a row. The last cell is not padded.
fn line(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (place, (cell, width)) in row.iter().zip(widths).enumerate() {
        let width = if place + 1 == row.len() { 0 } else { *width };
        // Writing to memory can't fail.
        let _done = write!(line, "{cell:<width$}");
    }
    line
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[test]
    fn columns_are_those_of_the_server_and_apart() {
        let defined = json!([{"name": "Name"}, {"name": "Ready", "priority": 0}, {"name": "Node", "priority": 1}]);
        let (table, shown) = Table::of_columns(&defined, Output::Table, true);
        assert_eq!((table.rows[0].join(" "), shown), ("NAMESPACE NAME READY".to_owned(), vec![0, 1]));
        let (_, shown) = Table::of_columns(&defined, Output::Wide, false);
        assert_eq!(shown, [0, 1, 2]);
        let cells = |cells: &[&str]| cells.iter().map(|cell| (*cell).to_owned()).collect::<Vec<_>>();
        assert_eq!(line(&cells(&["a", "bc", "d"]), &[6, 7, 6]), "a     bc     d");
        let mut table = Table::new(&["NAME"]);
        table.add(cells(&["\x1b[31mred"]));
        assert_eq!(table.rows[1], ["^[[31mred"]);
    }
}
