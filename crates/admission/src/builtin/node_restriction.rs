//! Upstream's plugin NodeRestriction: limits the writes of kubelets that the Node authorizer permits.
//!
//! A node may write its own Node without taints, owners and labels that isolate nodes. It may also write its lease,
//! CSINode and resource slices, the status of its pods and claims, and its mirror pods. It may request tokens only for
//! its pods, with their audiences, and certificates only for its pods, from the signers of their volumes.
//!
//! Rules and messages are upstream's (`plugin/pkg/admission/noderestriction`). Writes of other users are not checked.

mod certificates;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_access::node::{LEASES_NAMESPACE, node_of};
use keelson_access::{Attributes, ResourceAttributes};
use keelson_builtin::{difference, key_prefix};
use keelson_cache::{Cache, Collection};
use keelson_meta::go_format::quote;
use keelson_meta::json::Value;
use keelson_meta::{ApiError, GroupResource, Object};
use keelson_registry::{Admission, AdmissionAttributes, AttributesNeeded, Mutation, Operation};

use super::reading::items;

/// The annotation of a mirror pod, which represents a static pod of a kubelet.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The verb that permits a node to request a token for an audience that no volume of the pod has. The audience is the
/// resource.
const ANY_AUDIENCE: &str = "request-serviceaccounts-token-audience";
/// The label domain that nodes may not set on themselves, with its subdomains.
const RESTRICTED: &str = "node-restriction.kubernetes.io";
/// Labels of Kubernetes that a node may set on itself.
const OWN_LABELS: [&str; 12] = [
    "kubernetes.io/hostname",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/windows-build",
];
/// Label domains that a node may set on itself, with their subdomains.
const OWN_DOMAINS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];

/// Checks the writes of nodes against objects in the cache.
#[derive(Debug)]
pub(crate) struct NodeRestriction {
    pods: StoredObjects,
    nodes: StoredObjects,
    accounts: StoredObjects,
    claims: StoredObjects,
    volumes: StoredObjects,
    drivers: StoredObjects,
}

/// The stored objects of a kind, and the name of the kind in errors about missing objects.
struct StoredObjects {
    collection: Arc<Collection>,
    missing: GroupResource,
}

impl NodeRestriction {
    /// Creates the plugin over a cache.
    ///
    /// # Errors
    /// 500 if the cache lacks one of the kinds that are looked up.
    pub(crate) fn new(cache: &Cache) -> Result<Self, ApiError> {
        let stored = |group: &str, plural: &str, singular: &str| {
            let prefix = key_prefix(group, plural)?;
            let missing = GroupResource { group: group.to_owned(), resource: singular.to_owned() };
            let collection = cache.collection(&prefix);
            let collection = collection.ok_or_else(|| ApiError::Internal(format!("{plural} are not cached")))?;
            Ok::<_, ApiError>(StoredObjects { collection, missing })
        };
        Ok(Self {
            pods: stored("", "pods", "pod")?,
            nodes: stored("", "nodes", "node")?,
            accounts: stored("", "serviceaccounts", "serviceaccount")?,
            claims: stored("", "persistentvolumeclaims", "persistentvolumeclaim")?,
            volumes: stored("", "persistentvolumes", "persistentvolume")?,
            drivers: stored("storage.k8s.io", "csidrivers", "csidriver")?,
        })
    }

    async fn judge(&self, write: &NodeWrite<'_>) -> Result<(), Fault> {
        let AdmissionAttributes { target, operation, .. } = *write.attributes;
        let subresource = target.subresource.as_ref().map_or("", |below| &*below.name);
        match (&*target.resource.group, &*target.resource.plural, subresource) {
            ("", "pods", "") => self.pod(write),
            ("", "pods", "status") => pod_status(write),
            ("", "pods", "eviction") => self.eviction(write),
            ("", "pods", other) => {
                let other = quote(other);
                Err(said(format!("unexpected pod subresource {other}, only 'status' and 'eviction' are allowed")))
            }
            ("", "nodes", _) => node(write),
            ("", "persistentvolumeclaims", "status") => claim_status(write),
            ("", "persistentvolumeclaims", _) => Err(said("may only update PVC status")),
            ("", "serviceaccounts", "token") if operation == Operation::Create => self.token(write).await,
            ("coordination.k8s.io", "leases", _) => lease(write),
            ("storage.k8s.io", "csinodes", _) => {
                write.is_named_like_node("can only access CSINode with the same name as the requesting node")
            }
            ("resource.k8s.io", "resourceslices", _) => slice(write),
            ("certificates.k8s.io", "certificatesigningrequests", "") if operation == Operation::Create => {
                certificates::signing_request(write)
            }
            ("certificates.k8s.io", "podcertificaterequests", below) => self.pod_certificate(write, below).await,
            _ => Ok(()),
        }
    }

