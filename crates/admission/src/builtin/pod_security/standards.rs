//! The pod security standards: the controls of each level and version, and the violations of a pod.
//!
//! These are pure functions of a pod. Controls run in the order of their upstream names, so that messages about several
//! violations equal upstream's.

use super::levels::{Level, Standard, Version};
use super::pod::Pod;
use super::violation::Violation;
use super::{baseline, restricted};

type Check = fn(&Pod<'_>, Version) -> Option<Violation>;

/// A control of the baseline level.
struct Control {
    check: Check,
    /// The minor version from which a stricter control of the restricted level replaces this one.
    stricter_since: Option<u64>,
}

impl Control {
    const fn new(check: Check) -> Self {
        Self { check, stricter_since: None }
    }

    const fn until(check: Check, minor: u64) -> Self {
        Self { check, stricter_since: Some(minor) }
    }
}

const BASELINE: [Control; 12] = [
    Control::new(baseline::app_armor),
    Control::until(baseline::capabilities, restricted::CAPABILITIES_DROPPED),
    Control::new(baseline::host_namespaces),
    Control::until(baseline::host_paths, 0),
    Control::new(baseline::host_ports),
    Control::new(baseline::probe_hosts),
    Control::new(baseline::privileged),
    Control::until(baseline::proc_mount, baseline::OWN_USERS),
    Control::new(baseline::selinux),
    Control::until(baseline::seccomp, baseline::SECCOMP_FIELDS),
    Control::new(baseline::sysctls),
    Control::new(baseline::host_process),
];

const RESTRICTED: [Check; 7] = [
    restricted::proc_mount,
    restricted::privilege_escalation,
    restricted::capabilities,
    restricted::volumes,
    restricted::run_as_non_root,
    restricted::run_as_user,
    restricted::seccomp,
];

/// The violations of a standard by a pod.
pub(super) fn violations(standard: Standard, pod: &Pod<'_>) -> Vec<Violation> {
    let Standard { level, version } = standard;
    if level == Level::Privileged {
        return Vec::new();
    }
    let is_restricted = level == Level::Restricted;
    let has_stricter =
        |control: &&Control| is_restricted && control.stricter_since.is_some_and(|minor| version.is_since(minor));
    let baseline = BASELINE.iter().filter(|control| !has_stricter(control)).map(|control| control.check);
    let restricted = RESTRICTED.into_iter().filter(|_| is_restricted);
    baseline.chain(restricted).filter_map(|check| check(pod, version)).collect()
}
