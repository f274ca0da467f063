//! Evaluates the expressions of a validating policy: validations, messages and audit annotations.
//!
//! Order, cost limits and messages are upstream's.

use keelson_cel::Value as Cel;

use super::policy::{Policy, Validation};
use super::run::{OutOfBudget, Run};
use super::stats::PolicyError;

/// The longest message of an expression, in bytes.
const MAX_MESSAGE: usize = 5 * 1024;
/// The longest audit annotation, in bytes.
const MAX_ANNOTATION: usize = 10 * 1024;

/// The result of a policy for one set of parameters.
#[derive(Debug, Default)]
pub(crate) struct PolicyResult {
    /// Errors of validations that do not refuse the request.
    pub(crate) passed: Vec<PolicyError>,
    /// The refusals, each with the index of its validation.
    pub(crate) refusals: Vec<(usize, Refusal)>,
    /// The audit annotations.
    pub(crate) annotations: Vec<(String, String)>,
    /// Errors of audit annotations. They refuse the request regardless of the actions of the binding.
    pub(crate) faults: Vec<String>,
}

/// The reason why a policy refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    /// The reason in the policy; `None` means `Invalid`.
    pub(crate) reason: Option<String>,
    /// The error of the expression.
    pub(crate) error: PolicyError,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: None, error: PolicyError::Invalid }
    }
}

/// Evaluates a policy for a request.
pub(crate) fn judge<'s>(policy: &Policy, run: &'s Run<'s>) -> PolicyResult {
    let mut judgement = PolicyResult::default();
    let compiled = run.compiled();
    let (all, plain) = (run.variables(true), run.variables(false));
    let refuses_faults = !policy.fails_open;
    let values: Result<Vec<_>, OutOfBudget> =
        compiled.validations.iter().map(|validation| run.evaluate(&validation.program, &all)).collect();
    let values = match values {
        Ok(values) => values,
        Err(budget) => {
            let error = PolicyError::OutOfBudget;
            let refusal = Refusal { error, ..Refusal::new(budget.to_string()) };
            return match refuses_faults {
                true => PolicyResult { refusals: vec![(0, refusal)], ..judgement },
                false => PolicyResult { passed: vec![error], ..judgement },
            };
        }
    };
    for (place, (validation, value)) in compiled.validations.iter().zip(values).enumerate() {
        match value {
            Ok(Cel::Bool(true)) => judgement.passed.push(PolicyError::None),
            Err(error) => {
                let is_compiled = validation.program.is_ok();
                let kind = if is_compiled { PolicyError::Invalid } else { PolicyError::Compile };
                if refuses_faults {
                    let message = format!("expression '{}' resulted in error: {error}", validation.text);
                    judgement.refusals.push((place, Refusal { error: kind, ..Refusal::new(message) }));
                } else {
                    judgement.passed.push(kind);
                }
            }
            Ok(_) => {
                let (message, reason) = (message(validation, run, &plain), validation.reason.clone());
                judgement.refusals.push((place, Refusal { message, reason, error: PolicyError::None }));
            }
        }
    }
    run.renew_budget();
    annotate(run, &all, refuses_faults, &mut judgement);
    judgement
}

/// The message of a failed validation: that of its expression, the fixed one, or the expression itself.
fn message<'s>(validation: &'s Validation, run: &'s Run<'s>, variables: &[Cel<'s>]) -> String {
    let made = validation.message_program.as_ref().and_then(|program| match run.evaluate(program, variables) {
        Ok(Ok(Cel::String(text))) => Some(text.trim().to_owned()),
        _ => None,
    });
    let is_told = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    let stated = || validation.message.clone();
    made.filter(is_told).or_else(stated).unwrap_or_else(|| format!("failed expression: {}", validation.text))
}

fn annotate<'s>(run: &'s Run<'s>, variables: &[Cel<'s>], refuses_faults: bool, judgement: &mut PolicyResult) {
    for annotation in &run.compiled().annotations {
        let fault = match run.evaluate(&annotation.program, variables) {
            Ok(Ok(Cel::String(text))) => {
                let text = text.trim();
                if !text.is_empty() {
                    let kept = &text[..text.floor_char_boundary(MAX_ANNOTATION)];
                    judgement.annotations.push((annotation.key.clone(), kept.to_owned()));
                }
                continue;
            }
            Ok(Ok(Cel::Null)) => continue,
            Ok(Ok(other)) => format!(
                "valueExpression '{}' resulted in unsupported return type: {}. Return type must be either string or null.",
                annotation.text,
                other.type_name()
            ),
            Ok(Err(error)) => format!("expression '{}' resulted in error: {error}", annotation.text),
            Err(budget) => budget.to_string(),
        };
        if refuses_faults {
            judgement.faults.push(fault);
        }
    }
}
