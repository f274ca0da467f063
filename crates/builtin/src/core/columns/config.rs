//! The columns of config maps and secrets.
//!
//! Tables show the number of keys and never a value.

use keelson_meta::json::Value;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::Subject;
use keelson_tables::printer::Printer;

use crate::core::column_docs as docs;

pub(super) const CONFIG_MAP: Printer = Printer::new(CONFIG_MAP_COLUMNS, config_map);

const CONFIG_MAP_COLUMNS: &[Column<'_>] = &[NAME, Column::text("Data", docs::CONFIG_MAP_DATA), AGE];

fn config_map(of: Subject<'_>) -> Vec<Value> {
    let entries = of.at("data").len() + of.at("binaryData").len();
    vec![of.name(), entries.into(), of.age()]
}

pub(super) const SECRET: Printer = Printer::new(SECRET_COLUMNS, secret);

const SECRET_COLUMNS: &[Column<'_>] =
    &[NAME, Column::text("Type", docs::SECRET_TYPE), Column::text("Data", docs::SECRET_DATA), AGE];

fn secret(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("type").cell(), of.at("data").len_cell(), of.age()]
}
