//! Tests of workloads.
//!
//! Selectors must match templates, and the rules for pods apply in templates too.

use keelson_meta::json::{Value, json};
use keelson_registry::Validator as _;

use crate::validating::tests::{change, check_below, check_new, check_update, object, rules_of, selector, template};

fn deployment() -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
        "replicas": 1, "selector": selector(), "template": template("Always"), "revisionHistoryLimit": 10,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
        "progressDeadlineSeconds": 600}})
}

#[test]
fn deployments() {
    let check = |changes: &[(&str, Value)], expected: &[&str]| check_new(&deployment(), changes, expected);
    check(
        &[("/spec/replicas", json!(-1)), ("/spec/template/metadata/labels", json!({"app": "other"}))],
        &[
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"other\"}: `selector` does not match template `labels`",
        ],
    );
    check(
        &[("/spec/selector", Value::Null)],
        &[
            "spec.selector: Required value",
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
        ],
    );
    // If the selector is invalid, the template is not validated.
    check(
        &[
            ("/spec/selector", json!({"matchExpressions": [{"key": "app", "operator": "In"}]})),
            ("/spec/template/spec/containers", json!([])),
        ],
        &[
            "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "spec.selector: Invalid value: {\"matchExpressions\":[{\"key\":\"app\",\"operator\":\"In\"}]}: invalid label selector",
        ],
    );
    let disk = json!([{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]);
    check(&[("/spec/template/spec/volumes", disk.clone())], &[]);
    check(
        &[("/spec/template/spec/volumes", disk), ("/spec/replicas", json!(2))],
        &[
            "spec.template.spec.volumes[0].gcePersistentDisk.readOnly: Invalid value: false: must be true for replicated \
           pods > 1; GCE PD can only be mounted on multiple machines if it is read-only",
        ],
    );
    check(
        &[("/spec/template/spec/restartPolicy", json!("Never"))],
        &["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""],
    );
    check(
        &[("/spec/strategy/rollingUpdate", json!({"maxUnavailable": "0%", "maxSurge": 0}))],
        &["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: \"0%\": may not be 0 when `maxSurge` is 0"],
    );
    check(
        &[("/spec/minReadySeconds", json!(600))],
        &["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"],
    );
    check(
        &[("/spec/template/spec/containers/0/image", json!(""))],
        &["spec.template.spec.containers[0].image: Required value"],
    );
    // The image in a template may have surrounding white space; that in a pod may not.
    check(&[("/spec/template/spec/containers/0/image", json!(" x"))], &[]);
    check_update(
        &deployment(),
        &[("/spec/selector", json!({"matchLabels": {"a": "c"}}))],
        &[
            "spec.template.metadata.labels: Invalid value: {\"app\":\"web\"}: `selector` does not match template `labels`",
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
        ],
    );
}

#[test]
fn a_status_is_validated_without_the_spec() {
    let broken = change(&deployment(), &[("/spec/replicas", json!(-1)), ("/status", json!({"replicas": 1}))]);
    check_below(Some("status"), &broken, &[("/status/readyReplicas", json!(1))], &[]);
    check_below(
        Some("status"),
        &broken,
        &[("/status/readyReplicas", json!(2))],
        &["status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas"],
    );
}

#[test]
fn stateful_sets() {
    let valid = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
        "replicas": 1, "selector": selector(), "template": template("Always"), "serviceName": "s",
        "podManagementPolicy": "OrderedReady", "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Retain", "whenScaled": "Retain"}}});
    check_new(
        &valid,
        &[("/spec/podManagementPolicy", json!("Any")), ("/spec/updateStrategy/rollingUpdate/partition", json!(-1))],
        &[
            "spec.podManagementPolicy: Invalid value: \"Any\": must be 'OrderedReady' or 'Parallel'",
            "spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0",
        ],
    );
    // The template is validated like that of other workloads, with the volumes of the claim templates first.
    let mount = json!([{"name": "data", "mountPath": "/data"}]);
    let claim = |name: &str| {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        json!([{"metadata": {"name": name}, "spec": spec}])
    };
    check_new(
        &valid,
        &[("/spec/template/spec/containers/0/volumeMounts", mount.clone())],
        &["spec.template.spec.containers[0].volumeMounts[0].name: Not found: \"data\""],
    );
    let volumes = json!([{"name": "data", "secret": {"secretName": "s"}}, {"name": "Bad", "emptyDir": {}}]);
    check_new(
        &valid,
        &[
            ("/spec/template/spec/containers/0/volumeMounts", mount),
            ("/spec/template/spec/volumes", volumes),
            ("/spec/volumeClaimTemplates", claim("data")),
        ],
        &[
            "spec.template.spec.volumes[1].name: Invalid value: \"Bad\": a lowercase RFC 1123 label must consist of lower \
           case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or \
           '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ],
    );
    check_new(
        &valid,
        &[("/spec/volumeClaimTemplates", json!([{}])), ("/spec/serviceName", json!("a.b"))],
        &[
            "spec.serviceName: Invalid value: \"a.b\": must not contain dots",
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
            "spec.template.spec.volumes[0].persistentVolumeClaim.claimName: Required value",
            "spec.template.spec.volumes[0].name: Required value",
        ],
    );
    check_update(&valid, &[("/spec/replicas", json!(3))], &[]);
    let image = "/spec/template/spec/containers/0/image";
    check_update(&valid, &[(image, json!(""))], &["spec.template.spec.containers[0].image: Required value"]);
    // A template that an older server accepted may stay, and the set may be scaled.
    let old = object(&change(&valid, &[(image, json!(""))]));
    let scaled = object(&change(&valid, &[(image, json!("")), ("/spec/replicas", json!(3))]));
    assert_eq!(rules_of(&old).update(None, &old, &scaled), []);
    check_update(
        &valid,
        &[("/spec/serviceName", json!("other"))],
        &["spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
           'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are \
           forbidden"],
    );
}

#[test]
fn daemon_sets() {
    let valid = json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {
        "selector": selector(), "template": template("Always"), "revisionHistoryLimit": 10,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}}});
    check_new(
        &valid,
        &[("/spec/updateStrategy/rollingUpdate/maxUnavailable", json!(0))],
        &["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"],
    );
    check_update(
        &valid,
        &[("/spec/selector/matchLabels/b", json!("c")), ("/spec/template/metadata/labels/b", json!("c"))],
        &["spec.selector: Invalid value: {\"matchLabels\":{\"app\":\"web\",\"b\":\"c\"}}: field is immutable"],
    );
}
