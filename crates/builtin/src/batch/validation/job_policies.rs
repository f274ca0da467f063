//! Failure and success policies of a job: when it counts as failed or succeeded before all its pods end.
//!
//! Rules apply in order, so their number is limited. Each has one action and one condition.

use std::collections::HashSet;

use keelson_meta::json::Value;

use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::{NEGATIVE, Run};

const RULES_MAX: usize = 20;
const CODES_MAX: usize = 255;
const INDEXES_MAX: usize = 64 * 1024;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

pub(super) fn failure_policy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(job) = at.parent().filter(|_| at.is_set()) else { return };
    let rules = at.field("rules");
    if rules.list().len() > RULES_MAX {
        rules.too_many(run, RULES_MAX);
    }
    let pod = job.field("template");
    let pod = pod.field("spec");
    let lists = ["containers", "initContainers"].map(|list| pod.field(list).list());
    let containers: HashSet<&str> =
        lists.into_iter().flatten().filter_map(|container| container.get("name")?.as_str()).collect();
    for rule in rules.items() {
        action(&rule.field("action"), job.field_is_set("backoffLimitPerIndex"), run);
        let (codes, conditions) = (rule.field("onExitCodes"), rule.field("onPodConditions"));
        if codes.is_set() {
            exit_codes(&codes, &containers, run);
        }
        pod_conditions(&conditions, run);
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => rule.refused(run, "specifying both OnExitCodes and OnPodConditions is not supported"),
            (false, true) => rule.refused(run, "specifying one of OnExitCodes and OnPodConditions is required"),
            _ => {}
        }
    }
}

fn action(at: &At<'_, '_>, per_index: bool, run: &mut Run<'_>) {
    match at.text() {
        "FailIndex" if !per_index => at.invalid(run, "FailIndex", "requires the backoffLimitPerIndex to be set"),
        "FailIndex" => {}
        _ => known(at, &ACTIONS, run),
    }
}

/// Like upstream, prints the list in Go's form: `["Count" "Ignore"]`.
fn known(at: &At<'_, '_>, values: &[&str], run: &mut Run<'_>) {
    if at.is_empty() {
        let listed: Vec<String> = values.iter().map(|value| keelson_meta::go_format::quote(value)).collect();
        at.required(run, format!("valid values: [{}]", listed.join(" ")));
    } else if !values.contains(&at.text()) {
        at.not_supported(run, at.text(), values);
    }
}

fn exit_codes(at: &At<'_, '_>, containers: &HashSet<&str>, run: &mut Run<'_>) {
    let (operator, container, values) = (at.field("operator"), at.field("containerName"), at.field("values"));
    known(&operator, &OPERATORS, run);
    if container.is_set() && !containers.contains(container.text()) {
        let detail = "must be one of the container or initContainer names in the pod template";
        container.invalid(run, container.text(), detail);
    }
    if values.is_empty() {
        values.invalid(run, values.shown(), "at least one value is required");
    } else if values.list().len() > CODES_MAX {
        values.too_many(run, CODES_MAX);
    }
    let mut seen = HashSet::new();
    for code in values.items() {
        if operator.text() == "In" && code.int() == 0 {
            code.invalid(run, 0, "must not be 0 for the In operator");
        }
        if !seen.insert(code.int()) {
            code.duplicate(run, code.int());
        }
    }
    if !values.list().is_sorted_by_key(Value::as_i64) {
        values.invalid(run, values.shown(), "must be ordered");
    }
}

fn pod_conditions(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.list().len() > RULES_MAX {
        at.too_many(run, RULES_MAX);
    }
    for pattern in at.items() {
        let kind = pattern.field("type");
        kind.complain(run, QUALIFIED_NAME.faults(kind.text()));
        known(&pattern.field("status"), &STATUSES, run);
    }
}

pub(super) fn success_policy(at: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(job) = at.parent().filter(|_| at.is_set()) else { return };
    if job.field("completionMode").text() != "Indexed" {
        return at.invalid(run, at.shown(), "requires indexed completion mode");
    }
    let rules = at.field("rules");
    if rules.is_empty() {
        rules.required(run, "at least one rules must be specified when the successPolicy is specified");
    }
    if rules.list().len() > RULES_MAX {
        rules.too_many(run, RULES_MAX);
    }
    let completions = job.field("completions").int();
    rules.items().for_each(|rule| success_rule(&rule, completions, run));
}

