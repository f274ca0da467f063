//! A graph of nodes and the objects related to them.
//!
//! A pod has one node. For each object, the graph counts the pods that use it by node. So a decision is one lookup,
//! however many pods use the object. A claim has a volume, and a volume has the secrets that are needed to mount it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use keelson_cache::Entry;
use keelson_meta::Object;
use keelson_meta::json::Value;

use super::durations::GRAPH_CHANGES;
use super::references;
use crate::follow::{self, decoded};

/// The collections that the graph is built from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Pods,
    Volumes,
    Attachments,
    Slices,
    PodCertificateRequests,
}

/// A kind of object that pods use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum UsedKind {
    Secret,
    ConfigMap,
    Claim,
    ResourceClaim,
    ServiceAccount,
}

/// The key in the cache: `<namespace>/<name>`, or `<name>` without a namespace.
type Key = Arc<str>;
/// The name of a node.
type Node = Arc<str>;

/// Objects and their related nodes.
#[derive(Default)]
pub(super) struct Graph {
    pods: HashMap<Key, Pod>,
    /// The number of pods that use an object, by node.
    used: HashMap<(UsedKind, Key), HashMap<Node, usize>>,
    volumes: HashMap<Key, Volume>,
    /// The volumes that need a secret.
    volumes_by_secret: HashMap<Key, Vec<Key>>,
    attachments: HashMap<Key, Node>,
    slices: HashMap<Key, Node>,
    certificate_requests: HashMap<Key, Node>,
}

struct Pod {
    node: Node,
    uses: Vec<(UsedKind, Key)>,
}

struct Volume {
    claim: Key,
    secrets: Vec<Key>,
}

impl Graph {
    /// Returns true if a pod is bound to a node.
    pub(super) fn pod_is_on(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.pods.get(&*key(namespace, name)).is_some_and(|pod| &*pod.node == node)
    }

    /// Returns true if pods of a node use an object, directly or through a volume.
    pub(super) fn is_used_on(&self, kind: UsedKind, namespace: &str, name: &str, node: &str) -> bool {
        let key: Key = key(namespace, name).into();
        let through_a_volume = || {
            let volumes = self.volumes_by_secret.get(&key).filter(|_| kind == UsedKind::Secret);
            volumes.is_some_and(|volumes| volumes.iter().any(|volume| self.volume_is_used_on(volume, node)))
        };
        self.counts(&(kind, key.clone()), node) || through_a_volume()
    }

    /// Returns true if pods of a node use the claim that a volume is bound to.
    pub(super) fn volume_is_used_on(&self, name: &str, node: &str) -> bool {
        self.volumes.get(name).is_some_and(|volume| self.counts(&(UsedKind::Claim, volume.claim.clone()), node))
    }

    /// Returns true if the attachment or slice names the node.
    pub(super) fn is_of(&self, source: Source, name: &str, node: &str) -> bool {
        let nodes = if source == Source::Slices { &self.slices } else { &self.attachments };
        nodes.get(name).is_some_and(|of| &**of == node)
    }

    /// Returns true if the pod certificate request names the node.
    pub(super) fn certificate_request_is_of(&self, namespace: &str, name: &str, node: &str) -> bool {
        self.certificate_requests.get(&*key(namespace, name)).is_some_and(|of| &**of == node)
    }

    fn counts(&self, used: &(UsedKind, Key), node: &str) -> bool {
        self.used.get(used).is_some_and(|nodes| nodes.contains_key(node))
    }

    fn put_pod(&mut self, key: &Key, pod: &Object) {
        self.remove_pod(key);
        let Some(node) = text(pod, &["spec", "nodeName"]) else { return };
        let node: Node = node.into();
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        let uses: Vec<(UsedKind, Key)> = references::of_pod(pod)
            .into_iter()
            .map(|(kind, name)| (kind, self::key(namespace, &name).into()))
            .collect();
        for used in &uses {
            *self.used.entry(used.clone()).or_default().entry(node.clone()).or_default() += 1;
        }
        self.pods.insert(key.clone(), Pod { node, uses });
    }

    fn remove_pod(&mut self, key: &str) {
        let Some(pod) = self.pods.remove(key) else { return };
        for used in pod.uses {
            let Some(nodes) = self.used.get_mut(&used) else { continue };
            if let Some(count) = nodes.get_mut(&pod.node) {
                *count -= 1;
                if *count == 0 {
                    nodes.remove(&pod.node);
                }
            }
            if nodes.is_empty() {
                self.used.remove(&used);
            }
        }
    }

    fn put_volume(&mut self, key: &Key, volume: &Object) {
        self.remove_volume(key);
        let claim = |field: &str| text(volume, &["spec", "claimRef", field]);
        let Some(name) = claim("name") else { return };
        let namespace = claim("namespace").unwrap_or_default();
        let secrets: Vec<Key> = references::secrets_of_volume(volume, namespace)
            .into_iter()
            .map(|(namespace, name)| self::key(&namespace, &name).into())
            .collect();
        for secret in &secrets {
            self.volumes_by_secret.entry(secret.clone()).or_default().push(key.clone());
        }
        self.volumes.insert(key.clone(), Volume { claim: self::key(namespace, name).into(), secrets });
    }

    fn remove_volume(&mut self, key: &str) {
        let Some(volume) = self.volumes.remove(key) else { return };
        for secret in volume.secrets {
            if let Some(volumes) = self.volumes_by_secret.get_mut(&secret) {
                volumes.retain(|volume| &**volume != key);
                if volumes.is_empty() {
                    self.volumes_by_secret.remove(&secret);
                }
            }
        }
    }
}

impl follow::Index for Graph {
    type Kind = Source;

