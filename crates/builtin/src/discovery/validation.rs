//! Validation of endpoint slices: addresses of one type, named ports, and hints.
//!
//! The address type never changes. The label with the name of the managing controller is not validated.

#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::IpAddr;

use keelson_meta::field_error::FieldError;
use keelson_meta::json::Map;

use crate::core::validation::endpoints::not_special;
use crate::core::validation::services::APP_PROTOCOL;
use crate::validating::at::At;
use crate::validating::domains;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, Format as TextFormat, IP, LABEL_VALUE, parse_ip, strictly};
use crate::validating::selectors::labels;
use crate::validating::type_rules::Rule::{Check, Format, Immutable, In, OneOf, Required, With};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[kind("EndpointSlice").object(&SLICE).then(&UPDATE)];

const ENDPOINTS_MAX: usize = 1000;
const ADDRESSES_MAX: usize = 100;
const TOPOLOGY_MAX: usize = 16;
const PORTS_MAX: usize = 20_000;
const HINTS_MAX: usize = 8;

const SLICE: TypeRules = TypeRules::new(&[
    ("addressType", Required("")),
    ("addressType", OneOf(&["FQDN", "IPv4", "IPv6"])),
    ("endpoints", With("at most 1000", |at, run| each_up_to(at, ENDPOINTS_MAX, &ENDPOINT, run), &ENDPOINT)),
    ("ports", With("at most 20000, unique names", ports, &PORT)),
]);

const UPDATE: TypeRules = TypeRules::new(&[("addressType", Immutable)]);

const ENDPOINT: TypeRules = TypeRules::new(&[
    ("addresses", Check("1 to 100 entries of the slice's address type", addresses)),
    ("nodeName", Format(&DNS_SUBDOMAIN)),
    ("deprecatedTopology", Check("at most 16 labels", topology)),
    (
        "hostname",
        Check("DNS label", |at, run| {
            if at.is_set() {
                at.complain(run, DNS_LABEL.faults(at.text()));
            }
        }),
    ),
    ("hints", In(&HINTS)),
]);

const HINTS: TypeRules = TypeRules::new(&[
    ("forZones", Check("at most 8 label values, none twice", |at, run| hints(at, &LABEL_VALUE, run))),
    ("forNodes", Check("at most 8 names of nodes, none twice", |at, run| hints(at, &DNS_SUBDOMAIN, run))),
]);

const PORT: TypeRules = TypeRules::new(&[
    (
        "protocol",
        Check("SCTP, TCP or UDP", |at, run| {
            const KNOWN: [&str; 3] = ["SCTP", "TCP", "UDP"];
            if !at.is_set() {
                at.required(run, "");
            } else if !KNOWN.contains(&at.text()) {
                at.not_supported(run, at.text(), &KNOWN);
            }
        }),
    ),
    ("appProtocol", APP_PROTOCOL),
]);

/// Validates each item of a list, unless the list is too long.
fn each_up_to<'v>(at: &At<'v, '_>, limit: usize, type_rules: &TypeRules, run: &mut Run<'v>) {
    if at.list().len() > limit {
        at.too_many(run, limit);
    } else {
        at.items().for_each(|item| type_rules.check(&item, run));
    }
}

fn addresses(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() {
        at.required(run, "must contain at least 1 address");
    } else if at.list().len() > ADDRESSES_MAX {
        at.too_many(run, ADDRESSES_MAX);
    }
    let family = run.object.get(&["addressType"]).and_then(|family| family.as_str()).unwrap_or_default();
    for address in at.items() {
        match family {
            "IPv4" => of_family(&address, IpAddr::is_ipv4, "must be a valid IPv4 address", run),
            "IPv6" => of_family(&address, IpAddr::is_ipv6, "must be a valid IPv6 address", run),
            "FQDN" => domains::host(&address, run),
            _ => {}
        }
    }
}

fn of_family(at: &At<'_, '_>, is: fn(&IpAddr) -> bool, detail: &str, run: &mut Run<'_>) {
    let before = run.faults.len();
    strictly(&IP, at, run);
    let Some(address) = parse_ip(at.text()).filter(|_| run.faults.len() == before) else { return };
    if !is(&address) {
        at.invalid(run, at.text(), detail);
    }
    not_special(at, run);
}

fn topology(at: &At<'_, '_>, run: &mut Run<'_>) {
    let count = at.tree().map_or(0, Map::len);
    if count > TOPOLOGY_MAX {
        run.faults.push(FieldError::too_many(at.path(), count, TOPOLOGY_MAX));
    }
    labels(at, run);
}

fn hints(at: &At<'_, '_>, format: &TextFormat, run: &mut Run<'_>) {
    if at.list().len() > HINTS_MAX {
        return at.too_many(run, HINTS_MAX);
    }
    let mut seen = HashSet::new();
    for hint in at.items() {
        let name = hint.field("name");
        if !seen.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        name.complain(run, format.faults(name.text()));
    }
}

fn ports<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    if at.list().len() > PORTS_MAX {
        return at.too_many(run, PORTS_MAX);
    }
    let mut names = HashSet::new();
    for port in at.items() {
        let name = port.field("name");
        if !name.is_empty() {
            name.complain(run, DNS_LABEL.faults(name.text()));
        }
        if !names.insert(name.text()) {
            name.duplicate(run, name.text());
        }
        PORT.check(&port, run);
    }
}
