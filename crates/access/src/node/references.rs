//! References of pods and volumes to other objects.
//!
//! A field `secretRef` of any volume source names a secret. Some sources have other fields for secrets.

use std::collections::BTreeSet;

use keelson_meta::Object;
use keelson_meta::json::Value;

use super::graph::UsedKind;

/// The annotation of mirror pods. They grant no rights to their node, since a node can create them.
const MIRROR: &str = "kubernetes.io/config.mirror";

const CONTAINERS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// The objects of its namespace that a pod uses.
pub(super) fn of_pod(pod: &Object) -> BTreeSet<(UsedKind, String)> {
    let mut uses = BTreeSet::new();
    if pod.get(&["metadata", "annotations", MIRROR]).is_some() {
        return uses;
    }
    let mut add = |kind, name: Option<&str>| {
        uses.extend(name.filter(|name| !name.is_empty()).map(|name| (kind, name.to_owned())));
    };
    let spec = pod.get(&["spec"]).unwrap_or(&Value::Null);
    add(UsedKind::ServiceAccount, spec["serviceAccountName"].as_str());
    for reference in each(&spec["imagePullSecrets"]) {
        add(UsedKind::Secret, reference["name"].as_str());
    }
    for container in CONTAINERS.iter().flat_map(|list| each(&spec[*list])) {
        for source in each(&container["envFrom"]) {
            add(UsedKind::Secret, source["secretRef"]["name"].as_str());
            add(UsedKind::ConfigMap, source["configMapRef"]["name"].as_str());
        }
        for variable in each(&container["env"]) {
            add(UsedKind::Secret, variable["valueFrom"]["secretKeyRef"]["name"].as_str());
            add(UsedKind::ConfigMap, variable["valueFrom"]["configMapKeyRef"]["name"].as_str());
        }
    }
    for volume in each(&spec["volumes"]) {
        of_volume(pod.name(), volume, &mut add);
    }
    for claim in each(&spec["resourceClaims"]) {
        add(UsedKind::ResourceClaim, claim["resourceClaimName"].as_str());
        // The name of a claim that was created from a template is in the status.
        let statuses = pod.get(&["status", "resourceClaimStatuses"]).unwrap_or(&Value::Null);
        for status in each(statuses).filter(|status| status["name"] == claim["name"]) {
            add(UsedKind::ResourceClaim, status["resourceClaimName"].as_str());
        }
    }
    let extended = pod.get(&["status", "extendedResourceClaimStatus", "resourceClaimName"]);
    add(UsedKind::ResourceClaim, extended.and_then(Value::as_str));
    uses
}

fn of_volume(pod: &str, volume: &Value, add: &mut impl FnMut(UsedKind, Option<&str>)) {
    add(UsedKind::Secret, volume["secret"]["secretName"].as_str());
    add(UsedKind::Secret, volume["azureFile"]["secretName"].as_str());
    add(UsedKind::Secret, volume["csi"]["nodePublishSecretRef"]["name"].as_str());
    for (_, source) in volume.as_object().into_iter().flatten() {
        add(UsedKind::Secret, source["secretRef"]["name"].as_str());
    }
    add(UsedKind::ConfigMap, volume["configMap"]["name"].as_str());
    for source in each(&volume["projected"]["sources"]) {
        add(UsedKind::Secret, source["secret"]["name"].as_str());
        add(UsedKind::ConfigMap, source["configMap"]["name"].as_str());
    }
    add(UsedKind::Claim, volume["persistentVolumeClaim"]["claimName"].as_str());
    if !volume["ephemeral"].is_null() {
        let volume = volume["name"].as_str().unwrap_or_default();
        add(UsedKind::Claim, Some(&format!("{pod}-{volume}")));
    }
}

