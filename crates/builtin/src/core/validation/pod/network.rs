//! Validation of the network settings of a pod: host names, name servers, and host ports.
//!
//! Rules that depend on the operating system are in `os`.

use crate::validating::at::At;
use crate::validating::formats::{DNS_SUBDOMAIN, DNS_SUBDOMAIN_UNDERSCORE, IP};
use crate::validating::type_rules::Rule::{Check, EachFormat};
use crate::validating::type_rules::{Run, TypeRules};

/// The limit of libc.
const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCHES_BYTES_MAX: usize = 2048;

pub(super) const HOST_ALIAS: TypeRules = TypeRules::new(&[
    ("ip", Check("IP address", |at, run| at.complain(run, IP.faults(at.text())))),
    ("hostnames", EachFormat(&DNS_SUBDOMAIN)),
]);

pub(super) fn dns_config(at: &At<'_, '_>, run: &mut Run<'_>) {
    let policy = at.parent().map_or("", |spec| spec.field("dnsPolicy").text());
    let nameservers = at.field("nameservers");
    if policy == "None" {
        if !at.is_set() {
            return at.required(run, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
        if nameservers.is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            return nameservers.required(run, detail);
        }
    }
    if nameservers.list().len() > NAMESERVERS_MAX {
        let detail = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        nameservers.invalid(run, nameservers.shown(), detail);
    }
    nameservers.items().for_each(|server| server.complain(run, IP.faults(server.text())));
    searches(&at.field("searches"), run);
    for option in at.field("options").items() {
        if option.field("name").is_empty() {
            option.required(run, "must not be empty");
        }
    }
}

/// Validates the host name that replaces the one built from the name and subdomain of a pod.
pub(super) fn hostname_override(at: &At<'_, '_>, run: &mut Run<'_>) {
    const MOST: usize = 64;
    let Some(spec) = at.parent().filter(|_| at.is_set()) else { return };
    if spec.field("setHostnameAsFQDN").is_true() {
        at.forbidden(run, "may not be specified when setHostnameAsFQDN is true");
    }
    if spec.field("hostNetwork").is_true() {
        at.forbidden(run, "may not be specified when hostNetwork is true");
    }
    at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
    if at.text().len() > MOST {
        at.too_long(run, MOST);
    }
}

fn searches(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.list().len() > SEARCHES_MAX {
        at.invalid(run, at.shown(), format!("must not have more than {SEARCHES_MAX} search paths"));
    }
    let bytes: usize = at.items().map(|path| path.text().len() + 1).sum();
    if bytes > SEARCHES_BYTES_MAX + 1 {
        let detail =
            format!("must not have more than {SEARCHES_BYTES_MAX} characters (including spaces) in the search list");
        at.invalid(run, at.shown(), detail);
    }
    for path in at.items().filter(|path| path.text() != ".") {
        let text = path.text().strip_suffix('.').unwrap_or(path.text());
        for fault in DNS_SUBDOMAIN_UNDERSCORE.faults(text) {
            path.invalid(run, text, fault);
        }
    }
}

/// In the host network, a container port must equal its host port. Templates may omit host ports.
pub(super) fn host_ports_match(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if !spec.field("hostNetwork").is_true() {
        return;
    }
    for container in spec.field("containers").items() {
        for port in container.field("ports").items() {
            let (host, own) = (port.field("hostPort"), port.field("containerPort"));
            if (run.pod.is_pod || host.int() != 0) && host.int() != own.int() {
                host.invalid(run, host.int(), "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}
