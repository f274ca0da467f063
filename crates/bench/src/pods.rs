//! Pods similar to a cluster's: a deployment's pod with probes, volumes, status and the server's managedFields, 4.9 KB
//! each.
//!
//! A pod is a function of its number, so workers can create any of them without state. The template is prepared once
//! and only the differing places are filled in, which costs the client almost nothing.

use serde_json::{Value, json};

/// The stored size of a pod that the goals assume, in bytes.
pub(crate) const STORED_SIZE: usize = 4_880;

/// The size of a stored config map without its text, in bytes: metadata and managedFields.
const CONFIG_MAP_FRAME: usize = 470;

const NAMESPACES: usize = 20;
const APPS: usize = 100;
/// The number of nodes.
pub(crate) const NODES: usize = 4_000;
/// The number of pods with the label of the selector row, whatever the size of the collection.
pub(crate) const SAMPLED: usize = 200;

/// The number of bytes of common text between two unique identifiers in the padding.
const DESCRIBED: usize = 128;

/// The placeholders of the template, in the order of [`Pods::values`].
const MARKS: [&str; 7] = ["@name@", "@namespace@", "@app@", "@node@", "@sample@", "@padding@", "@owner@"];

/// The pods of one measurement.
pub(crate) struct Pods {
    pub(crate) count: usize,
    /// The template, split at its placeholders: each piece with the placeholder after it.
    pieces: Vec<(String, Option<usize>)>,
    description: String,
    padding: usize,
    /// The uid of the replica set for the pods of each app in each namespace. Pods without an existing owner would be
    /// garbage-collected during the measurement.
    owners: Vec<String>,
}

impl Pods {
    /// `owners` has the uids of the replica sets of [`Pods::owners`], in that order.
    pub(crate) fn new(count: usize, owners: Vec<String>) -> Self {
        Self {
            count,
            pieces: cut(&template().to_string()),
            description: spec().to_string().replace('"', "'"),
            padding: 0,
            owners,
        }
    }

    /// Enlarges the pods by the difference between a stored one and [`STORED_SIZE`].
    pub(crate) fn pad(&mut self, stored: usize) {
        self.padding = STORED_SIZE.saturating_sub(stored);
    }

    pub(crate) fn namespaces() -> impl Iterator<Item = String> {
        (0..NAMESPACES).map(|number| format!("bench-{number:02}"))
    }

    /// The replica sets of the pods: the path for creating each, and its body.
    pub(crate) fn owners() -> impl Iterator<Item = (String, Vec<u8>)> {
        (0..NAMESPACES * APPS).map(|number| {
            let labels = json!({"app": app(number)});
            let set = json!({
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": format!("{}-6d4f8b7c9", app(number))},
                "spec": {
                    "replicas": 0,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
                },
            });
            (format!("/apis/apps/v1/namespaces/{}/replicasets", namespace(number)), set.to_string().into_bytes())
        })
    }

    /// The body that creates or replaces pod `number`.
    pub(crate) fn body(&self, number: usize) -> Vec<u8> {
        let values = self.values(number);
        let mut body = Vec::with_capacity(STORED_SIZE + 512);
        for (text, mark) in &self.pieces {
            body.extend_from_slice(text.as_bytes());
            if let Some(mark) = mark {
                body.extend_from_slice(values[*mark].as_bytes());
            }
        }
        body
    }

    /// Approximately the stored form of an object with this body, for rows written directly to the store.
    pub(crate) fn row(&self, number: usize, body: Vec<u8>) -> Vec<u8> {
        let mut row = body;
        let rest = STORED_SIZE.saturating_sub(row.len());
        row.extend_from_slice(filler(number, &self.description, rest).as_bytes());
        row
    }

    /// The body of pod `number` with a label for this write, so that each write is a change.
    pub(crate) fn labelled(&self, number: usize, write: usize) -> Vec<u8> {
        let body = self.body(number);
        let mark = b"\"pod-template-hash\":";
        let at = body.windows(mark.len()).position(|window| window == mark).unwrap_or_default();
        let mut labelled = Vec::with_capacity(body.len() + 32);
        labelled.extend_from_slice(&body[..at]);
        labelled.extend_from_slice(format!("\"write\":\"w{write}\",").as_bytes());
        labelled.extend_from_slice(&body[at..]);
        labelled
    }