    fn pod(&self, write: &NodeWrite<'_>) -> Result<(), Fault> {
        let node = quote(write.node);
        match write.attributes.operation {
            Operation::Create => self.new_pod(write, &node),
            Operation::Delete => {
                let pod = self.pods.get(write.namespace(), write.name())?;
                let message = || format!("node {node} can only delete pods with spec.nodeName set to itself");
                demand(is_bound_to(&pod, write.node), message)
            }
            Operation::Update | Operation::Connect => {
                let operation = quote(write.attributes.operation.as_str());
                let can = "can only create and delete mirror pods";
                Err(said(format!("unexpected operation {operation}, node {node} {can}")))
            }
        }
    }

    /// Checks a new pod: it must be a mirror pod owned by the node, without references to other objects.
    fn new_pod(&self, write: &NodeWrite<'_>, node: &str) -> Result<(), Fault> {
        let pod = write.object;
        let is_mirror = pod.annotations().any(|(key, _)| key == MIRROR);
        demand(is_mirror, || {
            format!("pod does not have \"{MIRROR}\" annotation, node {node} can only create mirror pods")
        })?;
        let only = |what: &str| format!("node {node} can only create pods with {what}");
        demand(is_bound_to(pod, write.node), || only("spec.nodeName set to itself"))?;
        let [owner] = pod.meta_list("ownerReferences") else {
            let is_owned = !pod.meta_list("ownerReferences").is_empty();
            let what = if is_owned { "a single owner reference" } else { "an owner reference" };
            return Err(said(only(&format!("{what} set to itself"))));
        };
        let is_own = owner["apiVersion"] == "v1" && owner["kind"] == "Node" && owner["name"] == write.node;
        demand(is_own, || only("an owner reference set to itself"))?;
        demand(owner["controller"] == true, || only("a controller owner reference set to itself"))?;
        demand(owner["blockOwnerDeletion"] != true, || {
            format!("node {node} must not set blockOwnerDeletion on an owner reference")
        })?;
        let (known, stated) = (self.nodes.get("", write.node)?, owner["uid"].as_str().unwrap_or_default());
        demand(known.uid() == stated, || {
            format!("node {} UID mismatch: expected {stated} got {}", write.node, known.uid())
        })?;
        match reference_of(pod) {
            Some(kind) => Err(said(format!("node {node} can not create pods that reference {kind}"))),
            None => Ok(()),
        }
    }

    fn eviction(&self, write: &NodeWrite<'_>) -> Result<(), Fault> {
        let pod = self.pods.get(write.namespace(), write.name())?;
        let node = write.node;
        demand(is_bound_to(&pod, node), || format!("node {node} can only evict pods with spec.nodeName set to itself"))
    }

    /// Checks a token request: the pod must run on the node and use the audience.
    async fn token(&self, write: &NodeWrite<'_>) -> Result<(), Fault> {
        let reference = |field: &str| {
            let text = write.object.get(&["spec", "boundObjectRef", field]).and_then(Value::as_str);
            text.unwrap_or_default()
        };
        let is_bound = reference("apiVersion") == "v1" && reference("kind") == "Pod" && !reference("name").is_empty();
        demand(is_bound, || "node requested token not bound to a pod".to_owned())?;
        let uid = reference("uid");
        demand(!uid.is_empty(), || "node requested token with a pod binding without a uid".to_owned())?;
        let pod = self.pods.get(write.namespace(), reference("name"))?;
        demand(pod.uid() == uid, || {
            format!(
                "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been deleted and then \
                 recreated"
            )
        })?;
        demand(is_bound_to(&pod, write.node), || {
            "node requested token bound to a pod scheduled on a different node".to_owned()
        })?;
        let audiences = list(write.object, &["spec", "audiences"]);
        let audience = match audiences {
            [] => "",
            [one] => one.as_str().unwrap_or_default(),
            _ => return Err(said("node may only request 0 or 1 audiences")),
        };
        let has = self
            .has_audience(&pod, audience)
            .map_err(|faults| said(format!("error validating audience {}: {faults}", quote(audience))))?;
        if has || write.may_have(audience).await {
            return Ok(());
        }
        let (audience, user) = (quote(audience), &write.attributes.caller.user().name);
        Err(said(format!(
            "audience {audience} not found in pod spec volume, {user} is not authorized to request tokens for this audience"
        )))
    }

