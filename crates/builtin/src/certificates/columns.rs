//! The columns of certificates.k8s.io: certificate signing requests and trust bundles.
//!
//! The condition of a request summarizes all its conditions, in upstream's order.

use std::time::Duration;

use keelson_meta::json::Value;
use keelson_tables::age::human_duration;
use keelson_tables::column::{AGE, Column, NAME};
use keelson_tables::field_value::{FieldValue, Subject};
use keelson_tables::printer::Printer;

use crate::certificates::column_docs as docs;

pub(crate) fn printer(kind: &str) -> Option<Printer> {
    match kind {
        "CertificateSigningRequest" => Some(Printer::new(SIGNING_REQUEST, signing_request)),
        "ClusterTrustBundle" => Some(Printer::new(TRUST_BUNDLE, trust_bundle)),
        _ => None,
    }
}

const TRUST_BUNDLE: &[Column<'_>] = &[NAME, Column::text("SignerName", docs::CLUSTER_TRUST_BUNDLE_SIGNER_NAME)];

fn trust_bundle(of: Subject<'_>) -> Vec<Value> {
    vec![of.name(), of.at("spec").at("signerName").cell_unless_empty("<none>")]
}

const SIGNING_REQUEST: &[Column<'_>] = &[
    NAME,
    AGE,
    Column::text("SignerName", docs::CERTIFICATE_SIGNING_REQUEST_SIGNER_NAME),
    Column::text("Requestor", "Base64-encoded PKCS#10 CSR data"),
    Column::text("RequestedDuration", docs::CERTIFICATE_SIGNING_REQUEST_REQUESTED_DURATION),
    Column::text("Condition", "Conditions applied to the request, such as approval or denial."),
];

fn signing_request(of: Subject<'_>) -> Vec<Value> {
    let spec = of.at("spec");
    vec![
        of.name(),
        of.age(),
        spec.at("signerName").cell_unless_empty("<none>"),
        spec.at("username").cell(),
        requested_duration(spec.at("expirationSeconds")),
        condition(of.at("status")),
    ]
}

fn requested_duration(seconds: FieldValue<'_>) -> Value {
    let Some(seconds) = seconds.set_int() else {
        return "<none>".into();
    };
    human_duration(Duration::from_secs(u64::try_from(seconds).unwrap_or_default())).into()
}

/// The approval and its result, such as `Approved,Issued`. A denial takes precedence over an approval.
fn condition(status: FieldValue<'_>) -> Value {
    let has = |kind: &str| status.at("conditions").condition(kind).is_set();
    let decision = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if status.at("certificate").text().is_empty() { "" } else { ",Issued" };
    format!("{decision}{failed}{issued}").into()
}
