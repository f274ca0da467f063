//! Validation of pod certificate requests: the identity of the pod, the lifetime, and the PKCS#10 request with its
//! signature.
//!
//! A request never changes, so updates are not validated again. The status is validated in `strategy/pod_requests.rs`.

use aws_lc_rs::signature::{self, VerificationAlgorithm};
use keelson_meta::metadata_rules::ANNOTATIONS_MAX;
use keelson_meta::names::{NameRule, label_key_faults};
use x509_parser::oid_registry::{
    OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384,
    OID_SIG_ECDSA_WITH_SHA512,
};
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;

use crate::validating::at::At;
use crate::validating::base64;
use crate::validating::conditions::CONDITIONS;
use crate::validating::domains::signer_name;
use crate::validating::type_rules::Rule::{Always, Check, Immutable};
use crate::validating::type_rules::{Run, TypeRules};

/// The largest PKCS#10 request in bytes.
const REQUEST_MAX: usize = 10 * 1024;
/// The longest UID in bytes.
const UID_MAX: usize = 128;
/// The shortest lifetime of a certificate in seconds: an hour.
pub(crate) const LIFETIME_MIN: i64 = 3600;
/// The longest lifetime in seconds: 91 days.
const LIFETIME_MAX: i64 = 7_862_400;
/// The longest lifetime of certificates from signers of Kubernetes in seconds: a day.
const LIFETIME_MAX_OF_KUBERNETES: i64 = 86_400;

/// The rules of a new request.
pub(super) const REQUEST: TypeRules = TypeRules::new(&[(
    "spec",
    Always(
        &const {
            TypeRules::new(&[
                ("signerName", Check("a signer name with a domain", new_signer)),
                (
                    "unverifiedUserAnnotations",
                    Check("keys with a domain, of at most 256 KiB with their values", annotations),
                ),
                ("podName", Check("the name of a pod", subdomain)),
                ("podUID", Check("a UID of at most 128 bytes", uid)),
                ("serviceAccountName", Check("the name of a service account", subdomain)),
                ("serviceAccountUID", Check("a UID of at most 128 bytes", uid)),
                ("nodeName", Check("the name of a node", subdomain)),
                ("nodeUID", Check("a UID of at most 128 bytes", uid)),
                ("", Check("a lifetime of 1 hour to 91 days, or to 24 hours for signers of Kubernetes", lifetime)),
                ("stubPKCS10Request", Check("a signed PKCS#10 request in DER for a key of a supported type", request)),
            ])
        },
    ),
)]);

/// The rules of an update.
pub(super) const UPDATE: TypeRules = TypeRules::new(&[("spec", Immutable)]);

/// The rules of a status. The strategy has those about the certificate.
pub(super) const STATUS: TypeRules =
    TypeRules::new(&[("status", Always(&const { TypeRules::new(&[("conditions", CONDITIONS)]) }))]);

fn new_signer(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() {
        signer_name(at, run);
    }
}

fn annotations(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let mut bytes = 0;
    for (key, value) in at.entries() {
        bytes += key.len() + value.text().len();
        let lower = key.to_lowercase();
        let faults = label_key_faults(&lower);
        if faults.is_empty() && !lower.contains('/') {
            at.invalid(run, lower, "must be a domain-prefixed key (such as \"acme.io/foo\")");
        } else {
            faults.into_iter().for_each(|fault| at.invalid(run, &*lower, fault));
        }
    }
    if bytes > ANNOTATIONS_MAX {
        at.too_long(run, ANNOTATIONS_MAX);
    }
}

fn subdomain(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_none() {
        at.complain(run, NameRule::DnsSubdomain.check(at.text(), false));
    }
}

fn uid(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    if at.text().is_empty() {
        at.invalid(run, "", "must not be empty");
    } else if at.text().len() > UID_MAX {
        at.too_long(run, UID_MAX);
    }
}

