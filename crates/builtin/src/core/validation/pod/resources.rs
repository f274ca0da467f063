//! Validation of requests and limits of containers and pods, and of claims of devices.
//!
//! A request must not exceed its limit, and extended resources are integers. `change` validates resizes.

use std::collections::HashSet;

use keelson_meta::Quantity;
use keelson_meta::field_error::{FieldError, FieldErrorKind};
use keelson_meta::json::Value;
use keelson_meta::pod_resources::{Side, of_containers};

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, QUALIFIED_NAME};
use crate::validating::type_rules::{NEGATIVE, Run};

/// The domain of Kubernetes' own resources.
const NATIVE_DOMAIN: &str = "kubernetes.io/";
const HUGE_PAGES: &str = "hugepages-";
/// The resources of a container, besides huge pages and extended resources.
const OF_CONTAINERS: [&str; 3] = ["cpu", "ephemeral-storage", "memory"];
/// The resources of a whole pod.
const OF_PODS: [&str; 3] = ["cpu", "hugepages-", "memory"];
/// Known names without a domain, except huge pages.
const STANDARD: [&str; 18] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
];
const STANDARD_SERVICES: [&str; 2] = ["services.nodeports", "services.loadbalancers"];
/// Resources whose quantities are integers.
const WHOLE: [&str; 9] = [
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
];

/// Returns true for one of Kubernetes' own resources.
pub(crate) fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE_DOMAIN)
}

/// Returns true for huge pages.
pub(crate) fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Returns true if the limit may exceed the request.
pub(crate) fn allows_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// Returns true for a resource that quotas name without a domain.
pub(crate) fn is_standard_quota(name: &str) -> bool {
    (STANDARD.contains(&name) && name != "storage" || STANDARD_SERVICES.contains(&name))
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
}

fn is_standard(name: &str) -> bool {
    STANDARD.contains(&name)
        || STANDARD_SERVICES.contains(&name)
        || is_huge_pages(name)
        || name.starts_with("requests.hugepages-")
}

pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && QUALIFIED_NAME.faults(&format!("requests.{name}")).is_empty()
}

fn is_whole(name: &str) -> bool {
    WHOLE.contains(&name) || is_extended(name)
}

/// Validates the name of a resource. Returns true if it is valid.
pub(crate) fn name(at: &At<'_, '_>, name: &str, run: &mut Run<'_>) -> bool {
    let faults = QUALIFIED_NAME.faults(name);
    let mut fine = faults.is_empty();
    for fault in faults {
        at.invalid(run, name, fault);
    }
    if fine && !name.contains('/') && !is_standard(name) {
        at.invalid(run, name, "must be a standard resource type or fully qualified");
        fine = false;
    }
    fine
}

/// Validates the name of a container resource.
pub(crate) fn container_resource_name(at: &At<'_, '_>, resource: &str, run: &mut Run<'_>) {
    if OF_CONTAINERS.contains(&resource) {
        return;
    }
    name(at, resource, run);
    if !resource.contains('/') {
        if !is_huge_pages(resource) {
            at.invalid(run, resource, "must be a standard resource for containers");
        }
    } else if !is_native(resource) && !is_extended(resource) {
        at.invalid(run, resource, "doesn't follow extended resource name standard");
    }
}

/// Validates the quantity of a resource.
pub(crate) fn quantity(at: &At<'_, '_>, resource: &str, run: &mut Run<'_>) {
    let Some(amount) = Quantity::parse(at.text()) else { return };
    if amount < Quantity::ZERO {
        at.invalid(run, at.text(), NEGATIVE);
    }
    if !amount.is_whole() && is_whole(resource) {
        at.invalid(run, at.text(), "must be an integer");
    }
}

/// Parses the quantity at a place.
pub(crate) fn amount(at: &At<'_, '_>) -> Option<Quantity> {
    Quantity::parse(at.value.as_str()?)
}

/// Validates requests and limits of a container.
pub(crate) fn requirements(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        return;
    }
    limits_and_requests(at, run, container_resource_name);
    claims_of_container(&at.field("claims"), run);
}

