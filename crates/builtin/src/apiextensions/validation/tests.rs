//! Tests of new and updated CustomResourceDefinitions.
//!
//! Tests of schemas are in `tests/schema.rs`.

mod schema;

use keelson_meta::json::{Value, json};

use crate::validating::tests::{change, check_new, check_update};

fn definition() -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.org"},
        "spec": {"group": "example.org", "scope": "Namespaced", "conversion": {"strategy": "None"},
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
            "versions": [
                {"name": "v1", "served": true, "storage": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}},
                {"name": "v1beta1", "served": true, "storage": false, "deprecated": true,
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
        "status": {"acceptedNames": {"plural": "", "kind": ""}, "storedVersions": ["v1"]}})
}

#[test]
fn names_and_scope_of_definitions() {
    check_new(
        &definition(),
        &[
            ("/metadata/name", json!("x.y")),
            ("/spec/scope", json!("Galaxy")),
            ("/spec/names/listKind", json!("Widget")),
            ("/spec/names/shortNames", json!(["W"])),
        ],
        &[
            "metadata.name: Invalid value: \"x.y\": must be spec.names.plural+\".\"+spec.group",
            "spec.scope: Unsupported value: \"Galaxy\": supported values: \"Cluster\", \"Namespaced\"",
            "spec.names.shortNames[0]: Invalid value: \"W\": a DNS-1035 label must consist of lower case alphanumeric \
             characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            "spec.names.listKind: Invalid value: \"Widget\": kind and listKind may not be the same",
        ],
    );
    check_new(
        &definition(),
        &[("/metadata/name", json!("widgets.x.k8s.io")), ("/spec/group", json!("x.k8s.io"))],
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation \
           \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111",
        ],
    );
    check_new(
        &definition(),
        &[("/spec/preserveUnknownFields", json!(true))],
        &[
            "spec.preserveUnknownFields: Invalid value: true: cannot set to true, set x-kubernetes-preserve-unknown-fields to \
           true in spec.versions[*].schema instead",
        ],
    );
}

#[test]
fn groups_of_the_community_are_approved() {
    const APPROVED: &str = "api-approved.kubernetes.io";
    let of_community = change(
        &definition(),
        &[
            ("/metadata/name", json!("widgets.x.k8s.io")),
            ("/spec/group", json!("x.k8s.io")),
            ("/metadata/annotations", json!({APPROVED: "unapproved, a test"})),
        ],
    );
    check_new(
        &of_community,
        &[("/metadata/annotations", json!({APPROVED: "yes"}))],
        &[
            "metadata.annotations[api-approved.kubernetes.io]: Invalid value: \"yes\": protected groups must have approval \
           annotation \"api-approved.kubernetes.io\" with either a URL or a reason starting with \"unapproved\", see \
           https://github.com/kubernetes/enhancements/pull/1111",
        ],
    );
    let missing = "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval \
                   annotation \"api-approved.kubernetes.io\", see https://github.com/kubernetes/enhancements/pull/1111";
    check_update(&of_community, &[("/metadata/annotations", Value::Null)], &[missing]);
    let never = change(&of_community, &[("/metadata/annotations", Value::Null)]);
    check_update(&never, &[("/metadata/labels", json!({"a": "b"}))], &[]);
}

#[test]
fn versions_of_definitions() {
    // The error prints the parts that differ between versions like Go, but not those that all versions share.
    let bare = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
    check_new(
        &definition(),
        &[("/spec/versions", json!([bare("v1", true), bare("v1", true)]))],
        &["must contain unique version names", "must have exactly one version marked as storage version"].map(|detail| {
            let version = "{\"Name\":\"v1\",\"Served\":true,\"Storage\":true,\"Deprecated\":false,\"DeprecationWarning\":null,\
                           \"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\"SelectableFields\":null}";
            format!("spec.versions: Invalid value: [{version},{version}]: {detail}")
        })
        .each_ref()
        .map(String::as_str),
    );
    check_new(
        &definition(),
        &[
            (
                "/spec/versions/0/schema/openAPIV3Schema/properties/spec",
                json!({"properties": {"a": {"type": "array"}}}),
            ),
            ("/spec/versions/1/schema", Value::Null),
        ],
        &[
            "spec.versions[1].schema.openAPIV3Schema: Required value",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified",
            "spec.versions[0].schema.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified \
             object fields",
        ],
    );
    check_new(
        &definition(),
        &[
            ("/spec/versions/0/deprecationWarning", json!("soon")),
            ("/spec/versions/0/additionalPrinterColumns", json!([{"name": "A", "type": "colour"}])),
            ("/spec/versions/0/subresources", json!({"scale": {"specReplicasPath": ".replicas"}})),
        ],
        &[
            "spec.versions[0].deprecationWarning: Invalid value: \"soon\": can only be set for deprecated versions",
            "spec.versions[0].subresources.scale.specReplicasPath: Invalid value: \".replicas\": should be a json path under \
             .spec",
            "spec.versions[0].subresources.scale.statusReplicasPath: Required value",
            "spec.versions[0].additionalPrinterColumns[0].type: Invalid value: \"colour\": must be one of \
             boolean,date,integer,number,string",
            "spec.versions[0].additionalPrinterColumns[0].JSONPath: Required value",
        ],
    );
    let only = json!([{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {}}}]);
    check_new(
        &definition(),
        &[("/spec/versions", only)],
        &["spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root"],
    );
}