    /// Returns true if a volume of the pod requests tokens for the audience, by itself or through its CSI driver. A
    /// failed lookup is an error only if no other volume has the audience.
    fn has_audience(&self, pod: &Object, audience: &str) -> Result<bool, String> {
        let mut faults: Vec<String> = Vec::new();
        for volume in list(pod, &["spec", "volumes"]) {
            let sources = volume["projected"]["sources"].as_array().into_iter().flatten();
            let mut tokens = sources.map(|source| &source["serviceAccountToken"]).filter(|token| !token.is_null());
            if tokens.any(|token| token["audience"].as_str().unwrap_or_default() == audience) {
                return Ok(true);
            }
            let of_driver = self.driver(pod, volume).and_then(|driver| match driver {
                Some(driver) => self.driver_wants(&driver, audience),
                None => Ok(false),
            });
            match of_driver {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(error) => {
                    let message = error.status().message;
                    if !faults.contains(&message) {
                        faults.push(message);
                    }
                }
            }
        }
        match &*faults {
            [] => Ok(false),
            [one] => Err(one.clone()),
            many => Err(format!("[{}]", many.join(", "))),
        }
    }

    /// The CSI driver of a volume: of an inline volume, or of the PersistentVolume to which the claim is bound.
    fn driver(&self, pod: &Object, volume: &Value) -> Result<Option<String>, ApiError> {
        if let Some(driver) = driver_of(volume) {
            return Ok(Some(driver.to_owned()));
        }
        let of_pod = format!("{}-{}", pod.name(), volume["name"].as_str().unwrap_or_default());
        let claim = match volume["persistentVolumeClaim"]["claimName"].as_str() {
            Some(claim) => claim,
            None if volume["ephemeral"]["volumeClaimTemplate"].is_null() => return Ok(None),
            None => &of_pod,
        };
        let claim = self.claims.get(pod.namespace(), claim)?;
        let volume = claim.get(&["spec", "volumeName"]).and_then(Value::as_str).unwrap_or_default();
        let volume = self.volumes.get("", volume)?;
        Ok(volume.0.get("spec").and_then(driver_of).map(str::to_owned))
    }

    fn driver_wants(&self, driver: &str, audience: &str) -> Result<bool, ApiError> {
        let driver = self.drivers.get("", driver)?;
        Ok(list(&driver, &["spec", "tokenRequests"])
            .iter()
            .any(|wanted| wanted["audience"].as_str().unwrap_or_default() == audience))
    }
}

/// CSI drivers that replace volume sources which were once built into Kubernetes.
const MIGRATED: [(&str, &str); 7] = [
    ("awsElasticBlockStore", "ebs.csi.aws.com"),
    ("azureDisk", "disk.csi.azure.com"),
    ("azureFile", "file.csi.azure.com"),
    ("cinder", "cinder.csi.openstack.org"),
    ("gcePersistentDisk", "pd.csi.storage.gke.io"),
    ("portworxVolume", "pxd.portworx.com"),
    ("vsphereVolume", "csi.vsphere.vmware.com"),
];

/// The CSI driver of a volume source: the one that it names, or the one that replaces it.
fn driver_of(source: &Value) -> Option<&str> {
    source["csi"]["driver"].as_str().or_else(|| {
        let is_there = |field: &str| source.get(field).is_some_and(Value::is_object);
        MIGRATED.iter().find(|(field, _)| is_there(field)).map(|(_, driver)| *driver)
    })
}

