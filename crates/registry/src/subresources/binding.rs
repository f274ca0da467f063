//! `pods/binding`: a scheduler binds a pod to a node. A pod is bound once.
//!
//! A binding writes the pod and not the Binding: the name of the node, its topology labels, and the condition that the
//! pod is scheduled. Concurrent bindings cannot both succeed, since the transaction compares the pod's revision.

use std::time::SystemTime;

use keelson_cache::Entry;
use keelson_meta::error::ConflictKind;
use keelson_meta::field_error::{self, FieldError};
use keelson_meta::json::{Map, Value, json};
use keelson_meta::names::NameRule;
use keelson_meta::options::GetOptions;
use keelson_meta::{ApiError, GroupResource, Object, conditions};

use crate::admission::WriteOptions;
use crate::caller::Caller;
use crate::config::BuiltinStagePlugin;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Change, Edit, Update, WriteRequest, modified};

/// The labels with the region and zone of a pod. A bound pod has those of its node (KEP-4742).
const TOPOLOGY: [&str; 2] = ["topology.kubernetes.io/region", "topology.kubernetes.io/zone"];

impl Registry {
    /// Binds a pod to the node in the Binding. `target` is the endpoint of the request.
    ///
    /// # Errors
    /// 404 if the pod does not exist. 409 if it is bound, gated, being deleted, or has another uid. 500 for a Binding
    /// without a node, as upstream.
    pub async fn bind(&self, target: &Target, mut binding: Object, caller: &Caller) -> Result<(), ApiError> {
        self.check_namespace(target, binding.name()).await?;
        self.admit_posted(target, caller, &mut binding).await?;
        let node = node_of(&binding)?;
        let pods = self.target("", "pods")?.in_namespace(target.namespace.as_deref());
        let topology = self.topology(node).await?;
        let mut bind = Edit::new(|registry: &Registry, live: &Entry| {
            let pod = live.object().decode(live.revision);
            // Admission ran for the binding.
            let change = bound(&pods, pod, &binding, node, &topology, registry.now())?;
            Ok(Update::Change(change, None))
        });
        let request = WriteRequest::new(&pods, binding.name(), caller, WriteOptions::None);
        self.write(&request, &mut bind).await.map(|_| ())
    }

    /// The topology labels of a node; none if the node does not exist.
    async fn topology(&self, node: &str) -> Result<Map, ApiError> {
        if !self.does(BuiltinStagePlugin::PodTopologyLabels) {
            return Ok(Map::new());
        }
        let nodes = self.target("", "nodes")?;
        match self.read(&nodes, node, &GetOptions::default()).await {
            Ok(entry) => {
                let node = entry.object().decode(entry.revision);
                let labels = node.labels().filter(|(name, _)| TOPOLOGY.contains(name));
                Ok(labels.map(|(name, value)| (name, json!(value))).collect())
            }
            Err(ApiError::NotFound { .. }) => Ok(Map::new()),
            Err(error) => Err(error),
        }
    }
}

/// The name of the node in a Binding.
fn node_of(binding: &Object) -> Result<&str, ApiError> {
    let text = |field: &str| binding.get(&["target", field]).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Vec::new();
    let kind = text("kind");
    if !matches!(kind, "" | "Node") {
        errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]));
    }
    if text("name").is_empty() {
        errors.push(FieldError::required("target.name", ""));
    } else {
        let faults = NameRule::DnsSubdomain.check(text("name"), false).into_iter();
        errors.extend(faults.map(|fault| FieldError::invalid("target.name", text("name"), fault)));
    }
    if errors.is_empty() { Ok(text("name")) } else { Err(ApiError::Unclassified(field_error::join(&errors))) }
}

fn bound(
    pods: &Target,
    mut pod: Object,
    binding: &Object,
    node: &str,
    topology: &Map,
    now: SystemTime,
) -> Result<Change, ApiError> {
    let name = pod.name().to_owned();
    let wanted = binding.uid();
    if !wanted.is_empty() && wanted != pod.uid() {
        let message = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {}", pod.uid());
        return Err(ApiError::conflict(pods.group_resource(), name, ConflictKind::Other(message)));
    }
    if !matches!(binding.resource_version(), "" | "0") && binding.resource_version() != pod.resource_version() {
        return Err(modified(pods, &name));
    }
    if let Some(why) = unbindable(&pod) {
        let resource = GroupResource { group: String::new(), resource: "pods/binding".to_owned() };
        return Err(ApiError::conflict(resource, name, ConflictKind::Other(why)));
    }
    pod.remove_meta("resourceVersion");
    if let Some(Value::Object(spec)) = pod.0.get_mut("spec") {
        spec.insert("nodeName", json!(node));
    }
    if let Some(Value::Object(status)) = pod.0.get_mut("status") {
        status.remove("nominatedNodeName");
    }
    let texts = |field: &str| binding.meta(field).and_then(Value::as_object).into_iter().flatten();
    merge(&mut pod, "annotations", texts("annotations"));
    merge(&mut pod, "labels", texts("labels"));
    merge(&mut pod, "labels", topology.iter());
    conditions::set(&mut pod, json!({"type": "PodScheduled", "status": "True"}), now);
    Ok(Change::Put(pod.into()))
}

/// The reason why a pod cannot be bound.
fn unbindable(pod: &Object) -> Option<String> {
    let name = pod.name();
    if pod.deletion_timestamp().is_some() {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.get(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default();
    if !node.is_empty() {
        return Some(format!("pod {name} is already assigned to node \"{node}\""));
    }
    let gates = pod.get(&["spec", "schedulingGates"]).and_then(Value::as_array);
    let held = gates.is_some_and(|gates| !gates.is_empty());
    held.then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// Adds entries to a map in the metadata. They replace existing ones.
fn merge<'a>(pod: &mut Object, field: &str, entries: impl Iterator<Item = (&'a str, &'a Value)>) {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return;
    }
    let map = pod.metadata_mut().entry(field).or_insert_with(|| json!({}));
    if let Value::Object(map) = map {
        map.extend(entries.map(|(name, value)| (name, value.clone())));
        map.sort_keys();
    }
}
