//! Tests of built-in admission plugins: the values that they add to objects, and their rejections with kube-apiserver's
//! texts.
//!
//! Other files test pod security and quotas.

use std::time::Duration;

use keelson_server::{AdmissionPlugins, Switches};
use keelson_testkit::{Answer, Raw, TestServer};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const DEADLINE: Duration = Duration::from_secs(60);
const MERGE: &str = "application/merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str, mut spec: Value) -> Value {
    if spec["containers"].is_null() {
        spec["containers"] = json!([{ "name": "c", "image": "i:1" }]);
    }
    json!({ "metadata": { "name": name }, "spec": spec })
}

fn message(answer: &Answer) -> String {
    answer.json()["message"].as_str().unwrap_or_default().to_owned()
}

async fn refused(raw: &Raw, path: &str, object: &Value, expected: &str) {
    assert_eq!(message(&raw.post(path, object).await.expect(403)), expected);
}

/// The spec of a pod after a dry run of its create.
async fn rehearsed(raw: &Raw, pod: &Value) -> Value {
    raw.post(format!("{PODS}?dryRun=All"), pod).await.expect(201).json()["spec"].clone()
}

#[tokio::test]
async fn limits_of_a_namespace_fill_in_and_refuse() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let limits = json!({ "metadata": { "name": "l" }, "spec": { "limits": [
        { "type": "Container", "default": { "cpu": "200m", "memory": "256Mi" },
            "defaultRequest": { "cpu": "100m", "memory": "128Mi" }, "max": { "cpu": "1", "memory": "1Gi" } },
        { "type": "Pod", "max": { "cpu": "1500m" } },
        { "type": "PersistentVolumeClaim", "min": { "storage": "1Gi" }, "max": { "storage": "5Gi" } },
    ] } });
    raw.post("/api/v1/namespaces/default/limitranges", &limits).await.expect(201);
    let made = raw.post(PODS, &pod("a", json!({}))).await.expect(201).json();
    let resources = json!({
        "limits": { "cpu": "200m", "memory": "256Mi" }, "requests": { "cpu": "100m", "memory": "128Mi" },
    });
    assert_eq!(made["spec"]["containers"][0]["resources"], resources);
    assert_eq!(made["status"]["qosClass"], "Burstable", "it is of the class that its defaults make it");
    let note = "LimitRanger plugin set: cpu, memory request for container c; cpu, memory limit for container c";
    assert_eq!(made["metadata"]["annotations"]["kubernetes.io/limit-ranger"], note);
    let owned = made["metadata"]["managedFields"].to_string();
    assert!(!owned.contains("f:requests") && !owned.contains("limit-ranger"), "nobody owns what was filled in");

    let whole = json!({ "resources": { "requests": { "cpu": "1" }, "limits": { "cpu": "1" } } });
    let made = rehearsed(&raw, &pod("whole", whole)).await;
    let expected = json!({ "limits": { "cpu": "1" }, "requests": { "cpu": "1", "memory": "128Mi" } });
    assert_eq!(made["resources"], expected, "as a whole it asks for what its containers got");

    let container =
        |name: &str| json!({ "name": name, "image": "i", "resources": { "limits": { "cpu": "2", "memory": "1Mi" } } });
    let large = pod("b", json!({ "containers": [container("one"), container("two")] }));
    let text = "pods \"b\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per \
                Pod is 1500m, but limit is 4]";
    refused(&raw, PODS, &large, text).await;
    let claim = |storage: &str| {
        json!({ "metadata": { "name": "c" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": storage } } } })
    };
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let text = "persistentvolumeclaims \"c\" is forbidden: minimum storage usage per PersistentVolumeClaim is 1Gi, but \
                request is 500Mi";
    refused(&raw, claims, &claim("500Mi"), text).await;
    let text = "persistentvolumeclaims \"c\" is forbidden: maximum storage usage per PersistentVolumeClaim is 5Gi, but \
                request is 10Gi";
    refused(&raw, claims, &claim("10Gi"), text).await;
    raw.post(claims, &claim("2Gi")).await.expect(201);
    let resize = json!({ "spec": { "containers": [{ "name": "c", "resources": {
        "requests": { "cpu": "2" }, "limits": { "cpu": "2" } } }] } });
    let strategic = "application/strategic-merge-patch+json";
    let answer = raw.patch(format!("{PODS}/a/resize"), strategic, &resize).await.expect(403);
    let text = "pods \"a\" is forbidden: [maximum cpu usage per Container is 1, but limit is 2, maximum cpu usage per \
                Pod is 1500m, but limit is 2]";
    assert_eq!(message(&answer), text);
}

#[tokio::test]
async fn pods_run_as_a_service_account() {
    let server = TestServer::builder()
        .configure(|config| {
            config.admission = AdmissionPlugins::default();
            config.controllers = Switches::parse(["*"]).unwrap();
        })
        .start()
        .await;
    let raw = server.raw();
    // The creator of a namespace need not wait for its service account.
    raw.post("/api/v1/namespaces", &json!({ "metadata": { "name": "lab" } })).await.expect(201);
    let pods = "/api/v1/namespaces/lab/pods";
    let spec = raw.post(pods, &pod("a", json!({}))).await.expect(201).json()["spec"].clone();
    assert_eq!((&spec["serviceAccountName"], &spec["serviceAccount"]), (&json!("default"), &json!("default")));
    let volume = &spec["volumes"][0];
    assert!(volume["name"].as_str().unwrap().starts_with("kube-api-access-"));
    let sources = volume["projected"]["sources"].as_array().unwrap();
    assert_eq!(sources[0], json!({ "serviceAccountToken": { "expirationSeconds": 3607, "path": "token" } }));
    assert_eq!(sources.len(), 3);
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mount = json!({ "name": volume["name"], "readOnly": true, "mountPath": path });
    assert_eq!(spec["containers"][0]["volumeMounts"], json!([mount]));
    let message =
        "pods \"b\" is forbidden: error looking up service account lab/nope: serviceaccount \"nope\" not found";
    refused(&raw, pods, &pod("b", json!({ "serviceAccountName": "nope" })), message).await;

    let accounts = "/api/v1/namespaces/lab/serviceaccounts";
    let quiet = json!({ "metadata": { "name": "quiet" }, "automountServiceAccountToken": false,
        "imagePullSecrets": [{ "name": "one" }] });
    raw.post(accounts, &quiet).await.expect(201);
    let quiet = pod("b", json!({ "serviceAccountName": "quiet" }));
    let made = raw.post(pods, &quiet).await.expect(201).json()["spec"].clone();
    assert_eq!((&made["volumes"], &made["imagePullSecrets"]), (&Value::Null, &json!([{ "name": "one" }])));

    let strict = json!({ "metadata": { "name": "strict", "annotations": { "kubernetes.io/enforce-mountable-secrets": "true" } },
        "secrets": [{ "name": "known" }] });
    raw.post(accounts, &strict).await.expect(201);
    let mounting = |secret: &str| {
        let volume = json!({ "name": "v", "secret": { "secretName": secret } });
        pod("c", json!({ "serviceAccountName": "strict", "volumes": [volume] }))
    };
    let message = "pods \"c\" is forbidden: volume with secret.secretName=\"x\" is not allowed because service account \
                strict does not reference that secret";
    refused(&raw, pods, &mounting("x"), message).await;
    raw.post(pods, &mounting("known")).await.expect(201);

    let mut mirror = pod("d", json!({ "nodeName": "n", "serviceAccountName": "default" }));
    mirror["metadata"]["annotations"] = json!({ "kubernetes.io/config.mirror": "x" });
    let message = "pods \"d\" is forbidden: a mirror pod may not reference service accounts";
    refused(&raw, pods, &mirror, message).await;
}

#[tokio::test]
async fn a_pod_gets_overhead_and_scheduling_of_its_runtime_class() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let tolerations = json!([{ "key": "special", "operator": "Exists", "effect": "NoSchedule" }]);
    let class = json!({ "metadata": { "name": "all" }, "handler": "h", "overhead": { "podFixed": { "cpu": "250m" } },
        "scheduling": { "nodeSelector": { "kind": "special" }, "tolerations": tolerations } });
    raw.post("/apis/node.k8s.io/v1/runtimeclasses", &class).await.expect(201);
    let made = rehearsed(&raw, &pod("p", json!({ "runtimeClassName": "all", "nodeSelector": { "a": "b" } }))).await;
    assert_eq!(made["overhead"], json!({ "cpu": "250m" }));
    assert_eq!(made["nodeSelector"], json!({ "a": "b", "kind": "special" }));
    assert!(made["tolerations"].as_array().unwrap().contains(&tolerations[0]), "{}", made["tolerations"]);
    let with = |field: &str, value: Value| {
        let mut spec = json!({ "runtimeClassName": "all" });
        spec[field] = value;
        pod("p", spec)
    };
    let message = "pods \"p\" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[kind] = special; \
                pod.spec.nodeSelector[kind] = other";
    refused(&raw, PODS, &with("nodeSelector", json!({ "kind": "other" })), message).await;
    rehearsed(&raw, &with("overhead", json!({ "cpu": "0.25" }))).await;
    let message = "pods \"p\" is forbidden: pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
    refused(&raw, PODS, &with("overhead", json!({ "cpu": "1" })), message).await;
    let message =
        "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    refused(&raw, PODS, &pod("p", json!({ "overhead": { "cpu": "1" } })), message).await;
    let message = "pods \"p\" is forbidden: pod rejected: RuntimeClass \"nope\" not found";
    refused(&raw, PODS, &pod("p", json!({ "runtimeClassName": "nope" })), message).await;
}

#[tokio::test]
async fn new_nodes_are_not_ready_and_pods_get_topology_labels() {
    let server = TestServer::start().await;
    let raw = server.raw();
    let labels = json!({ "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r" });
    let node = json!({ "metadata": { "name": "n", "labels": labels } });
    let made = raw.post("/api/v1/nodes", &node).await.expect(201).json();
    assert_eq!(made["spec"]["taints"], json!([{ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" }]));
    let untainted = json!({ "spec": { "taints": null } });
    let changed = raw.patch("/api/v1/nodes/n", MERGE, &untainted).await.expect(200).json();
    assert_eq!(changed["spec"]["taints"], Value::Null, "an update takes it off");
    let mut on_node = pod("p", json!({ "nodeName": "n" }));
    on_node["metadata"]["labels"] = json!({ "topology.kubernetes.io/zone": "mine" });
    let deadline = Instant::now() + DEADLINE;
    loop {
        let made = raw.post(format!("{PODS}?dryRun=All"), &on_node).await.expect(201).json();
        if made["metadata"]["labels"] == labels {
            break;
        }
        // The cache may not have the node yet.
        assert!(Instant::now() < deadline, "{}", made["metadata"]["labels"]);
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_pod_is_resized_where_its_node_can_and_has_as_much() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for system in ["linux", "windows"] {
        let node = json!({ "metadata": { "name": system, "labels": { "kubernetes.io/os": system } } });
        raw.post("/api/v1/nodes", &node).await.expect(201);
        let has = json!({ "status": { "allocatable": { "cpu": "2", "memory": "4Gi" } } });
        raw.patch(format!("/api/v1/nodes/{system}/status"), MERGE, &has).await.expect(200);
    }
    let asks = |amounts: Value| json!({ "containers": [{ "name": "c", "image": "i:1", "resources": amounts }] });
    let requests = |amounts: Value| asks(json!({ "requests": amounts }));
    let small = json!({ "cpu": "1", "memory": "1Gi" });
    for (name, node) in [("free", ""), ("lost", "ghost"), ("w", "windows"), ("l", "linux")] {
        let mut spec = requests(small.clone());
        spec["nodeName"] = json!(node);
        raw.post(PODS, &pod(name, spec)).await.expect(201);
    }
    let mut guaranteed = asks(json!({ "limits": small }));
    guaranteed["nodeName"] = json!("linux");
    raw.post(PODS, &pod("g", guaranteed)).await.expect(201);

    let strategic = "application/strategic-merge-patch+json";
    let resize = async |name: &str, spec: Value, refusal: Option<(&str, Value)>| {
        let path = format!("{PODS}/{name}/resize");
        let answer = raw.patch(path, strategic, &json!({ "spec": spec })).await;
        let Some((why, causes)) = refusal else { return drop(answer.expect(200)) };
        let body = answer.expect(403).json();
        assert_eq!(body["message"], format!("pods \"{name}\" is forbidden: {why}"));
        assert_eq!(body["details"]["causes"], causes, "{name}");
    };
    let cause = |reason: &str| json!([{ "reason": reason }]);
    resize("free", requests(json!({ "cpu": "50" })), None).await;
    resize("lost", requests(json!({ "cpu": "2" })), Some(("node \"ghost\" not found", Value::Null))).await;
    let why = "pod resize is only supported on linux nodes, node \"windows\" is \"windows\"";
    resize("w", requests(json!({ "cpu": "2" })), Some((why, cause("UnsupportedPlatform")))).await;
    resize("l", requests(json!({ "cpu": "1500m" })), None).await;
    let why = "node didn't have enough allocatable resources: cpu, requested: 2500, allocatable: 2000; memory, requested: \
               5368709120, allocatable: 4294967296";
    resize("l", requests(json!({ "cpu": "2500m", "memory": "5Gi" })), Some((why, cause("NodeCapacity")))).await;
    let lacks =
        |feature: &str| format!("pod update requires features {feature} which are not available on node \"linux\"");
    let whole = json!({ "resources": { "requests": { "cpu": "2" } } });
    let features = [
        ("l", whole, "InPlacePodLevelResourcesVerticalScaling"),
        ("g", asks(json!({ "requests": { "cpu": "2" }, "limits": { "cpu": "2" } })), "GuaranteedQoSPodCPUResize"),
    ];
    for (name, spec, feature) in &features {
        resize(name, spec.clone(), Some((&lacks(feature), Value::Null))).await;
    }
    let mut names = features.each_ref().map(|(_, _, feature)| *feature);
    names.sort_unstable();
    let declared = json!({ "status": { "declaredFeatures": names } });
    raw.patch("/api/v1/nodes/linux/status", MERGE, &declared).await.expect(200);
    for (name, spec, _) in features {
        resize(name, spec, None).await;
    }
}

#[tokio::test]
async fn a_claim_grows_where_its_class_lets_it() {
    let server = TestServer::start().await;
    let raw = server.raw();
    for (name, grows) in [("grows", true), ("stays", false)] {
        let class = json!({ "metadata": { "name": name }, "provisioner": "p", "allowVolumeExpansion": grows });
        raw.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.expect(201);
        let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
        let claim = json!({ "metadata": { "name": name }, "spec": { "storageClassName": name, "volumeName": "v",
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } } });
        raw.post(claims, &claim).await.expect(201);
        let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
        raw.patch(format!("{claims}/{name}/status"), MERGE, &bound).await.expect(200);
        let larger = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
        let answer = raw.patch(format!("{claims}/{name}"), MERGE, &larger).await;
        if grows {
            answer.expect(200);
        } else {
            let text = "persistentvolumeclaims \"stays\" is forbidden: only dynamically provisioned pvc can be resized and \
                        the storageclass that provisions the pvc must support resize";
            assert_eq!(message(&answer.expect(403)), text);
        }
    }
}

#[tokio::test]
async fn disabled_plugins_skip_their_part_of_a_write() {
    let off = [
        "ServiceAccount",
        "NamespaceLifecycle",
        "Priority",
        "DefaultTolerationSeconds",
        "DefaultStorageClass",
        "DefaultIngressClass",
        "StorageObjectInUseProtection",
        "PodTopologyLabels",
    ];
    let off = AdmissionPlugins::new(Vec::new(), off.map(str::to_owned).to_vec()).unwrap();
    let server = TestServer::builder().configure(move |config| config.admission = off).start().await;
    let raw = server.raw();
    let made = raw.post("/api/v1/namespaces/nowhere/pods", &pod("p", json!({}))).await.expect(201).json();
    let spec = &made["spec"];
    assert!(spec["priority"].is_null() && spec["tolerations"].is_null(), "{made}");
    raw.delete("/api/v1/namespaces/kube-public?dryRun=All").await.expect(200);
    for name in ["a", "b"] {
        let class = json!({ "metadata": { "name": name }, "value": 1, "globalDefault": true });
        raw.post("/apis/scheduling.k8s.io/v1/priorityclasses", &class).await.expect(201);
    }

    let default =
        |domain: &str| json!({ "name": "d", "annotations": { format!("{domain}/is-default-class"): "true" } });
    let class = json!({ "metadata": default("storageclass.kubernetes.io"), "provisioner": "x" });
    raw.post("/apis/storage.k8s.io/v1/storageclasses", &class).await.expect(201);
    let class = json!({ "metadata": default("ingressclass.kubernetes.io"), "spec": { "controller": "x/y" } });
    raw.post("/apis/networking.k8s.io/v1/ingressclasses", &class).await.expect(201);
    let resources = json!({ "requests": { "storage": "1Gi" } });
    let claim =
        json!({ "metadata": { "name": "c" }, "spec": { "accessModes": ["ReadWriteOnce"], "resources": resources } });
    let made = raw.post("/api/v1/namespaces/default/persistentvolumeclaims", &claim).await.expect(201).json();
    assert!(made["spec"]["storageClassName"].is_null() && made["metadata"]["finalizers"].is_null(), "{made}");
    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let ingress = json!({ "metadata": { "name": "i" }, "spec": { "defaultBackend": backend } });
    let made = raw.post("/apis/networking.k8s.io/v1/namespaces/default/ingresses", &ingress).await.expect(201).json();
    assert!(made["spec"]["ingressClassName"].is_null(), "{made}");

    let labels = json!({ "topology.kubernetes.io/zone": "z" });
    raw.post("/api/v1/nodes", &json!({ "metadata": { "name": "n", "labels": labels } })).await.expect(201);
    raw.post(PODS, &pod("bound", json!({}))).await.expect(201);
    let binding = json!({ "metadata": { "name": "bound" }, "target": { "kind": "Node", "name": "n" } });
    raw.post(format!("{PODS}/bound/binding"), &binding).await.expect(201);
    let bound = raw.get(format!("{PODS}/bound")).await.expect(200).json();
    assert!(bound["spec"]["nodeName"] == "n" && bound["metadata"]["labels"].is_null(), "{bound}");
}
