//! The priority levels and flow schemas of every cluster (KEP-1040): the mandatory ones and those that upstream
//! suggests.
//!
//! The default objects exist as values too, since the mandatory ones are in effect even without an object.

use std::sync::LazyLock;

use keelson_meta::Object;
use keelson_meta::json::{Value, json};

use crate::config::{CATCH_ALL, EXEMPT, FlowSchema, PriorityLevel};

/// The annotation of an object whose spec is kept equal to the suggested one: `true` or `false`.
pub const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Levels: name, shares, and the percentage of seats that other levels may borrow. For levels with queues also the
/// number of queues, the hand size and the queue length.
const LEVELS: [(&str, u32, u32, Option<[u32; 3]>); 7] = [
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some([128, 6, 50])),
    ("leader-election", 10, 0, Some([16, 4, 50])),
    ("node-high", 40, 25, Some([64, 6, 50])),
    ("system", 30, 33, Some([64, 6, 50])),
    ("workload-high", 40, 50, Some([128, 6, 50])),
    ("workload-low", 100, 90, Some([128, 6, 50])),
];

/// The priority levels, as objects.
pub fn priority_level_objects() -> Vec<Value> {
    let exempt = json!({ "type": "Exempt", "exempt": { "nominalConcurrencyShares": 0, "lendablePercent": 0 } });
    let limited = LEVELS.map(|(name, shares, lendable, queues)| {
        let response = match queues {
            None => json!({ "type": "Reject" }),
            Some([queues, hand, length]) => json!({
                "type": "Queue",
                "queuing": { "queues": queues, "handSize": hand, "queueLengthLimit": length },
            }),
        };
        let limited =
            json!({ "nominalConcurrencyShares": shares, "lendablePercent": lendable, "limitResponse": response });
        object(name, &json!({ "type": "Limited", "limited": limited }))
    });
    std::iter::once(object("exempt", &exempt)).chain(limited).collect()
}

/// Returns true for names of objects with a fixed spec.
pub fn is_mandatory(name: &str) -> bool {
    name == EXEMPT || name == CATCH_ALL
}

/// The priority levels.
pub fn priority_levels() -> Vec<PriorityLevel> {
    static PARSED: LazyLock<Vec<PriorityLevel>> =
        LazyLock::new(|| objects(priority_level_objects()).map(|object| PriorityLevel::from_object(&object)).collect());
    PARSED.clone()
}

/// The flow schemas.
pub fn flow_schemas() -> Vec<FlowSchema> {
    static PARSED: LazyLock<Vec<FlowSchema>> =
        LazyLock::new(|| objects(flow_schema_objects()).map(|object| FlowSchema::from_object(&object)).collect());
    PARSED.clone()
}

fn objects(values: Vec<Value>) -> impl Iterator<Item = Object> {
    values.into_iter().filter_map(Object::from_value)
}

/// The flow schemas, as objects.
pub fn flow_schema_objects() -> Vec<Value> {
    let everything = || json!([resources(&["*"], &["*"], &["*"], &["*"], true)]);
    let anywhere = || json!([{ "verbs": ["*"], "nonResourceURLs": ["*"] }]);
    let all = |subjects: Value| json!({ "subjects": subjects, "resourceRules": everything(), "nonResourceRules": anywhere() });
    let electing = |group: &str, plurals: &[&str], namespace: &str| {
        resources(&["get", "create", "update"], &[group], plurals, &[namespace], false)
    };
    let controllers = [user("system:kube-controller-manager"), user("system:kube-scheduler")];
    let system_accounts = account("kube-system", "*");
    let endpoints = resources(&["get", "create", "update"], &[""], &["endpoints"], &["*"], false);
    let health = json!({ "verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"] });
    let everybody = || json!([group("system:unauthenticated"), group("system:authenticated")]);
    vec![
        schema("exempt", "exempt", 1, "", &all(json!([group("system:masters")]))),
        schema("probes", "exempt", 2, "", &json!({ "subjects": everybody(), "nonResourceRules": [health] })),
        schema(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            &json!({
                "subjects": [controllers[0], controllers[1], system_accounts],
                "resourceRules": [electing("coordination.k8s.io", &["leases"], "*")],
            }),
        ),
        schema(
            "endpoint-controller",
            "workload-high",
            150,
            "ByUser",
            &json!({
                "subjects": [user("system:kube-controller-manager"), account("kube-system", "endpoint-controller"),
                    account("kube-system", "endpointslicemirroring-controller")],
                "resourceRules": [endpoints],
            }),
        ),
        schema(
            "workload-leader-election",
            "leader-election",
            200,
            "ByUser",
            &json!({
                "subjects": [system_accounts],
                "resourceRules": [electing("", &["endpoints", "configmaps"], "*"), electing("coordination.k8s.io", &["leases"], "*")],
            }),
        ),
        schema(
            "system-node-high",
            "node-high",
            400,
            "ByUser",
            &json!({
                "subjects": [group("system:nodes")],
                "resourceRules": [
                    resources(&["*"], &[""], &["nodes", "nodes/status"], &["*"], true),
                    resources(&["*"], &["coordination.k8s.io"], &["leases"], &["*"], false),
                ],
            }),
        ),
        schema("system-nodes", "system", 500, "ByUser", &all(json!([group("system:nodes")]))),
        schema("kube-controller-manager", "workload-high", 800, "ByNamespace", &all(json!([controllers[0]]))),
        schema("kube-scheduler", "workload-high", 800, "ByNamespace", &all(json!([controllers[1]]))),
        schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", &all(json!([system_accounts]))),
        schema("service-accounts", "workload-low", 9000, "ByUser", &all(json!([group("system:serviceaccounts")]))),
        schema("global-default", "global-default", 9900, "ByUser", &all(everybody())),
        schema("catch-all", "catch-all", 10_000, "ByUser", &all(everybody())),
    ]
}

fn schema(name: &str, level: &str, precedence: u32, distinguisher: &str, rule: &Value) -> Value {
    let mut spec = json!({
        "priorityLevelConfiguration": { "name": level }, "matchingPrecedence": precedence, "rules": [rule],
    });
    if !distinguisher.is_empty() {
        spec["distinguisherMethod"] = json!({ "type": distinguisher });
    }
    object(name, &spec)
}

fn object(name: &str, spec: &Value) -> Value {
    let annotations = json!({ AUTO_UPDATE: "true" });
    json!({ "metadata": { "name": name, "annotations": annotations }, "spec": spec })
}

fn resources(verbs: &[&str], groups: &[&str], plurals: &[&str], namespaces: &[&str], cluster: bool) -> Value {
    let mut rule = json!({ "verbs": verbs, "apiGroups": groups, "resources": plurals, "namespaces": namespaces });
    if cluster {
        rule["clusterScope"] = json!(true);
    }
    rule
}

fn user(name: &str) -> Value {
    json!({ "kind": "User", "user": { "name": name } })
}

fn group(name: &str) -> Value {
    json!({ "kind": "Group", "group": { "name": name } })
}

fn account(namespace: &str, name: &str) -> Value {
    json!({ "kind": "ServiceAccount", "serviceAccount": { "namespace": namespace, "name": name } })
}
