//! The controls of the baseline level: they prevent known privilege escalations.
//!
//! Each control checks one field, from some minor version on. A stricter control of the restricted level replaces the
//! baseline control of the same field.

use std::collections::BTreeSet;

use keelson_meta::go_format::quote;
use keelson_meta::json::Value;

use super::levels::Version;
use super::pod::{Container, Pod, at, list};
use super::violation::{Setters, Violation, containers, quoted, word};

const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_OF_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_OF_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
/// The minor version from which seccomp profiles are fields, not annotations.
pub(super) const SECCOMP_FIELDS: u64 = 19;
/// The minor version from which pods in a user namespace have fewer restrictions.
pub(super) const OWN_USERS: u64 = 35;

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
/// SELinux types, and the minor version from which each is allowed.
const SELINUX_TYPES: [(&str, u64); 5] =
    [("", 0), ("container_t", 0), ("container_init_t", 0), ("container_kvm_t", 0), ("container_engine_t", 31)];
/// Namespaced kernel parameters, and the minor version from which each is allowed.
const SYSCTLS: [(&str, u64); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

pub(super) fn app_armor(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let is_wrong = |profile: &Value| !matches!(profile.as_str(), Some("RuntimeDefault" | "Localhost") | None);
    let setters = types_set(pod, "appArmorProfile", is_wrong);
    let is_wrong =
        |profile: &str| !(profile.is_empty() || profile == "runtime/default" || profile.starts_with("localhost/"));
    let annotations = pod.annotations().filter(|(key, profile)| key.starts_with(APP_ARMOR) && is_wrong(profile));
    let annotations: BTreeSet<String> = annotations.map(|(key, profile)| format!("{key}={}", quote(profile))).collect();
    let mut named = setters.named();
    if !annotations.is_empty() {
        named.push(word(annotations.len(), "annotation", "annotations").to_owned());
    }
    if named.is_empty() {
        return None;
    }
    let values = setters.values.iter().chain(&annotations);
    let count = setters.values.len() + annotations.len();
    let detail =
        format!("{} must not set AppArmor profile type to {}", named.join(" and "), quoted(values.map(String::as_str)));
    Violation::new(word(count, "forbidden AppArmor profile", "forbidden AppArmor profiles"), detail)
}

/// The pod and containers whose profile of this kind has a forbidden type.
pub(super) fn types_set<'p>(pod: &Pod<'p>, profile: &str, is_wrong: impl Fn(&Value) -> bool) -> Setters<'p> {
    let mut setters = Setters::default();
    let of_pod = at(pod.context(), &[profile, "type"]);
    if is_wrong(of_pod) {
        setters.pod = true;
        setters.values.extend(of_pod.as_str().map(str::to_owned));
    }
    for container in pod.containers() {
        let set = container.context(&[profile, "type"]);
        if is_wrong(set) {
            setters.containers.push(container.name());
            setters.values.extend(set.as_str().map(str::to_owned));
        }
    }
    setters
}

/// The capabilities that a container adds.
pub(super) fn added<'p>(container: &Container<'p>) -> impl Iterator<Item = &'p str> + use<'p> {
    list(container.context(&["capabilities"]), "add").iter().filter_map(Value::as_str)
}

pub(super) fn capabilities(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let (mut names, mut forbidden) = (Vec::new(), BTreeSet::new());
    for container in pod.containers() {
        let mut adds = added(&container).filter(|added| !CAPABILITIES.contains(added)).peekable();
        if adds.peek().is_some() {
            names.push(container.name());
        }
        forbidden.extend(adds);
    }
    if names.is_empty() {
        return None;
    }
    let detail =
        format!("{} must not include {} in securityContext.capabilities.add", containers(&names), quoted(forbidden));
    Violation::new("non-default capabilities", detail)
}

pub(super) fn host_namespaces(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter();
    let shared = shared.filter(|field| at(pod.spec, &[field]).as_bool() == Some(true));
    let shared: Vec<String> = shared.map(|field| format!("{field}=true")).collect();
    if shared.is_empty() { None } else { Violation::new("host namespaces", shared.join(", ")) }
}

