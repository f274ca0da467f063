//! Tests of existing pods that admission would no longer admit: some plugins check only creates, others also some
//! updates.
//!
//! Upstream determines the writes that a plugin handles: by verb, subresource and changed fields.

use std::time::Duration;

use keelson_server::{AdmissionPlugins, Switches};
use keelson_testkit::{Raw, TestServer};
use serde_json::{Value, json};

const NAMESPACE: &str = "/api/v1/namespaces/lab";
const PODS: &str = "/api/v1/namespaces/lab/pods";
const QUOTAS: &str = "/api/v1/namespaces/lab/resourcequotas";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// The longest wait.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a server with all plugins, including optional ones, and the namespace `lab`, which allows everything.
async fn lab() -> (TestServer, Raw) {
    let controllers = Switches::parse(["resourcequota-controller", "namespace-controller", "serviceaccount"]).unwrap();
    let server = TestServer::builder()
        .configure(|config| {
            config.controllers = controllers;
            let on = ["LimitPodHardAntiAffinityTopology", "PodNodeSelector", "NamespaceExists"];
            let on = on.map(str::to_owned).to_vec();
            config.admission = AdmissionPlugins::new(on, Vec::new()).unwrap();
        })
        .start()
        .await;
    let raw = server.raw();
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
    (server, raw)
}

/// A pod that violates every rule of [`forbid`].
fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "finalizers": ["example.com/hold"] },
        "spec": {
            "containers": [{
                "name": "c", "image": "i:1", "securityContext": { "privileged": true },
                "resources": { "requests": { "cpu": "10m" } },
            }],
            "nodeSelector": { "zone": "a" },
            "priorityClassName": "gone", "runtimeClassName": "gone", "serviceAccountName": "gone",
            "schedulingGates": [{ "name": "example.com/wait" }],
            "terminationGracePeriodSeconds": 0,
        },
    })
}

/// Creates the classes and the account that [`pod`] uses.
async fn allow(raw: &Raw) {
    let priority = json!({ "metadata": { "name": "gone" }, "value": 7 });
    raw.post("/apis/scheduling.k8s.io/v1/priorityclasses", &priority).await.expect(201);
    let runtime = json!({ "metadata": { "name": "gone" }, "handler": "h" });
    raw.post("/apis/node.k8s.io/v1/runtimeclasses", &runtime).await.expect(201);
    raw.post(format!("{NAMESPACE}/serviceaccounts"), &json!({ "metadata": { "name": "gone" } })).await.expect(201);
}

/// Creates rules that each reject such a pod from now on.
async fn forbid(raw: &Raw) {
    raw.delete("/apis/scheduling.k8s.io/v1/priorityclasses/gone").await.expect(200);
    raw.delete("/apis/node.k8s.io/v1/runtimeclasses/gone").await.expect(200);
    raw.delete(format!("{NAMESPACE}/serviceaccounts/gone")).await.expect(200);
    let least = json!({ "type": "Container", "min": { "memory": "64Mi" } });
    let limits = json!({ "metadata": { "name": "l" }, "spec": { "limits": [least] } });
    raw.post(format!("{NAMESPACE}/limitranges"), &limits).await.expect(201);
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.memory": "1Gi", "pods": "1" } } });
    raw.post(QUOTAS, &quota).await.expect(201);
    let counted = async {
        while raw.get(format!("{QUOTAS}/q")).await.expect(200).json()["status"]["used"]["pods"].is_null() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("the quota is counted");
    let metadata = json!({ "metadata": {
        "labels": { "pod-security.kubernetes.io/enforce": "restricted" },
        "annotations": { "scheduler.alpha.kubernetes.io/node-selector": "zone=b" },
    } });
    raw.patch(NAMESPACE, MERGE, &metadata).await.expect(200);
}

#[tokio::test]
async fn create_rules_do_not_apply_to_updates() {
    let (_server, raw) = lab().await;
    allow(&raw).await;
    for name in ["p", "evicted"] {
        raw.post(PODS, &pod(name)).await.expect(201);
    }
    forbid(&raw).await;
    raw.post(PODS, &pod("later")).await.expect(403);

    let path = format!("{PODS}/p");
    let changes = [
        ("a label", MERGE, json!({ "metadata": { "labels": { "a": "b" } } })),
        ("an annotation", MERGE, json!({ "metadata": { "annotations": { "a": "b" } } })),
        (
            "an annotation that a standard looks at",
            MERGE,
            json!({ "metadata": { "annotations": { "seccomp.security.alpha.kubernetes.io/pod": "unconfined" } } }),
        ),
        (
            "an owner",
            MERGE,
            json!({ "metadata": { "ownerReferences": [
            { "apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u" }] } }),
        ),
        (
            "one more finalizer",
            MERGE,
            json!({ "metadata": { "finalizers": ["example.com/hold", "example.com/more"] } }),
        ),
        ("a gate that goes", MERGE, json!({ "spec": { "schedulingGates": [] } })),
        ("a toleration", STRATEGIC, json!({ "spec": { "tolerations": [{ "key": "k", "operator": "Exists" }] } })),
    ];
    for (what, form, change) in changes {
        let answer = raw.patch(&path, form, &change).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    }
    let mut whole = raw.get(&path).await.expect(200).json();
    whole["metadata"]["labels"]["c"] = json!("d");
    raw.put(&path, &whole).await.expect(200);
    let applied = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "p", "labels": { "e": "f" } } });
    raw.patch(format!("{path}?fieldManager=m"), APPLY, &applied).await.expect(200);
    let status = json!({ "status": { "phase": "Pending", "message": "waits" } });
    raw.patch(format!("{path}/status"), MERGE, &status).await.expect(200);
    raw.post("/api/v1/nodes", &json!({ "metadata": { "name": "n" } })).await.expect(201);
    let binding = json!({ "metadata": { "name": "p" }, "target": { "kind": "Node", "name": "n" } });
    raw.post(format!("{path}/binding"), &binding).await.expect(201);
    let eviction = json!({ "metadata": { "name": "evicted" }, "deleteOptions": { "gracePeriodSeconds": 0 } });
    raw.post(format!("{PODS}/evicted/eviction"), &eviction).await.expect(201);

    // A pod that is being deleted can also be changed, and its finalizer removed.
    raw.delete(&path).await.expect(200);
    raw.patch(&path, MERGE, &json!({ "metadata": { "labels": { "g": "h" } } })).await.expect(200);
    for name in ["p", "evicted"] {
        let release = json!({ "metadata": { "finalizers": null } });
        raw.patch(format!("{PODS}/{name}"), MERGE, &release).await.expect(200);
        raw.get(format!("{PODS}/{name}")).await.expect(404);
    }
}

