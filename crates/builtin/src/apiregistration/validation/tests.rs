//! Tests of APIServices.
//!
//! The settings for trust are tested with a local and a remote server.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_below, check_new};

#[test]
fn api_services() {
    let service = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.example.com"}, "spec": {"group": "example.com", "version": "v1",
            "groupPriorityMinimum": 1000, "versionPriority": 15,
            "service": {"namespace": "default", "name": "s", "port": 443}, "caBundle": "AAAA"}});
    check_new(
        &service,
        &[("/spec/version", json!("v2")), ("/spec/versionPriority", json!(0)), ("/spec/service/port", json!(0))],
        &[
            "metadata.name: Invalid value: \"v1.example.com\": must be `spec.version+\".\"+spec.group`: \"v2.example.com\"",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
            "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, inclusive",
        ],
    );
    check_new(
        &service,
        &[("/metadata", json!({"generateName": "v1.e", "name": "v1.exxxxx"}))],
        &[
            "metadata.generateName: Invalid value: \"v1.e\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\"",
            "metadata.name: Invalid value: \"v1.exxxxx\": must be `spec.version+\".\"+spec.group`: \"v1.example.com\"",
        ],
    );
    check_new(&service, &[("/metadata", json!({}))], &[]);
    check_new(
        &service,
        &[("/spec/service", Value::Null), ("/spec/insecureSkipTLSVerify", json!(true))],
        &[
            "spec.caBundle: Invalid value: \"3 bytes\": local APIServices may not have a caBundle",
            "spec.insecureSkipTLSVerify: Invalid value: true: local APIServices may not have insecureSkipTLSVerify",
        ],
    );
    check_below(
        Some("status"),
        &service,
        &[("/status", json!({"conditions": [{"type": "Available", "status": "Maybe"}]}))],
        &[
            "status.conditions[0].status: Unsupported value: \"Maybe\": supported values: \"True\", \"False\", \"Unknown\"",
        ],
    );
}