    /// The number of the pod at this index in the first namespace.
    pub(crate) fn in_one_namespace(place: usize) -> usize {
        place * NAMESPACES
    }

    /// The path for creating pod `number`.
    pub(crate) fn collection(&self, number: usize) -> String {
        format!("/api/v1/namespaces/{}/pods", namespace(number))
    }

    /// The path of pod `number`.
    pub(crate) fn path(&self, number: usize) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", namespace(number), name(number))
    }

    /// The path for creating config map `number`.
    pub(crate) fn config_maps(&self, number: usize) -> String {
        format!("/api/v1/namespaces/{}/configmaps", namespace(number))
    }

    /// The body of config map `number`, which has about the stored size of a pod: as much text, but few fields.
    pub(crate) fn config_map(&self, number: usize) -> Vec<u8> {
        let name = name(number);
        let text = filler(number, &self.description, STORED_SIZE - CONFIG_MAP_FRAME);
        format!(r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{name}"}},"data":{{"service.yaml":"{text}"}}}}"#)
            .into_bytes()
    }

    /// The namespace of object `number`.
    pub(crate) fn namespace(&self, number: usize) -> String {
        namespace(number)
    }

    /// The name of object `number`.
    pub(crate) fn name(&self, number: usize) -> String {
        name(number)
    }

    /// Unique text of this length.
    pub(crate) fn text(&self, number: usize, length: usize) -> String {
        filler(number, &self.description, length)
    }

    fn values(&self, number: usize) -> [String; MARKS.len()] {
        let every = (self.count / SAMPLED).max(1);
        let sampled = number.is_multiple_of(every) && number / every < SAMPLED;
        [
            name(number),
            namespace(number),
            app(number),
            node(number),
            if sampled { "yes" } else { "no" }.to_owned(),
            filler(number, &self.description, self.padding),
            self.owners[number % self.owners.len()].clone(),
        ]
    }
}

/// The node that pod `number` runs on.
pub(crate) fn node(number: usize) -> String {
    format!("node-{:04}", number % NODES)
}

fn namespace(number: usize) -> String {
    format!("bench-{:02}", number % NAMESPACES)
}

fn app(number: usize) -> String {
    format!("service-{:03}", number / NAMESPACES % APPS)
}

fn name(number: usize) -> String {
    // The suffixes are scattered like random ones, so that the order of creation differs from the order of keys. The
    // multiplier is odd, so all suffixes are distinct.
    let scattered = (number as u32).wrapping_mul(0x9E37_79B1);
    format!("{}-6d4f8b7c9-{scattered:08x}", app(number))
}

/// Text similar to annotations: a description common to all pods, with unique identifiers.
fn filler(number: usize, description: &str, length: usize) -> String {
    let mut state = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = String::with_capacity(length + DESCRIBED + 16);
    let mut pieces = description.as_bytes().chunks(DESCRIBED).cycle();
    while text.len() < length {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
        text.push_str(&String::from_utf8_lossy(pieces.next().unwrap_or_default()));
    }
    text.truncate(length);
    text
}

fn cut(template: &str) -> Vec<(String, Option<usize>)> {
    let mut pieces = Vec::new();
    let mut rest = template;
    loop {
        let next = MARKS.iter().enumerate().filter_map(|(mark, text)| Some((rest.find(text)?, mark))).min();
        let Some((at, mark)) = next else {
            pieces.push((rest.to_owned(), None));
            return pieces;
        };
        pieces.push((rest[..at].to_owned(), Some(mark)));
        rest = &rest[at + MARKS[mark].len()..];
    }
}

fn template() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "@name@",
            "namespace": "@namespace@",
            "labels": {
                "app.kubernetes.io/name": "@app@",
                "app.kubernetes.io/part-of": "bench",
                "pod-template-hash": "6d4f8b7c9",
                "sample": "@sample@",
            },
            "annotations": {
                "prometheus.io/port": "9090",
                "prometheus.io/scrape": "true",
                "example.com/description": "@padding@",
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": "@app@-6d4f8b7c9",
                "uid": "@owner@",
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec(),
        "status": status(),
    })
}

