//! Validation of services: types, ports, addresses, address families, and the fields that cannot change.
//!
//! A type requires some fields and forbids others. Only the form of allocated fields is validated.

use std::collections::HashSet;

use keelson_meta::json::{Value, json};

use super::endpoints::not_special;
use crate::core::validation::pod::port_number_or_name;
use crate::validating::at::At;
use crate::validating::formats::{CIDR, DNS_LABEL, DNS_SUBDOMAIN, IP, QUALIFIED_NAME, parse_ip, port_number, strictly};
use crate::validating::selectors::LABELS;
use crate::validating::type_rules::Rule::{Always, Check, OneOf, OneOfIfSet, Required, With};
use crate::validating::type_rules::{Rule, Run, TypeRules};

pub(super) const SERVICE: TypeRules = TypeRules::new(&[
    ("metadata", Check("the two topology annotations are not both set, unless they are equal", topology)),
    ("spec", Always(&SPEC)),
    ("", Check("`loadBalancerSourceRanges` only for load balancers", source_ranges)),
    ("spec", Always(&EXPOSURE)),
]);

const SPEC: TypeRules = TypeRules::new(&[
    ("ports", Check("required but for headless services and external names", some_ports)),
    ("", Check("addresses, families and names that fit the type", type_fits)),
    ("ports", With("unique names", ports, &PORT)),
    ("selector", LABELS),
    ("sessionAffinity", Required("")),
    ("sessionAffinity", OneOf(&["ClientIP", "None"])),
    ("", Check("a timeout only for ClientIP", affinity)),
    ("", Check("the first of clusterIPs equals clusterIP, and all match ipFamilies", cluster_ips)),
    ("externalIPs", Check("IP addresses, none of them special", external_ips)),
    ("type", Required("")),
    ("type", OneOf(&["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"])),
    ("", Check("node ports only for types with node ports; ports and node ports without duplicates", unique_ports)),
]);

const EXPOSURE: TypeRules = TypeRules::new(&[
    ("", Check("some fields only for load balancers", load_balancer)),
    ("", Check("an external traffic policy only for services with external traffic", external_traffic)),
    ("", Check("internal traffic policy", internal_traffic)),
    ("trafficDistribution", OneOfIfSet(&["PreferClose", "PreferSameZone", "PreferSameNode"])),
]);

/// The application protocol of a port, in services and endpoint slices.
pub(crate) const APP_PROTOCOL: Rule = Check("qualified name", |at, run| {
    if at.is_set() {
        at.complain(run, QUALIFIED_NAME.faults(at.text()));
    }
});

const PORT: TypeRules = TypeRules::new(&[
    ("port", Check("port", port_number)),
    ("protocol", Required("")),
    ("protocol", OneOf(&["SCTP", "TCP", "UDP"])),
    ("targetPort", Check("port or name of one", port_number_or_name)),
    ("appProtocol", APP_PROTOCOL),
]);

/// The rules that must pass before addresses are allocated. Like upstream, other errors are not reported with them.
pub(super) const ADDRESSES: TypeRules = TypeRules::new(&[(
    "spec",
    Check("the first of clusterIPs equals clusterIP, and all match ipFamilies", cluster_ips),
)]);

pub(super) const UPDATE: TypeRules = TypeRules::new(&[
    (
        "spec",
        Check(
            "the first of clusterIPs and ipFamilies is immutable; a change of the policy adds or removes the second",
            addresses_stay,
        ),
    ),
    ("spec", Check("the class and the health check port of a load balancer are immutable", class_stays)),
]);

pub(super) const STATUS: TypeRules = TypeRules::new(&[("", Check("addresses and names of a load balancer", status))]);

fn kind<'v>(spec: &At<'v, '_>) -> &'v str {
    spec.field("type").text()
}

fn is_headless(ips: &Value) -> bool {
    ips.as_array().is_some_and(|ips| ips.len() == 1 && ips[0] == "None")
}

fn topology(at: &At<'_, '_>, run: &mut Run<'_>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let annotations = at.field("annotations");
    let (hints, mode) = (annotations.key(HINTS), annotations.key("service.kubernetes.io/topology-mode"));
    if hints.is_set() && mode.is_set() && hints.text() != mode.text() {
        mode.invalid(run, mode.text(), format!("must match annotations[{HINTS}] when both are specified"));
    }
}

fn some_ports(at: &At<'_, '_>, run: &mut Run<'_>) {
    let Some(spec) = at.parent() else { return };
    if at.is_empty() && kind(spec) != "ExternalName" && !is_headless(spec.field("clusterIPs").value) {
        at.required(run, "");
    }
}

