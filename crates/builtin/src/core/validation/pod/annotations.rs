//! Validation of annotations that have the meaning of pod fields. Most of them are older than the fields.
//!
//! Kubelets still read them, so their values are validated like fields.

use keelson_meta::field_error::FieldError;
use keelson_meta::json::Value;
use keelson_meta::metadata_rules::ANNOTATIONS_MAX;

use super::volumes::local_path;
use crate::validating::at::At;
use crate::validating::formats::QUALIFIED_NAME;
use crate::validating::type_rules::Run;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const MIRROR: &str = "kubernetes.io/config.mirror";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APPARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";

/// Validates the keys and the total size of annotations. Upstream does so for templates too.
pub(super) fn keys(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut total = 0;
    for (key, value) in at.tree().into_iter().flatten() {
        total += key.len() + value.as_str().map_or(0, str::len);
        for fault in QUALIFIED_NAME.faults(&key.to_lowercase()) {
            at.invalid(run, key, fault);
        }
    }
    if total > ANNOTATIONS_MAX {
        at.too_long(run, ANNOTATIONS_MAX);
    }
}

pub(super) fn of_pod(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let metadata = pod.field("metadata");
    settings(&metadata.field("annotations"), &pod.field("spec"), run);
}

pub(super) fn of_template(template: &At<'_, '_>, run: &mut Run<'_>) {
    let metadata = template.field("metadata");
    let annotations = metadata.field("annotations");
    settings(&template.field("annotations").holding(annotations.value), &template.field("spec"), run);
}

fn settings(at: &At<'_, '_>, spec: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return;
    }
    let mirror = at.key(MIRROR);
    if mirror.is_set() && spec.field("nodeName").is_empty() {
        mirror.invalid(run, mirror.text(), "must set spec.nodeName if mirror pod annotation is set");
    }
    let cost = at.key(DELETION_COST);
    if cost.is_set() && !cost.is_unchanged() && !is_cost(cost.text()) {
        cost.invalid(run, cost.text(), "must be a 32bit integer");
    }
    for (name, entry) in at.entries() {
        if name == SECCOMP_POD || name.starts_with(SECCOMP_CONTAINER) {
            seccomp(&at.field(name), run);
        }
        if let Some(container) = name.strip_prefix(APPARMOR) {
            apparmor(&entry, container, spec, run);
        }
    }
}

/// Returns true for a 32-bit integer without a plus sign or leading zeros.
fn is_cost(text: &str) -> bool {
    let plain = !text.starts_with('+') && (text == "0" || !text.trim_start_matches('-').starts_with('0'));
    plain && text.parse::<i32>().is_ok()
}

fn seccomp(at: &At<'_, '_>, run: &mut Run<'_>) {
    match at.text() {
        "runtime/default" | "docker/default" | "unconfined" => {}
        profile => match profile.strip_prefix(LOCALHOST) {
            Some(path) => local_path(at, path, run),
            None => at.invalid(run, profile, "must be a valid seccomp profile"),
        },
    }
}

fn apparmor(at: &At<'_, '_>, container: &str, spec: &At<'_, '_>, run: &mut Run<'_>) {
    let known = all_containers(spec.value).any(|(_, _, known)| known["name"] == container);
    if !known {
        at.invalid(run, container, "container not found");
    }
    let profile = at.text();
    if !matches!(profile, "" | "runtime/default" | "unconfined") && !profile.starts_with(LOCALHOST) {
        let detail = format!("invalid AppArmor profile name: {}", keelson_meta::go_format::quote(profile));
        at.invalid(run, profile, detail);
    }
}

/// All containers of a pod with the name of their list, in upstream's order.
pub(super) fn all_containers(spec: &Value) -> impl Iterator<Item = (&'static str, usize, &Value)> {
    ["initContainers", "containers", "ephemeralContainers"].into_iter().flat_map(move |list| {
        let items = spec.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        items.iter().enumerate().map(move |(index, container)| (list, index, container))
    })
}

pub(super) fn agree_on_create(pod: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() {
        agree(pod, run);
    }
}

/// If a setting is in an annotation and in a field, both must have the same value.
pub(super) fn agree(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let metadata = pod.field("metadata");
    let annotations = metadata.field("annotations");
    if annotations.is_empty() {
        return;
    }
    let annotation = |name: &str| annotations.value.get(name).and_then(Value::as_str);
    let spec = pod.field("spec");
    let context = spec.field("securityContext");
    agrees(&context.field("seccompProfile"), || annotation(SECCOMP_POD), &SECCOMP, run);
    for (list, index, container) in all_containers(spec.value) {
        let name = container["name"].as_str().unwrap_or_default();
        let list = spec.field(list);
        let item = list.index(index);
        let context = item.field("securityContext");
        agrees(&context.field("seccompProfile"), || annotation(&format!("{SECCOMP_CONTAINER}{name}")), &SECCOMP, run);
    }
    if spec.field("os").field("name").text() == "windows" {
        return;
    }
    for (list, index, container) in all_containers(spec.value) {
        let name = container["name"].as_str().unwrap_or_default();
        let list = spec.field(list);
        let item = list.index(index);
        let own = item.field("securityContext");
        let own = own.field("appArmorProfile");
        let profile = if own.is_set() { own } else { own.holding(context.field("appArmorProfile").value) };
        agrees(&profile, || annotation(&format!("{APPARMOR}{name}")), &APPARMOR_WORDS, run);
    }
}

/// An annotation's values for the default profile, and the name of the setting in errors.
struct Words {
    default: &'static [&'static str],
    word: &'static str,
}

const SECCOMP: Words = Words { default: &["runtime/default", "docker/default"], word: "seccomp" };
const APPARMOR_WORDS: Words = Words { default: &["runtime/default"], word: "apparmor" };

fn agrees<'a>(profile: &At<'_, '_>, annotation: impl Fn() -> Option<&'a str>, words: &Words, run: &mut Run<'_>) {
    if !profile.is_set() {
        return;
    }
    let Some(annotation) = annotation() else { return };
    let local = profile.field("localhostProfile");
    let same_type = match profile.field("type").text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => words.default.contains(&annotation),
        "Localhost" => annotation.starts_with(LOCALHOST),
        _ => true,
    };
    let word = words.word;
    if !same_type {
        profile.field("type").forbidden(run, format!("{word} type in annotation and field must match"));
    } else if let Some(path) = annotation.strip_prefix(LOCALHOST)
        && local.value != path
    {
        local.forbidden(run, format!("{word} profile in annotation and field must match"));
    }
}

/// An update cannot change the annotations that kubelets have already used.
pub(super) fn changed(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let metadata = pod.field("metadata");
    let at = metadata.field("annotations");
    let fixed = |name: &str| name.starts_with(APPARMOR) || name == MIRROR;
    let word = |name: &str| if name == MIRROR { "mirror pod annotation" } else { "AppArmor annotations" };
    let mut faults = Vec::new();
    for (name, old) in at.old.as_object().into_iter().flatten() {
        if fixed(name) && at.value.get(name) != Some(old) {
            let detail = format!("may not remove or update {}", word(name));
            faults.push(FieldError::forbidden(at.key(name).path(), detail));
        }
    }
    for (name, _) in at.tree().into_iter().flatten() {
        if fixed(name) && at.old.get(name).is_none() {
            faults.push(FieldError::forbidden(at.key(name).path(), format!("may not add {}", word(name))));
        }
    }
    run.faults.extend(faults);
}
