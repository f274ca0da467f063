//! The Common Expression Language as Kubernetes uses it: for rules of custom resources, admission policies, match
//! conditions, and authentication.
//!
//! An expression is compiled once ([`Program::compile`]) for an [`Environment`], which declares the names that it can
//! use. It is evaluated for values that borrow from an object's tree. Faults have upstream's texts, which authors of
//! definitions know. Costs follow upstream's model, which decides which definitions and objects are accepted.
//!
//! The crate must not know definitions, policies or requests. Callers convert their declarations to a [`decl::Decl`]
//! and choose the environment.

pub mod ast;
pub mod check;
pub mod cost;
pub mod decl;
pub mod environment;
pub mod environments;
mod lexer;
pub mod library;
pub mod measured;
pub mod overloads;
pub mod parser;
pub mod program;
pub mod source;
mod stack;
pub mod types;
pub mod values;

pub use cost::actual::Meter;
pub use environment::Environment;
pub use program::{CompileError, Program};
pub use types::Type;
pub use values::{EvalError, Value};
