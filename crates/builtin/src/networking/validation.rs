//! Validation of ingresses, ingress classes, network policies, and the addresses and ranges of services.
//!
//! This file only has the rules of these kinds. Shared rules are in `validating`.

#[cfg(test)]
mod tests;

use keelson_meta::json::{Value, json};

use crate::validating::at::At;
use crate::validating::domains::{WILDCARD, domain_and_path};
use crate::validating::formats::{
    CIDR, DNS_LABEL, DNS_SUBDOMAIN, IP, PATH_SEGMENT, PORT_NAME, parse_cidr, parse_ip, port_number, strictly,
};
use crate::validating::selectors::SELECTOR;
use crate::validating::type_rules::Rule::{
    Always, Check, Each, Format, Immutable, In, MaxBytes, OneOf, Required, With,
};
use crate::validating::type_rules::{IMMUTABLE, Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("IPAddress")
        .object(&const { TypeRules::new(&[("spec", Always(&ADDRESS))]) })
        .then(&const { TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("parentRef", Immutable)]) }))]) }),
    kind("Ingress").object(&INGRESS).below(&[("status", &INGRESS_STATUS)]),
    kind("IngressClass").first(&CLASS_UPDATE).object(&CLASS),
    kind("NetworkPolicy").object(&const { TypeRules::new(&[("spec", Always(&POLICY))]) }),
    kind("ServiceCIDR").object(&SERVICE_CIDR).then(&SERVICE_CIDR_UPDATE),
];

const INGRESS: TypeRules = TypeRules::new(&[
    ("spec", Always(&INGRESS_SPEC)),
    (
        "",
        Check(
            "a new object: the annotation and the field for the class are not both set, unless they are equal",
            class_annotation,
        ),
    ),
]);

const INGRESS_SPEC: TypeRules = TypeRules::new(&[
    (
        "",
        Check("`defaultBackend` or `rules`", |spec, run| {
            if spec.field("rules").is_empty() && !spec.field_is_set("defaultBackend") {
                spec.invalid(run, Value::Null, "either `defaultBackend` or `rules` must be specified");
            }
        }),
    ),
    ("defaultBackend", In(&BACKEND)),
    ("rules", Each(&INGRESS_RULE)),
    ("tls", Each(&TLS)),
    (
        "ingressClassName",
        Check("DNS subdomain", |at, run| {
            if at.is_set() {
                at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
            }
        }),
    ),
]);

const INGRESS_RULE: TypeRules = TypeRules::new(&[
    ("host", Check("DNS subdomain, or one below a wildcard; no IP address", ingress_host)),
    ("http", In(&const { TypeRules::new(&[("paths", Required("")), ("paths", With("by `pathType`", paths, &PATH))]) })),
]);

/// The rules of a path with a type.
const PATH: TypeRules = TypeRules::new(&[
    ("", Check("an absolute path without `//`, `.` or `..` for the types Exact and Prefix", path)),
    ("backend", Always(&BACKEND)),
]);

const BACKEND: TypeRules =
    TypeRules::shared("Ingress backend", &[("", Check("a resource, or a service with a port", backend))]);

const REFERENCE: TypeRules = TypeRules::shared(
    "Local reference with a kind",
    &[
        (
            "apiGroup",
            Check("DNS subdomain", |at, run| {
                if at.is_set() {
                    at.complain(run, DNS_SUBDOMAIN.faults(at.text()));
                }
            }),
        ),
        ("kind", Required("")),
        ("kind", Format(&PATH_SEGMENT)),
        ("name", Required("")),
        ("name", Format(&PATH_SEGMENT)),
    ],
);

const TLS: TypeRules = TypeRules::new(&[
    (
        "hosts",
        Check("each is a DNS subdomain, with or without a leading wildcard", |at, run| {
            at.items().for_each(|host| name(&host, run));
        }),
    ),
    ("secretName", Format(&DNS_SUBDOMAIN)),
]);

const INGRESS_STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Check("addresses and names of a load balancer", |at, run| {
        for item in at.field("loadBalancer").field("ingress").items() {
            let (ip, host) = (item.field("ip"), item.field("hostname"));
            if !ip.is_empty() {
                strictly(&IP, &ip, run);
            }
            if !host.is_empty() {
                host.complain(run, DNS_SUBDOMAIN.faults(host.text()));
                no_address(&host, run);
            }
        }
    }),
)]);

fn class_annotation(at: &At<'_, '_>, run: &mut Run<'_>) {
    const CLASS: &str = "kubernetes.io/ingress.class";
    if run.before.is_some() {
        return;
    }
    let (metadata, spec) = (at.field("metadata"), at.field("spec"));
    let (named, class) = (metadata.field("annotations"), spec.field("ingressClassName"));
    let annotation = named.key(CLASS);
    if annotation.is_set() && class.is_set() && annotation.text() != class.text() {
        // Like upstream, the path omits the metadata around annotations.
        let detail = "must match `ingressClassName` when both are specified";
        at.field("annotations").field(CLASS).invalid(run, annotation.text(), detail);
    }
}

