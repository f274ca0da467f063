//! The cells of an object, by which a query sorts it.
//!
//! Cells are computed by the printer of the kind, at a fixed time. A view of a snapshot would otherwise change while
//! time passes. Ages of running things are therefore equal, and lists are sorted by the path of a time instead.

use std::cell::OnceCell;
use std::fmt;
use std::time::SystemTime;

use keelson_codec::Outline;
use keelson_meta::json::Value as Json;
use keelson_query::{Cells, Value};
use keelson_tables::Printer;

/// The cells of one object, computed at the first use.
pub(super) struct RowCells<'a> {
    printer: &'a Printer,
    json: &'a [u8],
    cells: OnceCell<Vec<Json>>,
}

impl<'a> RowCells<'a> {
    /// The cells that `printer` makes of the compact JSON of an object.
    pub(super) const fn new(printer: &'a Printer, json: &'a [u8]) -> Self {
        Self { printer, json, cells: OnceCell::new() }
    }

    fn cells(&self) -> &[Json] {
        self.cells.get_or_init(|| {
            let text = std::str::from_utf8(self.json).unwrap_or("{}");
            self.printer.cells(&Outline::read(text), SystemTime::UNIX_EPOCH)
        })
    }
}

impl fmt::Debug for RowCells<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowCells").finish_non_exhaustive()
    }
}

impl Cells for RowCells<'_> {
    fn cell(&self, column: &str) -> Option<Value<'_>> {
        let at = self.printer.columns().iter().position(|known| known.name == column)?;
        match self.cells().get(at)? {
            Json::Bool(value) => Some(Value::Bool(*value)),
            Json::Number(number) => Some(Value::Number(number.to_string().into())),
            Json::String(text) => Some(Value::Text(text.as_str().into())),
            _ => None,
        }
    }
}
