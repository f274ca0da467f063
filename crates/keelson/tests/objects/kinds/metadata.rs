//! Tests of metadata in updates of statuses and of other subresources: labels, annotations, finalizers and owner
//! references.
//!
//! The tables are upstream's for each kind. A status update of a definition also changes its metadata.

use serde_json::json;

use super::{create, plain_server, samples, served};

/// The resources whose status updates do not change labels, annotations, finalizers and owner references.
const STATUS_ALONE: [&str; 12] = [
    "apiservices.apiregistration.k8s.io",
    "devicetaintrules.resource.k8s.io",
    "flowschemas.flowcontrol.apiserver.k8s.io",
    "podcertificaterequests.certificates.k8s.io",
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "resourceclaims.resource.k8s.io",
    "resourcepoolstatusrequests.resource.k8s.io",
    "servicecidrs.networking.k8s.io",
    "storageversionmigrations.storagemigration.k8s.io",
    "storageversions.internal.apiserver.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "volumeattachments.storage.k8s.io",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn status_updates_change_the_metadata_that_upstream_lets_them_change() {
    let server = plain_server().await;
    let raw = server.raw();
    let samples = samples();
    let sent = json!({
        "labels": { "sneaked": "in" }, "annotations": { "sneaked": "in" }, "finalizers": ["example.org/sneaked"],
        "ownerReferences": [{ "apiVersion": "v1", "kind": "ConfigMap", "name": "sneaked", "uid": "in" }],
    });
    for resource in served(&raw).await.iter().filter(|resource| resource.has_status) {
        let (name, _) = create(&raw, resource, &samples[&resource.name]).await;
        let kept: &[&str] = match resource.name.as_str() {
            alone if STATUS_ALONE.contains(&alone) => &["labels", "annotations", "finalizers", "ownerReferences"],
            "deployments.apps" => &["labels"],
            "pods" => &["ownerReferences"],
            _ => &[],
        };
        for (_, path) in &resource.versions {
            let (path, status) = (format!("{path}/{name}"), format!("{path}/{name}/status?dryRun=All"));
            let before = raw.get(&*path).await.expect(200).json();
            let mut put = before.clone();
            for (field, value) in sent.as_object().unwrap() {
                put["metadata"][field] = value.clone();
            }
            let patch = raw.patch(&*status, "application/merge-patch+json", &json!({ "metadata": sent })).await;
            for answer in [patch, raw.put(&*status, &put).await] {
                let after = answer.expect(200).json();
                for field in sent.as_object().unwrap().keys() {
                    let (before, after) = (&before["metadata"][field], &after["metadata"][field]);
                    if kept.contains(&field.as_str()) {
                        assert_eq!(after, before, "{status} keeps its {field}");
                    } else {
                        assert!(after.to_string().contains("sneaked"), "{status} changes {field}: {after}");
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subresource_updates_change_the_same_metadata_as_upstream() {
    let server = plain_server().await;
    let raw = server.raw();
    let (samples, served) = (samples(), served(&raw).await);
    let sent = json!({ "metadata": {
        "labels": { "sneaked": "in" }, "annotations": { "sneaked": "in" }, "finalizers": ["example.org/sneaked"],
    } });
    let cases: [(&str, &[&str], bool); 6] = [
        ("deployments.apps", &["scale"], false),
        ("replicasets.apps", &["scale"], false),
        ("replicationcontrollers", &["scale"], false),
        ("statefulsets.apps", &["scale"], false),
        ("pods", &["ephemeralcontainers", "resize"], false),
        ("certificatesigningrequests.certificates.k8s.io", &["approval"], true),
    ];
    for (name, endpoints, is_changed) in cases {
        let resource = served.iter().find(|resource| resource.name == name).unwrap();
        let (object, _) = create(&raw, resource, &samples[name]).await;
        let (_, path) = &resource.versions[0];
        let path = format!("{path}/{object}");
        let before = raw.get(&*path).await.expect(200).json();
        for below in endpoints {
            raw.patch(format!("{path}/{below}"), "application/merge-patch+json", &sent).await.expect(200);
            let after = raw.get(&*path).await.expect(200).json();
            for field in ["labels", "annotations", "finalizers"] {
                let (before, after) = (&before["metadata"][field], &after["metadata"][field]);
                assert_eq!(after != before, is_changed, "{path}/{below}: {field} {before} {after}");
            }
        }
    }
}
