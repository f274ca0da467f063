//! Validation of updates of the status of a pod.
//!
//! Kubelets write the status. A terminated container cannot run again unless the restart policy permits it. Names of
//! devices and claims must be valid.

use std::collections::HashSet;
use std::net::IpAddr;

use keelson_meta::json::{Value, json};

use super::annotations;
use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, IP, QUALIFIED_NAME, parse_ip};
use crate::validating::type_rules::Rule::{Check, Immutable};
use crate::validating::type_rules::{Run, TypeRules};

/// The rules for an update of the status.
pub(crate) const STATUS: TypeRules = TypeRules::new(&[
    ("", Check("annotations for AppArmor and mirror pods are immutable", annotations::changed)),
    ("", Check("annotations for seccomp, AppArmor and the cost of deletion", annotations::of_pod)),
    ("", Check("conditions have qualified names", conditions)),
    ("", Check("a valid node name in `nominatedNodeName`", nominated_node)),
    ("status", crate::validating::type_rules::Rule::In(&const { TypeRules::new(&[("qosClass", Immutable)]) })),
    ("", Check("terminated containers do not restart if the restart policy forbids it", container_states)),
    ("", Check("claims of the pod, without duplicates", claims)),
    ("", Check("the status of the claim for extended resources has containers and requests", extended_claim)),
    ("", Check("resources of containers are healthy, unhealthy or unknown", health)),
    ("", Check("IP addresses, one of each family", addresses)),
]);

fn conditions(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let status = pod.field("status");
    // Like upstream, the path is in the metadata.
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
            made.complain(run, DNS_SUBDOMAIN.faults(made.text()));
        }
    }
}

/// Validates the claim for extended resources that devices provide. Like upstream, some paths omit the index.
fn extended_claim(pod: &At<'_, '_>, run: &mut Run<'_>) {
    let (status, spec) = (pod.field("status"), pod.field("spec"));
    let at = status.field("extendedResourceClaimStatus");
    if !at.is_set() {
        return;
    }
    let lists = ["initContainers", "containers"].map(|list| spec.field(list).list());
    let containers: HashSet<&str> =
        lists.into_iter().flatten().filter_map(|container| container.get("name")?.as_str()).collect();
    let mappings = at.field("requestMappings");
    if mappings.is_empty() {
        mappings.required(run, "at least one request mapping is required");
    }
    for mapping in mappings.items() {
        let container = mapping.field("containerName");
        if !containers.contains(container.text()) {
            let detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name";
            container.invalid(run, container.text(), detail);
        }
        let request = mapping.field("requestName").text();
        for fault in DNS_LABEL.faults(request) {
            at.field("requestName").invalid(run, request, fault);
        }
    }
    let claim = at.field("resourceClaimName");
    if claim.is_empty() {
        claim.required(run, "");
    } else {
        claim.complain(run, DNS_SUBDOMAIN.faults(claim.text()));
    }
}

fn health(pod: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 3] = ["Healthy", "Unhealthy", "Unknown"];
    let status = pod.field("status");
    for list in ["containerStatuses", "initContainerStatuses"].map(|list| status.field(list)) {
        for container in list.items() {
            for allocated in container.field("allocatedResourcesStatus").items() {
                for resource in allocated.field("resources").items() {
                    let health = resource.field("health");
                    if !KNOWN.contains(&health.text()) {
                        health.not_supported(run, health.text(), &KNOWN);
                    }
                }
            }
        }
    }
    for container in status.field("ephemeralContainerStatuses").items() {
        let allocated = container.field("allocatedResourcesStatus");
        if !allocated.is_empty() {
            allocated.forbidden(run, "must not be specified in container status");
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
    for item in at.items() {
        let ip = item.field("ip").text();
        for fault in IP.faults(ip) {
            item.invalid(run, ip, fault);
        }
    }
    if at.list().len() < 2 {
        return;
    }
    let ips: Vec<&str> = at.items().map(|item| item.field("ip").text()).collect();
    let parsed: Vec<IpAddr> = ips.iter().map_while(|ip| parse_ip(ip)).collect();
    if let Some(wrong) = ips.get(parsed.len()) {
        let index = parsed.len();
        at.internal(run, format!("failed to check for dual stack with error:invalid IP[{index}]: {wrong}"));
    }
    let families: HashSet<bool> = parsed.iter().map(IpAddr::is_ipv4).collect();
    if parsed.len() < ips.len() || families.len() < 2 || ips.len() > 2 {
        // Like upstream, the error contains the Go structure.
        let shown: Vec<Value> = ips.iter().map(|ip| json!({ "IP": ip })).collect();
        at.invalid(run, shown, "may specify no more than one IP for each IP family");
    }
}