pub(crate) fn overhead(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_set() {
        // Like upstream, an overhead is validated as if it were limits of a container.
        let limits = at.field("limits");
        limits
            .holding(at.value)
            .entries()
            .for_each(|(resource, entry)| limit(&entry, resource, run, container_resource_name));
    }
}

type NameCheck = fn(&At<'_, '_>, &str, &mut Run<'_>);

fn limits_and_requests(at: &At<'_, '_>, run: &mut Run<'_>, check_name: NameCheck) {
    let (limits, requests) = (at.field("limits"), at.field("requests"));
    for (resource, entry) in limits.entries() {
        limit(&entry, resource, run, check_name);
    }
    for (resource, entry) in requests.entries() {
        check_name(&entry, resource, run);
        quantity(&entry, resource, run);
        within_limit(&entry, resource, &requests, &limits, run);
        huge_pages(&entry, resource, run);
    }
    let has = |resource: &str| limits.field_is_set(resource) || requests.field_is_set(resource);
    let paged = [&limits, &requests].iter().any(|list| list.entries().any(|(resource, _)| is_huge_pages(resource)));
    if paged && !has("cpu") && !has("memory") {
        at.forbidden(run, "HugePages require cpu or memory");
    }
}

fn limit(entry: &At<'_, '_>, resource: &str, run: &mut Run<'_>, check_name: NameCheck) {
    check_name(entry, resource, run);
    quantity(entry, resource, run);
    huge_pages(entry, resource, run);
}

/// Like upstream, the path of the error is that of the map, not of the entry.
fn within_limit(entry: &At<'_, '_>, resource: &str, requests: &At<'_, '_>, limits: &At<'_, '_>, run: &mut Run<'_>) {
    let limit = limits.value.get(resource);
    let Some(limit) = limit.and_then(Value::as_str) else {
        if !allows_overcommit(resource) {
            limits.required(run, "Limit must be set for non overcommitable resources");
        }
        return;
    };
    let (asked, allowed) = (amount(entry), Quantity::parse(limit));
    if asked != allowed && !allows_overcommit(resource) {
        requests.invalid(run, entry.text(), format!("must be equal to {resource} limit of {limit}"));
    } else if asked > allowed {
        requests.invalid(run, entry.text(), format!("must be less than or equal to {resource} limit of {limit}"));
    }
}

fn huge_pages(entry: &At<'_, '_>, resource: &str, run: &mut Run<'_>) {
    let Some(size) = resource.strip_prefix(HUGE_PAGES).and_then(Quantity::parse) else { return };
    let whole = amount(entry).is_some_and(|amount| size > Quantity::ZERO && amount.is_multiple_of(size));
    if !whole && !entry.is_unchanged() {
        let detail = format!("{} is not positive integer multiple of {resource}", entry.text());
        entry.invalid(run, entry.text(), detail);
    }
}

fn claims_of_container(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut names: HashSet<String> = HashSet::new();
    // The names of claims that are listed with a request.
    let mut requested: HashSet<&str> = HashSet::new();
    for claim in at.items() {
        let (name, request) = (claim.field("name").text(), claim.field("request"));
        if name.is_empty() {
            claim.required(run, "");
            continue;
        }
        let key = if request.is_empty() { name.to_owned() } else { format!("{name}/{}", request.text()) };
        if !request.is_empty() && !names.contains(name) {
            request.complain(run, DNS_LABEL.faults(request.text()));
        }
        let overlaps = request.is_empty() && requested.contains(name);
        if names.contains(name) || overlaps {
            claim.duplicate(run, name);
        } else if names.contains(&key) {
            claim.duplicate(run, key.as_str());
        }
        names.insert(key);
        if !request.is_empty() {
            requested.insert(name);
        }
        if !run.pod.claims.contains(&name) {
            unknown_claim(&claim, name, run);
        }
    }
}

fn unknown_claim(at: &At<'_, '_>, name: &str, run: &mut Run<'_>) {
    if run.is_full() {
        return;
    }
    let mut known: Vec<&str> = run.pod.claims.iter().copied().collect();
    known.sort_unstable();
    let which = if known.is_empty() { " which is empty".to_owned() } else { format!(": {}", known.join(", ")) };
    let detail = format!("must be one of the names in pod.spec.resourceClaims{which}");
    run.report(|| FieldError { field: at.path(), kind: FieldErrorKind::NotFound { value: name.into() }, detail });
}

/// The resource claims of a pod.
pub(super) fn pod_claims(at: &At<'_, '_>, run: &mut Run<'_>) {
    let mut names = HashSet::new();
    for claim in at.items() {
        let name = claim.field("name");
        if name.is_empty() {
            name.required(run, "");
        } else if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        } else {
            name.complain(run, DNS_LABEL.faults(name.text()));
        }
        let sources = ["resourceClaimName", "resourceClaimTemplateName"].map(|source| claim.field(source));
        match sources.iter().filter(|source| source.is_set()).count() {
            0 => {
                let detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
                claim.invalid(run, claim.shown(), detail);
            }
            1 => {}
            _ => {
                let detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified";
                claim.invalid(run, claim.shown(), detail);
            }
        }
        for source in sources.iter().filter(|source| source.is_set()) {
            source.complain(run, DNS_SUBDOMAIN.faults(source.text()));
        }
    }
}

