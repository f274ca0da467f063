//! Validation of fields that the operating system of a pod forbids, and of host namespaces.
//!
//! A Windows pod may not have Linux settings, and the other way round.

use keelson_meta::json::Value;

use super::annotations::all_containers;
use crate::validating::at::At;
use crate::validating::type_rules::Run;

const NOT_FOR_WINDOWS: &str = "cannot be set for a windows pod";

/// A pod with its own user namespace may not use the network, process or IPC namespace of the host.
pub(super) fn host_users(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if run.pod.host_users {
        return;
    }
    for (field, called) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        if spec.field(field).is_true() {
            spec.field(called).forbidden(run, "when `pod.Spec.HostUsers` is false");
        }
    }
}

pub(super) fn host_processes(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let of_pod = host_process(spec.value);
    if of_pod.is_none() && !all_containers(spec.value).any(|(_, _, container)| host_process(container).is_some()) {
        return;
    }
    let (mut all, mut hosts) = (0, 0);
    for (list, index, container) in all_containers(spec.value) {
        all += 1;
        let own = host_process(container);
        if let (Some(pod), Some(own)) = (of_pod, own)
            && pod != own
        {
            let list = spec.field(list);
            let item = list.index(index);
            let context = item.field("securityContext");
            let options = context.field("windowsOptions");
            let detail = format!("pod hostProcess value must be identical if both are specified, was {pod}");
            options.field("hostProcess").invalid(run, own, detail);
        }
        hosts += usize::from(own.or(of_pod) == Some(true));
    }
    if hosts == 0 {
        return;
    }
    if hosts != all {
        let detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers";
        spec.invalid(run, "", detail);
    }
    let network = spec.field("hostNetwork");
    if !network.is_true() {
        network.invalid(run, false, "hostNetwork must be true if pod contains any hostProcess containers");
    }
}

fn host_process(holder: &Value) -> Option<bool> {
    holder.get("securityContext")?.get("windowsOptions")?.get("hostProcess")?.as_bool()
}

pub(super) fn os(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (name, Some(spec)) = (at.field("name"), at.parent()) else { return };
    match name.text() {
        _ if !at.is_set() => {}
        "" => name.required(run, "cannot be empty"),
        "linux" => linux(spec, run),
        "windows" => windows(spec, run),
        other => at.not_supported(run, other, &["linux", "windows"]),
    }
}

fn linux(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let refuse = |context: &At<'_, '_>, run: &mut Run<'_>| {
        if context.field_is_set("windowsOptions") {
            context.field("windowsOptions").forbidden(run, "windows options cannot be set for a linux pod");
        }
    };
    refuse(&spec.field("securityContext"), run);
    for (list, index, _) in all_containers(spec.value) {
        refuse(&spec.field(list).index(index).field("securityContext"), run);
    }
}

/// Fields that a Windows pod may not have, in upstream's order. The flag is true for fields of the security context.
const POD_FIELDS: [(&str, bool); 15] = [
    ("appArmorProfile", true),
    ("seLinuxOptions", true),
    ("hostUsers", false),
    ("hostPID", false),
    ("hostIPC", false),
    ("seccompProfile", true),
    ("fsGroup", true),
    ("fsGroupChangePolicy", true),
    ("sysctls", true),
    ("shareProcessNamespace", false),
    ("runAsUser", true),
    ("runAsGroup", true),
    ("supplementalGroups", true),
    ("supplementalGroupsPolicy", true),
    ("seLinuxChangePolicy", true),
];

const CONTAINER_FIELDS: [&str; 10] = [
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
];

fn windows(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let context = spec.field("securityContext");
    for (name, inside) in POD_FIELDS {
        let field = if inside { context.field(name) } else { spec.field(name) };
        if field.is_set() {
            field.forbidden(run, NOT_FOR_WINDOWS);
        }
    }
    for (list, index, _) in all_containers(spec.value) {
        let list = spec.field(list);
        let item = list.index(index);
        let context = item.field("securityContext");
        for field in CONTAINER_FIELDS.map(|name| context.field(name)) {
            if field.is_set() {
                field.forbidden(run, NOT_FOR_WINDOWS);
            }
        }
    }
}

/// `DOMAIN\user`, or a user alone.
pub(super) fn windows_user(at: &At<'_, '_>, run: &mut Run<'_>) {
    const DOMAIN_MAX: usize = 256;
    const USER_MAX: usize = 104;
    const FORBIDDEN: &str = r#""/\:;|=,+*?<>@[]"#;
    if !at.is_set() {
        return;
    }
    let text = at.text();
    let parts: Vec<&str> = text.split('\\').collect();
    let mut faults = Vec::new();
    match parts.as_slice() {
        _ if text.is_empty() => faults.push("runAsUserName cannot be an empty string".to_owned()),
        _ if text.bytes().any(|byte| byte.is_ascii_control()) => {
            faults.push("runAsUserName cannot contain control characters".to_owned());
        }
        [] | [_, _, _, ..] => faults.push("runAsUserName cannot contain more than one backslash".to_owned()),
        [first] | [_, first] => {
            let (user, domain) = (*first, if parts.len() > 1 { parts[0] } else { "" });
            if domain.len() >= DOMAIN_MAX {
                faults.push(format!("runAsUserName's Domain length must be under {DOMAIN_MAX} characters"));
            }
            if parts.len() > 1 && !is_netbios(domain) && !is_dns(domain) {
                faults.push("runAsUserName's Domain doesn't match the NetBios nor the DNS format".to_owned());
            }
            if user.is_empty() {
                faults.push("runAsUserName's User cannot be empty".to_owned());
            } else if user.len() > USER_MAX {
                faults.push(format!("runAsUserName's User length must not be longer than {USER_MAX} characters"));
            }
            if !user.is_empty() && user.chars().all(|c| matches!(c, '.' | ' ')) {
                faults.push("runAsUserName's User cannot contain only periods or spaces".to_owned());
            }
            if user.chars().any(|c| FORBIDDEN.contains(c)) {
                faults.push(format!("runAsUserName's User cannot contain the following characters: {FORBIDDEN}"));
            }
        }
    }
    at.complain(run, faults);
}

fn is_netbios(domain: &str) -> bool {
    let fits = |c: char| !r#"\/:*?"<>|"#.contains(c);
    (1..=15).contains(&domain.chars().count()) && !domain.starts_with('.') && domain.chars().all(fits)
}

fn is_dns(domain: &str) -> bool {
    let label = |label: &str| {
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let bytes = label.as_bytes();
        bytes.len() <= 63
            && edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
    };
    domain.split('.').all(label)
}
