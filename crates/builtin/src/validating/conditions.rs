//! Validation of conditions in a status (`metav1.Condition`).
//!
//! Kinds whose conditions have another form have their own rules.

use std::collections::HashSet;

use keelson_meta::json::Value;
use keelson_meta::names::regex_fault;

use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::{Rule, Run};

/// Validates a list of conditions, in which types are unique.
pub(crate) const CONDITIONS: Rule = Rule::Check("conditions without duplicate types", conditions);

/// The longest reason, in bytes.
const REASON_MAX: usize = 1024;
/// The longest message, in bytes.
const MESSAGE_MAX: usize = 32 * 1024;
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

fn conditions(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for condition in at.items() {
        let kind = condition.field("type");
        if !seen.insert(kind.text()) {
            kind.duplicate(run, kind.text());
        }
        validate(&condition, run);
    }
}

fn validate(condition: &At<'_, '_>, run: &mut Run<'_>) {
    let [kind, status, generation] = ["type", "status", "observedGeneration"].map(|name| condition.field(name));
    kind.complain(run, QUALIFIED_NAME.faults(kind.text()));
    if !STATUSES.contains(&status.text()) {
        status.not_supported(run, status.text(), &STATUSES);
    }
    if generation.int() < 0 {
        generation.invalid(run, generation.int(), "must be greater than or equal to zero");
    }
    let [since, reason, message] = ["lastTransitionTime", "reason", "message"].map(|name| condition.field(name));
    if since.is_empty() {
        since.required(run, "");
    }
    if reason.is_empty() {
        reason.required(run, "");
    } else {
        reason.complain(run, reason_faults(reason.text()));
        if reason.text().len() > REASON_MAX {
            reason.too_long(run, REASON_MAX);
        }
    }
    if message.text().len() > MESSAGE_MAX {
        message.too_long(run, MESSAGE_MAX);
    }
}

fn reason_faults(text: &str) -> Vec<String> {
    const TEXT: &str = "a condition reason must start with alphabetic character, optionally followed by a string of \
                        alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'";
    const EXAMPLES: [&str; 5] = ["my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB"];
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let fits = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| word(byte) || b",:".contains(&byte))
        && text.bytes().last().is_some_and(word);
    if fits { Vec::new() } else { vec![regex_fault(TEXT, "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", &EXAMPLES)] }
}

/// Returns true if the first condition of a type is true.
pub(crate) fn holds(conditions: &Value, kind: &str) -> bool {
    let is = |condition: &Value, field: &str, text: &str| condition.get(field).and_then(Value::as_str) == Some(text);
    let first = conditions.as_array().into_iter().flatten().find(|condition| is(condition, "type", kind));
    first.is_some_and(|condition| is(condition, "status", "True"))
}
