//! The Common Expression Language as Kubernetes has it: rules of custom resources, admission policies, match conditions,
//! authentication.
//!
//! An expression is compiled once ([`Program::compile`]) against an [`Environment`], which declares what it may use, and then
//! run on values that stand in an object's tree, of which nothing is copied. What is wrong with an expression is said in
//! upstream's words, as those who write definitions know them, and what it may cost is estimated and counted by upstream's
//! model, because it decides which definitions and objects are accepted.
//!
//! Nothing here knows definitions, policies or requests; whoever has them turns what they declare into a [`decl::Decl`]
//! and environments.

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
