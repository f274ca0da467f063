//! Validation of the rules in a schema (`x-kubernetes-validations`): their fields, compilation and cost.
//!
//! Rules are only compiled if the schema around them is valid. Their errors come last.

use keelson_cel::CompileError;
use keelson_cel::cost::limits;
use keelson_meta::field_error::{FAULTS_BYTES_MAX, FieldError};
use keelson_schema::{Expression, Expressions, field_path};

use super::form::RULE;
use super::schema::SchemaContext;
use crate::validating::at::At;
use crate::validating::type_rules::Run;

const REASONS: [&str; 4] = ["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];
/// The number of expressions that an error about the total cost names.
const MOST_TOLD: usize = 4;

/// The errors and costs of all rules in a schema.
#[derive(Default)]
pub(super) struct Rules {
    faults: Vec<FieldError>,
    /// The approximate size of the errors in bytes.
    told_bytes: usize,
    /// The estimated cost of all rules.
    total: u64,
    /// The costs of the most expensive rules, with their paths.
    costly: Vec<(u64, String)>,
}

/// Validates the fields of rules except for their expressions. Returns true if they are valid.
pub(super) fn stated(at: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    let start = run.faults.len();
    for rule in at.field("x-kubernetes-validations").items() {
        texts(&rule, run);
        let reason = rule.field("reason");
        if reason.is_set() && !REASONS.contains(&reason.text()) {
            reason.not_supported(run, reason.text(), &REASONS);
        }
        let path = rule.field("fieldPath");
        if path.text().is_empty() {
            continue;
        }
        if path.text().trim().is_empty() {
            path.invalid(run, path.text(), "must be non-empty if specified");
        }
        if has_line_break(path.text()) {
            path.invalid(run, path.text(), "must not contain line breaks");
        }
        if super::structure::unsupported(at.value).is_none()
            && field_path::resolve(path.text(), at.value, true).is_err()
        {
            path.invalid(run, path.text(), "must be a valid path");
        }
    }
    run.faults.len() == start
}

fn texts(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (rule, message, made) = (at.field("rule"), at.field("message"), at.field("messageExpression"));
    let stated = message.text().trim();
    if rule.text().trim().is_empty() {
        rule.required(run, "rule is not specified");
    } else if !message.text().is_empty() && stated.is_empty() {
        message.invalid(run, message.text(), "must be non-empty if specified");
    } else if has_line_break(stated) {
        message.invalid(run, message.text(), "must not contain line breaks");
    } else if has_line_break(rule.text().trim()) && stated.is_empty() {
        message.required(run, "message must be specified if rule contains line breaks");
    }
    if !made.text().is_empty() && made.text().trim().is_empty() {
        made.required(run, "messageExpression must be non-empty if specified");
    }
}

fn has_line_break(text: &str) -> bool {
    text.contains(['\n', '\r'])
}

impl Rules {
    /// Compiles the rules of a schema, and collects their errors and costs.
    pub(super) fn validate(&mut self, at: &At<'_, '_>, place: &SchemaContext<'_, '_>) {
        let stated = at.field("x-kubernetes-validations");
        if stated.list().is_empty() {
            return;
        }
        let Some(compiled) = Expressions::compile(at.value, place.is_whole(at.value)) else {
            let why = "internal error: failed to construct type information for x-kubernetes-validations rules: unable to \
                       convert structural schema to CEL declarations";
            return self.note(FieldError::internal(stated.path(), why));
        };
        let count = place.count.unwrap_or_else(|| limits::most_values(compiled.min_size()));
        for (index, rule) in compiled.rules.iter().enumerate() {
            self.rule(&stated.index(index), rule, count, place);
        }
    }

    fn rule(&mut self, at: &At<'_, '_>, compiled: &Expression, count: u64, place: &SchemaContext<'_, '_>) {
        let (rule, message) = (at.field("rule"), at.field("messageExpression"));
        match &compiled.rule {
            Ok(program) => self.cost(&rule, "rule", program.cost().max.saturating_mul(count)),
            Err(error) => self.note(FieldError::invalid(rule.path(), RULE.print(at.value), error.to_string())),
        }
        match &compiled.message {
            Some(Ok(program)) => self.cost(&message, "messageExpression", program.cost().max),
            Some(Err(error)) => {
                let why = match error {
                    CompileError::Invalid(why) => format!("messageExpression compilation failed: {why}"),
                    CompileError::Instantiation(why) => format!("messageExpression instantiation failed: {why}"),
                    CompileError::Result(_) => "messageExpression must evaluate to a string".to_owned(),
                };
                self.note(FieldError::invalid(message.path(), RULE.print(at.value), why));
            }
            None => {}
        }
        let optional = at.field("optionalOldSelf");
        if compiled.uses_old_self() {
            if let Some(uncorrelated) = place.uncorrelated {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {}",
                    uncorrelated.path()
                );
                self.note(FieldError::invalid(rule.path(), rule.text(), why));
            }
        } else if optional.is_set() {
            let why = "may not be set if oldSelf is not used in rule";
            self.note(FieldError::invalid(optional.path(), optional.value.clone(), why));
        }
    }

    /// Adds an error if the size limit permits.
    fn note(&mut self, fault: FieldError) {
        if self.told_bytes < FAULTS_BYTES_MAX {
            self.told_bytes += fault.about_bytes();
            self.faults.push(fault);
        }
    }

    fn cost(&mut self, at: &At<'_, '_>, what: &str, cost: u64) {
        if let Some(complaint) = limits::complaint(&format!("estimated {what} cost"), cost, limits::RULE) {
            self.note(FieldError::forbidden(at.path(), complaint));
        }
        self.total = self.total.saturating_add(cost);
        if cost >= limits::SCHEMA / 100 {
            self.costly.push((cost, at.path()));
            self.costly.sort_by_key(|(cost, _)| std::cmp::Reverse(*cost));
            self.costly.truncate(MOST_TOLD);
        }
    }

    /// Reports the errors of the expressions.
    pub(super) fn report(&self, run: &mut Run<'_>) {
        self.faults.iter().for_each(|fault| run.report(|| fault.clone()));
    }

    /// Reports a total cost above the limit.
    pub(super) fn report_costs(&self, at: &At<'_, '_>, run: &mut Run<'_>) {
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let Some(complaint) = limits::complaint(what, self.total, limits::SCHEMA) else { return };
        for (_, path) in &self.costly {
            let why = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            run.report(|| FieldError::forbidden(path, why));
        }
        at.forbidden(run, complaint);
    }
}
