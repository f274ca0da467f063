//! Tests of roles and bindings.
//!
//! Verbs, resources and subjects are tested with one example of each error.

use keelson_meta::json::json;

use crate::validating::tests::{change, check_new, check_update};

const RBAC: &str = "rbac.authorization.k8s.io";

#[test]
fn role_rules_require_verbs_and_resources() {
    let role = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "Role", "metadata": {"name": "r"},
        "rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]});
    check_new(
        &role,
        &[("/rules/0", json!({}))],
        &[
            "rules[0].verbs: Required value: verbs must contain at least one value",
            "rules[0].apiGroups: Required value: resource rules must supply at least one api group",
            "rules[0].resources: Required value: resource rules must supply at least one resource",
        ],
    );
    check_new(
        &role,
        &[("/rules/0/nonResourceURLs", json!(["/healthz"]))],
        &[
            "rules[0].nonResourceURLs: Invalid value: [\"/healthz\"]: namespaced rules cannot apply to non-resource URLs",
            "rules[0].nonResourceURLs: Invalid value: [\"/healthz\"]: rules cannot apply to both regular resources and \
             non-resource URLs",
        ],
    );
    let cluster = change(&role, &[("/kind", json!("ClusterRole"))]);
    check_new(&cluster, &[("/rules/0", json!({"verbs": ["get"], "nonResourceURLs": ["/healthz"]}))], &[]);
}

#[test]
fn bindings_keep_their_role() {
    let binding = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "RoleBinding", "metadata": {"name": "b"},
        "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"}, "subjects": [{"kind": "User", "name": "u", "apiGroup": RBAC}]});
    check_new(
        &binding,
        &[("/roleRef/kind", json!("Group")), ("/subjects/0", json!({"kind": "Robot", "name": "x"}))],
        &[
            "roleRef.kind: Unsupported value: \"Group\": supported values: \"Role\", \"ClusterRole\"",
            "subjects[0].kind: Unsupported value: \"Robot\": supported values: \"ServiceAccount\", \"User\", \"Group\"",
        ],
    );
    check_new(&binding, &[("/subjects/0/name", json!(""))], &["subjects[0].name: Required value"]);
    check_update(
        &binding,
        &[("/roleRef/name", json!("s"))],
        &[
            "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"s\"}: cannot \
           change roleRef",
        ],
    );
    let cluster = change(&binding, &[("/kind", json!("ClusterRoleBinding")), ("/roleRef/kind", json!("ClusterRole"))]);
    check_new(
        &cluster,
        &[("/subjects/0", json!({"kind": "ServiceAccount", "name": "a"}))],
        &["subjects[0].namespace: Required value"],
    );
}

#[test]
fn cluster_roles_are_gathered_by_sound_selectors() {
    let role = json!({"apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": {"name": "r"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]},
        "rules": [{"apiGroups": [""], "resources": ["pods", "secrets"], "resourceNames": ["x"], "verbs": ["get"]}]});
    check_new(
        &role,
        &[("/aggregationRule/clusterRoleSelectors", json!([]))],
        &["aggregationRule.clusterRoleSelectors: Required value: at least one clusterRoleSelector required if \
           aggregationRule is non-nil"],
    );
    check_new(
        &role,
        &[("/aggregationRule/clusterRoleSelectors/0", json!({"matchExpressions": [{"key": "a", "operator": "In"}]}))],
        &[
            "aggregationRule.clusterRoleSelectors[0].matchExpressions[0].values: Required value: must be specified when \
             `operator` is 'In' or 'NotIn'",
            "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector.",
        ],
    );
}
