//! Tests of config maps and secrets.
//!
//! Sizes are tested at their limits.

use keelson_meta::json::json;

use crate::validating::tests::{change, check_new, check_update};

#[test]
fn config_maps_and_secrets() {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": "1"}});
    check_new(&map, &[("/data/..", json!("x"))], &["data[..]: Invalid value: \"..\": must not be '..'"]);
    check_new(
        &map,
        &[("/binaryData", json!({"a": "AA=="}))],
        &["data[a]: Invalid value: \"a\": duplicate of key present in binaryData"],
    );
    check_new(
        &map,
        &[("/data/a", json!("x".repeat(1024 * 1024 + 1)))],
        &[": Too long: may not be more than 1048576 bytes"],
    );
    let fixed = change(&map, &[("/immutable", json!(true))]);
    check_update(&fixed, &[("/metadata/labels", json!({"a": "b"}))], &[]);
    check_update(
        &fixed,
        &[("/immutable", json!(false)), ("/data/a", json!("2"))],
        &[
            "immutable: Forbidden: field is immutable when `immutable` is set",
            "data: Forbidden: field is immutable when `immutable` is set",
        ],
    );
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque"});
    check_update(&secret, &[("/type", json!("other"))], &["type: Invalid value: \"other\": field is immutable"]);
    for (kind, expected) in [
        ("kubernetes.io/tls", &["data[tls.crt]: Required value", "data[tls.key]: Required value"][..]),
        ("kubernetes.io/ssh-auth", &["data[ssh-privatekey]: Required value"]),
        ("kubernetes.io/basic-auth", &["data[username]: Required value", "data[password]: Required value"]),
        ("kubernetes.io/dockerconfigjson", &["data[.dockerconfigjson]: Required value"]),
        (
            "kubernetes.io/service-account-token",
            &["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
    ] {
        check_new(&secret, &[("/type", json!(kind))], expected);
    }
    check_new(&secret, &[("/type", json!("kubernetes.io/dockercfg")), ("/data", json!({".dockercfg": "e30="}))], &[]);
    check_new(
        &secret,
        &[("/type", json!("kubernetes.io/dockercfg")), ("/data", json!({".dockercfg": "ew=="}))],
        &["data[.dockercfg]: Invalid value: \"<secret contents redacted>\": unexpected end of JSON input"],
    );
}
