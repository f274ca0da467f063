//! The node authorizer: the permissions of kubelets.
//!
//! A node may read the pods bound to it and the objects that they use: secrets, config maps, claims with their volumes,
//! resource claims, and service accounts (for tokens). It may write its own Node, lease and CSINode. A [`Graph`] that
//! follows the cache has these relations. It is built at the first request of a node, so servers without nodes have no
//! graph.
//!
//! This authorizer does not check the content of writes; the NodeRestriction plugin does. It never denies, so that
//! roles can grant more to a node.

mod durations;
mod graph;
mod references;

use std::fmt;
use std::sync::Arc;

use futures::future::{BoxFuture, Either, ready};
use keelson_cache::Cache;
use keelson_meta::field_selector::FieldSelector;
use keelson_supervision::error_repeated;
use tokio::sync::{Notify, OnceCell};

use crate::authorize::{Attributes, Authorizer, Decision, PendingVerdict, ResourceAttributes, Verdict};
use crate::follow::Follower;
use crate::rbac::HeldRules;
use crate::shared_text::SharedText;
use crate::user::User;
pub use durations::{GRAPH_CHANGES, GraphChanges};
use graph::{Graph, Source, UsedKind};

/// The namespace of the leases of nodes.
pub const LEASES_NAMESPACE: &str = "kube-node-lease";

/// The group of nodes, and the prefix of their user names.
const GROUP: &str = "system:nodes";
const PREFIX: &str = "system:node:";

/// The rights of every node: verbs, group, and resources with subresources.
const EVERY_NODE: [(&[&str], &str, &[&str]); 10] = [
    (&["create"], "authentication.k8s.io", &["tokenreviews"]),
    (&["create"], "authorization.k8s.io", &["subjectaccessreviews", "localsubjectaccessreviews"]),
    (&["get", "list", "watch"], "", &["services"]),
    (&["create", "update", "patch"], "", &["events"]),
    (&["create", "update", "patch"], "events.k8s.io", &["events"]),
    (&["get"], "", &["endpoints"]),
    (&["create", "get", "list", "watch"], "certificates.k8s.io", &["certificatesigningrequests"]),
    (&["get", "list", "watch"], "storage.k8s.io", &["csidrivers"]),
    (&["get", "list", "watch"], "node.k8s.io", &["runtimeclasses"]),
    (&["get", "list", "watch"], "certificates.k8s.io", &["clustertrustbundles"]),
];

/// The node name of a user that is a node.
pub fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix(PREFIX).filter(|_| user.is_in(GROUP))
}

/// Authorizes nodes by the objects in the cache.
pub struct NodeAuthorizer(Arc<Inner>);

struct Inner {
    cache: Arc<Cache>,
    prefixes: [String; 5],
    /// Built at the first request of a node.
    graph: OnceCell<Follower<Graph>>,
    is_made: Notify,
}

impl NodeAuthorizer {
    /// Creates the authorizer over a cache. `prefixes` are the key prefixes of pods, persistent volumes, volume
    /// attachments, resource slices and pod certificate requests.
    pub fn new(cache: Arc<Cache>, prefixes: [String; 5]) -> Self {
        Self(Arc::new(Inner { cache, prefixes, graph: OnceCell::new(), is_made: Notify::new() }))
    }

    /// Updates the graph continuously, once it exists. Never returns.
    pub async fn keep_up(self: Arc<Self>) {
        loop {
            match self.0.graph.get() {
                Some(graph) => graph.keep_up().await,
                None => self.0.is_made.notified().await,
            }
        }
    }

    /// Returns the graph. The first call builds it.
    ///
    /// Cost: about 30 us for each bound pod, on a blocking thread.
    async fn graph(&self) -> Result<&Follower<Graph>, String> {
        let made = self.0.graph.get_or_try_init(|| async {
            let inner = self.0.clone();
            let making = keelson_supervision::spawn_blocking(move || {
                let [pods, volumes, attachments, slices, requests] = inner.prefixes.each_ref();
                let sources = [
                    (Source::Pods, &**pods),
                    (Source::Volumes, volumes),
                    (Source::Attachments, attachments),
                    (Source::Slices, slices),
                    (Source::PodCertificateRequests, requests),
                ];
                // An older release may lack the requests.
                let known = sources.into_iter().filter(|(_, prefix)| inner.cache.collection(prefix).is_some());
                Follower::new(inner.cache.clone(), known)
            });
            making.await.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
        });
        let made = made.await?;
        self.0.is_made.notify_one();
        Ok(made)
    }

    async fn decide_with_graph(&self, node: &str, attributes: &ResourceAttributes<'_>, object: Object) -> Verdict {
        match self.graph().await {
            Ok(graph) => related(graph, node, attributes, object),
            Err(error) => {
                error_repeated!(""; error, "the objects of pods can't be read");
                no_opinion("the objects of pods can't be read")
            }
        }
    }
}

