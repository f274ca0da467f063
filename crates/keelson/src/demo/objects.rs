//! The objects of the demo, in the form of the create requests.
//!
//! A separate request writes the status, as the components of a cluster do.

use serde_json::{Value, json};

/// The label of all objects of the demo.
pub(super) const SELECTOR: &str = "app.kubernetes.io/part-of=keelson-demo";
/// The path of the group of custom resources.
pub(super) const CUSTOM_GROUP_VERSION: &str = "/apis/demo.keelson.example/v1";
/// The plural names and kinds of custom resources.
pub(super) const CUSTOM_RESOURCES: [(&str, &str); 2] = [("databases", "Database"), ("topics", "Topic")];
/// The creation time from which the ages of objects are computed.
const STARTED: &str = "2026-01-05T08:00:00Z";

/// An object to create.
pub(super) struct Object {
    pub(super) kind: &'static str,
    pub(super) name: String,
    /// The path of its collection.
    pub(super) collection: String,
    pub(super) body: Value,
    /// The merge patch of its status.
    pub(super) status: Option<Value>,
}

/// The namespace and the names of a workload.
pub(super) struct Workload<'a> {
    pub(super) namespace: &'a str,
    pub(super) app: &'a str,
    pub(super) tier: &'a str,
    pub(super) image: &'a str,
    pub(super) replicas: u32,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Crashing,
    Pending,
    Succeeded,
}

impl Object {
    fn new(kind: &'static str, name: impl Into<String>, collection: impl Into<String>, body: Value) -> Self {
        Self { kind, name: name.into(), collection: collection.into(), body, status: None }
    }

    fn with_status(mut self, status: &Value) -> Self {
        self.status = Some(json!({ "status": status }));
        self
    }
}

fn labels(app: &str, tier: &str) -> Value {
    json!({
        "app.kubernetes.io/name": app, "app.kubernetes.io/component": tier, "app.kubernetes.io/part-of": "keelson-demo",
    })
}

pub(super) fn namespace(name: &str, team: &str) -> Object {
    let labels = json!({"app.kubernetes.io/part-of": "keelson-demo", "team": team});
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    Object::new("Namespace", name, "/api/v1/namespaces", body)
}

pub(super) fn node(number: u32) -> Object {
    let name = format!("demo-node-{number:03}");
    let zone = format!("zone-{}", ["a", "b", "c"][number as usize % 3]);
    let labels = json!({
        "app.kubernetes.io/part-of": "keelson-demo", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": zone,
    });
    let body = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": {}});
    let capacity = json!({"cpu": "16", "memory": "65536Mi", "pods": "110"});
    let status = json!({
        "capacity": capacity, "allocatable": capacity,
        "conditions": [condition("Ready", "True", "KubeletReady")],
        "addresses": [{"type": "InternalIP", "address": format!("10.20.{}.{}", number / 250, number % 250 + 1)}],
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.37.0", "osImage": "Debian GNU/Linux 12",
            "kernelVersion": "6.12.0", "containerRuntimeVersion": "containerd://2.1.0", "bootID": name, "machineID": name,
            "systemUUID": name, "kubeProxyVersion": "",
        },
    });
    Object::new("Node", name, "/api/v1/nodes", body).with_status(&status)
}

fn condition(kind: &str, status: &str, reason: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "lastTransitionTime": STARTED, "message": ""})
}

pub(super) fn account(namespace: &str) -> Object {
    let metadata = json!({"name": "demo", "namespace": namespace});
    let body = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata});
    Object::new("ServiceAccount", "demo", format!("/api/v1/namespaces/{namespace}/serviceaccounts"), body)
}

pub(super) fn config_map(workload: &Workload<'_>) -> Object {
    let Workload { namespace, app, tier, .. } = *workload;
    let name = format!("{app}-config");
    let body = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": labels(app, tier)},
        "data": {"LOG_LEVEL": "info", "LISTEN": ":8080", "SERVICE": app},
    });
    Object::new("ConfigMap", name, format!("/api/v1/namespaces/{namespace}/configmaps"), body)
}

pub(super) fn service(workload: &Workload<'_>) -> Object {
    let Workload { namespace, app, tier, .. } = *workload;
    let body = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": app, "labels": labels(app, tier)},
        "spec": {"selector": {"app.kubernetes.io/name": app}, "ports": [{"name": "http", "port": 80, "targetPort": 8080}]},
    });
    Object::new("Service", app, format!("/api/v1/namespaces/{namespace}/services"), body)
}

fn template(workload: &Workload<'_>) -> Value {
    let Workload { app, tier, image, .. } = *workload;
    json!({"metadata": {"labels": labels(app, tier)}, "spec": pod_spec(app, image)})
}

fn pod_spec(app: &str, image: &str) -> Value {
    json!({
        "serviceAccountName": "demo", "automountServiceAccountToken": false,
        "containers": [{
            "name": app, "image": image, "ports": [{"containerPort": 8080}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            "envFrom": [{"configMapRef": {"name": format!("{app}-config")}}],
        }],
    })
}

pub(super) fn deployment(workload: &Workload<'_>, ready: u32) -> Object {
    let Workload { namespace, app, tier, replicas, .. } = *workload;
    let body = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": app, "labels": labels(app, tier)},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app.kubernetes.io/name": app}}, "template": template(workload),
        },
    });
    let available =
        if ready == replicas { ("True", "MinimumReplicasAvailable") } else { ("False", "MinimumReplicasUnavailable") };
    let status = json!({
        "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready, "availableReplicas": ready,
        "unavailableReplicas": replicas - ready, "observedGeneration": 1,
        "conditions": [condition("Available", available.0, available.1)],
    });
    Object::new("Deployment", app, format!("/apis/apps/v1/namespaces/{namespace}/deployments"), body)
        .with_status(&status)
}

