//! Strategy of pod certificate requests. A signer decides a request once: it issues a certificate, denies the request,
//! or fails.
//!
//! The status is written through `/status` only, and changes with the decision alone. A certificate must have the
//! requested key and the stated times, and its signer needs the right `sign`.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures::future::BoxFuture;
use keelson_access::ResourceAttributes;
use keelson_meta::clock::{parse_rfc3339, rfc3339};
use keelson_meta::conditions::{is_true, list, list_mut, text};
use keelson_meta::field_error::FieldError;
use keelson_meta::go_format::quote;
use keelson_meta::json::{Map, Value, json};
use keelson_meta::{ApiError, Object};
use keelson_registry::rights::is_allowed;
use keelson_registry::strategy::{AcceptedPart, FieldPath, UpdateStrategy, metadata_of_status};
use keelson_registry::{Registry, WriteRequest};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

use crate::certificates::validation::pod_requests::{LIFETIME_MIN, requested_key};
use crate::validating::pem;

/// The decisions about a request.
const DECISIONS: [&str; 3] = ["Issued", "Denied", "Failed"];
/// The largest chain of certificates in bytes.
const CHAIN_MAX: usize = 100 * 1024;
/// The largest difference between the start of a certificate and the present.
const START_TOLERANCE: Duration = Duration::from_mins(5);
/// The time of the first refresh has this distance from both ends of a certificate's validity.
const REFRESH_DISTANCE: Duration = Duration::from_mins(10);

const CHAIN: &str = "status.certificateChain";
const NOT_BEFORE: &str = "status.notBefore";
const NOT_AFTER: &str = "status.notAfter";
const REFRESH: &str = "status.beginRefreshAt";

/// The strategy of pod certificate requests.
pub(super) struct PodCertificateRequests;

impl UpdateStrategy for PodCertificateRequests {
    fn confine(&self, subresource: &str, stored: &Object, mut sent: Object, now: SystemTime) -> AcceptedPart {
        if subresource != "status" {
            return AcceptedPart::AsSent(sent);
        }
        match stored.0.get("spec") {
            Some(spec) => sent.0.insert("spec", spec.clone()),
            None => sent.0.remove("spec"),
        };
        DECISIONS.iter().for_each(|decision| keep_decision(stored, &mut sent, decision));
        date_conditions(stored, &mut sent, now);
        let faults = status_faults(stored, &sent, now);
        AcceptedPart::Cut(sent, faults)
    }

    fn kept(&self, subresource: &str) -> &'static [FieldPath] {
        metadata_of_status(subresource)
    }

    fn restricts_changes(&self, subresource: &str) -> bool {
        subresource == "status"
    }

    fn unauthorized_changes<'a>(
        &'a self,
        _registry: &'a Registry,
        request: &'a WriteRequest<'a>,
        before: &'a Object,
        after: &'a Object,
    ) -> BoxFuture<'a, Result<Vec<FieldError>, ApiError>> {
        Box::pin(async move {
            if status_text(before, "certificateChain") == status_text(after, "certificateChain") {
                return Ok(Vec::new());
            }
            let signer = before.get(&["spec", "signerName"]).and_then(Value::as_str).unwrap_or_default();
            if may_sign(request, signer).await {
                return Ok(Vec::new());
            }
            let (user, signer) = (quote(&request.caller.user().name), quote(signer));
            let detail = format!("User {user} is not permitted to \"sign\" for signer {signer}");
            Ok(vec![FieldError::forbidden("spec.signerName", detail)])
        })
    }
}

/// Returns true if the caller has the right `sign` on the signer, or on all signers of its domain.
async fn may_sign(request: &WriteRequest<'_>, signer: &str) -> bool {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    for name in [signer, &format!("{domain}/*")] {
        let attributes = ResourceAttributes {
            verb: "sign",
            group: "certificates.k8s.io",
            version: "*",
            resource: "signers",
            name: Some(name),
            ..ResourceAttributes::default()
        };
        if is_allowed(request.caller, attributes).await {
            return true;
        }
    }
    false
}

fn status_text<'o>(request: &'o Object, field: &str) -> &'o str {
    request.get(&["status", field]).and_then(Value::as_str).unwrap_or_default()
}

