//! What the status of a pod may say, and which changes of it make no sense.

use std::collections::HashSet;
use std::net::IpAddr;

use keelson_meta::json::Value;

use crate::at::At;
use crate::formats::{DNS_SUBDOMAIN, IP, QUALIFIED_NAME, parse_ip};
use crate::shape::Rule::{Check, Immutable};
use crate::shape::{Run, Shape};

use super::annotations;

/// What is checked when the status of a pod changes.
pub(crate) const STATUS: Shape = Shape::of(&[
    ("", Check("AppArmor and mirror annotations stay", annotations::changed)),
    ("", Check("annotations for seccomp, AppArmor and the cost of deletion", annotations::of_pod)),
    ("", Check("conditions have qualified names", conditions)),
    ("", Check("a nominated node that can be one", nominated_node)),
    ("status", crate::shape::Rule::In(&const { Shape::of(&[("qosClass", Immutable)]) })),
    ("", Check("containers that have ended for good do not run again", container_states)),
    ("", Check("claims of the pod, each once", claims)),
    ("", Check("IP addresses, one of each family", addresses)),
]);

fn conditions(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let status = pod.field("status");
    // Upstream takes them for a part of metadata here.
    let metadata = pod.field("metadata");
    let conditions = metadata.field("conditions");
    for (index, condition) in status.field("conditions").list().iter().enumerate() {
        let kind = condition["type"].as_str().unwrap_or_default();
        if !matches!(kind, "PodScheduled" | "Ready" | "Initialized") {
            for fault in QUALIFIED_NAME.faults(kind) {
                conditions.index(index).field("Type").invalid(run, kind, fault);
            }
        }
    }
}

fn nominated_node(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let status = pod.field("status");
    let node = status.field("nominatedNodeName");
    if !node.is_empty() && !node.is_unchanged() {
        node.complain(run, DNS_SUBDOMAIN.faults(node.text()));
    }
}

fn container_states(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let (status, spec) = (pod.field("status"), pod.field("spec"));
    let policy = spec.field("restartPolicy").text();
    let restartable = |name: &Value| {
        spec.field("initContainers")
            .list()
            .iter()
            .any(|container| container["name"] == *name && container["restartPolicy"] == "Always")
    };
    for (list, policy) in
        [("containerStatuses", policy), ("initContainerStatuses", policy), ("ephemeralContainerStatuses", "Never")]
    {
        let list = status.field(list);
        if policy == "Always" {
            continue;
        }
        for (index, old) in list.old.as_array().into_iter().flatten().enumerate() {
            let Some(ended) = old["state"].get("terminated") else { continue };
            let failed = ended["exitCode"].as_i64().unwrap_or_default() != 0;
            if failed && policy == "OnFailure" || restartable(&old["name"]) {
                continue;
            }
            let runs = |new: &&Value| new["name"] == old["name"] && new["state"].get("terminated").is_none();
            for _ in list.list().iter().filter(runs) {
                list.index(index).field("state").forbidden(run, "may not be transitioned to non-terminated state");
            }
        }
    }
}

fn claims(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let (status, spec) = (pod.field("status"), pod.field("spec"));
    let known = spec.field("resourceClaims").list();
    let mut names = HashSet::new();
    for claim in status.field("resourceClaimStatuses").items() {
        let (name, made) = (claim.field("name"), claim.field("resourceClaimName"));
        if !known.iter().any(|known| known["name"] == name.text()) {
            name.invalid(run, name.text(), "must match the name of an entry in `spec.resourceClaims`");
        }
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        if made.is_set() {
            name.holding(made.value).complain(run, DNS_SUBDOMAIN.faults(made.text()));
        }
    }
}

fn addresses(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let status = pod.field("status");
    address_list(&status.field("podIPs"), run);
    let hosts = status.field("hostIPs");
    if hosts.is_empty() {
        return;
    }
    let first = hosts.index(0);
    let ip = first.field("ip");
    if ip.text() != status.field("hostIP").text() {
        ip.invalid(run, ip.text(), "must be equal to `hostIP`");
    }
    address_list(&hosts, run);
}

fn address_list(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut seen = HashSet::new();
    for item in at.items() {
        let ip = item.field("ip").text();
        for fault in IP.faults(ip) {
            item.invalid(run, ip, fault);
        }
    }
    if at.list().len() < 2 {
        return;
    }
    let families: HashSet<bool> =
        at.items().filter_map(|item| parse_ip(item.field("ip").text())).map(|ip: IpAddr| ip.is_ipv4()).collect();
    if families.len() < 2 || at.list().len() > 2 {
        at.invalid(run, at.value.clone(), "may specify no more than one IP for each IP family");
    }
    for item in at.items() {
        if !seen.insert(item.field("ip").text()) {
            item.duplicate(run, item.value.clone());
        }
    }
}