fn type_fits(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let ips = spec.field("clusterIPs");
    match kind(spec) {
        of @ ("LoadBalancer" | "NodePort") if is_headless(ips.value) => {
            ips.index(0).invalid(run, "None", format!("may not be set to 'None' for {of} services"));
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"].map(|field| spec.field(field)) {
                if !field.is_empty() {
                    field.forbidden(run, "may not be set for ExternalName services");
                }
            }
            let name = spec.field("externalName");
            let text = name.text().strip_suffix('.').unwrap_or(name.text());
            if text.is_empty() {
                name.required(run, "");
            }
            if !text.is_empty() {
                for fault in DNS_SUBDOMAIN.faults(text) {
                    name.invalid(run, text, fault);
                }
            }
        }
        _ => {}
    }
}

fn ports<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let several = at.list().len() > 1;
    let mut names = HashSet::new();
    for port in at.items() {
        let name = port.field("name");
        if several && name.is_empty() {
            name.required(run, "");
        } else if !name.is_empty() {
            name.complain(run, DNS_LABEL.faults(name.text()));
            if !names.insert(name.text()) {
                name.duplicate(run, name.text());
            }
        }
        PORT.check(&port, run);
    }
}

fn affinity(spec: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: i64 = 86400;
    const NEEDED: &str = "when session affinity type is ClientIP";
    let config = spec.field("sessionAffinityConfig");
    match spec.field("sessionAffinity").text() {
        "ClientIP" => {
            let client = config.field("clientIP");
            let timeout = client.field("timeoutSeconds");
            if let Some(missing) = [&config, &client, &timeout].into_iter().find(|field| !field.is_set()) {
                missing.required(run, NEEDED);
            } else if !(1..=MOST).contains(&timeout.int()) {
                timeout.invalid(run, timeout.int(), format!("must be greater than 0 and less than {MOST}"));
            }
        }
        "None" if config.is_set() => config.forbidden(run, "must not be set when session affinity is None"),
        _ => {}
    }
}

const FAMILIES: [&str; 2] = ["IPv4", "IPv6"];
const FAMILY_POLICIES: [&str; 3] = ["PreferDualStack", "RequireDualStack", "SingleStack"];

fn cluster_ips(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if kind(spec) == "ExternalName" {
        return;
    }
    let (first, ips) = (spec.field("clusterIP"), spec.field("clusterIPs"));
    match (first.is_empty(), ips.list().first()) {
        (false, None) => ips.required(run, ""),
        (false, Some(ip)) if *ip != *first.value => {
            ips.invalid(run, ips.shown(), "first value must match `clusterIP`");
        }
        (true, Some(_)) => ips.invalid(run, ips.shown(), "must be empty when `clusterIP` is not specified"),
        _ => {}
    }
    let (families, policy) = (spec.field("ipFamilies"), spec.field("ipFamilyPolicy"));
    let mut seen = HashSet::new();
    for family in families.items() {
        if !FAMILIES.contains(&family.text()) {
            family.not_supported(run, family.text(), &FAMILIES);
        }
        if !seen.insert(family.text()) {
            family.duplicate(run, family.text());
        }
    }
    if policy.is_set() && !FAMILY_POLICIES.contains(&policy.text()) {
        policy.not_supported(run, policy.text(), &FAMILY_POLICIES);
    }
    if each_is_an_ip(&ips, run) {
        families_fit(&ips, &families, run);
    }
}

fn each_is_an_ip(ips: &At<'_, '_>, run: &mut Run<'_>) -> bool {
    let mut fine = true;
    for (index, ip) in ips.items().enumerate() {
        let kept = !ip.old.is_null() && ip.is_unchanged() && parse_ip(ip.text()).is_some();
        if index == 0 && ip.text() == "None" {
            if ips.list().len() > 1 {
                fine = false;
                ips.invalid(run, ips.shown(), "'None' must be the first and only value");
            }
            continue;
        }
        let faults = if kept { Vec::new() } else { IP.faults(ip.text()) };
        fine &= faults.is_empty();
        ip.complain(run, faults);
    }
    if ips.list().len() > 2 {
        ips.invalid(run, ips.shown(), "may only hold up to 2 values");
    }
    fine
}

