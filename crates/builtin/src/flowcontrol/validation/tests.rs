//! Tests of flow schemas and priority levels.
//!
//! The mandatory objects cannot change.

use keelson_meta::json::json;

use crate::validating::tests::{check_below, check_new, check_update};

#[test]
fn flow_schemas() {
    let schema = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema", "metadata": {"name": "s"},
        "spec": {"matchingPrecedence": 500, "priorityLevelConfiguration": {"name": "l"}, "rules": [{
            "subjects": [{"kind": "User", "user": {"name": "u"}}],
            "resourceRules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["*"]}]}]}});
    check_new(
        &schema,
        &[("/spec/matchingPrecedence", json!(1)), ("/spec/distinguisherMethod", json!({"type": "X"}))],
        &[
            "spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
            "spec.distinguisherMethod.type: Unsupported value: {\"Type\":\"X\"}: supported values: \"ByNamespace\", \"ByUser\"",
        ],
    );
    check_new(
        &schema,
        &[
            ("/spec/rules/0/subjects/0", json!({"kind": "ServiceAccount", "user": {"name": "u"}})),
            ("/spec/rules/0/resourceRules/0/verbs", json!(["*", "get"])),
            ("/spec/rules/0/nonResourceRules", json!([{"verbs": ["peek"], "nonResourceURLs": ["a", "/a*"]}])),
        ],
        &[
            "spec.rules[0].subjects[0].serviceAccount: Required value: serviceAccount is required when subject kind is \
             'ServiceAccount'",
            "spec.rules[0].subjects[0].user: Forbidden: user is forbidden when subject kind is not 'User'",
            "spec.rules[0].resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify \
             other verbs",
            "spec.rules[0].nonResourceRules[0].verbs: Unsupported value: [\"peek\"]: supported values: \"create\", \
             \"delete\", \"deletecollection\", \"get\", \"list\", \"patch\", \"proxy\", \"update\", \"watch\"",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[0]: Invalid value: \"a\": must start with slash",
            "spec.rules[0].nonResourceRules[0].nonResourceURLs[1]: Invalid value: \"/a*\": wildcard can only do suffix \
             matching",
        ],
    );
    check_new(
        &schema,
        &[("/metadata/name", json!("exempt")), ("/spec/rules", json!([]))],
        &["spec: Invalid value: {\"PriorityLevelConfiguration\":{\"Name\":\"l\"},\"MatchingPrecedence\":500,\
           \"DistinguisherMethod\":null,\"Rules\":[]}: spec of 'exempt' must equal the fixed value"],
    );
    check_below(
        Some("status"),
        &schema,
        &[("/status", json!({"conditions": [{"type": "A"}, {"type": "A"}, {"type": ""}]}))],
        &[
            "status.conditions[1].type: Duplicate value: \"A\"",
            "status.conditions[2].type: Required value: must not be empty",
        ],
    );
}

#[test]
fn priority_levels() {
    let level = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 30,
            "lendablePercent": 0, "limitResponse": {"type": "Queue", "queuing":
            {"queues": 64, "handSize": 8, "queueLengthLimit": 50}}}}});
    check_new(
        &level,
        &[("/spec/type", json!("Exempt"))],
        &[
            "spec.type: Invalid value: \"Exempt\": must be 'Exempt' if and only if `name` is 'exempt'",
            "spec.limited: Forbidden: must be nil if the type is not Limited",
        ],
    );
    check_new(
        &level,
        &[
            ("/spec/limited/lendablePercent", json!(101)),
            ("/spec/limited/borrowingLimitPercent", json!(-1)),
            ("/spec/limited/limitResponse/queuing", json!({"queues": 512, "handSize": 8, "queueLengthLimit": 0})),
        ],
        &[
            "spec.limited.limitResponse.queuing.queueLengthLimit: Invalid value: 0: must be positive",
            "spec.limited.limitResponse.queuing.handSize: Invalid value: 8: required entropy bits of deckSize 512 and \
             handSize 8 should not be greater than 60",
            "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
            "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer",
        ],
    );
    let exempt = json!({"apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "PriorityLevelConfiguration",
        "metadata": {"name": "exempt"}, "spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}});
    check_update(&exempt, &[("/spec/exempt/lendablePercent", json!(50))], &[]);
    check_update(
        &exempt,
        &[("/spec/limited", json!({"limitResponse": {"type": "Reject"}}))],
        &[
            "spec.limited: Forbidden: must be nil if the type is not Limited",
            "spec: Invalid value: {\"Type\":\"Exempt\",\"Limited\":{\"NominalConcurrencyShares\":0,\"LimitResponse\":\
             {\"Type\":\"Reject\",\"Queuing\":null},\"LendablePercent\":null,\"BorrowingLimitPercent\":null},\"Exempt\":\
             {\"NominalConcurrencyShares\":0,\"LendablePercent\":null}}: spec of 'exempt' except the 'spec.exempt' field \
             must equal the fixed value",
        ],
    );
}