/// The name of a pod: the name of its workload, and five letters computed from the pod's number.
pub(super) fn pod_name(app: &str, number: u32) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut rest = u64::from(number).wrapping_mul(2_654_435_761) % 14_348_907;
    let letters = (0..5).map(|_| {
        let letter = LETTERS[usize::try_from(rest % LETTERS.len() as u64).unwrap_or_default()];
        rest /= LETTERS.len() as u64;
        char::from(letter)
    });
    format!("{app}-{}", letters.collect::<String>())
}

pub(super) fn pod(workload: &Workload<'_>, number: u32, node: u32, state: State) -> Object {
    let Workload { namespace, app, tier, image, .. } = *workload;
    let name = pod_name(app, number);
    let mut spec = pod_spec(app, image);
    if state != State::Pending {
        spec["nodeName"] = json!(format!("demo-node-{node:03}"));
    }
    if state == State::Succeeded {
        spec["restartPolicy"] = json!("Never");
    }
    let metadata = json!({"name": name, "labels": labels(app, tier)});
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec});
    Object::new("Pod", name, format!("/api/v1/namespaces/{namespace}/pods"), body)
        .with_status(&pod_status(app, image, number, state))
}

fn pod_status(app: &str, image: &str, number: u32, state: State) -> Value {
    let address = format!("10.{}.{}.{}", 64 + number / 62_500, number / 250 % 250, number % 250 + 1);
    let (phase, ready, restarts, container) = match state {
        State::Running => ("Running", true, number % 23 / 22, json!({"running": {"startedAt": STARTED}})),
        State::Crashing => {
            let message = format!("back-off 5m0s restarting failed container={app}");
            ("Running", false, 40 + number % 60, json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}}))
        }
        State::Pending => {
            let message = "0/40 nodes are available: 40 Insufficient memory.";
            let scheduled = json!({
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
                "lastTransitionTime": STARTED,
            });
            return json!({"phase": "Pending", "conditions": [scheduled]});
        }
        State::Succeeded => {
            let ended = json!({"exitCode": 0, "reason": "Completed", "startedAt": STARTED, "finishedAt": STARTED});
            ("Succeeded", false, 0, json!({ "terminated": ended }))
        }
    };
    let is_ready = if ready { "True" } else { "False" };
    json!({
        "phase": phase, "podIP": address, "podIPs": [{"ip": address}], "startTime": STARTED,
        "conditions": [condition("PodScheduled", "True", ""), condition("Ready", is_ready, "")],
        "containerStatuses": [{
            "name": app, "image": image, "imageID": "", "ready": ready, "started": ready, "restartCount": restarts, "state": container,
        }],
    })
}

/// An event about a pod.
pub(super) fn event(workload: &Workload<'_>, number: u32, state: State) -> Object {
    let Workload { namespace, app, image, .. } = *workload;
    let pod = pod_name(app, number);
    let (kind, reason, message, count) = match state {
        State::Running => ("Normal", "Started", format!("Started container {app}"), 1),
        State::Succeeded => ("Normal", "Pulled", format!("Container image \"{image}\" already present on machine"), 1),
        State::Crashing => {
            ("Warning", "BackOff", format!("Back-off restarting failed container {app} in pod {pod}"), 412)
        }
        State::Pending => {
            ("Warning", "FailedScheduling", "0/40 nodes are available: 40 Insufficient memory.".to_owned(), 87)
        }
    };
    let component = if state == State::Pending { "default-scheduler" } else { "kubelet" };
    let name = format!("{pod}.{}", reason.to_ascii_lowercase());
    let body = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace},
        "type": kind, "reason": reason, "message": message, "count": count, "source": {"component": component},
        "firstTimestamp": STARTED, "lastTimestamp": STARTED,
    });
    Object::new("Event", name, format!("/api/v1/namespaces/{namespace}/events"), body)
}

/// A definition of a custom resource with a printed column.
pub(super) fn definition((plural, kind): (&str, &str)) -> Object {
    let group = "demo.keelson.example";
    let name = format!("{plural}.{group}");
    let schema = json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "required": ["size"], "properties": {
                "size": {"type": "integer", "minimum": 1}, "engine": {"type": "string"}, "owner": {"type": "string"},
            }},
            "status": {"type": "object", "properties": {"phase": {"type": "string"}}},
        },
    });
    let column = |name: &str, path: &str, kind: &str| json!({"name": name, "jsonPath": path, "type": kind});
    let body = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/part-of": "keelson-demo"}},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_ascii_lowercase(), "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
                "additionalPrinterColumns": [
                    column("Size", ".spec.size", "integer"), column("Engine", ".spec.engine", "string"),
                    column("Phase", ".status.phase", "string"),
                ],
            }],
        },
    });
    Object::new("CustomResourceDefinition", name, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", body)
}

/// A custom resource of a namespace.
pub(super) fn custom((plural, kind): (&str, &'static str), namespace: &str, number: u32) -> Object {
    let name = format!("{namespace}-{}-{number}", kind.to_ascii_lowercase());
    let engine = ["postgres", "kafka", "redis"][number as usize % 3];
    let body = json!({
        "apiVersion": "demo.keelson.example/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"size": 1 + number % 5, "engine": engine, "owner": namespace},
    });
    let phase = if number % 7 == 6 { "Degraded" } else { "Ready" };
    Object {
        status: Some(json!({"status": {"phase": phase}})),
        ..Object::new(kind, name, format!("{CUSTOM_GROUP_VERSION}/namespaces/{namespace}/{plural}"), body)
    }
}