impl Admission for NodeRestriction {
    fn name(&self) -> &'static str {
        "NodeRestriction"
    }

    fn interest(&self, attributes: &AdmissionAttributes<'_>) -> AttributesNeeded {
        if node_of(attributes.caller.user()).is_some() { AttributesNeeded::Whole } else { AttributesNeeded::None }
    }

    fn mutate<'a>(
        &'a self,
        attributes: &'a AdmissionAttributes<'a>,
        object: Option<&'a mut Object>,
    ) -> BoxFuture<'a, Result<Mutation, ApiError>> {
        Box::pin(async move {
            let nothing = Object::default();
            let Some(node) = node_of(attributes.caller.user()) else { return Ok(Mutation::Unchanged) };
            let write = NodeWrite { node, attributes, object: object.as_deref().unwrap_or(&nothing) };
            self.judge(&write).await.map_err(|fault| fault.into_error(attributes))?;
            Ok(Mutation::Unchanged)
        })
    }
}

impl StoredObjects {
    fn get(&self, namespace: &str, name: &str) -> Result<Object, ApiError> {
        let key = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let found = self.collection.get(&key).map(|entry| entry.object().decode(entry.revision));
        found.ok_or_else(|| ApiError::NotFound { resource: self.missing.clone(), name: name.to_owned() })
    }
}

impl std::fmt::Debug for StoredObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("missing", &self.missing).finish_non_exhaustive()
    }
}

/// A write by a node.
struct NodeWrite<'w> {
    node: &'w str,
    attributes: &'w AdmissionAttributes<'w>,
    /// The new or posted object; empty for deletions.
    object: &'w Object,
}

impl NodeWrite<'_> {
    fn name(&self) -> &str {
        self.attributes.name
    }

    fn namespace(&self) -> &str {
        self.attributes.target.namespace.as_deref().unwrap_or_default()
    }

    fn is_named_like_node(&self, message: &str) -> Result<(), Fault> {
        let name = if self.attributes.operation == Operation::Create { self.object.name() } else { self.name() };
        demand(name == self.node, || message.to_owned())
    }

    /// Returns true if the node may request a token for an audience that the pod does not use.
    async fn may_have(&self, audience: &str) -> bool {
        let caller = self.attributes.caller;
        let asked = ResourceAttributes {
            verb: ANY_AUDIENCE,
            version: "v1",
            resource: audience,
            namespace: Some(self.namespace()),
            name: Some(self.name()),
            ..ResourceAttributes::default()
        };
        caller.authorizer().authorize(caller.user(), &Attributes::Resource(asked)).await.is_allowed()
    }
}

/// The reason for refusing a write of a node.
enum Fault {
    /// A message. The name of the object is added to it.
    Said(String),
    /// Any other error.
    Other(ApiError),
}

impl From<ApiError> for Fault {
    fn from(error: ApiError) -> Self {
        Self::Other(error)
    }
}

impl Fault {
    fn into_error(self, attributes: &AdmissionAttributes<'_>) -> ApiError {
        match self {
            Self::Said(message) => attributes.refused(message),
            Self::Other(error) => error,
        }
    }
}

fn said(message: impl Into<String>) -> Fault {
    Fault::Said(message.into())
}

fn demand(holds: bool, message: impl FnOnce() -> String) -> Result<(), Fault> {
    if holds { Ok(()) } else { Err(Fault::Said(message())) }
}

fn is_bound_to(pod: &Object, node: &str) -> bool {
    pod.get(&["spec", "nodeName"]).and_then(Value::as_str).unwrap_or_default() == node
}

fn list<'o>(object: &'o Object, path: &[&str]) -> &'o [Value] {
    items(object.get(path))
}

