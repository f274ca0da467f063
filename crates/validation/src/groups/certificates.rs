//! Certificate signing requests: what is asked for, of whom, and for what use.
//!
//! Whether a request is signed by the key that it names is not judged, as that takes cryptography; who signs does it.
//! Conditions are judged where `/approval` and `/status` take them.

use std::collections::HashSet;

use crate::at::At;
use crate::base64;
use crate::domains::signer_name;
use crate::pem;
use crate::type_rules::Rule::{Always, Check, Required, Within};
use crate::type_rules::{Kind, Run, TypeRules, kind};

pub(super) const KINDS: &[Kind] = &[kind("CertificateSigningRequest").object(&REQUEST).below(&[("status", &STATUS)])];

/// What a certificate can be for, in alphabetical order.
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

const REQUEST: TypeRules = TypeRules::of(&[("spec", Always(&SPEC))]);

const SPEC: TypeRules = TypeRules::of(&[
    ("request", Check("a CERTIFICATE REQUEST in PEM", request)),
    ("usages", Required("")),
    ("usages", Check("usages that are known, none twice", usages)),
    ("signerName", Check("domain and name of a signer, not the legacy one", signer)),
    ("expirationSeconds", Within(600, i64::MAX, "may not specify a duration less than 600 seconds (10 minutes)")),
]);

const STATUS: TypeRules = TypeRules::of(&[(
    "status",
    Always(&const { TypeRules::of(&[("certificate", Check("certificates in PEM", certificate))]) }),
)]);

fn request(at: &At<'_, '_>, run: &mut Run<'_>) {
    let (first, _) = pem::next(&base64::decoded(at.text()).unwrap_or_default());
    if first.is_none_or(|block| block.label != "CERTIFICATE REQUEST") {
        at.invalid(run, at.text(), "PEM block type must be CERTIFICATE REQUEST");
    }
}

/// What is stored may have what was allowed when it was made.
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
        if block.is_empty {
            return Err("found CERTIFICATE PEM block containing 0 certificates".to_owned());
        }
        blocks += 1;
        rest = after;
    }
    if blocks == 0 { Err("must contain at least one CERTIFICATE PEM block".to_owned()) } else { Ok(()) }
}
