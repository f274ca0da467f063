//! A subschema of a definition, with which the default that it states is validated.
//!
//! A default must have no fields to prune, and must satisfy the subschema both as a new value and as an unchanged one.

use keelson_meta::GroupVersionKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;

use super::at::{At, NOWHERE};
use super::expressions::{self, Checks, is_embedded};
use super::fault_list::{Budget, FaultList};
use super::rules::Node;
use super::tables::Reading;
use super::{StructuralError, check, embedded, tables};
use crate::schemas::Schemas;
use crate::walk::{WalkOptions, WalkReport};

/// A subschema of a definition.
#[derive(Debug)]
pub struct DefaultSchema {
    node: Node,
    whole: bool,
    schemas: Schemas,
    checks: Option<Checks>,
}

/// The result of validating a default.
#[derive(Debug, PartialEq)]
pub struct DefaultCheck {
    /// True if the default has fields that the schema does not declare.
    pub has_unknown_fields: bool,
    /// The faults, with absolute paths.
    pub faults: Vec<FieldError>,
}

impl DefaultSchema {
    /// Compiles a schema. `is_root` marks the schema of the whole resource.
    ///
    /// # Errors
    /// As [`Schema::structural`](crate::Schema::structural).
    pub fn compile(document: &Value, is_root: bool) -> Result<Self, StructuralError> {
        let whole = is_root || is_embedded(document);
        let node = Node::of_default(document)?;
        Ok(Self {
            node,
            whole,
            // The metadata in a default is pruned when the default is filled in, so unknown fields in metadata are no
            // fault.
            schemas: tables::compile(&kind(), document, Reading { whole, any_metadata: true, ..Reading::default() }),
            checks: Checks::compile(document, whole),
        })
    }

    /// Validates a default within a budget.
    pub fn validate(&self, default: &Value, path: &str, budget: &mut Budget) -> DefaultCheck {
        let has_unknown_fields = self.has_unknown_fields(default);
        let mut faults: Vec<FieldError> = embedded::type_fault(&self.node, default, self.whole).into_iter().collect();
        if faults.is_empty() {
            faults = embedded_faults(&self.node, default, self.whole, budget);
        }
        if faults.is_empty() {
            self.values(default, budget, &mut faults);
        }
        faults.iter_mut().for_each(|fault| move_below(fault, path));
        DefaultCheck { has_unknown_fields, faults }
    }

    /// Validates a default within the metadata, kind or version of an object. `around` builds the object around the
    /// default, and `whole` is the schema of that object.
    pub fn validate_in_metadata(
        &self,
        default: &Value,
        around: &Value,
        whole: &DefaultSchema,
        path: &str,
        budget: &mut Budget,
    ) -> Vec<FieldError> {
        let mut faults: Vec<FieldError> = embedded::type_fault(&whole.node, around, true).into_iter().collect();
        if faults.is_empty() {
            faults = embedded_faults(&whole.node, around, true, budget);
        }
        if !faults.is_empty() {
            let why = format!("must result in valid metadata: {}", keelson_meta::field_error::join(&faults));
            return vec![FieldError::invalid(path, default.clone(), why)];
        }
        self.values(default, budget, &mut faults);
        faults.iter_mut().for_each(|fault| move_below(fault, path));
        faults
    }

    fn values(&self, default: &Value, budget: &mut Budget, faults: &mut Vec<FieldError>) {
        *faults = check::value_faults(&self.node, default, None, budget);
        let Some(checks) = self.checks.as_ref().filter(|_| faults.is_empty()) else { return };
        let mut anew = *budget;
        *faults = expressions::run_for_default(checks, default, Some(default), budget);
        if faults.is_empty() {
            // Some rules run for new values only, so a second run is needed. Upstream does not count its cost.
            anew.expressions = budget.expressions;
            *faults = expressions::run_for_default(checks, default, None, &mut anew);
            *budget = Budget { cost: anew.cost.min(budget.cost), ..anew };
        }
    }

    fn has_unknown_fields(&self, default: &Value) -> bool {
        let mut report = WalkReport::default();
        let Some(schema) = self.schemas.kind("", "", KIND) else { return false };
        let options = WalkOptions { prune: true, normalise: false, defaults: false };
        schema.walk_value(&mut default.clone(), &mut report, options);
        !report.unknown_fields().is_empty()
    }
}

/// The faults of embedded objects in a default.
fn embedded_faults(node: &Node, default: &Value, whole: bool, budget: &mut Budget) -> Vec<FieldError> {
    let mut found = FaultList::new(budget.keywords);
    embedded::faults(node, default, whole, &At::ROOT, &mut found);
    found.into_parts().0
}

/// The kind of the tables of a subschema.
const KIND: &str = "Default";

fn kind() -> GroupVersionKind {
    GroupVersionKind { group: String::new(), version: String::new(), kind: KIND.to_owned() }
}

/// Prefixes the path of a fault.
fn move_below(fault: &mut FieldError, path: &str) {
    fault.field = match &*fault.field {
        "" | NOWHERE => path.to_owned(),
        field => format!("{path}.{field}"),
    };
}
