//! Validation of topology spread constraints.
//!
//! A pair of `topologyKey` and `whenUnsatisfiable` may be used once. A selector chooses the pods to count.

use std::collections::HashSet;

use keelson_meta::json::Map;

use super::scheduling::ABOVE_ZERO;
use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{Check, OneOf, Required, StrictlyOneOf};
use crate::validating::type_rules::{Run, TypeRules};

/// A topology spread constraint.
pub(super) const CONSTRAINT: TypeRules = TypeRules::shared(
    "Topology spread constraint",
    &[
        ("maxSkew", ABOVE_ZERO),
        ("topologyKey", Required("can not be empty")),
        ("whenUnsatisfiable", StrictlyOneOf(&["DoNotSchedule", "ScheduleAnyway"])),
        ("", Check("no other with the same key and action", not_repeated)),
        ("minDomains", ABOVE_ZERO),
        ("minDomains", Check("only with DoNotSchedule", min_domains)),
        ("nodeAffinityPolicy", OneOf(&["Honor", "Ignore"])),
        ("nodeTaintsPolicy", OneOf(&["Honor", "Ignore"])),
        ("matchLabelKeys", Check("label keys that are not in the selector", label_keys)),
        ("labelSelector", SELECTOR),
    ],
);

pub(super) fn constraints<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    at.items().for_each(|constraint| CONSTRAINT.check(&constraint, run));
}

/// Reports the first of two constraints with the same pair.
fn not_repeated(at: &At<'_, '_>, run: &mut Run<'_>) {
    let pair = |of: &keelson_meta::json::Value| (of.get("topologyKey").cloned(), of.get("whenUnsatisfiable").cloned());
    let Some(list) = at.parent() else { return };
    if list.list().len() < 2 {
        return;
    }
    let later = list.list().iter().skip_while(|other| !std::ptr::eq(*other, at.value)).skip(1);
    if later.take(REPEATS_SOUGHT).any(|other| pair(other) == pair(at.value)) {
        let (key, action) = (at.field("topologyKey").text(), at.field("whenUnsatisfiable").text());
        at.field("{topologyKey, whenUnsatisfiable}").duplicate(run, format!("{{{key}, {action}}}"));
    }
}

/// The number of later constraints that each one is compared with. The limit makes validation linear.
const REPEATS_SOUGHT: usize = 64;

fn min_domains(at: &At<'_, '_>, run: &mut Run<'_>) {
    let action = at.parent().map_or("", |constraint| constraint.field("whenUnsatisfiable").text());
    if at.is_set() && action != "DoNotSchedule" {
        let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
        at.invalid(run, at.int(), detail);
    }
}

fn label_keys(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (false, Some(constraint)) = (at.is_empty(), at.parent()) else { return };
    let selector = constraint.field("labelSelector");
    if !selector.is_set() {
        at.forbidden(run, "must not be specified when labelSelector is not set");
    }
    at.items().for_each(|key| key.complain(run, QUALIFIED_NAME.faults(key.text())));
    // The server adds an expression to the pod's selector for each key. If the selector already had the key, it occurs
    // twice now.
    let mut seen: HashSet<&str> = selector.field("matchLabels").tree().into_iter().flat_map(Map::keys).collect();
    for expression in selector.field("matchExpressions").items() {
        let key = expression.field("key").text();
        let index = at.list().iter().position(|listed| listed == key);
        if let Some(index) = index.filter(|_| seen.contains(key)) {
            at.index(index).invalid(run, key, "exists in both matchLabelKeys and labelSelector");
        }
        seen.insert(key);
    }
}
