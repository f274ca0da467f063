//! A schema inside of a definition, by which the default that it states is judged.
//!
//! A default is judged as a value of its own: it must be pruned already, and keep what its schema says of values, be they new or
//! unchanged.

use keelson_meta::GroupVersionKind;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;

use super::at::{At, NOWHERE};
use super::expressions::{self, Checks, is_embedded};
use super::rules::Node;
use super::{StructuralError, check, embedded, tables};
use crate::schemas::Schemas;
use crate::walk::{WalkOptions, WalkReport};

/// A schema inside of a definition.
#[derive(Debug)]
pub struct Part {
    node: Node,
    whole: bool,
    schemas: Schemas,
    checks: Option<Checks>,
}

/// What is said of a default.
#[derive(Debug, PartialEq)]
pub struct Judged {
    /// Whether it has fields that its schema does not have.
    pub has_unknown_fields: bool,
    /// What is wrong with it, its own path being that of the faults' fields.
    pub faults: Vec<FieldError>,
}

impl Part {
    /// Compiles a schema. `is_root`: whether it is the schema of the whole resource.
    ///
    /// # Errors
    /// As [`Schema::structural`](crate::Schema::structural).
    pub fn compile(document: &Value, is_root: bool) -> Result<Self, StructuralError> {
        let whole = is_root || is_embedded(document);
        let node = Node::root(document)?;
        Ok(Self {
            node,
            whole,
            schemas: tables::compile(&kind(), document, whole),
            checks: Checks::compile(document, whole),
        })
    }

    /// Judges a default. What its expressions cost is taken from a budget.
    pub fn judge(&self, default: &Value, path: &str, budget: &mut u64) -> Judged {
        let has_unknown_fields = self.has_unknown_fields(default);
        let mut faults: Vec<FieldError> = embedded::type_fault(&self.node, default, self.whole).into_iter().collect();
        if faults.is_empty() {
            embedded::faults(&self.node, default, self.whole, &At::ROOT, &mut faults);
        }
        if faults.is_empty() {
            self.values(default, budget, &mut faults);
        }
        faults.iter_mut().for_each(|fault| move_below(fault, path));
        Judged { has_unknown_fields, faults }
    }

    /// Judges a default inside the metadata, the kind or the version of an object. `around` makes the object that it would be part of,
    /// and `whole` is the schema of that one.
    pub fn judge_in_metadata(
        &self,
        default: &Value,
        around: &Value,
        whole: &Part,
        path: &str,
        budget: &mut u64,
    ) -> Vec<FieldError> {
        let mut faults: Vec<FieldError> = embedded::type_fault(&whole.node, around, true).into_iter().collect();
        if faults.is_empty() {
            embedded::faults(&whole.node, around, true, &At::ROOT, &mut faults);
        }
        if !faults.is_empty() {
            let why = format!("must result in valid metadata: {}", keelson_meta::field_error::join(&faults));
            return vec![FieldError::invalid(path, default.clone(), why)];
        }
        self.values(default, budget, &mut faults);
        faults.iter_mut().for_each(|fault| move_below(fault, path));
        faults
    }

    fn values(&self, default: &Value, budget: &mut u64, faults: &mut Vec<FieldError>) {
        *faults = check::value_faults(&self.node, default, None);
        let Some(checks) = self.checks.as_ref().filter(|_| faults.is_empty()) else { return };
        let (told, mut left) = expressions::run_for_default(checks, default, Some(default), *budget);
        *faults = told;
        if faults.is_empty() {
            // Some rules are asked only about a value that was not there before.
            let (told, left_anew) = expressions::run_for_default(checks, default, None, *budget);
            *faults = told;
            left = left.min(left_anew);
        }
        *budget = left;
    }

    fn has_unknown_fields(&self, default: &Value) -> bool {
        let mut report = WalkReport::default();
        let Some(schema) = self.schemas.kind("", "", KIND) else { return false };
        let options = WalkOptions { prune: true, normalise: false, defaults: false };
        schema.walk_value(&mut default.clone(), &mut report, options);
        !report.unknown_fields().is_empty()
    }
}

/// The name under which the tables of a part are.
const KIND: &str = "Default";

fn kind() -> GroupVersionKind {
    GroupVersionKind { group: String::new(), version: String::new(), kind: KIND.to_owned() }
}

/// Puts a fault of a value where the value stands.
fn move_below(fault: &mut FieldError, path: &str) {
    fault.field = match &*fault.field {
        "" | NOWHERE => path.to_owned(),
        field => format!("{path}.{field}"),
    };
}