/// The kind of object that a pod refers to, as text. `None` if no reference grants rights.
fn reference_of(pod: &Object) -> Option<&'static str> {
    let spec = pod.get(&["spec"]).unwrap_or(&Value::Null);
    let each = |list: &'static str| spec[list].as_array().into_iter().flatten();
    if spec["serviceAccountName"].as_str().is_some_and(|name| !name.is_empty()) {
        return Some("serviceaccounts");
    }
    let containers = || ["containers", "initContainers", "ephemeralContainers"].into_iter().flat_map(each);
    let from = |of_all: &str, of_one: &str| {
        containers().any(|container| {
            let named =
                |list: &str, of: &dyn Fn(&Value) -> bool| container[list].as_array().into_iter().flatten().any(of);
            named("envFrom", &|source| !source[of_all].is_null())
                || named("env", &|variable| !variable["valueFrom"][of_one].is_null())
        })
    };
    let projected = |source: &str| {
        each("volumes").any(|volume| {
            volume["projected"]["sources"].as_array().into_iter().flatten().any(|part| !part[source].is_null())
        })
    };
    let of_volume = |source: &str| each("volumes").any(|volume| !volume[source].is_null());
    let has_secret_reference = |volume: &Value| {
        let mut sources = volume.as_object().into_iter().flatten().map(|(_, source)| source);
        sources.any(|source| !source["secretRef"].is_null() || !source["nodePublishSecretRef"].is_null())
    };
    let has_secrets = each("imagePullSecrets").next().is_some()
        || from("secretRef", "secretKeyRef")
        || of_volume("secret")
        || of_volume("azureFile")
        || projected("secret")
        || each("volumes").any(has_secret_reference);
    let found = [
        (has_secrets, "secrets"),
        (from("configMapRef", "configMapKeyRef") || of_volume("configMap") || projected("configMap"), "configmaps"),
        (projected("serviceAccountToken"), "serviceaccounts (via projected volumes)"),
        (projected("clusterTrustBundle"), "clustertrustbundles"),
        (projected("podCertificate"), "podcertificates"),
        (of_volume("persistentVolumeClaim"), "persistentvolumeclaims"),
        (each("resourceClaims").next().is_some(), "resourceclaims"),
    ];
    found.into_iter().find(|(refers, _)| *refers).map(|(_, kind)| kind)
}

fn pod_status(write: &NodeWrite<'_>) -> Result<(), Fault> {
    let Some(old) = write.attributes.old.filter(|_| write.attributes.operation == Operation::Update) else {
        let operation = quote(write.attributes.operation.as_str());
        return Err(said(format!("unexpected operation {operation}")));
    };
    let node = quote(write.node);
    demand(is_bound_to(old, write.node), || {
        format!("node {node} can only update pod status for pods with spec.nodeName set to itself")
    })?;
    demand(old.labels().eq(write.object.labels()), || format!("node {node} cannot update labels through pod status"))?;
    let claims = |pod: &Object, field: &str| pod.get(&["status", field]).cloned().unwrap_or_default();
    let are_equal = |field: &str| claims(old, field) == claims(write.object, field);
    demand(are_equal("resourceClaimStatuses"), || format!("node {node} cannot update resource claim statues"))?;
    demand(are_equal("extendedResourceClaimStatus"), || {
        format!("node {node} cannot update extended resource claim status")
    })
}

fn node(write: &NodeWrite<'_>) -> Result<(), Fault> {
    let AdmissionAttributes { operation, old, name, .. } = *write.attributes;
    let node = quote(write.node);
    demand(name == write.node, || format!("node {node} is not allowed to modify node {}", quote(name)))?;
    let part = |object: &Object, path: &[&str]| object.get(path).cloned().unwrap_or_default();
    let source = part(write.object, &["spec", "configSource"]);
    if operation == Operation::Create {
        demand(source.is_null(), || format!("node {node} is not allowed to create pods with a non-nil configSource"))?;
        let labels = forbidden_labels(write.object, None);
        return demand(labels.is_empty(), || {
            format!("node {node} is not allowed to set the following labels: {}", labels.join(", "))
        });
    }
    let Some(old) = old.filter(|_| operation == Operation::Update) else { return Ok(()) };
    demand(source.is_null() || source == part(old, &["spec", "configSource"]), || {
        format!("node {node} is not allowed to update configSource to a new non-nil configSource")
    })?;
    let taints = ["spec", "taints"];
    demand(list(old, &taints) == list(write.object, &taints), || {
        format!("node {node} is not allowed to modify taints")
    })?;
    let labels = forbidden_labels(write.object, Some(old));
    demand(labels.is_empty(), || format!("is not allowed to modify labels: {}", labels.join(", ")))?;
    let owners = |object: &Object| object.meta_list("ownerReferences").to_vec();
    demand(owners(old) == owners(write.object), || format!("node {node} is not allowed to modify ownerReferences"))
}