impl Authorizer for NodeAuthorizer {
    /// Cost: one or two hash lookups, except for the first request of any node.
    fn authorize<'a>(&'a self, user: &'a User, attributes: &'a Attributes<'a>) -> PendingVerdict<'a> {
        let Some(node) = node_of(user) else { return Either::Left(ready(no_opinion(""))) };
        let Attributes::Resource(asked) = attributes else { return Either::Left(ready(no_opinion(""))) };
        match judge(node, asked) {
            NodeDecision::Decided(verdict) => Either::Left(ready(verdict)),
            NodeDecision::IfRelated(object) => match self.0.graph.get() {
                Some(graph) => Either::Left(ready(related(graph, node, asked, object))),
                None => Either::Right(Box::pin(self.decide_with_graph(node, asked, object))),
            },
        }
    }

    fn rules<'a>(&'a self, user: &'a User, _namespace: Option<&'a str>) -> BoxFuture<'a, HeldRules> {
        let unresolved = node_of(user).map(|_| "node authorizer does not support user rule resolution");
        Box::pin(ready(HeldRules { unresolved: unresolved.into_iter().collect(), ..HeldRules::default() }))
    }
}

impl fmt::Debug for NodeAuthorizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeAuthorizer").finish_non_exhaustive()
    }
}

/// The decision, or the check that it needs.
enum NodeDecision {
    Decided(Verdict),
    /// Allowed if the node is related to this object.
    IfRelated(Object),
}

/// An object that may be related to a node.
#[derive(Clone, Copy)]
enum Object {
    Pod,
    Volume,
    Attachment,
    Slice,
    PodCertificateRequest,
    Used(UsedKind),
}

fn no_opinion(reason: impl Into<SharedText>) -> Verdict {
    Verdict::new(Decision::NoOpinion, reason)
}

fn allowed() -> NodeDecision {
    NodeDecision::Decided(Verdict::new(Decision::Allow, ""))
}

fn not(reason: impl Into<SharedText>) -> NodeDecision {
    NodeDecision::Decided(no_opinion(reason))
}

/// Decides by the relation between the named object and the node.
fn related(graph: &Follower<Graph>, node: &str, attributes: &ResourceAttributes<'_>, object: Object) -> Verdict {
    let Some(name) = attributes.name.filter(|name| !name.is_empty()) else { return no_opinion("No Object name found") };
    let namespace = attributes.namespace.unwrap_or_default();
    let is_related = graph.current(|graph| match object {
        Object::Pod => graph.pod_is_on(namespace, name, node),
        Object::Volume => graph.volume_is_used_on(name, node),
        Object::Attachment => graph.is_of(Source::Attachments, name, node),
        Object::Slice => graph.is_of(Source::Slices, name, node),
        Object::PodCertificateRequest => graph.certificate_request_is_of(namespace, name, node),
        Object::Used(kind) => graph.is_used_on(kind, namespace, name, node),
    });
    if is_related {
        return Verdict::new(Decision::Allow, "");
    }
    no_opinion(format!("no relationship found between node '{node}' and this object"))
}

fn judge(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    let subresource = attributes.subresource.unwrap_or_default();
    match (attributes.group, attributes.resource, subresource) {
        ("", "secrets", _) => read(attributes, Object::Used(UsedKind::Secret)),
        ("", "configmaps", _) => read(attributes, Object::Used(UsedKind::ConfigMap)),
        ("", "persistentvolumeclaims", "status") => match attributes.verb {
            "update" | "patch" => NodeDecision::IfRelated(Object::Used(UsedKind::Claim)),
            _ => not("can only get/update/patch this type"),
        },
        ("", "persistentvolumeclaims", _) => get(attributes, Object::Used(UsedKind::Claim)),
        ("", "persistentvolumes", _) => get(attributes, Object::Volume),
        ("resource.k8s.io", "resourceclaims", _) => get(attributes, Object::Used(UsedKind::ResourceClaim)),
        ("storage.k8s.io", "volumeattachments", _) => get(attributes, Object::Attachment),
        ("", "serviceaccounts", _) => service_account(attributes),
        ("coordination.k8s.io", "leases", _) => lease(node, attributes),
        ("storage.k8s.io", "csinodes", _) => csi_node(node, attributes),
        ("resource.k8s.io", "resourceslices", _) => slice(node, attributes),
        ("certificates.k8s.io", "podcertificaterequests", _) => pod_certificate_request(node, attributes),
        ("", "nodes", _) => own_node(node, attributes),
        ("", "pods", _) => pod(node, attributes),
        (group, resource, "") => {
            let is_allowed = EVERY_NODE.iter().any(|(verbs, of, resources)| {
                *of == group && verbs.contains(&attributes.verb) && resources.contains(&resource)
            });
            if is_allowed { allowed() } else { not("") }
        }
        _ => not(""),
    }
}

/// Read access to one named object of a namespace.
fn read(attributes: &ResourceAttributes<'_>, object: Object) -> NodeDecision {
    if !matches!(attributes.verb, "get" | "list" | "watch") {
        return not("can only read resources of this type");
    }
    if attributes.subresource.is_some() {
        return not("cannot read subresource");
    }
    if attributes.namespace.is_none_or(str::is_empty) {
        return not("can only read namespaced object of this type");
    }
    NodeDecision::IfRelated(object)
}

