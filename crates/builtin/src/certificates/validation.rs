//! Validation of certificate signing requests (the request, signer and usages) and of trust bundles (the signer, and
//! the authorities' certificates). Pod certificate requests have a file of their own.
//!
//! The signature of a signing request is not verified; signers do that. Conditions are validated for `/approval` and `/status`.

pub(super) mod pod_requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

use keelson_meta::json::Value;
use keelson_meta::names::NameRule;
use x509_parser::parse_x509_certificate;

use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::domains::signer_name;
use crate::validating::pem;
use crate::validating::type_rules::Rule::{Always, Check, Immutable, MaxBytes, Required, Within};
use crate::validating::type_rules::{Kind, Run, TypeRules, kind};

pub(crate) const KINDS: &[Kind] = &[
    kind("CertificateSigningRequest").object(&REQUEST).below(&[("status", &STATUS)]),
    kind("ClusterTrustBundle").object(&BUNDLE).then(&BUNDLE_UPDATE),
    kind("PodCertificateRequest")
        .object(&pod_requests::REQUEST)
        .then(&pod_requests::UPDATE)
        .below(&[("status", &pod_requests::STATUS)]),
];

/// The permitted usages, in alphabetical order.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

const REQUEST: TypeRules = TypeRules::new(&[("spec", Always(&SPEC))]);

const SPEC: TypeRules = TypeRules::new(&[
    ("request", Check("a CERTIFICATE REQUEST in PEM", request)),
    ("usages", Required("")),
    ("usages", Check("known usages without duplicates", usages)),
    ("signerName", Check("a signer name with a domain, other than `kubernetes.io/legacy-unknown`", signer)),
    ("expirationSeconds", Within(600, i64::MAX, "may not specify a duration less than 600 seconds (10 minutes)")),
]);

const STATUS: TypeRules = TypeRules::new(&[(
    "status",
    Always(&const { TypeRules::new(&[("certificate", Check("certificates in PEM", certificate))]) }),
)]);

/// The largest bundle in bytes.
const BUNDLE_MAX: usize = 1 << 20;
/// The text that replaces a bundle in errors.
const OMITTED: &str = "<value omitted>";

const BUNDLE: TypeRules = TypeRules::new(&[
    ("metadata", Check("the name begins with the signer name, if it is set", bundle_name)),
    (
        "spec",
        Always(
            &const {
                TypeRules::new(&[
                    ("signerName", Check("a signer name with a domain, if set", signer_of_bundle)),
                    ("trustBundle", MaxBytes(BUNDLE_MAX)),
                    ("trustBundle", Check("CA certificates in PEM, without duplicates", anchors)),
                ])
            },
        ),
    ),
]);

const BUNDLE_UPDATE: TypeRules =
    TypeRules::new(&[("spec", Always(&const { TypeRules::new(&[("signerName", Immutable)]) }))]);

/// The name of a bundle with a signer starts with the signer's name, with colons for slashes. Other names have no
/// colon.
fn bundle_name(at: &At<'_, '_>, run: &mut Run<'_>) {
    let signer = run.object.get(&["spec", "signerName"]).and_then(Value::as_str).unwrap_or_default();
    let of_signer = format!("{}:", signer.replace('/', ":"));
    for (field, is_prefix) in [("generateName", true), ("name", false)] {
        let place = at.field(field);
        let name = place.text();
        if name.is_empty() {
            continue;
        }
        if signer.is_empty() {
            if name.contains(':') {
                place.invalid(run, name, "ClusterTrustBundle without signer name must not have \":\" in its name");
            } else {
                place.complain(run, NameRule::DnsSubdomain.check(name, is_prefix));
            }
            continue;
        }
        match name.strip_prefix(&of_signer) {
            Some(own) => place.complain(run, NameRule::DnsSubdomain.check(own, is_prefix)),
            None => {
                let why = format!("ClusterTrustBundle for signerName {signer} must be named with prefix {of_signer}");
                place.invalid(run, name, why);
            }
        }
    }
}

