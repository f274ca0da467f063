//! Structural schemas of custom resources. They are compiled from an OpenAPI 3 document (`openAPIV3Schema`).
//!
//! A schema is compiled into three forms:
//!
//! - Tables like those of the built-in kinds, for pruning, defaults, merging and field ownership. Their `metadata` is
//!   `ObjectMeta`.
//! - Nodes with the validation keywords. Their patterns are compiled at first use.
//! - The CEL rules.
//!
//! Definitions are validated elsewhere. An error here means that the document can't be used as a schema at all.

mod allowed;
mod at;
mod check;
mod default_schema;
mod embedded;
mod equality;
mod expressions;
mod fault_list;
mod formats;
mod numbers;
mod programs;
mod rare_keywords;
mod rules;
mod tables;

use std::sync::Arc;

use keelson_cel::measured;
use keelson_meta::GroupVersionKind;
use keelson_meta::field_error::{FieldError, FieldErrorKind};
use keelson_meta::json::Value;
use thiserror::Error;

use crate::document::SchemaDocument;
use crate::schemas::{Schema, Schemas};
use expressions::Checks;
use programs::LazyPrograms;
use rules::Node;
use tables::Reading;

pub use default_schema::{DefaultCheck, DefaultSchema};
pub use expressions::{Expression, Expressions, Findings};
pub use fault_list::Budget;
pub use formats::is_known as is_known_format;
pub use programs::{PROGRAMS_BYTES, ProgramCache, ProgramStats};

/// The maximum depth of a schema.
pub const MAX_DEPTH: usize = 100;

/// The number of states in all patterns and expressions of a schema up to which compiling them takes negligible time.
const MANY_STATES: u64 = 10_000;
/// The number of pattern states that cost as much per byte as one alternative schema.
const STATES_OF_AN_ALTERNATIVE: u64 = 100;

/// The reason why a document can't be used as a schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {why}")]
pub struct StructuralError {
    /// The keyword, such as `spec.properties.a.pattern`.
    pub path: String,
    /// The fault.
    pub why: String,
}

/// The reason why schemas of a definition are not structural.
#[derive(Clone, Debug, PartialEq)]
pub enum NonStructural {
    /// A schema has no structural form. The text names the version and the reason.
    NoForm(String),
    /// The faults of all versions.
    Violations(Vec<FieldError>),
}

/// The fields that are pruned from objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// Fields that the schema does not declare, unless it preserves unknown fields at their place.
    Undeclared,
    /// No fields: the definition preserves unknown fields everywhere.
    Nothing,
}

/// A structural schema in all its compiled forms.
#[derive(Debug)]
pub struct Structural {
    pub(crate) schemas: Schemas,
    root: Node,
    expressions: SchemaExpressions,
    /// The number of states of all patterns.
    states: u64,
    alternatives: u64,
}

/// The expressions of a schema.
#[derive(Debug)]
enum SchemaExpressions {
    Nowhere,
    Compiled(Arc<Checks>),
    OnDemand(LazyPrograms),
}

impl Structural {
    /// Validates an object. As upstream, values unchanged since `old` cause no faults, so that a stricter schema does
    /// not block writes of existing objects. With `part`, faults of values are reported for that part only, as if it
    /// were the whole object. CEL rules always run on the whole object.
    ///
    /// Cost: proportional to the object, multiplied by the combined schemas at each place and by the states of
    /// patterns, plus the cost of CEL rules. If the work exceeds the budget, the object is refused with a fault.
    pub fn validate(&self, object: &Value, old: Option<&Value>, part: Option<&str>) -> Findings {
        self.validate_beside(object, old, part, Vec::new())
    }

