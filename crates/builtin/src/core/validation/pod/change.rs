//! Validation of updates of a pod, which may change few fields.
//!
//! All other fields are compared as a whole; a difference is one error. Subresources have their own rules.

use std::collections::HashSet;

use keelson_meta::json::Value;

use super::difference;
use super::scheduling::TOLERATION;
use super::{POD, annotations};
use crate::validating::at::At;
use crate::validating::type_rules::Rule::Check;
use crate::validating::type_rules::{Run, TypeRules, range_text};

/// The rules of an update, which run after those of the pod itself.
pub(crate) const UPDATE: TypeRules = TypeRules::new(&[
    ("", Check("annotations for AppArmor and mirror pods are immutable", annotations::changed)),
    ("", Check("annotations for seccomp, AppArmor and the cost of deletion", annotations::of_pod)),
    (
        "spec",
        Check(
            "only images, a smaller activeDeadlineSeconds, additional tolerations and fewer scheduling gates can change",
            spec_update,
        ),
    ),
]);

/// The rules for containers added to a running pod.
pub(crate) const EPHEMERAL_CONTAINERS: TypeRules = TypeRules::new(&[
    ("", crate::validating::type_rules::Rule::Always(&POD)),
    ("", Check("annotations for AppArmor and mirror pods are immutable", annotations::changed)),
    ("spec", Check("existing ephemeral containers are immutable", ephemeral)),
]);