/// Upstream's plugins also handle updates that add a checked field.
#[tokio::test]
async fn updates_that_add_a_checked_field_are_checked() {
    let (_server, raw) = lab().await;
    allow(&raw).await;
    raw.post(PODS, &pod("p")).await.expect(201);
    forbid(&raw).await;
    let path = format!("{PODS}/p");
    let check = async |below: &str, change: Value, why: &str| {
        let answer = raw.patch(format!("{path}{below}"), STRATEGIC, &change).await.expect(403).json();
        let told = answer["message"].as_str().unwrap();
        assert!(told.contains(why), "{below} {change}: {told}");
    };
    let image = json!({ "spec": { "containers": [{ "name": "c", "image": "i:2" }] } });
    check("", image.clone(), "violates PodSecurity \"restricted:latest\"").await;
    let ephemeral = json!({ "spec": { "ephemeralContainers": [{ "name": "e", "image": "i" }] } });
    check("/ephemeralcontainers", ephemeral, "violates PodSecurity \"restricted:latest\"").await;
    // A deadline changes the quotas that count the pod, so these check the update.
    let deadline = json!({ "spec": { "activeDeadlineSeconds": 60 } });
    check("", deadline, "failed quota: q: must specify requests.memory for: c").await;
    let plain = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": null } } });
    raw.patch(NAMESPACE, MERGE, &plain).await.expect(200);
    let resize = |memory: &str| {
        let resources = json!({ "requests": { "memory": memory } });
        json!({ "spec": { "containers": [{ "name": "c", "resources": resources }] } })
    };
    check("/resize", resize("1Mi"), "minimum memory usage per Container is 64Mi").await;
    raw.patch(&path, STRATEGIC, &image).await.expect(200);
}

/// A quota that is full or not counted yet does not reject a change of an existing object.
#[tokio::test]
async fn a_pod_beyond_its_quota_can_be_changed() {
    let (_server, raw) = lab().await;
    let sized = |name: &str| {
        let container = json!({ "name": "c", "image": "i:1", "resources": { "requests": { "memory": "64Mi" } } });
        json!({ "metadata": { "name": name }, "spec": { "containers": [container] } })
    };
    for name in ["a", "b"] {
        raw.post(PODS, &sized(name)).await.expect(201);
    }
    let quota = json!({ "metadata": { "name": "q" }, "spec": { "hard": { "requests.memory": "1Mi", "pods": "0" } } });
    raw.post(QUOTAS, &quota).await.expect(201);
    let counted = async {
        while raw.get(format!("{QUOTAS}/q")).await.expect(200).json()["status"]["used"]["pods"] != "2" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("the quota is counted");
    raw.post(PODS, &sized("c")).await.expect(403);
    let unknown = json!({ "status": { "hard": { "requests.memory": "1Mi", "pods": "0" }, "used": null } });
    for status in [None, Some(unknown)] {
        if let Some(status) = status {
            raw.patch(format!("{QUOTAS}/q/status"), MERGE, &status).await.expect(200);
        }
        for change in [
            json!({ "metadata": { "labels": { "a": "b" } } }),
            json!({ "metadata": { "labels": null } }),
            json!({ "metadata": { "finalizers": ["example.com/hold"] } }),
            json!({ "metadata": { "finalizers": null } }),
        ] {
            raw.patch(format!("{PODS}/a"), MERGE, &change).await.expect(200);
        }
        let image = json!({ "spec": { "containers": [{ "name": "c", "image": "i:2" }] } });
        raw.patch(format!("{PODS}/a"), STRATEGIC, &image).await.expect(200);
    }
    let applied = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "b", "labels": { "e": "f" } } });
    raw.patch(format!("{PODS}/b?fieldManager=m"), APPLY, &applied).await.expect(200);
}