#[test]
fn stored_versions_and_names_stay() {
    let only = json!([{"name": "v1beta1", "served": true, "storage": false, "deprecated": true}]);
    let gone = "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a \
                storage migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions";
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    check_update(
        &definition(),
        &[("/spec/versions", only), ("/spec/versions/0/schema", schema), ("/spec/group", json!("example.com"))],
        &[
            "spec.versions: Invalid value: [{\"Name\":\"v1beta1\",\"Served\":true,\"Storage\":false,\"Deprecated\":true,\
             \"DeprecationWarning\":null,\"Schema\":null,\"Subresources\":null,\"AdditionalPrinterColumns\":null,\
             \"SelectableFields\":null}]: must have exactly one version marked as storage version",
            "spec.group: Invalid value: \"example.com\": field is immutable",
            &format!("status.storedVersions[0]: Invalid value: \"v1\": {gone}"),
        ],
    );
    check_update(&definition(), &[("/spec/scope", json!("Cluster"))], &[]);
    let conditions = json!([{"type": "Established", "status": "True"}]);
    let established = change(&definition(), &[("/status/conditions", conditions)]);
    check_update(
        &established,
        &[("/spec/scope", json!("Cluster"))],
        &["spec.scope: Invalid value: \"Cluster\": field is immutable"],
    );
    check_update(
        &definition(),
        &[("/status/storedVersions", json!([]))],
        &["status.storedVersions: Invalid value: []: must have at least one stored version"],
    );
    check_update(
        &definition(),
        &[("/spec/versions/0/storage", json!(false)), ("/spec/versions/1/storage", json!(true))],
        &["status.storedVersions: Invalid value: [\"v1\"]: must have the storage version v1beta1"],
    );
}

#[test]
fn conversion_of_custom_resources() {
    check_new(
        &definition(),
        &[("/spec/conversion", json!({"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v7", "v7"]}}))],
        &[
            "spec.conversion.webhookClientConfig: Required value: required when strategy is set to Webhook",
            "spec.conversion.conversionReviewVersions[1]: Invalid value: \"v7\": duplicate version",
            "spec.conversion.conversionReviewVersions: Invalid value: [\"v7\",\"v7\"]: must include at least one of v1, v1beta1",
        ],
    );
    check_new(
        &definition(),
        &[("/spec/conversion", json!({"strategy": "None", "webhook": {"conversionReviewVersions": ["v1"]}}))],
        &["spec.conversion.conversionReviewVersions: Forbidden: should not be set when strategy is not set to Webhook"],
    );
}

#[test]
fn a_valid_ca_bundle_cannot_become_invalid() {
    // A sequence of two bytes stands for a certificate. Its content is not checked.
    const GOOD: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BSUJBQT09Ci0tLS0tRU5EIENFUlRJRklDQVRFLS0tLS0K";
    const BAD: &str = "bm9wZQ==";
    let with = |bundle: Value| {
        let client = json!({"url": "https://example.com/c", "caBundle": bundle});
        let webhook = json!({"clientConfig": client, "conversionReviewVersions": ["v1"]});
        change(&definition(), &[("/spec/conversion", json!({"strategy": "Webhook", "webhook": webhook}))])
    };
    let bundle = "/spec/conversion/webhook/clientConfig/caBundle";
    let faulty = |fault: &str| {
        format!(
            "spec.conversion.webhookClientConfig.caBundle: Invalid value: \"{BAD}\": unable to load root certificates: {fault}"
        )
    };
    check_new(&with(json!(BAD)), &[], &[]);
    let no_pem = faulty("unable to parse bytes as PEM block");
    for before in [json!(GOOD), Value::Null] {
        check_update(&with(before.clone()), &[(bundle, json!(BAD))], &[&no_pem]);
        check_update(&with(before), &[(bundle, json!(GOOD))], &[]);
    }
    check_update(&with(json!(BAD)), &[(bundle, json!("Cg=="))], &[]);
    check_update(&with(json!(GOOD)), &[(bundle, Value::Null)], &[]);
}
