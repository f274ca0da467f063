//! Certificate signing requests.
//!
//! They are judged differently on an update than when they are new.

use keelson_meta::json::json;

use super::{check_below, check_new};

/// `-----BEGIN CERTIFICATE REQUEST-----`, a few bytes, and the end.
const REQUEST: &str =
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIUQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";

#[test]
fn requests_for_certificates() {
    let request = json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": "r"}, "spec": {"request": REQUEST, "signerName": "example.org/signer", "usages": ["client auth"]}});
    check_new(
        &request,
        &[
            ("/spec/request", json!("YWJj")),
            ("/spec/usages", json!([])),
            ("/spec/signerName", json!("kubernetes.io/legacy-unknown")),
            ("/spec/expirationSeconds", json!(599)),
        ],
        &[
            "spec.request: Invalid value: \"YWJj\": PEM block type must be CERTIFICATE REQUEST",
            "spec.usages: Required value",
            "spec.signerName: Invalid value: \"kubernetes.io/legacy-unknown\": the legacy signerName is not allowed via this API \
             version",
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 minutes)",
        ],
    );
    check_new(
        &request,
        &[("/spec/usages", json!(["client auth", "client auth"])), ("/spec/signerName", json!("s"))],
        &[
            "spec.usages[1]: Duplicate value: \"client auth\"",
            "spec.signerName: Invalid value: \"s\": must be a fully qualified domain and path of the form \
             'example.com/signer-name'",
        ],
    );
    check_below(
        Some("status"),
        &request,
        &[("/status", json!({"certificate": REQUEST}))],
        &["status.certificate: Invalid value: \"<certificate data>\": only CERTIFICATE PEM blocks are allowed, found \
           \"CERTIFICATE REQUEST\""],
    );
    check_below(
        Some("status"),
        &request,
        &[("/status", json!({"certificate": "YWJj"}))],
        &["status.certificate: Invalid value: \"<certificate data>\": must contain at least one CERTIFICATE PEM block"],
    );
}