pub(super) fn host_paths(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let volumes = pod.list("volumes").iter().filter(|volume| !at(volume, &["hostPath"]).is_null());
    let names: Vec<&str> = volumes.map(|volume| at(volume, &["name"]).as_str().unwrap_or_default()).collect();
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} {}", word(names.len(), "volume", "volumes"), quoted(names));
    Violation::new("hostPath volumes", detail)
}

pub(super) fn host_ports(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let (mut names, mut ports) = (Vec::new(), BTreeSet::new());
    for container in pod.containers() {
        let used = list(container.0, "ports").iter().filter_map(|port| at(port, &["hostPort"]).as_i64());
        let used: Vec<String> = used.filter(|port| *port != 0).map(|port| port.to_string()).collect();
        if !used.is_empty() {
            names.push(container.name());
        }
        // Sorted as text, like upstream.
        ports.extend(used);
    }
    if names.is_empty() {
        return None;
    }
    let (uses, of) = (word(names.len(), "uses", "use"), word(ports.len(), "hostPort", "hostPorts"));
    let ports: Vec<String> = ports.into_iter().collect();
    Violation::new("hostPort", format!("{} {uses} {of} {}", containers(&names), ports.join(", ")))
}

pub(super) fn probe_hosts(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    if !version.is_since(34) {
        return None;
    }
    let (mut names, mut hosts) = (BTreeSet::new(), BTreeSet::new());
    for container in pod.containers() {
        for handler in HANDLERS.map(|path| at(container.0, path)) {
            let named = ["httpGet", "tcpSocket"].map(|way| at(handler, &[way, "host"]).as_str().unwrap_or_default());
            for host in named.into_iter().filter(|host| !host.is_empty()) {
                names.insert(container.name());
                hosts.insert(host);
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let names: Vec<&str> = names.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        containers(&names),
        word(names.len(), "uses", "use"),
        word(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts"),
        quoted(hosts)
    );
    Violation::new("probe or lifecycle host", detail)
}

pub(super) fn privileged(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    let names: Vec<&str> = named_if(pod, |container| container.context(&["privileged"]).as_bool() == Some(true));
    if names.is_empty() {
        return None;
    }
    Violation::new("privileged", format!("{} must not set securityContext.privileged=true", containers(&names)))
}

/// The names of the containers that satisfy a condition.
pub(super) fn named_if<'p>(pod: &Pod<'p>, holds: impl Fn(&Container<'p>) -> bool) -> Vec<&'p str> {
    pod.containers().filter(|container| holds(container)).map(|container| container.name()).collect()
}

pub(super) fn proc_mount(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if version.is_since(OWN_USERS) && pod.has_own_users() { None } else { unmasked(pod) }
}

/// Checks as above, but also pods in user namespaces. The restricted level uses it.
pub(super) fn unmasked(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), BTreeSet::new());
    for container in pod.containers() {
        match container.context(&["procMount"]).as_str() {
            None | Some("Default") => {}
            Some(other) => {
                names.push(container.name());
                types.insert(other);
            }
        }
    }
    if names.is_empty() {
        return None;
    }
    let detail = format!("{} must not set securityContext.procMount to {}", containers(&names), quoted(types));
    Violation::new("procMount", detail)
}

pub(super) fn selinux(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    let text = |options: &Value, field: &str| at(options, &[field]).as_str().unwrap_or_default().to_owned();
    let is_allowed = |kind: &str| SELINUX_TYPES.iter().any(|(known, since)| *known == kind && version.is_since(*since));
    let mut setters = Setters::default();
    let (mut sets_user, mut sets_role) = (false, false);
    let mut is_wrong = |setters: &mut Setters<'_>, options: &Value| {
        let (kind, user, role) =
            (text(options, "type"), !text(options, "user").is_empty(), !text(options, "role").is_empty());
        let is_wrong = !is_allowed(&kind);
        if is_wrong {
            setters.values.insert(kind);
        }
        sets_user |= user;
        sets_role |= role;
        is_wrong || user || role
    };
    setters.pod = is_wrong(&mut setters, at(pod.context(), &["seLinuxOptions"]));
    for container in pod.containers() {
        if is_wrong(&mut setters, container.context(&["seLinuxOptions"])) {
            setters.containers.push(container.name());
        }
    }
    if setters.are_none() {
        return None;
    }
    let types = (!setters.values.is_empty())
        .then(|| format!("{} {}", word(setters.values.len(), "type", "types"), setters.values()));
    let user = sets_user.then(|| "user may not be set".to_owned());
    let role = sets_role.then(|| "role may not be set".to_owned());
    let set: Vec<String> = types.into_iter().chain(user).chain(role).collect();
    let detail = format!("{} set forbidden securityContext.seLinuxOptions: {}", setters.told(), set.join("; "));
    Violation::new("seLinuxOptions", detail)
}

pub(super) fn seccomp(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    if !version.is_since(SECCOMP_FIELDS) {
        return seccomp_annotations(pod);
    }
    seccomp_set_wrong(&types_set(pod, "seccompProfile", is_wrong_seccomp))
}

/// Returns true for a type of seccomp profile that applies no filter.
pub(super) fn is_wrong_seccomp(profile: &Value) -> bool {
    !matches!(profile.as_str(), Some("RuntimeDefault" | "Localhost") | None)
}

pub(super) fn seccomp_set_wrong(setters: &Setters<'_>) -> Option<Violation> {
    if setters.are_none() {
        return None;
    }
    let detail = format!("{} must not set securityContext.seccompProfile.type to {}", setters.told(), setters.values());
    Violation::new("seccompProfile", detail)
}

fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let is_wrong = |profile: &str| {
        !(profile == "runtime/default" || profile == "docker/default" || profile.starts_with("localhost/"))
    };
    let of_containers = pod.containers().map(|container| format!("{SECCOMP_OF_CONTAINER}{}", container.name()));
    let keys = std::iter::once(SECCOMP_OF_POD.to_owned()).chain(of_containers);
    let stated = keys.filter_map(|key| pod.annotation(&key).map(|profile| (key, profile)));
    let wrong = stated.filter(|(_, profile)| is_wrong(profile));
    let wrong: BTreeSet<String> = wrong.map(|(key, profile)| format!("{key}={}", quote(profile))).collect();
    if wrong.is_empty() {
        return None;
    }
    let annotations = word(wrong.len(), "annotation", "annotations");
    let wrong: Vec<String> = wrong.into_iter().collect();
    Violation::new("seccompProfile", format!("forbidden {annotations} {}", wrong.join(", ")))
}

pub(super) fn sysctls(pod: &Pod<'_>, version: Version) -> Option<Violation> {
    let names = list(pod.context(), "sysctls").iter().map(|set| at(set, &["name"]).as_str().unwrap_or_default());
    let is_allowed = |name: &str| SYSCTLS.iter().any(|(known, since)| *known == name && version.is_since(*since));
    let forbidden: Vec<&str> = names.filter(|name| !is_allowed(name)).collect();
    if forbidden.is_empty() { None } else { Violation::new("forbidden sysctls", forbidden.join(", ")) }
}

pub(super) fn host_process(pod: &Pod<'_>, _: Version) -> Option<Violation> {
    const PATH: [&str; 2] = ["windowsOptions", "hostProcess"];
    let containers = named_if(pod, |container| container.context(&PATH).as_bool() == Some(true));
    let is_pod = at(pod.context(), &PATH).as_bool() == Some(true);
    let setters = Setters { pod: is_pod, containers, ..Setters::default() };
    if setters.are_none() {
        return None;
    }
    let detail = format!("{} must not set securityContext.windowsOptions.hostProcess=true", setters.told());
    Violation::new("hostProcess", detail)
}