fn signer_of_bundle(at: &At<'_, '_>, run: &mut Run<'_>) {
    if !at.is_empty() {
        signer_name(at, run);
    }
}

/// An unchanged bundle is not validated again.
fn anchors(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.text().len() > BUNDLE_MAX || run.before.is_some() && at.is_unchanged() {
        return;
    }
    let mut rest = at.text().as_bytes();
    let (mut faults, mut found) = (Vec::new(), BTreeMap::<Vec<u8>, Vec<usize>>::new());
    let mut count = 0;
    while let (Some(block), after) = pem::next(rest) {
        match anchor_fault(&block) {
            Some(why) => faults.push(format!("entry {count} {why}")),
            None => found.entry(block.content).or_default().push(count),
        }
        count += 1;
        rest = after;
    }
    if faults.is_empty() {
        if found.is_empty() {
            faults.push("at least one trust anchor must be provided".to_owned());
        }
        let mut twice: Vec<Vec<usize>> = found.into_values().filter(|places| places.len() > 1).collect();
        twice.sort_unstable();
        faults.extend(twice.iter().map(|places| {
            let places: Vec<String> = places.iter().map(usize::to_string).collect();
            format!("duplicate trust anchor (indices [{}])", places.join(" "))
        }));
    }
    faults.into_iter().for_each(|why| at.invalid(run, OMITTED, why));
}

/// The reason why a PEM block is not a certificate of an authority.
fn anchor_fault(block: &pem::Block) -> Option<String> {
    if block.label != "CERTIFICATE" {
        return Some(format!("has bad block type: {}", block.label));
    }
    if block.has_headers {
        return Some("has PEM block headers".to_owned());
    }
    match parse_x509_certificate(&block.content) {
        Ok(([], certificate)) if certificate.is_ca() => None,
        Ok(([], _)) => Some("does not have the CA bit set".to_owned()),
        _ => Some("does not parse as X.509".to_owned()),
    }
}

fn request(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (first, _) = pem::next(&base64::decoded(at.text()).unwrap_or_default());
    if first.is_none_or(|block| block.label != "CERTIFICATE REQUEST") {
        at.invalid(run, at.text(), "PEM block type must be CERTIFICATE REQUEST");
    }
}

/// Stored usages may be those that were permitted when the request was created.
fn usages(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    for usage in at.items().filter(|usage| !USAGES.contains(&usage.text())) {
        usage.not_supported(run, usage.text(), &USAGES);
    }
    let mut seen = HashSet::new();
    for usage in at.items().filter(|usage| !seen.insert(usage.text())) {
        usage.duplicate(run, usage.text());
    }
}

fn signer(at: &At<'_, '_>, run: &mut Run<'_>) {
    const LEGACY: &str = "kubernetes.io/legacy-unknown";
    if at.text() == LEGACY && run.before.is_none() {
        at.invalid(run, LEGACY, "the legacy signerName is not allowed via this API version");
    } else {
        signer_name(at, run);
    }
}

fn certificate(at: &At<'_, '_>, run: &mut Run<'_>) {
    if at.is_empty() || at.is_unchanged() {
        return;
    }
    if let Err(fault) = certificates(&base64::decoded(at.text()).unwrap_or_default()) {
        at.invalid(run, "<certificate data>", fault);
    }
}

fn certificates(bytes: &[u8]) -> Result<(), String> {
    let mut rest = bytes;
    let mut blocks = 0;
    while let (Some(block), after) = pem::next(rest) {
        if block.label != "CERTIFICATE" {
            let label = keelson_meta::go_format::quote(&block.label);
            return Err(format!("only CERTIFICATE PEM blocks are allowed, found {label}"));
        }
        if block.has_headers {
            return Err("no PEM block headers are permitted".to_owned());
        }
        if block.content.is_empty() {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        blocks += 1;
        rest = after;
    }
    if blocks == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}
