//! Unions of fields, and lists whose items are fixed once the object exists.
//!
//! The messages are those of kube-apiserver's declarative validation.

use std::collections::HashSet;

use keelson_meta::json::Value;

use crate::validating::at::At;
use crate::validating::type_rules::{Run, TypeRules};

/// Validates that exactly one of these fields is set.
pub(crate) fn exactly_one<'v>(at: &At<'v, '_>, run: &mut Run<'v>, members: &[&'static str]) {
    let quoted = |names: &[&str]| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let set: Vec<&str> = members.iter().copied().filter(|name| at.field_is_set(name)).collect();
    match set.len() {
        0 => at.invalid(run, "", format!("must specify one of: {}", quoted(members))),
        1 => {}
        _ => at.invalid(
            run,
            format!("{{{}}}", quoted(&set)),
            format!("must specify exactly one of: {}", quoted(members)),
        ),
    }
}

/// Validates that an update neither sets nor clears a field. Its value may change.
pub(crate) fn stays_set_or_unset(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() {
        return;
    }
    match (at.old.is_null(), at.is_set()) {
        (true, true) => at.invalid(run, Value::Null, "field cannot be set once created"),
        (false, false) => at.invalid(run, Value::Null, "field cannot be cleared once set"),
        (true, false) | (false, true) => {}
    }
}

/// Validates a list of items with unique names, of which an update adds and removes none. An item is compared with the
/// old item of its name.
pub(crate) fn fixed_items<'v>(at: &At<'v, '_>, run: &mut Run<'v>, limit: usize, rules: &TypeRules) {
    let name = |item: &'v Value| item.get("name").and_then(Value::as_str).unwrap_or_default();
    let old_items = at.old.as_array().map_or(&[][..], Vec::as_slice);
    if at.list().len() > limit {
        return at.too_many(run, limit);
    }
    let mut seen = HashSet::new();
    for item in at.items() {
        let own = name(item.value);
        if !seen.insert(own) {
            item.duplicate(run, own);
        }
        let old = old_items.iter().find(|old| name(old) == own);
        if old.is_none() && run.before.is_some() {
            at.key(own).forbidden(run, "item may not be added");
        }
        let between = item.between(item.value, old.unwrap_or(&Value::Null));
        rules.check(&between, run);
    }
    for old in old_items.iter().filter(|old| !seen.contains(name(old))) {
        at.key(name(old)).forbidden(run, "item may not be removed");
    }
}
