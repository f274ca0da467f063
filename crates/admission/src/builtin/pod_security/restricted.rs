//! The controls that the restricted level adds to the baseline level: practices for hardened pods.
//!
//! Some of them replace a baseline control of the same field, from some minor version on.

use std::collections::BTreeSet;

use keelson_meta::json::Value;

use super::baseline::{
    OWN_USERS, SECCOMP_FIELDS, added, is_wrong_seccomp, named_if, seccomp_set_wrong, types_set, unmasked,
};
use super::levels::Version;
use super::pod::{Pod, at, list};
use super::violation::{Setters, Violation, containers, quoted, word};

/// The minor version from which containers must drop all capabilities.
pub(super) const CAPABILITIES_DROPPED: u64 = 22;
/// The minor version from which Windows pods need not set fields that only apply to Linux.
const WINDOWS: u64 = 25;
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

fn is_excused(pod: &Pod<'_>, version: Version) -> bool {
    version.is_since(WINDOWS) && pod.is_for_windows()
}

pub(super) fn privilege_escalation(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if !version.is_since(8) || is_excused(pod, version) {
        return None;
    }
    let escalating =
        named_if(pod, |container| container.context(&["allowPrivilegeEscalation"]).as_bool() != Some(false));
    if escalating.is_empty() {
        return None;
    }
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", containers(&escalating));
    Violation::new("allowPrivilegeEscalation != false", detail)
}

/// Unlike baseline, this level has no exception for pods in user namespaces.
pub(super) fn proc_mount(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if version.is_since(OWN_USERS) { unmasked(pod) } else { None }
}

pub(super) fn capabilities(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if !version.is_since(CAPABILITIES_DROPPED) || is_excused(pod, version) {
        return None;
    }
    let (mut keeping, mut adding, mut forbidden) = (Vec::new(), Vec::new(), BTreeSet::new());
    for container in pod.containers() {
        let dropped = list(container.context(&["capabilities"]), "drop");
        if !dropped.iter().any(|dropped| dropped.as_str() == Some("ALL")) {
            keeping.push(container.name());
        }
        let mut adds = added(&container).filter(|added| *added != "NET_BIND_SERVICE").peekable();
        if adds.peek().is_some() {
            adding.push(container.name());
        }
        forbidden.extend(adds);
    }
    let keeping = (!keeping.is_empty())
        .then(|| format!("{} must set securityContext.capabilities.drop=[\"ALL\"]", containers(&keeping)));
    let adding = (!adding.is_empty()).then(|| {
        let (adding, forbidden) = (containers(&adding), quoted(forbidden));
        format!("{adding} must not include {forbidden} in securityContext.capabilities.add")
    });
    let details: Vec<String> = keeping.into_iter().chain(adding).collect();
    if details.is_empty() { None } else { Violation::new("unrestricted capabilities", details.join("; ")) }
}

pub(super) fn volumes(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), BTreeSet::new());
    for volume in pod.list("volumes").iter().filter_map(Value::as_object) {
        let sources = volume.iter().filter(|(field, source)| *field != "name" && !source.is_null());
        let sources: Vec<&str> = sources.map(|(field, _)| field).collect();
        if sources.iter().any(|source| ALLOWED_VOLUMES.contains(source)) {
            continue;
        }
        names.push(volume.get("name").and_then(Value::as_str).unwrap_or_default());
        types.insert(sources.first().copied().unwrap_or("unknown"));
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {} {}",
        word(names.len(), "volume", "volumes"),
        quoted(names.iter().copied()),
        word(names.len(), "uses", "use"),
        word(types.len(), "restricted volume type", "restricted volume types"),
        quoted(types)
    );
    Violation::new("restricted volume types", detail)
}

pub(super) fn run_as_non_root(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if version.is_since(OWN_USERS) && pod.has_own_users() {
        return None;
    }
    let of_pod = at(pod.context(), &["runAsNonRoot"]).as_bool();
    let stated = |expected: Option<bool>| {
        named_if(pod, move |container| container.context(&["runAsNonRoot"]).as_bool() == expected)
    };
    let setters = Setters { pod: of_pod == Some(false), containers: stated(Some(false)), ..Setters::default() };
    if !setters.are_none() {
        let detail = format!("{} must not set securityContext.runAsNonRoot=false", setters.told());
        return Violation::new(REASON, detail);
    }
    let silent = if of_pod == Some(true) { Vec::new() } else { stated(None) };
    if silent.is_empty() {
        return None;
    }
    Violation::new(REASON, format!("pod or {} must set securityContext.runAsNonRoot=true", containers(&silent)))
}

pub(super) fn run_as_user(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if !version.is_since(23) || (version.is_since(OWN_USERS) && pod.has_own_users()) {
        return None;
    }
    let containers = named_if(pod, |container| container.context(&["runAsUser"]).as_i64() == Some(0));
    let is_pod = at(pod.context(), &["runAsUser"]).as_i64() == Some(0);
    let setters = Setters { pod: is_pod, containers, ..Setters::default() };
    if setters.are_none() {
        return None;
    }
    Violation::new("runAsUser=0", format!("{} must not set runAsUser=0", setters.told()))
}

pub(super) fn seccomp(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    const PROFILE: &str = "seccompProfile";
    if !version.is_since(SECCOMP_FIELDS) || is_excused(pod, version) {
        return None;
    }
    if let Some(violation) = seccomp_set_wrong(&types_set(pod, PROFILE, is_wrong_seccomp)) {
        return Some(violation);
    }
    if !at(pod.context(), &[PROFILE]).is_null() {
        return None;
    }
    let silent = named_if(pod, |container| container.context(&[PROFILE]).is_null());
    if silent.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        containers(&silent)
    );
    Violation::new(PROFILE, detail)
}
