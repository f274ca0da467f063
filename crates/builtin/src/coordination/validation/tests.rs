//! Tests of leases and lease candidates.
//!
//! Times and strategies are tested one change at a time.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_new, check_update};

#[test]
fn leases_and_candidates() {
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"},
        "spec": {"leaseDurationSeconds": 15, "leaseTransitions": 0, "holderIdentity": "h"}});
    check_new(
        &lease,
        &[
            ("/spec/leaseDurationSeconds", json!(0)),
            ("/spec/leaseTransitions", json!(-1)),
            ("/spec/preferredHolder", json!("x")),
        ],
        &[
            "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            "spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
        ],
    );
    check_new(
        &lease,
        &[("/spec/strategy", json!("Newest"))],
        &["spec.strategy.strategy: Unsupported value: \"Newest\": supported values: \"OldestEmulationVersion\""],
    );
    let candidate = json!({"apiVersion": "coordination.k8s.io/v1beta1", "kind": "LeaseCandidate", "metadata": {"name": "c"},
        "spec": {"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.35.0", "strategy": "OldestEmulationVersion"}});
    check_new(
        &candidate,
        &[("/spec/binaryVersion", json!("1.34.0"))],
        &["spec.binaryVersion: Invalid value: \"1.34.0\": must be greater than or equal to `emulationVersion`"],
    );
    check_new(
        &candidate,
        &[("/spec/emulationVersion", Value::Null), ("/spec/binaryVersion", json!("1.36"))],
        &[
            "spec.binaryVersion: Invalid value: \"1.36\": must be a valid semantic version",
            "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
        ],
    );
    check_update(
        &candidate,
        &[("/spec/leaseName", json!("m"))],
        &["spec.leaseName: Invalid value: \"m\": field is immutable"],
    );
}
