//! Structural schemas: those of custom resources, as an OpenAPI 3 document states them (`openAPIV3Schema`).
//!
//! One is compiled into three forms. The tables are those of the built-in kinds, so that the same walker prunes objects and fills in
//! defaults, and the same arithmetic merges them and finds their owners; their `metadata` is that of every kind. The nodes are what
//! values keep beyond their shape, with every pattern compiled, and the expressions what is said of them in the words of CEL. Whether a
//! document is a good schema is not judged here: only what can't be used at all is an error.

mod at;
mod check;
mod embedded;
mod expressions;
mod formats;
mod part;
mod rules;
mod same;
mod tables;

use std::sync::Arc;

use keelson_meta::GroupVersionKind;
use keelson_meta::field_error::{FieldError, FieldErrorKind};
use keelson_meta::json::Value;
use thiserror::Error;

use crate::schemas::{Schema, Schemas};
use expressions::Checks;
use rules::Node;

pub use expressions::{Expression, Expressions, Findings};
pub use formats::is_known as is_known_format;
pub use part::{Judged, Part};

/// How deep a schema may be.
pub const MAX_DEPTH: usize = 100;

/// How many alternatives a schema may have for values, all together, that are tried in no time to speak of.
const MANY_ALTERNATIVES: usize = 256;

/// Why a document can't be used as a schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {why}")]
pub struct StructuralError {
    /// The keyword, such as `spec.properties.a.pattern`.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// A structural schema in all its forms.
#[derive(Debug)]
pub struct Structural {
    pub(crate) schemas: Schemas,
    root: Node,
    checks: Option<Checks>,
    is_judged_long: bool,
}

impl Structural {
    /// What is said of an object. What it was before (`old`) excuses what did not change since, as upstream has it: a schema that
    /// became stricter does not keep an object from being written. Of values it is only said what is wrong with this `part` of the
    /// object, and as if that were all there is, where one is named; what expressions say is said of all of it.
    ///
    /// Cost: proportional to the object, for each schema that is combined at a place; and what its expressions cost, up to their budget.
    pub fn judge(&self, object: &Value, old: Option<&Value>, part: Option<&str>) -> Findings {
        let mut found = Findings { faults: check::faults(&self.root, object, old, part), warnings: Vec::new() };
        if let Some(checks) = &self.checks {
            if found.faults.iter().any(hides_expressions) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";
                found.faults.push(FieldError::invalid(at::NOWHERE, Value::Null, why));
            } else {
                expressions::run(checks, object, old, &mut found);
            }
        }
        found
    }

    /// Whether to judge even a small object may take long: its schema tries many alternatives, or has a rule that may cost much, or
    /// that compiles regular expressions of the object.
    pub const fn is_judged_long(&self) -> bool {
        self.is_judged_long
    }

    /// What of an embedded object is of a type that it can't have, before anything is taken out of it: the first that is found.
    pub fn type_fault_of_embedded(&self, object: &Value) -> Option<FieldError> {
        embedded::type_fault(&self.root, object, false)
    }
}

/// Whether expressions are not asked about an object with this fault, since they count on its shape and size.
fn hides_expressions(fault: &FieldError) -> bool {
    matches!(
        fault.kind,
        FieldErrorKind::Required
            | FieldErrorKind::TypeInvalid { .. }
            | FieldErrorKind::NotSupported { .. }
            | FieldErrorKind::TooLong
            | FieldErrorKind::TooMany { .. }
    )
}

impl Schema {
    /// Compiles the structural schema of a kind.
    ///
    /// # Errors
    /// For a schema that is too deep, has a type that does not exist, or a pattern that can't be compiled.
    pub fn structural(kind: &GroupVersionKind, document: &Value) -> Result<Self, StructuralError> {
        let root = Node::root(document)?;
        let schemas = tables::compile(kind, document, true);
        let checks = Checks::compile(document, true);
        let is_judged_long =
            root.alternatives() > MANY_ALTERNATIVES || checks.as_ref().is_some_and(Checks::may_cost_much);
        Ok(Self::of_structural(Arc::new(Structural { schemas, root, checks, is_judged_long }), kind))
    }
}
