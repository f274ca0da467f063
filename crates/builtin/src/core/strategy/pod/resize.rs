//! The subresource `pods/resize` changes the CPU and memory of a running pod (KEP-1287). Other fields and the QoS class
//! cannot change.

use keelson_meta::Object;
use keelson_meta::field_error::FieldError;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::pod_resources::quality_of_service;
use keelson_registry::strategy::AcceptedPart;

use super::ephemeral_containers::MIRROR;

/// The resources that can be resized.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];
const LISTS: [&str; 2] = ["containers", "initContainers"];
/// The fields with the resources of a container, and upstream's names for them in errors.
const AMOUNTS: [(&str, &str); 2] =
    [("requests", "resource requests cannot be removed"), ("limits", "resource limits cannot be removed")];

pub(crate) fn confine(stored: &Object, sent: &Object) -> AcceptedPart {
    let unchanged = |detail: &str| AcceptedPart::Cut(stored.clone(), vec![FieldError::forbidden("", detail)]);
    if stored.annotations().any(|(name, _)| name == MIRROR) {
        return unchanged("static pods cannot be resized");
    }
    if stored.get(&["spec", "os", "name"]) == Some(&json!("windows")) {
        return unchanged("windows pods cannot be resized");
    }
    let order = out_of_order(stored, sent);
    let confined = if order.is_empty() { resized(stored, sent) } else { sent.clone() };
    let mut errors = whole_pod(stored, &confined);
    if order.is_empty() {
        errors.extend(removed(stored, &confined));
        errors.extend(others_changed(stored, &confined));
    } else {
        errors.extend(order);
    }
    AcceptedPart::Cut(confined, errors)
}

/// The stored pod with the resources and resize policies of the sent one.
fn resized(stored: &Object, sent: &Object) -> Object {
    let mut confined = stored.clone();
    let Some(Value::Object(spec)) = confined.0.get_mut("spec") else { return confined };
    take(spec, sent.get(&["spec"]), "resources");
    for list in LISTS {
        let own = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, wanted) in own.zip(containers(sent, list)) {
            if let Value::Object(container) = container {
                take(container, Some(wanted), "resources");
                take(container, Some(wanted), "resizePolicy");
            }
        }
    }
    confined
}

fn take(map: &mut Map, from: Option<&Value>, field: &str) {
    match from.and_then(|from| from.get(field)) {
        Some(value) => map.insert(field, value.clone()),
        None => map.remove(field),
    };
}

fn whole_pod(stored: &Object, confined: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let class = stored.get(&["status", "qosClass"]).and_then(Value::as_str);
    let class = class.unwrap_or_else(|| quality_of_service(stored));
    if class != quality_of_service(confined) {
        let detail = "Pod QOS Class may not change as a result of resizing";
        let shown = confined.get(&["status", "qosClass"]).cloned().unwrap_or_else(|| json!(""));
        errors.push(FieldError::invalid("spec", shown, detail));
    }
    let statuses = stored.get(&["status", "containerStatuses"]).and_then(Value::as_array);
    let running = statuses.into_iter().flatten().find(|status| status["state"]["running"].is_object());
    if running.is_some_and(|status| status["resources"].is_null()) {
        errors.push(FieldError::forbidden("spec", "Pod running on node without support for resize"));
    }
    let resources = |pod: &Object| pod.get(&["spec", "resources"]).cloned().unwrap_or_default();
    errors.extend(pod_level(&resources(stored), &resources(confined)));
    errors
}

/// The errors of the pod-level resources.
fn pod_level(stored: &Value, wanted: &Value) -> Vec<FieldError> {
    if !stored.is_null() && wanted.is_null() {
        return vec![FieldError::forbidden("spec.resources", "pod-level resources cannot be removed")];
    }
    let mut errors: Vec<FieldError> = AMOUNTS
        .iter()
        .filter(|(amounts, _)| lacks(&wanted[amounts], &stored[amounts]))
        .map(|(amounts, detail)| {
            FieldError::forbidden(format!("spec.resources.{amounts}"), format!("pod-level {detail}"))
        })
        .collect();
    if AMOUNTS.iter().any(|(amounts, _)| others(&wanted[amounts]) != others(&stored[amounts])) {
        errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable at pod-level"));
    }
    errors
}

/// Reports containers that were added, removed, renamed or moved.
fn out_of_order(stored: &Object, sent: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in LISTS {
        let (before, after) = (containers(stored, list), containers(sent, list));
        if before.len() != after.len() {
            let detail = format!("{list} may not be added or removed on resize");
            errors.push(FieldError::forbidden(format!("spec.{list}"), detail));
            continue;
        }
        for (index, _) in before.iter().zip(after).enumerate().filter(|(_, (one, other))| one["name"] != other["name"])
        {
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.push(FieldError::forbidden(format!("spec.{list}[{index}].name"), detail));
        }
    }
    errors
}

fn removed(stored: &Object, confined: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["initContainers", "containers"] {
        let pairs = containers(stored, list).iter().zip(containers(confined, list)).enumerate();
        for (index, (before, after)) in pairs {
            let missing = AMOUNTS
                .iter()
                .filter(|(amounts, _)| lacks(&after["resources"][amounts], &before["resources"][amounts]));
            errors.extend(missing.map(|(amounts, detail)| {
                FieldError::forbidden(format!("spec.{list}[{index}].resources.{amounts}"), *detail)
            }));
        }
    }
    errors
}

fn others_changed(stored: &Object, confined: &Object) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (before, after) in containers(stored, "containers").iter().zip(containers(confined, "containers")) {
        if !same_but_for_size(before, after) {
            errors.push(FieldError::forbidden("spec", "only cpu and memory resources are mutable"));
        }
    }
    let pairs = containers(stored, "initContainers").iter().zip(containers(confined, "initContainers"));
    for (index, (before, after)) in pairs.enumerate() {
        let field = format!("spec.initContainers[{index}]");
        if !same_but_for_size(before, after) {
            let detail = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.push(FieldError::forbidden(field.as_str(), detail));
        }
        let policies = after["resizePolicy"].as_array().into_iter().flatten();
        let restarts = policies.into_iter().any(|policy| policy["restartPolicy"] == "RestartContainer");
        if before != after && restarts && after["restartPolicy"] != "Always" {
            let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.push(FieldError::forbidden(field, detail));
        }
    }
    errors
}

/// Returns true if two containers differ at most in CPU and memory.
fn same_but_for_size(before: &Value, after: &Value) -> bool {
    let amounts = |one: &Value| AMOUNTS.map(|(amounts, _)| others(&one["resources"][amounts]));
    amounts(before) == amounts(after)
        && before["resources"]["claims"] == after["resources"]["claims"]
        && before["resizePolicy"] == after["resizePolicy"]
}

/// The amounts of resources that can't be resized.
fn others(amounts: &Value) -> Map {
    let all = amounts.as_object().into_iter().flatten().filter(|(name, _)| !RESIZABLE.contains(name));
    all.map(|(name, amount)| (name, amount.clone())).collect()
}

/// Returns true if an amount was removed.
fn lacks(after: &Value, before: &Value) -> bool {
    before.as_object().into_iter().flatten().any(|(name, _)| after.get(name).is_none())
}

fn containers<'a>(pod: &'a Object, list: &str) -> &'a [Value] {
    pod.get(&["spec", list]).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