    /// Validates an object in which other checks have found faults. These are reported after faults of values and
    /// before those of CEL rules, which do not run on an invalid object.
    pub fn validate_beside(
        &self,
        object: &Value,
        old: Option<&Value>,
        part: Option<&str>,
        others: Vec<FieldError>,
    ) -> Findings {
        let mut budget = Budget::FULL;
        let mut faults = check::faults(&self.root, object, old, part, &mut budget);
        faults.extend(others);
        let mut found = Findings { faults, warnings: Vec::new() };
        if budget.keywords > 0
            && let Some(checks) = self.compiled()
        {
            if found.faults.iter().any(hides_expressions) {
                let why = "some validation rules were not checked because the object was invalid; correct the existing \
                           errors to complete validation";
                found.faults.push(FieldError::invalid(at::NOWHERE, Value::Null, why));
            } else {
                measured::timed(&measured::EVALUATIONS, || {
                    expressions::run((&checks, &self.root), object, old, &mut budget, &mut found);
                });
            }
        }
        found
    }

    /// Estimates how often validation reads each byte of an object. Returns `u64::MAX` if even a small object may take
    /// long, because much must be compiled or a rule may be expensive.
    pub fn effort(&self) -> u64 {
        let kept = match &self.expressions {
            SchemaExpressions::Nowhere => None,
            SchemaExpressions::Compiled(checks) => Some(checks.clone()),
            SchemaExpressions::OnDemand(expressions) => match expressions.kept() {
                Some(checks) => Some(checks),
                None => return u64::MAX,
            },
        };
        let states = self.states.saturating_add(kept.as_ref().map_or(0, |checks| checks.regex_states()));
        if states > MANY_STATES || kept.is_some_and(|checks| checks.may_cost_much()) {
            return u64::MAX;
        }
        1 + self.alternatives + self.states / STATES_OF_AN_ALTERNATIVE
    }

    /// The compiled CEL rules, if there are any.
    fn compiled(&self) -> Option<Arc<Checks>> {
        match &self.expressions {
            SchemaExpressions::Nowhere => None,
            SchemaExpressions::Compiled(checks) => Some(checks.clone()),
            SchemaExpressions::OnDemand(expressions) => {
                Some(expressions.compiled()).filter(|checks| !checks.is_empty())
            }
        }
    }

    /// The first value of a wrong type in the metadata of an embedded object. It is checked before pruning.
    pub fn type_fault_of_embedded(&self, object: &Value) -> Option<FieldError> {
        embedded::type_fault(&self.root, object, false)
    }
}

/// Returns true for a fault after which CEL rules must not run, since they rely on the object's shape and size.
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
    /// Compiles the structural schema of a kind, with its CEL rules.
    ///
    /// # Errors
    /// The schema is too deep, or has an unknown type or an invalid pattern.
    pub fn structural(kind: &GroupVersionKind, document: &Value) -> Result<Self, StructuralError> {
        let checks = Checks::compile(document, true);
        let expressions =
            checks.map_or(SchemaExpressions::Nowhere, |checks| SchemaExpressions::Compiled(Arc::new(checks)));
        Self::structural_with(kind, document, Pruning::Undeclared, expressions)
    }

    /// Compiles the structural schema of a kind. Its CEL rules are compiled at the first validation, from `source`,
    /// which must be the same document.
    ///
    /// # Errors
    /// As [`Schema::structural`].
    pub fn structural_on_demand(
        kind: &GroupVersionKind,
        document: &Value,
        pruning: Pruning,
        source: Arc<dyn SchemaDocument>,
        programs: &Arc<ProgramCache>,
    ) -> Result<Self, StructuralError> {
        let is_stated = Checks::are_stated(document);
        let expressions = if is_stated {
            SchemaExpressions::OnDemand(LazyPrograms::new(source, programs))
        } else {
            SchemaExpressions::Nowhere
        };
        Self::structural_with(kind, document, pruning, expressions)
    }

    fn structural_with(
        kind: &GroupVersionKind,
        document: &Value,
        pruning: Pruning,
        expressions: SchemaExpressions,
    ) -> Result<Self, StructuralError> {
        let root = Node::root(document)?;
        let keeps_unknown = pruning == Pruning::Nothing;
        let schemas = tables::compile(kind, document, Reading { whole: true, keeps_unknown, ..Reading::default() });
        let (states, alternatives) = (root.pattern_states(), root.alternatives());
        let structural = Structural { schemas, root, expressions, states, alternatives };
        Ok(Self::of_structural(Arc::new(structural), kind))
    }
}