fn get(attributes: &ResourceAttributes<'_>, object: Object) -> NodeDecision {
    match (attributes.verb, attributes.subresource) {
        ("get", None) => NodeDecision::IfRelated(object),
        ("get", Some(_)) => not("cannot get subresource"),
        _ => not("can only get individual resources of this type"),
    }
}

/// Access to service accounts of pods, and to their tokens.
fn service_account(attributes: &ResourceAttributes<'_>) -> NodeDecision {
    match (attributes.verb, attributes.subresource) {
        ("get", None) => NodeDecision::IfRelated(Object::Used(UsedKind::ServiceAccount)),
        ("create", _) if attributes.name.is_none_or(str::is_empty) => {
            not("can only create tokens for individual service accounts")
        }
        ("create", Some("token")) => NodeDecision::IfRelated(Object::Used(UsedKind::ServiceAccount)),
        ("create", _) => not("can only create token subresource of serviceaccount"),
        _ => not("can only create tokens for individual service accounts"),
    }
}

/// Access to the object with the node's own name. For a new object, admission checks the name.
fn own(node: &str, attributes: &ResourceAttributes<'_>) -> Option<bool> {
    match attributes.verb {
        "create" => Some(true),
        "get" | "update" | "patch" | "delete" => Some(attributes.name == Some(node)),
        _ => None,
    }
}

fn lease(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    match own(node, attributes) {
        None => not("can only get, create, update, patch, or delete a node lease"),
        Some(_) if attributes.namespace != Some(LEASES_NAMESPACE) => {
            not(format!("can only access leases in the \"{LEASES_NAMESPACE}\" system namespace"))
        }
        Some(true) => allowed(),
        Some(false) => not("can only access node lease with the same name as the requesting node"),
    }
}

fn csi_node(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    match own(node, attributes) {
        None => not("can only get, create, update, patch, or delete a CSINode"),
        Some(_) if attributes.subresource.is_some() => not("cannot authorize CSINode subresources"),
        Some(true) => allowed(),
        Some(false) => not("can only access CSINode with the same name as the requesting node"),
    }
}

fn slice(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    if attributes.subresource.is_some() {
        return not("cannot authorize ResourceSlice subresources");
    }
    match attributes.verb {
        "create" => allowed(),
        "get" | "update" | "patch" | "delete" => NodeDecision::IfRelated(Object::Slice),
        "list" | "watch" | "deletecollection" if selects_own(node, attributes) => allowed(),
        "list" | "watch" | "deletecollection" => {
            not("can only list/watch/deletecollection resourceslices with nodeName field selector")
        }
        _ => not(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    }
}

/// Access to the requests of the node's pods. For a new request, admission checks the pod.
fn pod_certificate_request(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    if attributes.subresource.is_some() {
        return not("nodes may not access subresources of podcertificaterequests");
    }
    match attributes.verb {
        "create" => allowed(),
        "get" => NodeDecision::IfRelated(Object::PodCertificateRequest),
        "list" | "watch" if selects_own(node, attributes) => allowed(),
        "list" | "watch" => not("can only list/watch podcertificaterequests with spec.nodeName field selector"),
        _ => not("only the following verbs are allowed for a PodCertificateRequest: create, get, list, watch"),
    }
}

fn own_node(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    match (attributes.subresource, attributes.verb) {
        (None, "create" | "update" | "patch") | (Some("status"), "update" | "patch") => allowed(),
        (None, "get" | "list" | "watch") => match attributes.name.unwrap_or_default() {
            name if name == node => allowed(),
            "" => not(format!("node '{node}' cannot read all nodes, only its own Node object")),
            name => not(format!("node '{node}' cannot read '{name}', only its own Node object")),
        },
        _ => not(""),
    }
}

fn pod(node: &str, attributes: &ResourceAttributes<'_>) -> NodeDecision {
    match (attributes.subresource, attributes.verb) {
        (None, "get") => NodeDecision::IfRelated(Object::Pod),
        (None, "list" | "watch") if selects_own(node, attributes) => allowed(),
        (None, "list" | "watch") if attributes.name.is_some_and(|name| !name.is_empty()) => {
            NodeDecision::IfRelated(Object::Pod)
        }
        (None, "list" | "watch") => not("can only list/watch pods with spec.nodeName field selector"),
        (None, "create" | "delete") | (Some("status"), "update" | "patch") | (Some("eviction"), "create") => allowed(),
        _ => not(""),
    }
}

/// Returns true if the field selector limits the request to the node's own objects.
fn selects_own(node: &str, attributes: &ResourceAttributes<'_>) -> bool {
    let selector = attributes.field_selector.and_then(|text| FieldSelector::parse(text).ok());
    selector.is_some_and(|selector| selector.require_exact("spec.nodeName") == Some(node))
}
