//! Tests the tables of the smaller groups: admission, API services, certificates, flow control, leases, policy, RBAC,
//! scheduling.
//!
//! The tests have an example for each kind and for each form of a cell.

use keelson_builtin::printer;
use keelson_meta::json::{Value, json};

use super::{cell, check, object};

#[test]
fn admission_shows_counts_and_parameters() {
    let group = "admissionregistration.k8s.io";
    for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
        check(group, kind, json!({"webhooks": [{}, {}]}), json!(["x", 2, "3d4h"]));
    }
    let spec =
        json!({"validations": [{}], "mutations": [{}, {}], "paramKind": {"apiVersion": "example.org/v1", "kind": "P"}});
    let policy = json!({"spec": spec});
    check(group, "ValidatingAdmissionPolicy", policy.clone(), json!(["x", 1, "example.org/v1/P", "3d4h"]));
    check(group, "MutatingAdmissionPolicy", policy, json!(["x", 2, "example.org/v1/P", "3d4h"]));
    check(group, "ValidatingAdmissionPolicy", json!({}), json!(["x", 0, "<unset>", "3d4h"]));
    for kind in ["ValidatingAdmissionPolicyBinding", "MutatingAdmissionPolicyBinding"] {
        let param =
            |param: Value| cell(group, kind, "ParamRef", json!({"spec": {"policyName": "p", "paramRef": param}}));
        assert_eq!(param(Value::Null), "<unset>");
        assert_eq!(param(json!({"name": "a"})), "*/a");
        assert_eq!(param(json!({"name": "a", "namespace": "n"})), "n/a");
        let selector = json!({"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": [{"key": "k",
            "operator": "In", "values": ["v", "w"]}]});
        let text = "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},\
            MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:k,Operator:In,Values:[v w],},},}";
        assert_eq!(param(json!({"selector": selector})), text);
    }
}

#[test]
fn api_services_show_availability_or_the_reason() {
    let (group, kind) = ("apiregistration.k8s.io", "APIService");
    let with = |condition: Value| {
        json!({"spec": {"service": {"namespace": "n", "name": "s"}},
        "status": {"conditions": [condition]}})
    };
    check(group, kind, with(json!({"type": "Available", "status": "True"})), json!(["x", "n/s", "True", "3d4h"]));
    let missing = json!({"type": "Available", "status": "False", "reason": "MissingEndpoints"});
    check(group, kind, with(missing), json!(["x", "n/s", "False (MissingEndpoints)", "3d4h"]));
    check(group, kind, json!({}), json!(["x", "Local", "Unknown", "3d4h"]));
}

#[test]
fn signing_requests_show_their_conditions() {
    let (group, kind) = ("certificates.k8s.io", "CertificateSigningRequest");
    let fields = json!({"spec": {"signerName": "example.org/s", "username": "ann", "expirationSeconds": 3600}});
    check(group, kind, fields, json!(["x", "3d4h", "example.org/s", "ann", "60m", "Pending"]));
    let shown = |types: &[&str], certificate: &str| {
        let conditions: Vec<Value> = types.iter().map(|kind| json!({"type": kind, "status": "True"})).collect();
        cell(group, kind, "Condition", json!({"status": {"conditions": conditions, "certificate": certificate}}))
    };
    assert_eq!(shown(&["Approved"], ""), "Approved");
    assert_eq!(shown(&["Approved"], "LS0t"), "Approved,Issued");
    assert_eq!(shown(&["Approved", "Denied"], ""), "Denied");
    assert_eq!(shown(&["Approved", "Failed"], ""), "Approved,Failed");
}