fn families_fit(ips: &At<'_, '_>, families: &At<'_, '_>, run: &mut Run<'_>) {
    let parsed: Vec<_> = ips.items().map(|ip| parse_ip(ip.text())).collect();
    let kinds: HashSet<bool> = parsed.iter().flatten().map(std::net::IpAddr::is_ipv4).collect();
    if parsed.len() > 1 && kinds.len() < 2 {
        ips.invalid(run, ips.shown(), "may specify no more than one IP for each IP family");
    }
    for (index, (ip, family)) in parsed.iter().zip(families.list()).enumerate() {
        let Some(ip) = ip else { continue };
        let expected = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        if *family != expected && FAMILIES.iter().any(|known| family == known) {
            let family = family.as_str().unwrap_or_default();
            let detail = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            ips.index(index).invalid(run, ips.index(index).text(), detail);
        }
    }
}

fn external_ips(at: &At<'_, '_>, run: &mut Run<'_>) {
    for ip in at.items() {
        let before = run.faults.len();
        strictly(&IP, &ip, run);
        if run.faults.len() == before {
            not_special(&ip, run);
        }
    }
}

fn unique_ports(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let ports = spec.field("ports");
    if kind(spec) == "ClusterIP" {
        for port in ports.items().filter(|port| port.field("nodePort").int() != 0) {
            port.field("nodePort").forbidden(run, "may not be used when `type` is 'ClusterIP'");
        }
    }
    let mut taken = HashSet::new();
    for port in ports.items() {
        let node = port.field("nodePort");
        if node.int() != 0 && !taken.insert((port.field("protocol").text(), node.int())) {
            node.duplicate(run, node.int());
        }
    }
    taken.clear();
    for port in ports.items() {
        let (protocol, number) = (port.field("protocol").text(), port.field("port").int());
        if !taken.insert((protocol, number)) {
            // Like upstream, the error contains the Go structure, with all other fields empty.
            let shown = json!({ "Name": "", "Protocol": protocol, "AppProtocol": null, "Port": number, "TargetPort": 0, "NodePort": 0 });
            port.duplicate(run, shown);
        }
    }
}

/// The annotation is older than the field. Like upstream, the path starts with a capital letter.
fn source_ranges(at: &At<'_, '_>, run: &mut Run<'_>) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let (spec, metadata) = (at.field("spec"), at.field("metadata"));
    let balanced = kind(&spec) == "LoadBalancer";
    let ranges = spec.field("loadBalancerSourceRanges");
    if !ranges.is_empty() {
        let place = ranges.called("LoadBalancerSourceRanges");
        if !balanced {
            place.forbidden(run, ONLY);
        }
        for range in place.items().filter(|range| range.old.is_null() || !range.is_unchanged()) {
            for fault in CIDR.faults(range.text().trim()) {
                range.invalid(run, range.text().trim(), fault);
            }
        }
        return;
    }
    let annotations = metadata.field("annotations");
    let range = annotations.key("service.beta.kubernetes.io/load-balancer-source-ranges");
    if !range.is_set() {
        return;
    }
    if !balanced {
        range.forbidden(run, ONLY);
    }
    for part in range.text().split(',').map(str::trim).filter(|_| !range.text().trim().is_empty()) {
        for fault in CIDR.faults(part) {
            range.invalid(run, part, fault);
        }
    }
}

fn load_balancer(spec: &At<'_, '_>, run: &mut Run<'_>) {
    const ONLY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = kind(spec) == "LoadBalancer";
    let (allocate, class) = (spec.field("allocateLoadBalancerNodePorts"), spec.field("loadBalancerClass"));
    if allocate.is_set() && !balanced {
        allocate.forbidden(run, ONLY);
    }
    if class.is_set() && !balanced {
        class.forbidden(run, ONLY);
    } else if class.is_set() {
        class.complain(run, QUALIFIED_NAME.faults(class.text()));
    }
}

/// Returns true if clients outside of the cluster can reach the service.
fn is_external(spec: &At<'_, '_>) -> bool {
    let by_ip = kind(spec) == "ClusterIP" && !spec.field("externalIPs").is_empty();
    matches!(kind(spec), "LoadBalancer" | "NodePort") || by_ip
}

fn external_traffic(spec: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 2] = ["Cluster", "Local"];
    let (policy, check) = (spec.field("externalTrafficPolicy"), spec.field("healthCheckNodePort"));
    if !is_external(spec) {
        if !policy.is_empty() {
            policy.invalid(run, policy.text(), "may only be set for externally-accessible services");
        }
    } else if policy.is_empty() {
        policy.required(run, "");
    } else if !KNOWN.contains(&policy.text()) {
        policy.not_supported(run, policy.text(), &KNOWN);
    }
    let checked = kind(spec) == "LoadBalancer" && policy.text() == "Local";
    if check.int() == 0 {
        return;
    }
    if !checked {
        let detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        check.invalid(run, check.int(), detail);
    } else {
        port_number(&check, run);
    }
}

