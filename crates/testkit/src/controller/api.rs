//! Reads and writes of the controller: JSON objects at paths that are built from kind and names.
//!
//! A write to an outdated or deleted object is not an error, because the change that it missed starts another round.

use std::time::SystemTime;

use anyhow::{Result, bail};
use keelson_meta::clock::rfc3339;
use serde_json::{Value, json};

use crate::raw::{Call, Raw, Stream};

const MERGE: &str = "application/merge-patch+json";
/// The duration of a watch in seconds, shorter than the timeout for a stream without events.
const WATCH_SECONDS: u32 = 30;

/// A kind with the path of its objects.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    root: &'static str,
    plural: &'static str,
    version: &'static str,
    kind: &'static str,
}

const fn kind(root: &'static str, version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind { root, plural, version, kind }
}

pub(super) const BUDGETS: Kind = kind("/apis/policy/v1", "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets");
pub(super) const CLAIMS: Kind = kind("/api/v1", "v1", "PersistentVolumeClaim", "persistentvolumeclaims");
pub(super) const DEPLOYMENTS: Kind = kind("/apis/apps/v1", "apps/v1", "Deployment", "deployments");
pub(super) const NODES: Kind = kind("/api/v1", "v1", "Node", "nodes");
pub(super) const PODS: Kind = kind("/api/v1", "v1", "Pod", "pods");
pub(super) const REPLICA_SETS: Kind = kind("/apis/apps/v1", "apps/v1", "ReplicaSet", "replicasets");
pub(super) const VOLUMES: Kind = kind("/api/v1", "v1", "PersistentVolume", "persistentvolumes");

/// The verbs that the controller needs.
pub(super) struct Api {
    raw: Raw,
}

impl Api {
    pub(super) fn new(raw: Raw) -> Self {
        Self { raw }
    }

    pub(super) async fn watch(&self, kind: Kind) -> Result<Stream> {
        let Kind { root, plural, .. } = kind;
        self.raw.get(format!("{root}/{plural}?watch=1&timeoutSeconds={WATCH_SECONDS}")).try_stream().await
    }

    pub(super) async fn list(&self, kind: Kind) -> Result<Vec<Value>> {
        let answer = self.raw.get(format!("{}/{}", kind.root, kind.plural)).try_send().await?;
        match answer.json()["items"].take() {
            Value::Array(items) => Ok(items),
            _ => bail!("{} {}: {}", kind.plural, answer.status, answer.text()),
        }
    }

    pub(super) async fn create(&self, kind: Kind, namespace: &Value, object: &Value) -> Result<()> {
        send(self.raw.post(collection(kind, namespace), object)).await
    }

    /// Patches an object (`below` is empty) or a subresource (`/status`).
    pub(super) async fn patch(&self, kind: Kind, object: &Value, below: &str, change: &Value) -> Result<()> {
        send(self.raw.patch(path(kind, object) + below, MERGE, change)).await
    }

    /// Writes a status unless it is unchanged. Zero and a missing value are equal.
    pub(super) async fn report(&self, kind: Kind, object: &Value, status: &Value) -> Result<()> {
        let known = |field: &str| match &object["status"][field] {
            Value::Null => json!(0),
            value => value.clone(),
        };
        let news = status.as_object().is_some_and(|fields| fields.iter().any(|(name, value)| known(name) != *value));
        if !news {
            return Ok(());
        }
        // A status is computed from the object that was read, so the write is valid only for that version.
        let change = json!({"metadata": {"resourceVersion": object["metadata"]["resourceVersion"]}, "status": status});
        self.patch(kind, object, "/status", &change).await
    }

    /// Binds a pod to a node.
    pub(super) async fn bind(&self, pod: &Value, node: &Value) -> Result<()> {
        let name = |object: &Value| object["metadata"]["name"].clone();
        let binding = json!({"metadata": {"name": name(pod)}, "target": {"kind": "Node", "name": name(node)}});
        send(self.raw.post(path(PODS, pod) + "/binding", &binding)).await
    }

    /// Deletes an object; without a grace period if `at_once`.
    pub(super) async fn delete(&self, kind: Kind, object: &Value, at_once: bool) -> Result<()> {
        let query = if at_once { "?gracePeriodSeconds=0" } else { "" };
        send(self.raw.delete(path(kind, object) + query)).await
    }
}

/// The owner reference to a controller.
pub(super) fn controller_reference(kind: Kind, owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!([{"apiVersion": kind.version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true}])
}

/// The objects that this owner controls.
pub(super) fn owned_by<'a>(owner: &Value, objects: &'a [Value]) -> Vec<&'a Value> {
    let uid = &owner["metadata"]["uid"];
    let owns = |reference: &Value| reference["controller"] == true && reference["uid"] == *uid;
    let references = |object: &Value| object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    objects.iter().filter(|object| references(object).iter().any(owns)).collect()
}

/// Returns true if the object is being deleted.
pub(super) fn is_leaving(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A number field, 0 when it is missing.
pub(super) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// A number, or a percentage of a whole, rounded up or down.
pub(super) fn share(value: &Value, whole: u64, round_up: bool) -> u64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<u64>().ok());
    match percent {
        Some(percent) if round_up => (percent * whole).div_ceil(100),
        Some(percent) => percent * whole / 100,
        None => number(value),
    }
}

/// Conditions with these types, statuses and reasons. An unchanged condition keeps its time.
pub(super) fn conditions(object: &Value, wanted: &[(&str, &str, &str)], timed: &[&str]) -> Value {
    let known = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let now = rfc3339(SystemTime::now());
    let condition = |(kind, status, reason): &(&str, &str, &str)| {
        let same = |known: &&Value| known["type"] == *kind && known["status"] == *status && known["reason"] == *reason;
        known.iter().find(same).cloned().unwrap_or_else(|| {
            let mut new = json!({"type": kind, "status": status, "reason": reason});
            timed.iter().for_each(|field| new[*field] = json!(now));
            new
        })
    };
    wanted.iter().map(condition).collect()
}

fn collection(kind: Kind, namespace: &Value) -> String {
    match namespace.as_str() {
        Some(namespace) => format!("{}/namespaces/{namespace}/{}", kind.root, kind.plural),
        None => format!("{}/{}", kind.root, kind.plural),
    }
}

fn path(kind: Kind, object: &Value) -> String {
    let metadata = &object["metadata"];
    format!("{}/{}", collection(kind, &metadata["namespace"]), metadata["name"].as_str().unwrap_or_default())
}

async fn send(call: Call) -> Result<()> {
    let answer = call.try_send().await?;
    match answer.status {
        200..=202 | 403 | 404 | 409 | 429 => Ok(()),
        _ => panic!("the server refused a write of the test's controller: {}", answer.text()),
    }
}
