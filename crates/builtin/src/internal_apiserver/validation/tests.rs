//! Tests of storage versions.
//!
//! The status is written through `/status`.

use keelson_meta::json::{Value, json};

use crate::validating::tests::check_below;

#[test]
fn storage_versions() {
    let version = json!({"apiVersion": "internal.apiserver.k8s.io/v1alpha1", "kind": "StorageVersion",
        "metadata": {"name": "apps.deployments"}, "spec": {}, "status": {"commonEncodingVersion": "apps/v1",
            "storageVersions": [{"apiServerID": "a", "encodingVersion": "apps/v1", "decodableVersions": ["apps/v1"],
                "servedVersions": ["apps/v1"]}]}});
    let status = Some("status");
    check_below(
        status,
        &version,
        &[("/status/commonEncodingVersion", json!("apps/v2"))],
        &["status.commonEncodingVersion: Invalid value: \"apps/v2\": the actual common encoding version is apps/v1"],
    );
    check_below(
        status,
        &version,
        &[("/status/commonEncodingVersion", Value::Null)],
        &["status.commonEncodingVersion: Invalid value: null: the common encoding version is apps/v1"],
    );
    check_below(
        status,
        &version,
        &[
            ("/status/storageVersions/0/decodableVersions", json!(["apps/v2"])),
            ("/status/conditions", json!([{"type": "A", "status": "True", "reason": "R"}])),
        ],
        &[
            "status.storageVersions[0].decodableVersions: Invalid value: [\"apps/v2\"]: decodableVersions must include \
             encodingVersion apps/v1",
            "status.storageVersions[0].servedVersions[0]: Invalid value: \"apps/v1\": individual served version : apps/v1 \
             must be included in decodableVersions : [apps/v2]",
            "status[0].message: Required value",
        ],
    );
    check_below(
        status,
        &version,
        &[("/status/storageVersions/0/servedVersions/-", json!("/V1"))],
        &[
            "status.storageVersions[0].servedVersions[1]: Invalid value: \"/V1\": group part: must be non-empty,version part: \
           a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, \
           and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is \
           '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "status.storageVersions[0].servedVersions[1]: Invalid value: \"/V1\": individual served version : /V1 must be \
           included in decodableVersions : [apps/v1]",
        ],
    );
}
