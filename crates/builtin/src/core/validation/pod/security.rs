//! Validation of the security contexts of pods and containers: users, groups, capabilities and profiles.
//!
//! The admission plugin PodSecurity enforces the policies of namespaces.

use std::collections::HashSet;

use super::os::windows_user;
use super::volumes::descending_path;
use crate::validating::at::At;
use crate::validating::formats::DNS_SUBDOMAIN;
use crate::validating::type_rules::Rule::{self, Check, In, OneOf, Within};
use crate::validating::type_rules::{Run, TypeRules};

/// A user or group id.
pub(super) const ID: Rule = Within(0, i32::MAX as i64, "must be between 0 and 2147483647, inclusive");
const IDS: Rule = Check("ids", |at, run| at.items().for_each(|id| ID.check(&id, run)));

pub(super) const SECURITY_CONTEXT: TypeRules = TypeRules::shared(
    "Security context",
    &[
        ("privileged", Check("false with `--allow-privileged=false`", privileged)),
        ("runAsUser", ID),
        ("runAsGroup", ID),
        ("procMount", OneOf(&["Default", "Unmasked"])),
        ("procMount", Check("Unmasked only with `hostUsers: false`", unmasked)),
        ("seccompProfile", In(&SECCOMP)),
        ("", Check("no capabilities without allowPrivilegeEscalation", escalation)),
        ("windowsOptions", In(&WINDOWS)),
        ("appArmorProfile", In(&APPARMOR)),
    ],
);

pub(super) const POD_SECURITY_CONTEXT: TypeRules = TypeRules::shared(
    "Pod security context",
    &[
        ("fsGroupChangePolicy", OneOf(&["Always", "OnRootMismatch"])),
        ("seccompProfile", In(&SECCOMP)),
        ("windowsOptions", In(&WINDOWS)),
        ("appArmorProfile", In(&APPARMOR)),
        ("supplementalGroupsPolicy", OneOf(&["Merge", "Strict"])),
        ("seLinuxChangePolicy", OneOf(&["Recursive"])),
    ],
);

const SECCOMP: TypeRules = TypeRules::new(&[("", Check("a known type; a profile only for Localhost", seccomp))]);
const APPARMOR: TypeRules = TypeRules::new(&[("", Check("a known type; a profile only for Localhost", apparmor))]);
const WINDOWS: TypeRules = TypeRules::new(&[
    (
        "gmsaCredentialSpecName",
        Check("DNS subdomain", |at, run| {
            if at.is_set() {
                at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
            }
        }),
    ),
    ("gmsaCredentialSpec", Check("not empty, at most 64 KiB", credentials)),
    ("runAsUserName", Check("name of a Windows user", windows_user)),
]);

const PROFILES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];

fn privileged(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_true() && !run.allow_privileged {
        at.forbidden(run, "disallowed by cluster policy");
    }
}

fn unmasked(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.pod.host_users && at.text() == "Unmasked" {
        at.invalid(run, at.text(), "`hostUsers` must be false to use `Unmasked`");
    }
}

fn escalation(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.field("allowPrivilegeEscalation").value.as_bool() != Some(false) {
        return;
    }
    if at.field("privileged").is_true() {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        at.invalid(run, at.shown(), detail);
    }
    let capabilities = at.field("capabilities");
    for _ in capabilities.field("add").items().filter(|added| added.text() == "CAP_SYS_ADMIN") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        at.invalid(run, at.shown(), detail);
    }
}

fn seccomp(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (kind, local) = (at.field("type"), at.field("localhostProfile"));
    if kind.is_empty() {
        kind.required(run, "type is required when seccompProfile is set");
    } else if !PROFILES.contains(&kind.text()) {
        kind.not_supported(run, kind.text(), &PROFILES);
    }
    match (kind.text() == "Localhost", local.is_set()) {
        (true, true) => descending_path(&local, local.text(), run),
        (true, false) => local.required(run, "must be set when seccomp type is Localhost"),
        (false, true) => local.invalid(run, at.shown(), "can only be set when seccomp type is Localhost"),
        (false, false) => {}
    }
}

fn apparmor(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 4095;
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    let (kind, local) = (at.field("type"), at.field("localhostProfile"));
    match kind.text() {
        "Localhost" if !local.is_set() => local.required(run, NEEDED),
        "Localhost" => {
            let text = local.text();
            if text.trim() != text {
                local.invalid(run, text, "must not be padded with whitespace");
            } else if text.is_empty() {
                local.required(run, NEEDED);
            }
            if text.len() > MOST {
                local.too_long(run, MOST);
            }
        }
        "RuntimeDefault" | "Unconfined" if local.is_set() => {
            local.invalid(run, local.text(), "can only be set when AppArmor type is Localhost");
        }
        "RuntimeDefault" | "Unconfined" => {}
        "" => kind.required(run, "type is required when appArmorProfile is set"),
        other => kind.not_supported(run, other, &PROFILES),
    }
}

fn credentials(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 64 * 1024;
    if at.is_set() && at.is_empty() {
        at.invalid(run, "", "gmsaCredentialSpec cannot be an empty string");
    } else if at.text().len() > MOST {
        at.invalid(run, at.text(), "gmsaCredentialSpec size must be under 64 KiB");
    }
}

/// Rules that need fields of the pod besides its security context. In upstream's order they run before the others.
pub(super) fn pod_security_context<'v>(spec: &At<'v, '_>, run: &mut Run<'v>) {
    let at = spec.field("securityContext");
    for id in ["fsGroup", "runAsUser", "runAsGroup"] {
        ID.check(&at.field(id), run);
    }
    IDS.check(&at.field("supplementalGroups"), run);
    if spec.field("shareProcessNamespace").is_true() && spec.field("hostPID").is_true() {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        at.field("shareProcessNamespace").invalid(run, true, detail);
    }
    sysctls(&at.field("sysctls"), spec, run);
}

fn sysctls(at: &At<'_, '_>, spec: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 253;
    const REGEX: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";
    let mut names = HashSet::new();
    for setting in at.items() {
        let name = setting.field("name");
        if name.is_empty() {
            name.required(run, "");
        } else if name.text().len() > MOST || !name.text().split(['.', '/']).all(is_sysctl_part) {
            let detail = format!("must have at most {MOST} characters and match regex {REGEX}");
            name.invalid(run, name.text(), detail);
        } else if names.contains(name.text()) {
            name.duplicate(run, name.text());
        }
        for (shared, of) in [("hostNetwork", is_of_network as fn(&str) -> bool), ("hostIPC", is_of_ipc)] {
            if spec.field(shared).is_true() && of(name.text()) && !at.is_unchanged() {
                name.invalid(run, name.text(), format!("may not be specified when '{shared}' is true"));
            }
        }
        names.insert(name.text());
    }
}

fn is_sysctl_part(part: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    edge(part.as_bytes().first()) && edge(part.as_bytes().last()) && part.bytes().all(inner)
}

fn is_of_network(name: &str) -> bool {
    name.starts_with("net.") || name.starts_with("net/")
}

fn is_of_ipc(name: &str) -> bool {
    let name = name.replace('/', ".");
    name.starts_with("fs.mqueue.")
        || name.starts_with("kernel.shm")
        || name.starts_with("kernel.msg")
        || name == "kernel.sem"
}