fn internal_traffic(spec: &At<'_, '_>, run: &mut Run<'_>) {
    const KNOWN: [&str; 2] = ["Cluster", "Local"];
    let policy = spec.field("internalTrafficPolicy");
    if policy.is_set() && !KNOWN.contains(&policy.text()) {
        policy.not_supported(run, policy.text(), &KNOWN);
    } else if !policy.is_set() && matches!(kind(spec), "NodePort" | "LoadBalancer" | "ClusterIP") {
        policy.required(run, "");
    }
}

fn addresses_stay(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let (of, ips) = (spec.field("type"), spec.field("clusterIPs"));
    if of.text() == "ExternalName" || *of.old == "ExternalName" {
        return;
    }
    let headless = (is_headless(ips.old), is_headless(ips.value));
    let policy = spec.field("ipFamilyPolicy");
    if headless != (true, true) {
        list_stays(&ips, &ips, "primary clusterIP can not be unset", &policy, "secondary clusterIP", run);
    }
    if headless == (false, false) {
        let families = spec.field("ipFamilies");
        list_stays(&families, &ips, "primary ipFamily can not be unset", &policy, "secondary ipFamily", run);
    }
}

/// In these lists the first item never changes. A second one may be added, or removed if the policy becomes
/// single-stack.
fn list_stays(at: &At<'_, '_>, ips: &At<'_, '_>, unset: &str, policy: &At<'_, '_>, second: &str, run: &mut Run<'_>) {
    const FIXED: &str = "may not change once set";
    let old = at.old.as_array().map_or(&[][..], Vec::as_slice);
    let new = at.list();
    let first_changed = !old.is_empty() && !new.is_empty() && old[0] != new[0];
    let is_ips = std::ptr::eq(at.value, ips.value);
    let shown = if is_ips || old.len() == new.len() { at.value } else { ips.value };
    if old.len() == new.len() {
        for index in (0..old.len()).filter(|index| old[*index] != new[*index]) {
            at.index(if is_ips { index } else { 0 }).invalid(run, shown.clone(), FIXED);
        }
        return;
    }
    if old.len() > new.len() && ips.list().is_empty() {
        at.index(0).invalid(run, at.shown(), unset);
    }
    if first_changed {
        at.index(0).invalid(run, shown.clone(), FIXED);
    }
    if old.len() > new.len() && new.len() == 1 && policy.text() != "SingleStack" {
        policy.invalid(run, policy.shown(), format!("must be set to 'SingleStack' when releasing the {second}"));
    }
}

fn class_stays(spec: &At<'_, '_>, run: &mut Run<'_>) {
    let of = spec.field("type");
    if of.text() != "LoadBalancer" || *of.old != "LoadBalancer" {
        return;
    }
    let (class, check, policy) =
        (spec.field("loadBalancerClass"), spec.field("healthCheckNodePort"), spec.field("externalTrafficPolicy"));
    if !class.is_unchanged() {
        class.invalid(run, class.shown(), "may not change once set");
    }
    if policy.text() == "Local" && *policy.old == "Local" && !check.is_unchanged() {
        check.forbidden(run, "field is immutable");
    }
}

fn status(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (spec, status) = (at.field("spec"), at.field("status"));
    let balancer = status.field("loadBalancer");
    let ingress = balancer.field("ingress");
    if kind(&spec) != "LoadBalancer" && !ingress.is_empty() {
        return ingress.forbidden(run, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    for point in ingress.items() {
        let (ip, mode, host) = (point.field("ip"), point.field("ipMode"), point.field("hostname"));
        if !ip.is_empty() {
            strictly(&IP, &ip, run);
        }
        match (ip.is_empty(), mode.is_set()) {
            (false, false) => mode.required(run, "must be specified when `ip` is set"),
            (true, true) => mode.forbidden(run, "may not be specified when `ip` is not set"),
            (false, true) if !matches!(mode.text(), "Proxy" | "VIP") => {
                mode.not_supported(run, mode.text(), &["Proxy", "VIP"]);
            }
            _ => {}
        }
        if !host.is_empty() {
            host.complain(run, DNS_SUBDOMAIN.faults(host.text()));
            if parse_ip(host.text()).is_some() {
                host.invalid(run, host.text(), "must be a DNS name, not an IP address");
            }
        }
    }
}
