//! Structural schemas: those of custom resources, as an OpenAPI 3 document states them (`openAPIV3Schema`).
//!
//! One is compiled into two forms. The tables are those of the built-in kinds, so that the same walker prunes objects and fills in
//! defaults, and the same arithmetic merges them and finds their owners; their `metadata` is that of every kind. The rules are what
//! values keep beyond their shape, with every expression compiled. Whether a document is a good schema is not judged here: only
//! what can't be used at all is an error.

mod check;
mod formats;
mod pattern;
mod rules;
mod same;
mod tables;

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use thiserror::Error;

use crate::schemas::{Schema, Schemas};
use rules::Node;

/// How deep a schema may be.
const MAX_DEPTH: usize = 100;

/// Why a document can't be used as a schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {why}")]
pub struct StructuralError {
    /// The keyword, such as `spec.properties.a.pattern`.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// A structural schema in both its forms.
#[derive(Debug)]
pub struct Structural {
    pub(crate) schemas: Schemas,
    root: Node,
}

impl Structural {
    /// What is wrong with an object. What it was before (`old`) excuses what did not change since, as upstream has it: a schema that
    /// became stricter does not keep an object from being written.
    ///
    /// Cost: proportional to the object, for each schema that is combined at a place.
    pub fn faults(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        check::faults(&self.root, object, old)
    }
}

impl Schema {
    /// Compiles the structural schema of a kind.
    ///
    /// # Errors
    /// For a schema that is too deep, has a type that does not exist, or an expression that can't be compiled.
    pub fn structural(kind: &GroupVersionKind, document: &Value) -> Result<Self, StructuralError> {
        let root = Node::root(document)?;
        let schemas = tables::compile(kind, document);
        Ok(Self::of_structural(Arc::new(Structural { schemas, root }), kind))
    }
}