fn lifetime(spec: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let at = spec.field("maxExpirationSeconds");
    let Some(seconds) = at.number() else { return at.required(run, "must be set") };
    let domain = spec.field("signerName").text().split('/').next().unwrap_or_default();
    let is_of_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let most = if is_of_kubernetes { LIFETIME_MAX_OF_KUBERNETES } else { LIFETIME_MAX };
    if !(LIFETIME_MIN..=most).contains(&seconds) {
        at.invalid(run, seconds, format!("must be in the range [{LIFETIME_MIN}, {most}]"));
    }
}

fn request(at: &At<'_, '_>, run: &mut Run<'_>) {
    if run.before.is_some() {
        return;
    }
    let der = base64::decoded(at.text()).unwrap_or_default();
    if der.is_empty() {
        return at.required(run, "must be set");
    }
    if der.len() > REQUEST_MAX {
        return at.too_long(run, REQUEST_MAX);
    }
    let Ok(([], request)) = X509CertificationRequest::from_der(&der) else {
        return at.refused(run, "must be a valid PKCS#10 CSR");
    };
    if let Some(fault) = key_fault(&request.certification_request_info.subject_pki) {
        return at.refused(run, fault);
    }
    if !is_signed_by_its_key(&request) {
        at.refused(run, "could not verify the signature of the CSR");
    }
}

/// The reason why a public key has no supported type.
fn key_fault(key: &SubjectPublicKeyInfo<'_>) -> Option<String> {
    match key.parsed() {
        Ok(PublicKey::RSA(rsa)) => match rsa.key_size() {
            3072 | 4096 => None,
            bits => Some(format!("RSA keys must have modulus size 3072 or 4096, not {bits}")),
        },
        Ok(PublicKey::EC(_)) => {
            let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
            let is_known =
                curve.is_some_and(|curve| [OID_EC_P256, OID_NIST_EC_P384, OID_NIST_EC_P521].contains(&curve));
            (!is_known).then(|| "elliptic public keys must use curve P256, P384 or P521".to_owned())
        }
        Ok(_) if key.algorithm.algorithm == x509_parser::oid_registry::OID_SIG_ED25519 => None,
        _ => Some("unknown public key type; supported types are Ed25519, ECDSA, and RSA".to_owned()),
    }
}

fn is_signed_by_its_key(request: &X509CertificationRequest<'_>) -> bool {
    let key = &request.certification_request_info.subject_pki;
    let curve = key.algorithm.parameters.as_ref().and_then(|parameters| parameters.as_oid().ok());
    let algorithm = &request.signature_algorithm.algorithm;
    let is_p521 = curve.is_some_and(|curve| curve == OID_NIST_EC_P521);
    // The parser's own check has neither the curve P521 nor SHA-512.
    let further: Option<&dyn VerificationAlgorithm> = match (is_p521, algorithm) {
        (true, oid) if *oid == OID_SIG_ECDSA_WITH_SHA256 => Some(&signature::ECDSA_P521_SHA256_ASN1),
        (true, oid) if *oid == OID_SIG_ECDSA_WITH_SHA384 => Some(&signature::ECDSA_P521_SHA384_ASN1),
        (true, oid) if *oid == OID_SIG_ECDSA_WITH_SHA512 => Some(&signature::ECDSA_P521_SHA512_ASN1),
        _ => None,
    };
    match further {
        Some(algorithm) => {
            let key = signature::UnparsedPublicKey::new(algorithm, &*key.subject_public_key.data);
            key.verify(request.certification_request_info.raw, &request.signature_value.data).is_ok()
        }
        None => request.verify_signature().is_ok(),
    }
}

/// The public key of a valid request, in DER.
pub(crate) fn requested_key(text: &str) -> Option<Vec<u8>> {
    let der = base64::decoded(text)?;
    let (_, request) = X509CertificationRequest::from_der(&der).ok()?;
    Some(request.certification_request_info.subject_pki.raw.to_vec())
}