/// The resources of a whole pod.
pub(super) fn pod_resources(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let at = spec.field("resources");
    if !at.is_set() {
        return;
    }
    let claims = at.field("claims");
    if claims.is_set() {
        claims.forbidden(run, "claims may not be set for Resources at pod-level");
    }
    limits_and_requests(&at, run, pod_resource_name);
    claims_of_container(&claims, run);
    let requests = at.field("requests");
    let together = spec.value.as_object().map(|spec| of_containers(spec, Side::Requests)).unwrap_or_default();
    for (resource, entry) in requests.entries() {
        let Some(asked) = together.get(resource) else { continue };
        if amount(&entry).is_some_and(|amount| amount < asked.quantity()) {
            let detail = format!("must be greater than or equal to aggregate container requests of {asked}");
            entry.invalid(run, entry.text(), detail);
        }
    }
    for (index, container) in spec.field("containers").items().enumerate() {
        let own = container.field("resources");
        for (resource, limit) in own.field("limits").entries() {
            let most = at.value.get("limits").and_then(|limits| limits.get(resource)).and_then(Value::as_str);
            let Some(most) = most.filter(|most| amount(&limit) > Quantity::parse(most)) else { continue };
            let containers = at.field("containers");
            let item = containers.index(index);
            let detail = format!("must be less than or equal to pod limits of {most}");
            item.key(resource).field("limits").invalid(run, limit.text(), detail);
        }
    }
}

fn pod_resource_name(at: &At<'_, '_>, resource: &str, run: &mut Run<'_>) {
    let is = |known: &str| resource == known || known.ends_with('-') && resource.starts_with(known);
    if name(at, resource, run) && !OF_PODS.into_iter().any(is) {
        at.not_supported(run, resource, &OF_PODS);
    }
}

/// Validates the resize policy of a container.
pub(super) fn resize_policy(at: &At<'_, '_>, run: &mut Run<'_>) {
    const RESOURCES: [&str; 2] = ["cpu", "memory"];
    const POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
    let mut seen = HashSet::new();
    for policy in at.items() {
        let (resource, restart) = (policy.field("resourceName").text(), policy.field("restartPolicy").text());
        if !seen.insert(resource) {
            policy.duplicate(run, resource);
        }
        for (value, known) in [(resource, &RESOURCES), (restart, &POLICIES)] {
            match value {
                "" => at.required(run, ""),
                value if known.contains(&value) => {}
                value => at.not_supported(run, value, known),
            }
        }
        if run.pod.restart_policy == "Never" && restart != "NotRequired" {
            at.invalid(run, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'");
        }
    }
}