/// The rules for a resize of a running pod. The strategy of `/resize` limits the fields that it may change.
pub(crate) const RESIZE: TypeRules = TypeRules::new(&[("", crate::validating::type_rules::Rule::Always(&POD))]);

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                         `spec.tolerations` (only additions to existing tolerations),\
                         `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

fn spec_update<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    if spec.is_unchanged() {
        return;
    }
    let containers = ["containers", "initContainers"].map(|list| spec.field(list));
    for list in &containers {
        if list.list().len() != list.old.as_array().map_or(0, Vec::len) {
            return list.forbidden(run, "pod updates may not add or remove containers");
        }
        for image in list.items() {
            let image = image.field("image");
            if image.is_empty() {
                image.required(run, "");
            }
            if image.text().trim() != image.text() {
                image.invalid(run, image.text(), "must not have leading or trailing whitespace");
            }
        }
    }
    if !deadline(&spec.field("activeDeadlineSeconds"), run) {
        return;
    }
    tolerations(&spec.field("tolerations"), run);
    gates(&spec.field("schedulingGates"), run);
    let mut same = spec.value.clone();
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        restore(&mut same, spec.old, field);
    }
    for list in ["containers", "initContainers"] {
        restore_items(&mut same, spec.old, list, "image");
    }
    let grace = spec.field("terminationGracePeriodSeconds");
    if grace.old.as_i64().is_some_and(|old| old < 0) && grace.number() == Some(1) {
        restore(&mut same, spec.old, "terminationGracePeriodSeconds");
    }
    if spec.old.get("schedulingGates").is_some_and(|gates| !crate::validating::at::is_empty(gates)) {
        gated(spec, &mut same, run);
    }
    if same != *spec.old {
        let changes = difference(spec.old, &same);
        spec.forbidden(run, format!("pod updates may not change fields other than {UPDATABLE}\n{changes}"));
    }
}

/// Sets a field to its old value.
pub(crate) fn restore(tree: &mut Value, old: &Value, field: &str) {
    let Value::Object(tree) = tree else { return };
    match old.get(field) {
        Some(value) => tree.insert(field, value.clone()),
        None => tree.remove(field),
    };
}

fn restore_items(tree: &mut Value, old: &Value, list: &str, field: &str) {
    let new = tree.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    let old = old.get(list).and_then(Value::as_array).into_iter().flatten();
    new.zip(old).for_each(|(new, old)| restore(new, old, field));
}

/// The deadline may be set, and shortened. Returns false if further checks would add no information.
fn deadline(at: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    let most = i64::from(i32::MAX);
    match (at.number(), at.old.as_i64()) {
        (Some(new), _) if !(0..=most).contains(&new) => at.invalid(run, new, range_text(0, most)),
        (Some(new), Some(old)) if old < new => {
            at.invalid(run, new, "must be less than or equal to previous value");
        }
        (None, Some(_)) => {
            at.invalid(run, Value::Null, "must not update from a positive integer to nil value");
            return true;
        }
        _ => return true,
    }
    false
}

fn tolerations<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    // All fields except the time.
    fn kept(toleration: &Value) -> [&str; 4] {
        ["key", "operator", "value", "effect"].map(|field| toleration[field].as_str().unwrap_or_default())
    }
    if at.is_unchanged() {
        return;
    }
    let new: HashSet<_> = at.list().iter().map(kept).collect();
    let mut old = at.old.as_array().into_iter().flatten();
    if !old.all(|old| new.contains(&kept(old))) {
        return at.forbidden(run, "existing toleration can not be modified except its tolerationSeconds");
    }
    at.items().for_each(|toleration| TOLERATION.check(&toleration, run));
}

fn gates(at: &At<'_, '_>, run: &mut Run<'_>) {
    let old: HashSet<_> = at.old.as_array().into_iter().flatten().filter_map(|old| old["name"].as_str()).collect();
    for gate in at.items() {
        let name = gate.field("name");
        if !old.contains(name.text()) {
            let detail = format!("only deletion is allowed, but found new scheduling gate '{}'", name.text());
            name.forbidden(run, detail);
        }
    }
}

/// A pod with scheduling gates may narrow the set of its nodes.
fn gated(spec: &At<'_, '_>, same: &mut Value, run: &mut Run<'_>) {
    let selector = spec.field("nodeSelector");
    if !selector.is_unchanged() {
        let kept = |(key, value): (&str, &Value)| selector.value.get(key) == Some(value);
        if !selector.old.as_object().into_iter().flatten().all(kept) {
            let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
            selector.invalid(run, selector.shown(), detail);
        }
        restore(same, spec.old, "nodeSelector");
    }
    let affinity = spec.field("affinity");
    let nodes = affinity.field("nodeAffinity");
    if nodes.is_unchanged() {
        return;
    }
    let required = nodes.field("requiredDuringSchedulingIgnoredDuringExecution");
    node_terms(&required.field("nodeSelectorTerms"), run);
    match same.get_mut("affinity") {
        Some(affinity) => {
            restore(affinity, nodes.parent().map_or(&Value::Null, |affinity| affinity.old), "nodeAffinity");
        }
        None => restore(same, spec.old, "affinity"),
    }
    let emptied = same.get("affinity").is_some_and(crate::validating::at::is_empty);
    if emptied && spec.old.get("affinity").is_none() {
        restore(same, spec.old, "affinity");
    }
}

fn node_terms(at: &At<'_, '_>, run: &mut Run<'_>) {
    let old = at.old.as_array().map_or(&[][..], Vec::as_slice);
    if old.is_empty() {
        return;
    }
    if old.len() != at.list().len() {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return at.invalid(run, at.shown(), detail);
    }
    for term in at.items() {
        let grown = ["matchExpressions", "matchFields"].map(|field| {
            let part = term.field(field);
            let old = part.old.as_array().map_or(&[][..], Vec::as_slice);
            (old.is_empty(), part.list().starts_with(old), !part.list().is_empty())
        });
        let was_empty = grown.iter().all(|(empty, _, _)| *empty) && grown.iter().any(|(_, _, filled)| *filled);
        if was_empty || !grown.iter().all(|(_, kept, _)| *kept) {
            term.invalid(run, term.shown(), "only additions are allowed (no mutations or deletions)");
        }
    }
}

fn ephemeral(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("ephemeralContainers");
    for old in at.old.as_array().into_iter().flatten() {
        let name = keelson_meta::go_format::quote(old["name"].as_str().unwrap_or_default());
        match at.list().iter().find(|new| new["name"] == old["name"]) {
            None => at.forbidden(run, format!("existing ephemeral containers {name} may not be removed\n")),
            Some(new) if new != old => {
                let changes = difference(old, new);
                at.forbidden(run, format!("existing ephemeral containers {name} may not be changed\n{changes}"));
            }
            Some(_) => {}
        }
    }
}
