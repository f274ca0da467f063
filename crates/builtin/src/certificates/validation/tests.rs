//! Tests of new and updated certificate signing requests and trust bundles.
//!
//! The content of bundles is tested over the wire, where certificates can be created.

use keelson_meta::json::json;
use keelson_registry::Validator as _;

use crate::validating::tests::{check_below, check_new, object, rules_of, texts};

/// `-----BEGIN CERTIFICATE REQUEST-----`, a few bytes, and the end line.
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

/// The errors of a new bundle.
fn faults_of(name: &str, signer: &str, bundle: &str) -> Vec<String> {
    let bundle = json!({"apiVersion": "certificates.k8s.io/v1beta1", "kind": "ClusterTrustBundle",
        "metadata": {"name": name}, "spec": {"signerName": signer, "trustBundle": bundle}});
    let bundle = object(&bundle);
    texts(rules_of(&bundle).create(&bundle))
}

#[test]
fn bundles_are_named_after_their_signer() {
    let check = |name: &str, signer: &str, expected: &[&str]| {
        let faults = faults_of(name, signer, "");
        let (last, named) = faults.split_last().unwrap();
        assert_eq!(
            last,
            "spec.trustBundle: Invalid value: \"<value omitted>\": at least one trust anchor must be provided"
        );
        assert_eq!(named, expected, "{name} {signer}");
    };
    check("plain", "", &[]);
    check("example.org:one:a", "example.org/one", &[]);
    check(
        "example.org:one:a",
        "",
        &[
            "metadata.name: Invalid value: \"example.org:one:a\": ClusterTrustBundle without signer name must not have \":\" \
           in its name",
        ],
    );
    check(
        "wrong",
        "example.org/one",
        &[
            "metadata.name: Invalid value: \"wrong\": ClusterTrustBundle for signerName example.org/one must be named with \
           prefix example.org:one:",
        ],
    );
    let form = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start \
                and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
                '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
    let message = format!("metadata.name: Invalid value: \"example.org:one:A\": {form}");
    check("example.org:one:A", "example.org/one", &[&message]);
    check(
        "invalid:a",
        "invalid",
        &["spec.signerName: Invalid value: \"invalid\": must be a fully qualified domain and path of the form \
           'example.com/signer-name'"],
    );
}

#[test]
fn bundles_hold_certificates_and_nothing_else() {
    let block = |label: &str, content: &str| format!("-----BEGIN {label}-----\n{content}\n-----END {label}-----\n");
    let check = |bundle: &str, expected: &[&str]| {
        let messages: Vec<String> =
            expected.iter().map(|why| format!("spec.trustBundle: Invalid value: \"<value omitted>\": {why}")).collect();
        assert_eq!(faults_of("plain", "", bundle), messages, "{bundle}");
    };
    check("hello", &["at least one trust anchor must be provided"]);
    check(&block("CERTIFICATE", "YWJj"), &["entry 0 does not parse as X.509"]);
    let several = format!("{}words\n{}", block("PRIVATE KEY", "YWJj"), block("CERTIFICATE", "x: y\n\nYWJj"));
    check(&several, &["entry 0 has bad block type: PRIVATE KEY", "entry 1 has PEM block headers"]);
    let long = "x".repeat((1 << 20) + 1);
    assert_eq!(faults_of("plain", "", &long), ["spec.trustBundle: Too long: may not be more than 1048576 bytes"]);
}
