//! Tables (`kubectl get`) and PartialObjectMetadata: objects for clients that do not need them whole.
//!
//! Pure functions from a decoded object to the cells of its row, and from cells and bytes to the wire form. Columns,
//! their order, descriptions and cell texts are those of Kubernetes. Custom resources have their own columns. The crate
//! must not know HTTP, stores or kinds.
//!
//! Invariants: a printer never fails, whatever the object. A missing or mistyped field shows as an empty one does in
//! Kubernetes. The caller supplies the time. At most one row is in memory.

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
