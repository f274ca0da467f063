//! Validation of Endpoints: addresses and ports of a service. EndpointSlices share the rules for addresses.
//!
//! Loopback and link-local addresses are refused, since clients would reach themselves.

use std::net::IpAddr;

use crate::validating::at::At;
use crate::validating::formats::{DNS_LABEL, DNS_SUBDOMAIN, IP, QUALIFIED_NAME, parse_ip, port_number, strictly};
use crate::validating::type_rules::Rule::{Check, Each, Format, OneOf, Required};
use crate::validating::type_rules::{Run, TypeRules};

pub(super) const ENDPOINTS: TypeRules = TypeRules::new(&[("subsets", Each(&SUBSET))]);

const SUBSET: TypeRules = TypeRules::new(&[
    ("", Check("ready or not ready addresses", some_addresses)),
    ("addresses", Each(&ADDRESS)),
    ("notReadyAddresses", Each(&ADDRESS)),
    ("ports", Each(&PORT)),
]);

const ADDRESS: TypeRules = TypeRules::new(&[
    ("ip", Check("IP address", |at, run| strictly(&IP, at, run))),
    ("hostname", Format(&DNS_LABEL)),
    ("nodeName", Format(&DNS_SUBDOMAIN)),
    ("ip", Check("no loopback, link-local or unspecified address", not_special)),
]);

const PORT: TypeRules = TypeRules::new(&[
    (
        "name",
        Check("required with more than one port", |at, run| {
            let others = at.parent().and_then(At::parent).is_some_and(|ports| ports.list().len() > 1);
            if others && at.is_empty() {
                at.required(run, "");
            }
        }),
    ),
    ("name", Format(&DNS_LABEL)),
    ("port", Check("port", port_number)),
    ("protocol", Required("")),
    ("protocol", OneOf(&["SCTP", "TCP", "UDP"])),
    ("appProtocol", Format(&QUALIFIED_NAME)),
]);

fn some_addresses(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.field("addresses").is_empty() && at.field("notReadyAddresses").is_empty() {
        at.required(run, "must specify `addresses` or `notReadyAddresses`");
    }
}

/// Refuses addresses that have another meaning on each machine.
pub(crate) fn not_special(at: &At<'_, '_>, run: &mut Run<'_>) {
    let text = at.text();
    let Some(address) = parse_ip(text) else {
        return at.invalid(run, text, "must be a valid IP address");
    };
    let (local, multicast) = match address {
        IpAddr::V4(address) => (address.is_link_local(), address.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(address) => (address.is_unicast_link_local(), address.segments()[0] & 0xff0f == 0xff02),
    };
    if address.is_unspecified() {
        at.invalid(run, text, format!("may not be unspecified ({text})"));
    }
    if address.is_loopback() {
        at.invalid(run, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    }
    if local {
        at.invalid(run, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)");
    }
    if multicast {
        at.invalid(run, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)");
    }
}