/// The secrets that a node needs to mount a volume, with their namespaces. The default is the namespace of the claim.
pub(super) fn secrets_of_volume(volume: &Object, claim_namespace: &str) -> Vec<(String, String)> {
    let mut secrets = Vec::new();
    let mut add = |namespace: Option<&str>, name: Option<&str>| {
        let namespace = namespace.filter(|namespace| !namespace.is_empty()).unwrap_or(claim_namespace);
        secrets.extend(name.filter(|name| !name.is_empty()).map(|name| (namespace.to_owned(), name.to_owned())));
    };
    let spec = volume.get(&["spec"]).unwrap_or(&Value::Null);
    let azure = &spec["azureFile"];
    add(azure["secretNamespace"].as_str(), azure["secretName"].as_str());
    // Secrets for controllers only (such as `controllerPublishSecretRef`) are omitted.
    let csi = &spec["csi"];
    let of_csi = [&csi["nodePublishSecretRef"], &csi["nodeStageSecretRef"], &csi["nodeExpandSecretRef"]];
    let of_others = spec.as_object().into_iter().flatten().map(|(_, source)| &source["secretRef"]);
    for reference in of_csi.into_iter().chain(of_others) {
        add(reference["namespace"].as_str(), reference["name"].as_str());
    }
    secrets
}

fn each(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    #[allow(clippy::needless_pass_by_value, reason = "callers write the objects where they need them")]
    fn check(spec: Value, status: Value, expected: &[(UsedKind, &str)]) {
        let pod = Object::from_value(json!({"metadata": {"name": "p"}, "spec": spec, "status": status})).unwrap();
        let expected = expected.iter().map(|(kind, name)| (*kind, (*name).to_owned())).collect();
        assert_eq!(of_pod(&pod), expected);
    }

    #[test]
    fn references_of_a_pod_include_its_containers_and_volumes() {
        let none = || json!({});
        let env = json!([{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}}]);
        let from = json!([{"secretRef": {"name": "sf"}}, {"configMapRef": {"name": "cf"}}]);
        let spec = json!({"serviceAccountName": "robot", "imagePullSecrets": [{"name": "pull"}],
            "containers": [{"env": env}], "initContainers": [{"envFrom": from}]});
        let expected = [
            (UsedKind::ServiceAccount, "robot"),
            (UsedKind::Secret, "pull"),
            (UsedKind::Secret, "s"),
            (UsedKind::ConfigMap, "c"),
            (UsedKind::Secret, "sf"),
            (UsedKind::ConfigMap, "cf"),
        ];
        check(spec, none(), &expected);
        let volumes = json!([
            {"name": "a", "secret": {"secretName": "s1"}}, {"name": "b", "configMap": {"name": "c1"}},
            {"name": "c", "projected": {"sources": [{"secret": {"name": "s2"}}, {"configMap": {"name": "c2"}}]}},
            {"name": "d", "csi": {"driver": "x", "nodePublishSecretRef": {"name": "s3"}}},
            {"name": "e", "iscsi": {"secretRef": {"name": "s4"}}}, {"name": "f", "azureFile": {"secretName": "s5"}},
            {"name": "g", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "h", "ephemeral": {}}
        ]);
        let secrets = ["s1", "s2", "s3", "s4", "s5"].map(|name| (UsedKind::Secret, name));
        let maps = ["c1", "c2"].map(|name| (UsedKind::ConfigMap, name));
        let claims = ["data", "p-h"].map(|name| (UsedKind::Claim, name));
        check(json!({ "volumes": volumes }), none(), &[&secrets[..], &maps, &claims].concat());
        let claims = json!({"resourceClaims": [{"name": "a", "resourceClaimName": "r1"}, {"name": "b", "resourceClaimTemplateName": "t"}]});
        let status = json!({"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "r2"}, {"name": "other", "resourceClaimName": "r3"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "r4"}});
        check(claims, status, &["r1", "r2", "r4"].map(|name| (UsedKind::ResourceClaim, name)));
    }

    #[test]
    fn a_mirror_pod_has_no_references() {
        let pod =
            json!({"metadata": {"name": "p", "annotations": {MIRROR: "x"}}, "spec": {"serviceAccountName": "robot"}});
        assert!(of_pod(&Object::from_value(pod).unwrap()).is_empty());
    }
}
