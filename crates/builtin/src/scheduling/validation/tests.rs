//! Tests of priority classes, workloads and groups of pods.
//!
//! Updates cannot change the value of a class, and little of a group.

use keelson_meta::json::{Value, json};

use crate::validating::tests::{check_below, check_new, check_update};

#[test]
fn priority_classes_have_a_value_for_good() {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "c"}, "value": 5,
        "preemptionPolicy": "Never"});
    check_new(
        &class,
        &[("/value", json!(1_000_000_001)), ("/preemptionPolicy", json!("Maybe"))],
        &[
            "value: Forbidden: maximum allowed value of a user defined priority is 1000000000",
            "preemptionPolicy: Unsupported value: \"Maybe\": supported values: \"PreemptLowerPriority\", \"Never\"",
        ],
    );
    let reserved =
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only.";
    check_new(
        &class,
        &[("/metadata/name", json!("system-x"))],
        &[&format!("{reserved} error: system-x is not a known system priority class")],
    );
    check_new(
        &class,
        &[("/metadata/name", json!("system-node-critical"))],
        &[&format!("{reserved} error: value of system-node-critical PriorityClass must be 2000001000")],
    );
    check_new(&class, &[("/metadata/name", json!("system-node-critical")), ("/value", json!(2_000_001_000))], &[]);
    check_update(
        &class,
        &[("/value", json!(6)), ("/preemptionPolicy", json!("PreemptLowerPriority"))],
        &[
            "value: Forbidden: may not be changed in an update.",
            "preemptionPolicy: Invalid value: \"PreemptLowerPriority\": field is immutable",
        ],
    );
}

fn pod_group(spec: &Value) -> Value {
    json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "g", "namespace": "d"},
        "spec": spec, "status": {}})
}

#[test]
fn a_group_has_one_policy_for_good() {
    let gang = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"single": {}}, "priority": 0});
    let group = pod_group(&gang);
    check_new(
        &group,
        &[("/spec/schedulingPolicy/basic", json!({})), ("/spec/schedulingPolicy/gang/minCount", json!(-1))],
        &[
            "spec.schedulingPolicy: Invalid value: \"{`basic`, `gang`}\": must specify exactly one of: `basic`, `gang`",
            "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1",
        ],
    );
    check_new(
        &group,
        &[
            ("/spec/disruptionMode", json!({})),
            ("/spec/priority", json!(1_000_000_001)),
            ("/spec/workloadRef", json!({"workloadName": "w"})),
        ],
        &[
            "spec.workloadRef.templateName: Required value",
            "spec.disruptionMode: Invalid value: \"\": must specify one of: `single`, `all`",
            "spec.priority: Invalid value: 1000000001: must be less than or equal to 1000000000",
        ],
    );
    check_update(&group, &[("/spec/schedulingPolicy/gang/minCount", json!(3))], &[]);
    check_update(
        &group,
        &[("/spec/schedulingPolicy", json!({"basic": {}})), ("/spec/priority", json!(1))],
        &[
            "spec.schedulingPolicy.basic: Invalid value: {}: field is immutable",
            "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set",
            "spec.priority: Invalid value: 1: field is immutable",
        ],
    );
    let statuses: Vec<Value> = (0..5).map(|number| json!({"name": format!("c{number}")})).collect();
    check_below(
        Some("status"),
        &group,
        &[("/status/resourceClaimStatuses", json!(statuses))],
        &["status.resourceClaimStatuses: Too many: 5: must have at most 4 items"],
    );
}

#[test]
fn templates_of_a_workload_neither_come_nor_go() {
    let template = |name: &str| json!({"name": name, "schedulingPolicy": {"gang": {"minCount": 2}}});
    let workload = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "d"}, "spec": {"podGroupTemplates": [template("a"), template("b")]}});
    check_new(
        &workload,
        &[("/spec/podGroupTemplates", Value::Null)],
        &["spec: Invalid value: \"\": must specify one of: `podGroupTemplates`, `compositePodGroupTemplates`"],
    );
    check_new(
        &workload,
        &[("/spec/podGroupTemplates/1/name", json!("a")), ("/spec/podGroupTemplates/0/priorityClassName", json!("B"))],
        &[
            "spec.podGroupTemplates[0].priorityClassName: Invalid value: \"B\": a lowercase RFC 1123 subdomain must \
             consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric \
             character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            "spec.podGroupTemplates[1]: Duplicate value: \"a\"",
        ],
    );
    let mut swapped = vec![template("b"), template("a")];
    swapped[0]["schedulingPolicy"]["gang"]["minCount"] = json!(5);
    check_update(&workload, &[("/spec/podGroupTemplates", json!(swapped))], &[]);
    check_update(
        &workload,
        &[("/spec/podGroupTemplates", json!([template("a"), template("c")]))],
        &[
            "spec.podGroupTemplates[c]: Forbidden: item may not be added",
            "spec.podGroupTemplates[1].schedulingPolicy.gang: Invalid value: null: field cannot be set once created",
            "spec.podGroupTemplates[b]: Forbidden: item may not be removed",
        ],
    );
}

#[test]
fn templates_of_groups_of_groups_have_a_limited_depth() {
    let leaf = json!([{"name": "p", "schedulingPolicy": {"basic": {}}}]);
    let nested = |depth: usize| {
        let mut template = json!({"name": "t", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": leaf});
        for _ in 1..depth {
            template =
                json!({"name": "t", "schedulingPolicy": {"basic": {}}, "compositePodGroupTemplates": [template]});
        }
        json!([template])
    };
    let workload = json!({"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "Workload",
        "metadata": {"name": "w", "namespace": "d"}, "spec": {"compositePodGroupTemplates": nested(3)}});
    let path = "spec.compositePodGroupTemplates[0].compositePodGroupTemplates[0].compositePodGroupTemplates[0]";
    check_new(
        &workload,
        &[("/spec/compositePodGroupTemplates", nested(4))],
        &[&format!("{path}.compositePodGroupTemplates: Forbidden: templates may be at most 4 levels deep")],
    );
}