fn no_address(at: &At<'_, '_>, run: &mut Run<'_>) {
    if parse_ip(at.text()).is_some() {
        at.invalid(run, at.text(), "must be a DNS name, not an IP address");
    }
}

fn name(at: &At<'_, '_>, run: &mut Run<'_>) {
    let format = if at.text().contains('*') { &WILDCARD } else { &DNS_SUBDOMAIN };
    at.complain(run, format.faults(at.text()));
}

fn ingress_host(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_empty() {
        no_address(at, run);
        name(at, run);
    }
}

fn paths<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    for item in at.items() {
        let of = item.field("pathType");
        if of.is_set() {
            PATH.check(&item, run);
        } else {
            of.required(run, "pathType must be specified");
        }
    }
}

fn path(at: &At<'_, '_>, run: &mut Run<'_>) {
    const ABSOLUTE: &str = "must be an absolute path";
    let (of, path) = (at.field("pathType"), at.field("path"));
    let text = path.text();
    match of.text() {
        "Exact" | "Prefix" => {
            if !text.starts_with('/') {
                path.invalid(run, text, ABSOLUTE);
            }
            for part in ["//", "/./", "/../", "%2f", "%2F"].into_iter().filter(|part| text.contains(part)) {
                path.invalid(run, text, format!("must not contain '{part}'"));
            }
            for end in ["/..", "/."].into_iter().filter(|end| text.ends_with(end)) {
                path.invalid(run, text, format!("cannot end with '{end}'"));
            }
        }
        "ImplementationSpecific" => {
            if !text.is_empty() && !text.starts_with('/') {
                path.invalid(run, text, ABSOLUTE);
            }
        }
        other => of.not_supported(run, other, &["Exact", "ImplementationSpecific", "Prefix"]),
    }
}

fn backend<'v>(at: &At<'v, '_>, run: &mut Run<'v>) {
    let (resource, service) = (at.field("resource"), at.field("service"));
    match (resource.is_set(), service.is_set()) {
        (true, true) => at.invalid(run, "", "cannot set both resource and service backends"),
        (true, false) => REFERENCE.check(&resource, run),
        (false, true) => service_backend(at, &service, run),
        (false, false) => at.invalid(run, "", "resource or service backend is required"),
    }
}

fn service_backend(at: &At<'_, '_>, service: &At<'_, '_>, run: &mut Run<'_>) {
    let name = service.field("name");
    if name.is_empty() {
        name.required(run, "");
    } else {
        name.complain(run, DNS_LABEL.faults(name.text()));
    }
    let port = service.field("port");
    let (name, number) = (port.field("name"), port.field("number"));
    match (!name.is_empty(), number.int() != 0) {
        (true, true) => at.invalid(run, "", "cannot set both port name & port number"),
        (true, false) => name.complain(run, PORT_NAME.faults(name.text())),
        (false, true) => port_number(&number, run),
        (false, false) => at.required(run, "port name or number is required"),
    }
}

const CLASS_UPDATE: TypeRules =
    TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("controller", Immutable)]) }))]);

/// The longest name of a controller, in bytes.
const CONTROLLER_MAX: usize = 250;

const CLASS: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("controller", MaxBytes(CONTROLLER_MAX)),
                ("controller", Check("required: domain and path", domain_and_path)),
                ("parameters", In(&REFERENCE)),
                ("parameters", Check("cluster-wide, or in a given namespace", parameters_scope)),
            ])
        },
    ),
)]);

fn parameters_scope(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    let (scope, namespace) = (at.field("scope"), at.field("namespace"));
    match scope.text() {
        _ if !scope.is_set() => scope.required(run, ""),
        "Namespace" if !namespace.is_set() => namespace.required(run, "`parameters.scope` is set to 'Namespace'"),
        "Namespace" => namespace.complain(run, DNS_LABEL.faults(namespace.text())),
        "Cluster" if namespace.is_set() => namespace.forbidden(run, "`parameters.scope` is set to 'Cluster'"),
        "Cluster" => {}
        other => scope.not_supported(run, other, &["Cluster", "Namespace"]),
    }
}

const POLICY: TypeRules = TypeRules::new(&[
    ("podSelector", SELECTOR),
    ("ingress", Each(&const { TypeRules::new(&[("ports", Each(&POLICY_PORT)), ("from", Each(&PEER))]) })),
    ("egress", Each(&const { TypeRules::new(&[("ports", Each(&POLICY_PORT)), ("to", Each(&PEER))]) })),
    ("policyTypes", Check("Ingress, Egress or both", policy_types)),
]);

const POLICY_PORT: TypeRules = TypeRules::shared(
    "Port of a network policy",
    &[
        ("protocol", OneOf(&["TCP", "UDP", "SCTP"])),
        ("", Check("a port number or a port name; `endPort` only with a number, and not smaller", policy_port)),
    ],
);

const PEER: TypeRules = TypeRules::shared(
    "Peer of a network policy",
    &[
        ("podSelector", SELECTOR),
        ("namespaceSelector", SELECTOR),
        ("ipBlock", Check("a CIDR, and excepted ranges inside it", ip_block)),
        ("", Check("selectors or `ipBlock`", one_peer)),
    ],
);