fn spec() -> Value {
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let probe = |path: &str| {
        json!({
            "httpGet": {"path": path, "port": 8080, "scheme": "HTTP"},
            "initialDelaySeconds": 5, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
        })
    };
    let variable = |name: &str, field: &str| json!({"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}});
    json!({
        "volumes": [
            {"name": "config", "configMap": {"name": "@app@", "defaultMode": 420}},
            {"name": "credentials", "secret": {"secretName": "@app@", "defaultMode": 420}},
        ],
        "containers": [{
            "name": "main",
            "image": "example.com/bench/@app@:v1.8.2",
            "args": ["--listen=:8080", "--metrics=:9090", "--config=/etc/service/config.yaml"],
            "ports": [
                {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                {"name": "metrics", "containerPort": 9090, "protocol": "TCP"},
            ],
            "env": [variable("POD_NAME", "metadata.name"), variable("POD_IP", "status.podIP")],
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "128Mi"}},
            "volumeMounts": [mount("config", "/etc/service"), mount("credentials", "/etc/credentials")],
            "livenessProbe": probe("/healthz"),
            "readinessProbe": probe("/ready"),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "imagePullPolicy": "IfNotPresent",
        }],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        // Without this field an admission plugin would add a token volume and its mount, a fifth of the pod's size.
        "automountServiceAccountToken": false,
        "nodeName": "@node@",
        "securityContext": {"runAsNonRoot": true, "runAsUser": 65532},
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        ],
        "priority": 0,
        "enableServiceLinks": true,
        "preemptionPolicy": "PreemptLowerPriority",
    })
}

fn status() -> Value {
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": "2026-01-02T03:04:05Z"});
    json!({
        "phase": "Running",
        "conditions": [condition("Initialized"), condition("Ready"), condition("ContainersReady"), condition("PodScheduled")],
        "hostIP": "192.0.2.17",
        "podIP": "198.51.100.23",
        "podIPs": [{"ip": "198.51.100.23"}],
        "startTime": "2026-01-02T03:04:05Z",
        "containerStatuses": [{
            "name": "main",
            "state": {"running": {"startedAt": "2026-01-02T03:04:09Z"}},
            "lastState": {},
            "ready": true,
            "restartCount": 0,
            "image": "example.com/bench/@app@:v1.8.2",
            "imageID": "example.com/bench/@app@@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
            "started": true,
        }],
        "qosClass": "Burstable",
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use serde_json::Value;

    use super::{MARKS, NAMESPACES, Pods, SAMPLED, STORED_SIZE, name};

    fn owners() -> Vec<String> {
        Pods::owners().map(|_| "7c1b2a5e-4b1f-4f57-9c7d-3f1e5f0f6a21".to_owned()).collect()
    }

    #[test]
    fn a_body_is_the_pod_of_its_number() {
        let pods = Pods::new(1_000, owners());
        let pod: Value = serde_json::from_slice(&pods.body(7)).unwrap();
        assert!(pods.path(7).ends_with(pod["metadata"]["name"].as_str().unwrap()));
        assert_eq!(pod["spec"]["nodeName"], "node-0007");
        assert!(MARKS.iter().all(|mark| !pod.to_string().contains(mark)), "a mark is left in {pod}");
    }

    #[test]
    fn names_are_distinct_and_samples_are_as_many_as_stated() {
        let pods = Pods::new(20_000, owners());
        assert_eq!((0..20_000).map(name).collect::<HashSet<_>>().len(), 20_000);
        let sampled = (0..20_000).filter(|number| pods.values(*number)[4] == "yes").count();
        assert_eq!((sampled, Pods::namespaces().count()), (SAMPLED, NAMESPACES));
    }

    #[test]
    fn padding_brings_a_pod_to_the_stored_size() {
        let mut pods = Pods::new(10, owners());
        let bare = pods.body(0).len();
        assert!(bare < STORED_SIZE, "the template alone has {bare} bytes");
        pods.pad(bare);
        assert_eq!(pods.body(0).len(), STORED_SIZE);
    }
}
