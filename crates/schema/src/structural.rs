//! Structural schemas: those of custom resources, as an OpenAPI 3 document states them (`openAPIV3Schema`).
//!
//! One is compiled into three forms. The tables are those of the built-in kinds, so that the same walker prunes objects and fills in
//! defaults, and the same arithmetic merges them and finds their owners; their `metadata` is that of every kind. The nodes are what
//! values keep beyond their shape, whose patterns are compiled when they are asked, and the expressions what is said of them in the words
//! of CEL. Whether a document is a good schema is not judged here: only what can't be used at all is an error.

mod allowed;
mod at;
mod check;
mod default_schema;
mod embedded;
mod expressions;
mod formats;
mod found;
mod numbers;
mod programs;
mod rules;
mod same;
mod seldom;
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
use programs::OnDemand;
use rules::Node;
use tables::Reading;

pub use default_schema::{DefaultSchema, Judged};
pub use expressions::{Expression, Expressions, Findings};
pub use formats::is_known as is_known_format;
pub use found::Budget;
pub use programs::{KeptPrograms, PROGRAMS_BYTES, ProgramStats};

/// How deep a schema may be.
pub const MAX_DEPTH: usize = 100;

/// How many states all patterns and expressions of a schema may have that are compiled in no time to speak of.
const MANY_STATES: u64 = 10_000;
/// How many states of patterns take as long for a byte as a schema that is tried.
const STATES_OF_AN_ALTERNATIVE: u64 = 100;

/// Why a document can't be used as a schema.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{path}: {why}")]
pub struct StructuralError {
    /// The keyword, such as `spec.properties.a.pattern`.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// The reason why schemas of a definition are not structural.
#[derive(Clone, Debug, PartialEq)]
pub enum NonStructural {
    /// A schema has no structural form: the text names the version and the reason.
    NoForm(String),
    /// The faults of all versions.
    Violations(Vec<FieldError>),
}

/// The fields of objects that are pruned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pruning {
    /// Fields that the schema does not declare, unless it preserves them at their place.
    Undeclared,
    /// None: the definition preserves unknown fields everywhere.
    Nothing,
}

/// A structural schema in all its forms.
#[derive(Debug)]
pub struct Structural {
    pub(crate) schemas: Schemas,
    root: Node,
    expressions: Stated,
    /// How many states the patterns have, and how many schemas are tried at one place.
    states: u64,
    alternatives: u64,
}

/// The expressions of a schema.
#[derive(Debug)]
enum Stated {
    Nowhere,
    Compiled(Arc<Checks>),
    OnDemand(OnDemand),
}

impl Structural {
    /// What is said of an object. What it was before (`old`) excuses what did not change since, as upstream has it: a schema that
    /// became stricter does not keep an object from being written. Of values it is only said what is wrong with this `part` of the
    /// object, and as if that were all there is, where one is named; what expressions say is said of all of it.
    ///
    /// Cost: proportional to the object, for each schema that is combined at a place, and for each state of a pattern; and what its
    /// expressions cost. All of it has a budget, and what takes more is refused.
    pub fn judge(&self, object: &Value, old: Option<&Value>, part: Option<&str>) -> Findings {
        self.judge_beside(object, old, part, Vec::new())
    }

    /// The same for an object of which others have found something: that is said behind what is wrong with values and before what
    /// expressions say, which are not asked about an object that is wrong.
    pub fn judge_beside(
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

    /// How often each byte of an object may be looked at when it is judged; `u64::MAX` where to judge even a small one may take long, since
    /// much has to be compiled or a rule may cost much.
    pub fn effort(&self) -> u64 {
        let kept = match &self.expressions {
            Stated::Nowhere => None,
            Stated::Compiled(checks) => Some(checks.clone()),
            Stated::OnDemand(expressions) => match expressions.kept() {
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

    /// The expressions, compiled; `None` where there are none.
    fn compiled(&self) -> Option<Arc<Checks>> {
        match &self.expressions {
            Stated::Nowhere => None,
            Stated::Compiled(checks) => Some(checks.clone()),
            Stated::OnDemand(expressions) => Some(expressions.compiled()).filter(|checks| !checks.is_empty()),
        }
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
    /// Compiles the structural schema of a kind, with its expressions.
    ///
    /// # Errors
    /// For a schema that is too deep, has a type that does not exist, or a pattern that can't be compiled.
    pub fn structural(kind: &GroupVersionKind, document: &Value) -> Result<Self, StructuralError> {
        let checks = Checks::compile(document, true);
        let expressions = checks.map_or(Stated::Nowhere, |checks| Stated::Compiled(Arc::new(checks)));
        Self::structural_with(kind, document, Pruning::Undeclared, expressions)
    }

    /// The same, but that expressions are compiled when an object is first judged: from `source`, which is the document.
    ///
    /// # Errors
    /// As [`Schema::structural`].
    pub fn structural_on_demand(
        kind: &GroupVersionKind,
        document: &Value,
        pruning: Pruning,
        source: Arc<dyn SchemaDocument>,
        programs: &Arc<KeptPrograms>,
    ) -> Result<Self, StructuralError> {
        let is_stated = Checks::are_stated(document);
        let expressions = if is_stated { Stated::OnDemand(OnDemand::new(source, programs)) } else { Stated::Nowhere };
        Self::structural_with(kind, document, pruning, expressions)
    }

    fn structural_with(
        kind: &GroupVersionKind,
        document: &Value,
        pruning: Pruning,
        expressions: Stated,
    ) -> Result<Self, StructuralError> {
        let root = Node::root(document)?;
        let keeps_unknown = pruning == Pruning::Nothing;
        let schemas = tables::compile(kind, document, Reading { whole: true, keeps_unknown, ..Reading::default() });
        let (states, alternatives) = (root.pattern_states(), root.alternatives());
        let structural = Structural { schemas, root, expressions, states, alternatives };
        Ok(Self::of_structural(Arc::new(structural), kind))
    }
}