    fn clear(&mut self, source: Source) {
        match source {
            Source::Pods => (self.pods, self.used) = Default::default(),
            Source::Volumes => (self.volumes, self.volumes_by_secret) = Default::default(),
            Source::Attachments => self.attachments.clear(),
            Source::Slices => self.slices.clear(),
            Source::PodCertificateRequests => self.certificate_requests.clear(),
        }
    }

    fn put(&mut self, source: Source, entry: &Entry) {
        let begun = Instant::now();
        match source {
            // A pod that is not bound need not be decoded.
            Source::Pods if entry.field_named("spec.nodeName").is_empty() => self.remove_pod(&entry.key),
            Source::Pods => self.put_pod(&entry.key, &decoded(entry)),
            Source::Volumes => self.put_volume(&entry.key, &decoded(entry)),
            Source::Attachments => set(&mut self.attachments, &entry.key, &decoded(entry)),
            Source::Slices => set(&mut self.slices, &entry.key, &decoded(entry)),
            Source::PodCertificateRequests => set(&mut self.certificate_requests, &entry.key, &decoded(entry)),
        }
        GRAPH_CHANGES.note(source, false, begun.elapsed());
    }

    fn remove(&mut self, source: Source, key: &str) {
        let begun = Instant::now();
        match source {
            Source::Pods => self.remove_pod(key),
            Source::Volumes => self.remove_volume(key),
            Source::Attachments => drop(self.attachments.remove(key)),
            Source::Slices => drop(self.slices.remove(key)),
            Source::PodCertificateRequests => drop(self.certificate_requests.remove(key)),
        }
        GRAPH_CHANGES.note(source, true, begun.elapsed());
    }

    /// Returns true if a change of a pod does not change the objects that it uses. That holds for most status writes of
    /// kubelets. Once a pod is bound, only resource claims in its status and ephemeral containers can add objects.
    fn is_same(source: Source, before: &Entry, after: &Entry) -> bool {
        let node = |entry: &'_ Entry| entry.field_named("spec.nodeName").to_owned();
        let may_use_more = |entry: &Entry| {
            ["esourceClaim", "phemeralContainers"].iter().any(|word| entry.object().skeleton_text().contains(word))
        };
        source == Source::Pods
            && !node(after).is_empty()
            && node(before) == node(after)
            && before.object().uid() == after.object().uid()
            && !may_use_more(before)
            && !may_use_more(after)
    }
}

fn set(nodes: &mut HashMap<Key, Node>, key: &Key, object: &Object) {
    match text(object, &["spec", "nodeName"]) {
        Some(node) => drop(nodes.insert(key.clone(), node.into())),
        None => drop(nodes.remove(key)),
    }
}

fn text<'o>(object: &'o Object, path: &[&str]) -> Option<&'o str> {
    object.get(path).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

#[cfg(test)]
mod tests {
    use keelson_meta::json::json;

    use super::*;

    fn pod(node: &str, secret: &str) -> Object {
        let spec = json!({"nodeName": node, "volumes": [
            {"name": "s", "secret": {"secretName": secret}}, {"name": "c", "persistentVolumeClaim": {"claimName": "data"}}]});
        Object::from_value(json!({ "metadata": {"name": "p"}, "spec": spec })).unwrap()
    }

    #[test]
    fn references_last_while_a_pod_of_the_node_has_them() {
        let mut graph = Graph::default();
        let (one, two): (Key, Key) = ("n/one".into(), "n/two".into());
        graph.put_pod(&one, &pod("a", "s"));
        graph.put_pod(&two, &pod("a", "s"));
        let uses = |graph: &Graph, name: &str, node: &str| graph.is_used_on(UsedKind::Secret, "n", name, node);
        assert!(uses(&graph, "s", "a") && !uses(&graph, "s", "b") && !uses(&graph, "t", "a"));
        assert!(
            !graph.is_used_on(UsedKind::Secret, "m", "s", "a") && !graph.is_used_on(UsedKind::ConfigMap, "n", "s", "a")
        );
        graph.remove_pod(&one);
        assert!(uses(&graph, "s", "a") && !graph.pod_is_on("n", "one", "a") && graph.pod_is_on("n", "two", "a"));
        graph.put_pod(&two, &pod("b", "t"));
        assert!(!uses(&graph, "s", "a") && uses(&graph, "t", "b") && !graph.pod_is_on("n", "two", "a"));
        graph.put_pod(&two, &pod("", "t"));
        assert!(graph.pods.is_empty() && graph.used.is_empty());
    }

    #[test]
    fn a_secret_of_a_volume_is_used_where_its_claim_is() {
        let mut graph = Graph::default();
        let volume = |claim: &str| {
            let csi = json!({"driver": "d", "nodeStageSecretRef": {"name": "mount", "namespace": "secrets"},
                "controllerPublishSecretRef": {"name": "attach", "namespace": "secrets"}});
            let spec = json!({"claimRef": {"name": claim, "namespace": "n"}, "csi": csi});
            Object::from_value(json!({ "metadata": {"name": "v"}, "spec": spec })).unwrap()
        };
        let key: Key = "v".into();
        graph.put_volume(&key, &volume("data"));
        let may_read = |graph: &Graph, name: &str| graph.is_used_on(UsedKind::Secret, "secrets", name, "a");
        assert!(!may_read(&graph, "mount"));
        graph.put_pod(&"n/one".into(), &pod("a", "s"));
        assert!(may_read(&graph, "mount") && !may_read(&graph, "attach") && graph.volume_is_used_on("v", "a"));
        graph.put_volume(&key, &volume("other"));
        assert!(!may_read(&graph, "mount") && !graph.volume_is_used_on("v", "a"));
        graph.remove_volume(&key);
        assert!(graph.volumes_by_secret.is_empty());
    }
}
