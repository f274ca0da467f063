//! Validation of CEL expressions in built-in kinds: match conditions, policies, device selectors.
//!
//! Invalid expressions are refused when they are written, with upstream's messages. The variables of a policy are
//! collected while its fields are validated, since later variables may use earlier ones. Unchanged expressions are not
//! validated again.

use std::sync::{Arc, LazyLock};

use keelson_cel::decl::Decl;
use keelson_cel::environments::{self, Admission};
use keelson_cel::{CompileError, Environment, Program, Type};

use crate::validating::at::At;
use crate::validating::type_rules::Run;

/// The largest estimated cost of a device selector.
const MAX_SELECTOR_COST: u64 = 1_000_000;

/// The declarations for the expressions of a policy.
pub(crate) struct Policy {
    /// False if the policy is unchanged.
    pub(crate) is_judged: bool,
    /// True if the policy has parameters.
    pub(crate) params: bool,
    /// True if the expressions may create patches.
    pub(crate) patches: bool,
    /// The types of the variables so far; `None` if the policy has no variable `variables`.
    pub(crate) variables: Option<Vec<(String, Type)>>,
    /// The declarations of the variables, compiled at the first use.
    pub(crate) declared: Option<Arc<Decl>>,
}

impl Policy {
    fn environment(&mut self, authorizer: bool) -> Environment {
        let declare = |known: &Vec<(String, Type)>| environments::variables(known.iter().cloned());
        let variables =
            self.variables.as_ref().map(|known| self.declared.get_or_insert_with(|| declare(known)).clone());
        environments::admission(&Admission { params: self.params, authorizer, variables, patches: self.patches })
    }
}

/// Validates an expression of a policy. Its result must have one of these types.
pub(crate) fn of_policy(at: &At<'_, '_>, authorizer: bool, wanted: &[Type], run: &mut Run<'_>) {
    if let Some(policy) = run.policy.as_mut().filter(|policy| policy.is_judged) {
        let environment = policy.environment(authorizer);
        report(at, Program::compile_to(at.text(), &environment, wanted), run);
    }
}

/// Validates the expression of a variable, and declares it for later expressions.
pub(crate) fn of_variable(at: &At<'_, '_>, name: &str, run: &mut Run<'_>) {
    if let Some(policy) = run.policy.as_mut().filter(|policy| policy.is_judged) {
        let compiled = Program::compile(at.text(), &policy.environment(true));
        let of = compiled.as_ref().map_or(Type::Dyn, |program| program.result().clone());
        policy.variables.get_or_insert_default().push((name.to_owned(), of));
        policy.declared = None;
        report(at, compiled, run);
    }
}

/// Validates a match condition of a policy or a webhook.
pub(crate) fn of_condition(at: &At<'_, '_>, run: &mut Run<'_>) {
    static WEBHOOK: LazyLock<Environment> = LazyLock::new(|| environments::match_condition(true));
    let compiled = match &run.policy {
        Some(policy) => {
            let with = Admission { params: policy.params, authorizer: true, ..Admission::default() };
            Program::compile_to(at.text(), &environments::admission(&with), &[Type::Bool])
        }
        None => Program::compile_to(at.text(), &WEBHOOK, &[Type::Bool]),
    };
    report(at, compiled, run);
}

/// Validates a device selector.
pub(crate) fn of_devices(at: &At<'_, '_>, run: &mut Run<'_>) {
    static DEVICE: LazyLock<Environment> = LazyLock::new(environments::device);
    if run.before.is_some() && at.is_unchanged() {
        return;
    }
    match Program::compile(at.text(), &DEVICE) {
        Err(error) => at.invalid(run, at.text(), error.to_string()),
        Ok(program) if !matches!(program.result(), Type::Bool | Type::Dyn) => {
            let why = format!("must evaluate to bool or the unknown type, not {}", program.result());
            at.invalid(run, at.text(), why);
        }
        Ok(program) if program.cost().max > MAX_SELECTOR_COST => {
            at.forbidden(run, "too complex, exceeds cost limit");
        }
        Ok(_) => {}
    }
}

fn report(at: &At<'_, '_>, compiled: Result<Program, CompileError>, run: &mut Run<'_>) {
    match compiled {
        Ok(_) => {}
        // The expression is valid, but a constant in it cannot be computed. Like upstream, that is an internal error.
        Err(error @ CompileError::Instantiation(_)) => at.internal(run, error.to_string()),
        Err(error) => at.invalid(run, at.text(), error.to_string()),
    }
}