fn policy_port(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (port, end) = (at.field("port"), at.field("endPort"));
    let only_numbers = |run: &mut Run<'_>, detail: &str| {
        if end.is_set() {
            end.invalid(run, end.int(), detail);
        }
    };
    match port.value {
        Value::Null => only_numbers(run, "may not be specified when `port` is not specified"),
        Value::String(name) => {
            only_numbers(run, "may not be specified when `port` is non-numeric");
            port.complain(run, PORT_NAME.faults(name));
        }
        _ => {
            port_number(&port, run);
            if end.is_set() && end.int() < port.int() {
                end.invalid(run, end.int(), "must be greater than or equal to `port`");
            }
            if end.number().is_some() {
                port_number(&end, run);
            }
        }
    }
}

fn one_peer(at: &At<'_, '_>, run: &mut Run<'_>) {
    let block = at.field_is_set("ipBlock");
    let selected = at.field_is_set("podSelector") || at.field_is_set("namespaceSelector");
    if block && selected {
        at.forbidden(run, "may not specify both ipBlock and another peer");
    } else if !block && !selected {
        at.required(run, "must specify a peer");
    }
}

fn ip_block(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_set() {
        return;
    }
    let cidr = at.field("cidr");
    if cidr.is_empty() {
        return cidr.required(run, "");
    }
    strictly(&CIDR, &cidr, run);
    let Some(whole) = parse_cidr(cidr.text()) else { return };
    for except in at.field("except").items() {
        strictly(&CIDR, &except, run);
        if parse_cidr(except.text()).is_some_and(|part| !is_part(whole, part)) {
            except.invalid(run, except.text(), "must be a strict subset of `cidr`");
        }
    }
}

/// Returns true if a range is a proper part of another one.
fn is_part(whole: (std::net::IpAddr, u8), part: (std::net::IpAddr, u8)) -> bool {
    use std::net::IpAddr::{V4, V6};
    let same = |a: u128, b: u128, bits: u8, of: u8| bits == 0 || a >> (of - bits) == b >> (of - bits);
    let within = match (whole.0, part.0) {
        (V4(a), V4(b)) => same(u32::from(a).into(), u32::from(b).into(), whole.1, 32),
        (V6(a), V6(b)) => same(a.into(), b.into(), whole.1, 128),
        (V4(_), V6(_)) | (V6(_), V4(_)) => false,
    };
    within && part.1 > whole.1
}

fn policy_types(at: &At<'_, '_>, run: &mut Run<'_>) {
    const TYPES: [&str; 2] = ["Ingress", "Egress"];
    if at.list().len() > TYPES.len() {
        return at.invalid(run, at.shown(), "may not specify more than two policyTypes");
    }
    for of in at.items().filter(|of| !TYPES.contains(&of.text())) {
        of.not_supported(run, of.text(), &TYPES);
    }
}

const ADDRESS: TypeRules = TypeRules::new(&[("parentRef", Required("")), ("parentRef", In(&PARENT))]);

const PARENT: TypeRules = TypeRules::new(&[
    ("group", Format(&DNS_SUBDOMAIN)),
    ("resource", Required("")),
    ("resource", Format(&PATH_SEGMENT)),
    ("name", Required("")),
    ("name", Format(&PATH_SEGMENT)),
    ("namespace", Format(&PATH_SEGMENT)),
]);

const SERVICE_CIDR: TypeRules = TypeRules::new(&[(
    "spec",
    Always(&const { TypeRules::new(&[("cidrs", Check("one CIDR, or two of different IP families", cidrs))]) }),
)]);

const SERVICE_CIDR_UPDATE: TypeRules = TypeRules::new(&[(
    "spec",
    Always(&const { TypeRules::new(&[("cidrs", Check("immutable, but that a second may come", cidrs_stay))]) }),
)]);

fn cidrs(at: &At<'_, '_>, run: &mut Run<'_>) {
    match at.list().len() {
        0 => return at.required(run, "at least one CIDR required"),
        1 | 2 => {}
        // Like upstream, the error contains the Go structure.
        _ => return at.invalid(run, json!({ "CIDRs": at.value }), "may only hold up to 2 values"),
    }
    at.items().for_each(|cidr| cidr.complain(run, CIDR.faults(cidr.text())));
    let families: Vec<bool> =
        at.items().filter_map(|cidr| parse_cidr(cidr.text())).map(|(address, _)| address.is_ipv4()).collect();
    if families.len() == 2 && families[0] == families[1] {
        let detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64";
        at.invalid(run, at.shown(), detail);
    }
}

fn cidrs_stay(at: &At<'_, '_>, run: &mut Run<'_>) {
    let old = at.old.as_array().map_or(0, Vec::len);
    let kept = if old == at.list().len() || (old == 1 && at.list().len() == 2) { old } else { 0 };
    if kept == 0 && old != at.list().len() {
        return at.invalid(run, at.shown(), IMMUTABLE);
    }
    for cidr in at.items().take(kept).filter(|cidr| !cidr.is_unchanged()) {
        cidr.invalid(run, cidr.text(), IMMUTABLE);
    }
}
