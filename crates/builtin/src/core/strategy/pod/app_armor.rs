//! Converts the AppArmor annotations of new pods, the form before Kubernetes 1.30, to the fields that replaced them.
//!
//! The rules are those of KEP-24, "Version Skew Strategy".

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};
use keelson_registry::Warnings;

const ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
/// The longest name of a profile on a node, in bytes.
const MAX_PROFILE_BYTES: usize = 4095;

/// Sets the profile of each container from its annotation, unless the container or pod has it already. Returns true if
/// a profile was set.
pub(super) fn read_annotations(pod: &mut Object, warnings: &Warnings) -> bool {
    let annotations = pod.get(&["metadata", "annotations"]).and_then(Value::as_object);
    let stated = annotations.into_iter().flatten().filter_map(|(key, value)| {
        let container = key.strip_prefix(ANNOTATION)?;
        Some((container.to_owned(), value.as_str()?.to_owned()))
    });
    let stated: Map = stated.map(|(container, profile)| (container, json!(profile))).collect();
    let is_of_windows = pod.get(&["spec", "os", "name"]).and_then(Value::as_str) == Some("windows");
    if stated.is_empty() || is_of_windows {
        return false;
    }
    let of_pod = pod.get(&["spec", "securityContext", "appArmorProfile"]).cloned();
    let Some(spec) = pod.0.get_mut("spec").and_then(Value::as_object_mut) else { return false };
    let mut is_changed = false;
    for list in ["containers", "initContainers", "ephemeralContainers"] {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            is_changed |= read_annotation(container, &stated, of_pod.as_ref(), warnings);
        }
    }
    is_changed
}

fn read_annotation(container: &mut Map, stated: &Map, of_pod: Option<&Value>, warnings: &Warnings) -> bool {
    let name = container.get("name").and_then(Value::as_str).unwrap_or_default();
    let Some(annotation) = stated.get(name).and_then(Value::as_str) else { return false };
    let context = container.get("securityContext");
    if context.and_then(|context| context.get("appArmorProfile")).is_some_and(|profile| !profile.is_null()) {
        return false;
    }
    let profile = profile_of(annotation);
    if profile.is_some() && profile.as_ref() == of_pod {
        return false;
    }
    warnings.add(format!(
        "metadata.annotations[{ANNOTATION}{name}]: deprecated since v1.30; use the \"appArmorProfile\" field instead"
    ));
    let Some(profile) = profile else { return false };
    let context = container.entry("securityContext").or_insert(Value::Null);
    if context.is_null() {
        *context = json!({});
    }
    let Some(context) = context.as_object_mut() else { return false };
    context.insert("appArmorProfile", profile);
    true
}

/// The profile field for an annotation; `None` if the annotation is invalid.
fn profile_of(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({ "type": "Unconfined" })),
        "runtime/default" => Some(json!({ "type": "RuntimeDefault" })),
        _ => {
            let profile = annotation.strip_prefix("localhost/")?;
            let is_valid = !profile.is_empty() && profile.trim() == profile && profile.len() <= MAX_PROFILE_BYTES;
            is_valid.then(|| json!({ "type": "Localhost", "localhostProfile": profile }))
        }
    }
}