/// The changed labels that a node may not set on itself.
fn forbidden_labels<'o>(object: &'o Object, old: Option<&'o Object>) -> Vec<&'o str> {
    let now: BTreeSet<_> = object.labels().collect();
    let before: BTreeSet<_> = old.into_iter().flat_map(Object::labels).collect();
    let changed: BTreeSet<&str> = now.symmetric_difference(&before).map(|(key, _)| *key).collect();
    changed.into_iter().filter(|key| is_forbidden(key)).collect()
}

fn is_forbidden(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    let is_below =
        |parent: &str| domain.strip_suffix(parent).is_some_and(|below| below.is_empty() || below.ends_with('.'));
    let is_of_kubernetes = is_below("kubernetes.io") || is_below("k8s.io");
    let is_own = OWN_LABELS.contains(&label) || OWN_DOMAINS.into_iter().any(is_below);
    is_below(RESTRICTED) || (is_of_kubernetes && !is_own)
}

/// Checks a write of a claim's status. A node may write only capacity, conditions and allocated resources.
fn claim_status(write: &NodeWrite<'_>) -> Result<(), Fault> {
    let Some(old) = write.attributes.old.filter(|_| write.attributes.operation == Operation::Update) else {
        let operation = quote(write.attributes.operation.as_str());
        return Err(said(format!("unexpected operation {operation}")));
    };
    let rest = |claim: &Object| {
        let mut claim = claim.clone();
        claim.remove_meta("resourceVersion");
        claim.remove_meta("managedFields");
        if let Some(Value::Object(status)) = claim.0.get_mut("status") {
            for field in ["capacity", "conditions", "allocatedResources", "allocatedResourceStatuses"] {
                status.remove(field);
            }
            if status.is_empty() {
                claim.0.remove("status");
            }
        }
        claim.into_value()
    };
    let (before, after) = (rest(old), rest(write.object));
    demand(before == after, || {
        let (node, difference) = (quote(write.node), difference(&before, &after));
        format!(
            "node {node} is not allowed to update fields other than status.quantity and status.conditions: {difference}"
        )
    })
}

fn lease(write: &NodeWrite<'_>) -> Result<(), Fault> {
    demand(write.namespace() == LEASES_NAMESPACE, || {
        format!("can only access leases in the \"{LEASES_NAMESPACE}\" system namespace")
    })?;
    write.is_named_like_node("can only access node lease with the same name as the requesting node")
}

fn slice(write: &NodeWrite<'_>) -> Result<(), Fault> {
    let is_own = |slice: &Object| is_bound_to(slice, write.node);
    match write.attributes.operation {
        Operation::Create => demand(is_own(write.object), || {
            "can only create ResourceSlice with the same NodeName as the requesting node".to_owned()
        }),
        Operation::Delete => demand(write.attributes.old.is_some_and(is_own), || {
            "can only delete ResourceSlice with the same NodeName as the requesting node".to_owned()
        }),
        Operation::Update | Operation::Connect => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_that_were_a_part_of_kubernetes_have_the_driver_that_took_over() {
        let check = |source: Value, driver: Option<&str>| assert_eq!(driver_of(&source), driver, "{source}");
        check(keelson_meta::json::json!({ "csi": { "driver": "a" } }), Some("a"));
        check(keelson_meta::json::json!({ "awsElasticBlockStore": {} }), Some("ebs.csi.aws.com"));
        check(keelson_meta::json::json!({ "nfs": {} }), None);
    }

    #[test]
    fn nodes_label_themselves_but_for_what_keeps_pods_away() {
        for label in [
            "example.org/a",
            "plain",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "kubelet.kubernetes.io/a",
            "x.node.kubernetes.io/a",
            "notkubernetes.io/a",
        ] {
            assert!(!is_forbidden(label), "{label}");
        }
        for label in [
            "node-restriction.kubernetes.io/a",
            "a.node-restriction.kubernetes.io/b",
            "foo.kubernetes.io/bar",
            "k8s.io/x",
            "node-role.kubernetes.io/worker",
            "x.k8s.io/a",
        ] {
            assert!(is_forbidden(label), "{label}");
        }
    }
}
