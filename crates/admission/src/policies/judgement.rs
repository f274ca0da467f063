//! Expressions of a validating policy: what has to hold, what is told where it does not, and what is noted for audit.
//!
//! They are evaluated in upstream's order and within its budgets, and told in its words.

use keelson_cel::Value as Cel;

use super::policy::{Policy, Validation};
use super::run::{OutOfBudget, Run};
use super::stats::PolicyError;

/// How many bytes a message may have that an expression makes.
const MAX_MESSAGE: usize = 5 * 1024;
/// How many bytes of an annotation are kept.
const MAX_ANNOTATION: usize = 10 * 1024;

/// What a policy says for one set of parameters.
#[derive(Debug, Default)]
pub(crate) struct Judgement {
    /// The errors of validations that refuse nothing.
    pub(crate) passed: Vec<PolicyError>,
    /// What it refuses, with the place of the validation.
    pub(crate) refusals: Vec<(usize, Refusal)>,
    /// What it notes for audit.
    pub(crate) annotations: Vec<(String, String)>,
    /// What it can't note, which refuses whatever the binding says.
    pub(crate) faults: Vec<String>,
}

/// Why a policy refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    /// The reason that the policy states; `Invalid` where it states none.
    pub(crate) reason: Option<String>,
    /// The error of the expression.
    pub(crate) error: PolicyError,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), reason: None, error: PolicyError::Invalid }
    }
}

/// Has a policy judge a request.
pub(crate) fn judge<'s>(policy: &Policy, run: &'s Run<'s>) -> Judgement {
    let mut judgement = Judgement::default();
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
                true => Judgement { refusals: vec![(0, refusal)], ..judgement },
                false => Judgement { passed: vec![error], ..judgement },
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

/// What is told where something does not hold: what the expression for it makes, the message, or what had to hold.
fn message<'s>(validation: &'s Validation, run: &'s Run<'s>, variables: &[Cel<'s>]) -> String {
    let made = validation.message_program.as_ref().and_then(|program| match run.evaluate(program, variables) {
        Ok(Ok(Cel::String(text))) => Some(text.trim().to_owned()),
        _ => None,
    });
    let is_told = |text: &String| !text.is_empty() && text.len() <= MAX_MESSAGE && !text.contains('\n');
    let stated = || validation.message.clone();
    made.filter(is_told).or_else(stated).unwrap_or_else(|| format!("failed expression: {}", validation.text))
}

fn annotate<'s>(run: &'s Run<'s>, variables: &[Cel<'s>], refuses_faults: bool, judgement: &mut Judgement) {
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
