//! Endpoint slices, flow control, runtime classes, API services, storage versions and their migrations.
//!
//! They are small, and stand together for that.

use keelson_meta::json::{Value, json};

use super::{check_below, check_new, check_update};

#[test]
fn endpoint_slices() {
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "s"},
        "addressType": "IPv4", "endpoints": [{"addresses": ["10.0.0.1"]}],
        "ports": [{"name": "http", "protocol": "TCP", "port": 80}]});
    check_new(&slice, &[("/addressType", Value::Null)], &["addressType: Required value"]);
    check_new(
        &slice,
        &[("/addressType", json!("IP"))],
        &["addressType: Unsupported value: \"IP\": supported values: \"FQDN\", \"IPv4\", \"IPv6\""],
    );
    check_new(
        &slice,
        &[("/endpoints/0/addresses", json!(["::1"])), ("/ports/-", json!({"name": "http", "protocol": "X"}))],
        &[
            "endpoints[0].addresses[0]: Invalid value: \"::1\": must be a valid IPv4 address",
            "endpoints[0].addresses[0]: Invalid value: \"::1\": may not be in the loopback range (127.0.0.0/8, ::1/128)",
            "ports[1].name: Duplicate value: \"http\"",
            "ports[1].protocol: Unsupported value: \"X\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
        ],
    );
    check_new(
        &slice,
        &[("/endpoints/0", json!({"addresses": [], "hints": {"forZones": [{"name": "a"}, {"name": "a"}]}}))],
        &[
            "endpoints[0].addresses: Required value: must contain at least 1 address",
            "endpoints[0].hints.forZones[1].name: Duplicate value: \"a\"",
        ],
    );
    check_new(
        &slice,
        &[("/endpoints", json!(vec![json!({"addresses": []}); 1001]))],
        &["endpoints: Too many: 1001: must have at most 1000 items"],
    );
    check_update(
        &slice,
        &[("/addressType", json!("FQDN")), ("/endpoints", json!([]))],
        &["addressType: Invalid value: \"FQDN\": field is immutable"],
    );
}

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

#[test]
fn runtime_classes() {
    let class =
        json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "c"}, "handler": "runc"});
    check_new(
        &class,
        &[
            ("/overhead", json!({"podFixed": {"widgets": "1"}})),
            ("/scheduling", json!({"tolerations": [{"key": "a", "operator": "Exists", "effect": "Never"}]})),
        ],
        &[
            "overhead.limits[widgets]: Invalid value: \"widgets\": must be a standard resource type or fully qualified",
            "overhead.limits[widgets]: Invalid value: \"widgets\": must be a standard resource for containers",
            "scheduling.tolerations[0].effect: Unsupported value: \"Never\": supported values: \"NoSchedule\", \
             \"PreferNoSchedule\", \"NoExecute\"",
        ],
    );
    check_update(&class, &[("/handler", json!("kata"))], &["handler: Invalid value: \"kata\": field is immutable"]);
}

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

#[test]
fn migrations_of_storage_versions() {
    let condition = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "R", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let migration = json!({"apiVersion": "storagemigration.k8s.io/v1beta1", "kind": "StorageVersionMigration",
        "metadata": {"name": "m"}, "spec": {"resource": {"group": "apps", "resource": "deployments"}},
        "status": {"resourceVersion": "12", "conditions": [condition("Running", "True")]}});
    check_new(
        &migration,
        &[("/spec/resource/resource", json!(""))],
        &["spec.resource.resource: Required value: resource is required to be set"],
    );
    check_update(
        &migration,
        &[("/spec/resource/group", json!("batch"))],
        &["spec: Invalid value: {\"Resource\":{\"group\":\"batch\",\"resource\":\"deployments\"}}: field is immutable"],
    );
    let status = Some("status");
    check_below(status, &migration, &[("/status/conditions/-", condition("StorageVersionMigrated", "False"))], &[]);
    check_below(
        status,
        &migration,
        &[("/status/resourceVersion", json!("x1"))],
        &[
            "status.resourceVersion: Invalid value: \"x1\": resource version is not well formed: x1",
            "status.resourceVersion: Invalid value: \"x1\": field is immutable",
        ],
    );
    check_below(
        status,
        &migration,
        &[("/status/conditions/0", json!({"type": "Running", "status": "Perhaps", "reason": "a b"}))],
        &[
            "status.conditions[0].status: Unsupported value: \"Perhaps\": supported values: \"False\", \"True\", \"Unknown\"",
            "status.conditions[0].lastTransitionTime: Required value",
            "status.conditions[0].reason: Invalid value: \"a b\": a condition reason must start with alphabetic character, \
             optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric \
             character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', \
             regex used for validation is '[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
        ],
    );
    let done = json!([condition("Succeeded", "True")]);
    let finished = super::change(&migration, &[("/status/conditions", done)]);
    let text = serde_json::to_string(&json!([condition("Succeeded", "False")])).unwrap();
    check_below(
        status,
        &finished,
        &[("/status/conditions/0/status", json!("False"))],
        &[&format!(
            "status.conditions: Invalid value: {text}: Success condition cannot be set to false once it is true"
        )],
    );
}

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