/// Restores the conditions of a type, unless their number differs.
fn keep_decision(stored: &Object, sent: &mut Object, decision: &str) {
    let of = |request: &Object| -> Vec<Value> {
        list(request).iter().filter(|condition| text(condition, "type") == decision).cloned().collect()
    };
    let before = of(stored);
    if before.len() != of(sent).len() {
        return;
    }
    let after = list_mut(sent).filter(|condition| condition.get("type").and_then(Value::as_str) == Some(decision));
    for (after, before) in after.zip(before.iter().filter_map(Value::as_object)) {
        after.clone_from(before);
    }
}

fn date_conditions(stored: &Object, sent: &mut Object, now: SystemTime) {
    for condition in list_mut(sent).filter(|condition| condition.get("lastTransitionTime").is_none_or(Value::is_null)) {
        let same = list(stored)
            .iter()
            .find(|known| known.get("type") == condition.get("type") && known.get("status") == condition.get("status"));
        let since = same.and_then(|known| known.get("lastTransitionTime")).filter(|since| !since.is_null()).cloned();
        condition.insert("lastTransitionTime", since.unwrap_or_else(|| json!(rfc3339(now))));
    }
}

/// The faults of a new status, in upstream's order.
fn status_faults(stored: &Object, sent: &Object, now: SystemTime) -> Vec<FieldError> {
    let faults = condition_faults(sent);
    if !faults.is_empty() {
        return faults;
    }
    let unless = |holds: bool, detail: &str| {
        if holds { Vec::new() } else { vec![FieldError::invalid_unshown("status", detail)] }
    };
    let decided = |request: &Object| DECISIONS.iter().any(|decision| is_true(request, decision));
    let is_same = status_fields(stored) == status_fields(sent);
    if decided(stored) {
        return unless(is_same, "immutable after PodCertificateRequest is issued, denied, or failed");
    }
    if is_true(sent, "Denied") || is_true(sent, "Failed") {
        let mut others = status_fields(sent);
        others.remove("conditions");
        let detail = "non-condition status fields must be empty when denying or failing the PodCertificateRequest";
        return unless(others.is_empty(), detail);
    }
    if is_true(sent, "Issued") {
        return issued_fault(sent, now).into_iter().collect();
    }
    unless(is_same, "status is immutable unless transitioning to \"Issued\", \"Denied\", or \"Failed\"")
}

/// The fields of the status that are set.
fn status_fields(request: &Object) -> Map {
    let mut fields = request.get(&["status"]).and_then(Value::as_object).cloned().unwrap_or_default();
    fields.retain(|_, value| !value.is_null() && *value != json!([]) && *value != "");
    fields
}

fn condition_faults(request: &Object) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut decisions = 0;
    for (index, condition) in list(request).iter().enumerate() {
        let field = |name: &str| format!("status.conditions[{index}].{name}");
        let (kind, status) = (text(condition, "type"), text(condition, "status"));
        if !DECISIONS.contains(&kind) {
            faults.push(FieldError::not_supported(field("type"), kind, &DECISIONS));
            continue;
        }
        decisions += 1;
        if decisions > 1 {
            let detail = "There may be at most one condition with type \"Issued\", \"Denied\", or \"Failed\"";
            faults.push(FieldError::invalid(field("type"), kind, detail));
        }
        if status != "True" {
            faults.push(FieldError::not_supported(field("status"), status, &["True"]));
        }
    }
    faults
}

/// The first fault of a request that gets its certificate.
fn issued_fault(request: &Object, now: SystemTime) -> Option<FieldError> {
    let chain = status_text(request, "certificateChain");
    if chain.len() > CHAIN_MAX {
        return Some(FieldError::too_long(CHAIN, CHAIN_MAX));
    }
    let of_chain = |detail: &str| Some(FieldError::invalid(CHAIN, chain, detail));
    let (Some(leaf), mut rest) = pem::next(chain.as_bytes()) else {
        return of_chain("issued certificate chain must contain at least one certificate");
    };
    if leaf.label != "CERTIFICATE" {
        return of_chain("issued certificate chain must consist entirely of CERTIFICATE PEM blocks");
    }
    let Ok(([], leaf)) = parse_x509_certificate(&leaf.content) else {
        return of_chain("leaf certificate does not parse as valid X.509");
    };
    if let Some(fault) = name_fault(&leaf) {
        return Some(fault);
    }
    let requested = request.get(&["spec", "stubPKCS10Request"]).and_then(Value::as_str).and_then(requested_key);
    if requested.as_deref() != Some(leaf.public_key().raw) {
        return of_chain("leaf certificate was not issued to the requested public key");
    }
    if let Some(fault) = time_fault(request, &leaf, now) {
        return Some(fault);
    }
    while let (Some(block), after) = pem::next(rest) {
        if block.label != "CERTIFICATE" {
            return of_chain("issued certificate chain must consist entirely of CERTFICATE PEM blocks");
        }
        if !matches!(parse_x509_certificate(&block.content), Ok(([], _))) {
            return of_chain("intermediate certificate does not parse as valid X.509");
        }
        rest = after;
    }
    None
}