fn success_rule(at: &At<'_, '_>, completions: i64, run: &mut Run<'_>) {
    let (count, indexes) = (at.field("succeededCount"), at.field("succeededIndexes"));
    if !count.is_set() && !indexes.is_set() {
        at.required(run, "at least one of succeededCount or succeededIndexes must be specified");
    }
    let mut total = 0;
    if indexes.is_set() {
        if indexes.text().len() > INDEXES_MAX {
            indexes.too_long(run, INDEXES_MAX);
        }
        match count_indexes(indexes.text(), completions) {
            Ok(indexes) => total = indexes,
            Err(why) => indexes.invalid(run, indexes.text(), format!("error parsing succeededIndexes: {why}")),
        }
    }
    let Some(number) = count.number() else { return };
    if number < 0 {
        count.invalid(run, number, NEGATIVE);
    }
    if number > completions {
        let detail = format!("must be less than or equal to {completions} (the number of specified completions)");
        count.invalid(run, number, detail);
    }
    if indexes.is_set() && number > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        count.invalid(run, number, detail);
    }
}

/// The number of indexes in a list such as `1,3-5`.
///
/// # Errors
/// Upstream's text for a list that is not sorted, or exceeds the completions.
pub(super) fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',') {
        let (first, end) = interval(part, completions, last)?;
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first and last index in a part of a list. They must be larger than those of the part before.
fn interval(part: &str, completions: i64, last: Option<i64>) -> Result<(i64, i64), String> {
    let limits: Vec<&str> = part.split('-').collect();
    if limits.len() > 2 {
        return Err(format!(
            "the fragment {} violates the requirement that an index interval can have at most two parts separated by '-'",
            keelson_meta::go_format::quote(part)
        ));
    }
    let number = |text: &str| {
        keelson_meta::go_format::parse_int(text).map_err(|_| {
            let text = keelson_meta::go_format::quote(text);
            format!("cannot convert string to integer for index: {text}")
        })
    };
    let first = number(limits[0])?;
    if first >= completions {
        return Err(format!("too large index: {}", keelson_meta::go_format::quote(limits[0])));
    }
    if last.is_some_and(|last| last >= first) {
        return Err(format!("non-increasing order, previous: {}, current: {first}", last.unwrap_or_default()));
    }
    let Some(text) = limits.get(1) else { return Ok((first, first)) };
    let end = number(text)?;
    if end >= completions {
        return Err(format!("too large index: {}", keelson_meta::go_format::quote(text)));
    }
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

/// The first index in both lists, which are sorted. Invalid parts are skipped.
pub(super) fn common_index(left: &str, right: &str, completions: i64) -> Option<i64> {
    let parts = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|part| interval(part, completions, None).ok()).collect()
    };
    let (left, right) = (parts(left), parts(right));
    let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
    while let (Some(&&(left_first, left_end)), Some(&&(right_first, right_end))) = (left.peek(), right.peek()) {
        if left_first <= right_end && right_first <= left_end {
            return Some(left_first.max(right_first));
        }
        if left_first <= right_first {
            left.next()
        } else {
            right.next()
        };
    }
    None
}

/// Returns true if a condition of this type is true.
pub(super) fn is_true(conditions: &Value, kind: &str) -> bool {
    let conditions = conditions.as_array().into_iter().flatten();
    conditions.filter(|condition| condition["type"] == kind).any(|condition| condition["status"] == "True")
}

#[cfg(test)]
mod tests {
    use super::{common_index, count_indexes};

    #[test]
    fn the_first_common_index_of_two_lists_is_found() {
        for (left, right, index) in [
            ("", "", None),
            ("0-2", "", None),
            ("0-2", "3,4", None),
            ("0,3-5", "1,4", Some(4)),
            ("7", "0-9", Some(7)),
            ("x,2", "2", Some(2)),
            ("99", "99", None),
        ] {
            assert_eq!(common_index(left, right, 10), index, "{left} {right}");
            assert_eq!(common_index(right, left, 10), index, "{right} {left}");
        }
    }

    #[test]
    fn indexes_are_counted_and_validated() {
        assert_eq!(count_indexes("", 5), Ok(0));
        assert_eq!(count_indexes("0,2-4", 5), Ok(4));
        for (text, fault) in [
            ("5", "too large index"),
            ("2,1", "non-increasing order"),
            ("3-1", "non-increasing order"),
            ("a", "cannot convert string to integer"),
            ("1-2-3", "at most two parts"),
        ] {
            assert!(count_indexes(text, 5).is_err_and(|why| why.contains(fault)), "{text}");
        }
    }
}
