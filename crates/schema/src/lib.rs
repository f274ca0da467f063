//! Compiled structural schemas, and the one walker over them.
//!
//! The schemas of the built-in kinds are compiled when this crate is built and used in place, so they cost nothing until
//! they are looked at; others can be compiled at run time into the same form. Knows JSON trees and nothing of storage,
//! HTTP or what a kind means.

pub mod builder;
mod document;
pub mod fault;
pub mod field_path;
pub mod layout;
mod schemas;
mod structural;
mod walk;

pub use document::SchemaDocument;
pub use fault::{Fault, FaultKind};
pub use layout::{ListType, MapType, Type};
pub use schemas::{PatchStrategy, Schema, SchemaRef, Schemas};
pub use structural::{
    Budget, DefaultSchema, Expression, Expressions, Findings, Judged, KeptPrograms, MAX_DEPTH, NonStructural,
    PROGRAMS_BYTES, ProgramStats, Pruning, Structural, StructuralError, is_known_format,
};
pub use walk::{WalkOptions, WalkReport};