#[test]
fn flow_schemas_stand_in_the_order_they_are_tried() {
    let (group, kind) = ("flowcontrol.apiserver.k8s.io", "FlowSchema");
    let spec = json!({"priorityLevelConfiguration": {"name": "low"}, "matchingPrecedence": 900,
        "distinguisherMethod": {"type": "ByUser"}});
    let fields = json!({"spec": spec, "status": {"conditions": [{"type": "Dangling", "status": "False"}]}});
    check(group, kind, fields, json!(["x", "low", 900, "ByUser", "3d4h", "False"]));
    check(group, kind, json!({}), json!(["x", "", 0, "<none>", "3d4h", "?"]));

    let schema =
        |name: &str, rank: u32| object(json!({"metadata": {"name": name}, "spec": {"matchingPrecedence": rank}}));
    let mut schemas = [schema("a", 9), schema("c", 1), schema("b", 1)];
    schemas.sort_by(printer(group, kind).order().unwrap());
    assert_eq!(schemas.each_ref().map(keelson_meta::Object::name), ["b", "c", "a"]);
    assert!(printer("", "Pod").order().is_none());
}

#[test]
fn priority_levels_show_their_queues() {
    let level = |spec: Value, expected: Value| {
        check("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration", json!({"spec": spec}), expected);
    };
    level(json!({"type": "Exempt"}), json!(["x", "Exempt", "<none>", "<none>", "<none>", "<none>", "3d4h"]));
    let rejecting =
        json!({"type": "Limited", "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}}});
    level(rejecting, json!(["x", "Limited", 5, "<none>", "<none>", "<none>", "3d4h"]));
    let queuing = json!({"queues": 64, "handSize": 6, "queueLengthLimit": 50});
    let limited = json!({"nominalConcurrencyShares": 30, "limitResponse": {"type": "Queue", "queuing": queuing}});
    level(json!({"type": "Limited", "limited": limited}), json!(["x", "Limited", 30, 64, 6, 50, "3d4h"]));
}

#[test]
fn leases_show_their_holder() {
    let group = "coordination.k8s.io";
    check(group, "Lease", json!({"spec": {"holderIdentity": "one"}}), json!(["x", "one", "3d4h"]));
    check(group, "Lease", json!({}), json!(["x", "", "3d4h"]));
    let spec = json!({"leaseName": "l", "binaryVersion": "1.36.0", "emulationVersion": "1.35.0"});
    check(group, "LeaseCandidate", json!({"spec": spec}), json!(["x", "l", "1.36.0", "1.35.0", "3d4h"]));
}

#[test]
fn budgets_show_numbers_and_percentages() {
    let budget = |spec: Value, expected: Value| {
        check("policy", "PodDisruptionBudget", json!({"spec": spec, "status": {"disruptionsAllowed": 1}}), expected);
    };
    budget(json!({"minAvailable": 2}), json!(["x", "2", "N/A", 1, "3d4h"]));
    budget(json!({"maxUnavailable": "30%"}), json!(["x", "N/A", "30%", 1, "3d4h"]));
}

#[test]
fn bindings_sort_their_subjects_by_kind() {
    let subjects = json!([{"kind": "User", "name": "ann"}, {"kind": "Group", "name": "g"}, {"kind": "User",
        "name": "bob"},
        {"kind": "ServiceAccount", "namespace": "n", "name": "s"}]);
    let fields = json!({"roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": subjects});
    for kind in ["RoleBinding", "ClusterRoleBinding"] {
        check(
            "rbac.authorization.k8s.io",
            kind,
            fields.clone(),
            json!(["x", "ClusterRole/view", "3d4h", "ann, bob", "g", "n/s"]),
        );
    }
}

#[test]
fn classes_show_their_values() {
    let fields = json!({"value": 1000, "globalDefault": true, "preemptionPolicy": "Never"});
    check("scheduling.k8s.io", "PriorityClass", fields, json!(["x", 1000, true, "3d4h", "Never"]));
    check("node.k8s.io", "RuntimeClass", json!({"handler": "runsc"}), json!(["x", "runsc", "3d4h"]));
}

#[test]
fn a_status_shows_the_outcome() {
    let fields = json!({"status": "Failure", "reason": "NotFound", "message": "no such pod"});
    check("", "Status", fields, json!(["Failure", "NotFound", "no such pod"]));
}