fn name_fault(leaf: &X509Certificate<'_>) -> Option<FieldError> {
    let names = leaf.subject_alternative_name().ok().flatten();
    names.iter().flat_map(|names| &names.value.general_names).find_map(|name| {
        let (name, detail) = match name {
            GeneralName::DNSName("") => ("", "leaf certificate should not contain empty DNSName"),
            GeneralName::DNSName(name) if name.contains("..") => {
                (*name, "leaf certificate's DNSName should not contain '..'")
            }
            GeneralName::DNSName(name) if name.starts_with('.') || name.ends_with('.') => {
                (*name, "leaf certificate's DNSName should not start or end with '.'")
            }
            GeneralName::RFC822Name(name) if !is_address(name) => {
                (*name, "leaf certificate should not contain invalid EmailAddress")
            }
            _ => return None,
        };
        Some(FieldError::invalid(CHAIN, name, detail))
    })
}

/// Returns true for a mail address with a mailbox and a domain.
fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once('@').filter(|(mailbox, domain)| !mailbox.is_empty() && !domain.is_empty());
    parts.is_some() && !text.contains(|c: char| c.is_whitespace() || c.is_control() || "<>(),;:".contains(c))
}

fn time_fault(request: &Object, leaf: &X509Certificate<'_>, now: SystemTime) -> Option<FieldError> {
    let time = |field: &str| parse_rfc3339(status_text(request, field));
    let Some(not_before) = time("notBefore") else {
        return Some(FieldError::required(NOT_BEFORE, "must be present and consistent with the issued certificate"));
    };
    let Some(not_after) = time("notAfter") else {
        return Some(FieldError::required(NOT_AFTER, "must be present and consistent with the issued certificate"));
    };
    let Some(refresh) = time("beginRefreshAt") else {
        let detail = "must be present and in the range [notbefore+10min, notafter-10min]";
        return Some(FieldError::required(REFRESH, detail));
    };
    let invalid =
        |field: &str, name: &str, detail: &str| Some(FieldError::invalid(field, status_text(request, name), detail));
    let seconds = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_or(-1, |since| since.as_secs().cast_signed());
    let [from, until] = [leaf.validity().not_before, leaf.validity().not_after].map(|time| time.timestamp());
    if seconds(not_before) != from {
        let detail = "must be set to the NotBefore time encoded in the leaf certificate";
        return invalid(NOT_BEFORE, "notBefore", detail);
    }
    let distance = now.duration_since(not_before).unwrap_or_else(|error| error.duration());
    if distance >= START_TOLERANCE {
        let detail = "must be set to within 5 minutes of kube-apiserver's current time";
        return invalid(NOT_BEFORE, "notBefore", detail);
    }
    if seconds(not_after) != until {
        let detail = "must be set to the NotAfter time encoded in the leaf certificate";
        return invalid(NOT_AFTER, "notAfter", detail);
    }
    let lifetime = until - from;
    let most = request.get(&["spec", "maxExpirationSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    if lifetime < LIFETIME_MIN {
        let detail = "leaf certificate lifetime must be >= 1 hour";
        return Some(FieldError::invalid(CHAIN, format!("{lifetime}s"), detail));
    }
    if lifetime > most {
        let detail = format!("leaf certificate lifetime must be <= spec.maxExpirationSeconds ({most})");
        return Some(FieldError::invalid(CHAIN, format!("{lifetime}s"), detail));
    }
    if refresh < not_before + REFRESH_DISTANCE {
        return invalid(REFRESH, "beginRefreshAt", "must be at least 10 minutes after status.notBefore");
    }
    if refresh > not_after - REFRESH_DISTANCE {
        return invalid(REFRESH, "beginRefreshAt", "must be at least 10 minutes before status.notAfter");
    }
    None
}
