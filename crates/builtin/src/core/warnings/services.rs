//! Warnings about services: fields that their type ignores, and addresses that are not in canonical form.
//!
//! Newer kinds refuse such addresses; services must still accept them.

use std::net::IpAddr;

use keelson_meta::go_format::quote;

use crate::validating::at::At;

pub(crate) fn of_service(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
    let (metadata, spec) = (at.field("metadata"), at.field("spec"));
    let annotations = metadata.field("annotations");
    if annotations.key(HINTS).is_set() {
        let instead = "service.kubernetes.io/topology-mode";
        warnings.push(format!("annotation {HINTS} is deprecated, please use {instead} instead"));
    }
    let (kind, first) = (spec.field("type").text(), spec.field("clusterIP").text());
    if !matches!(first, "" | "None") {
        spec.field("clusterIPs").items().for_each(|ip| address(&ip, warnings));
    }
    let headless = kind == "ClusterIP" && first == "None";
    let (external, balancer) = (spec.field("externalIPs"), spec.field("loadBalancerIP"));
    if headless {
        for (ignored, name) in [
            (!balancer.is_empty(), "spec.loadBalancerIP"),
            (!external.is_empty(), "spec.externalIPs"),
            (spec.field("sessionAffinity").text() != "None", "spec.SessionAffinity"),
        ] {
            if ignored {
                warnings.push(format!("{name} is ignored for headless services"));
            }
        }
    }
    external.items().for_each(|ip| address(&ip, warnings));
    if !external.is_empty() && !headless && kind != "ExternalName" {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    address(&balancer, warnings);
    spec.field("loadBalancerSourceRanges").items().for_each(|range| source_range(&range, warnings));
    if kind == "ExternalName" && !external.is_empty() {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    }
    if kind != "ExternalName" && !spec.field("externalName").is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.field("trafficDistribution").text() == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
}

/// Warns about an address that is not in canonical form (RFC 5952).
fn address(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    if let Ok(ip @ IpAddr::V6(_)) = at.text().parse::<IpAddr>()
        && ip.to_string() != at.text()
    {
        let (path, shown, instead) = (at.path(), quote(at.text()), quote(&ip.to_string()));
        warnings.push(format!("{path}: IPv6 address {shown} should be in RFC 5952 canonical format ({instead})"));
    }
}

fn source_range(at: &At<'_, '_>, warnings: &mut Vec<String>) {
    let Some((base, bits)) = at.text().split_once('/') else { return };
    if let Ok(ip @ IpAddr::V6(_)) = base.parse::<IpAddr>()
        && ip.to_string() != base
    {
        let (path, shown, instead) = (at.path(), quote(at.text()), quote(&format!("{ip}/{bits}")));
        warnings.push(format!("{path}: IPv6 CIDR value {shown} should be in RFC 5952 canonical format ({instead})"));
    }
}
