//! Tables (`kubectl get`) and PartialObjectMetadata: objects for clients that do not read them whole.
//!
//! Pure functions from a decoded object to the cells of its row, and from cells and bytes to the wire form. Columns,
//! their order, descriptions and cell texts are those of Kubernetes; custom resources bring their own columns.
//!
//! Invariants: a printer never fails, whatever the object holds (a field that is missing or of the wrong type shows as
//! what Kubernetes shows for an empty one); time is handed in; nothing here holds more than one row.

pub mod age;
pub mod column;
mod custom;
pub mod field_value;
mod path;
pub mod printer;
pub mod selector;
pub mod text;
pub mod wire;

pub use age::human_duration;
pub use column::Column;
pub use custom::{CellType, CustomColumn};
pub use path::PathError;
pub use printer::{Printer, RowCondition};
