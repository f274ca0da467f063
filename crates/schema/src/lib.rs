//! Compiled schemas, and the one walker over them.
//!
//! The schemas of the built-in kinds are compiled at build time and read in place, so they cost nothing at startup.
//! Schemas of custom resources are compiled into the same form at run time. The crate knows JSON trees. It must not
//! know storage, HTTP or the meaning of kinds.

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
    Budget, DefaultCheck, DefaultSchema, Expression, Expressions, Findings, MAX_DEPTH, NonStructural, PROGRAMS_BYTES,
    ProgramCache, ProgramStats, Pruning, Structural, StructuralError, is_known_format,
};
pub use walk::{WalkOptions, WalkReport};
