//! The declarations of the core group. Its name is empty and its path is `/api`.
//!
//! Most special cases of single kinds are here: the subresources of pods, services and nodes that other programs
//! answer, and the fields for selectors.

use keelson_meta::names::NameRule;
use keelson_resources::declare::{
    CREATE, EVENT_LIFETIME, FieldDeclaration, GET_PATCH_UPDATE, GroupDeclaration, SCALE, STATUS, boolean, cluster,
    count, namespaced, reads, served, subresource, text, version,
};
use keelson_resources::{CreateHandler, FieldRefusal, SubresourceHandler, Verb};

use crate::deprecation::{Deprecation, stays};

const GROUP: &str = "";

pub(crate) const DECLARATION: GroupDeclaration = GroupDeclaration {
    name: GROUP,
    priority: 18000,
    versions: &[version("v1", 1)],
    resources: &[
        namespaced(GROUP, "bindings", "binding", "Binding")
            .versions(&[served("v1").verbs(CREATE)])
            .answered_by(CreateHandler::Binding),
        cluster(GROUP, "componentstatuses", "componentstatus", "ComponentStatus")
            .versions(&[served("v1").verbs(READ)])
            .short_names(&["cs"])
            .not_stored(),
        namespaced(GROUP, "configmaps", "configmap", "ConfigMap").short_names(&["cm"]),
        namespaced(GROUP, "endpoints", "endpoints", "Endpoints")
            .short_names(&["ep"])
            .stored_at("services/endpoints")
            .created_by_update(),
        namespaced(GROUP, "events", "event", "Event")
            .short_names(&["ev"])
            .fields(FieldRefusal::Plain, EVENT_FIELDS)
            .created_by_update()
            .lives_for(EVENT_LIFETIME),
        namespaced(GROUP, "limitranges", "limitrange", "LimitRange").short_names(&["limits"]).created_by_update(),
        cluster(GROUP, "namespaces", "namespace", "Namespace")
            .versions(&[served("v1").verbs(ONE_BY_ONE).with(&[subresource("finalize", UPDATE), STATUS])])
            .short_names(&["ns"])
            .names(NameRule::DnsLabel)
            .fields(FieldRefusal::Plain, NAMESPACE_FIELDS),
        cluster(GROUP, "nodes", "node", "Node")
            .versions(&[served("v1").with(&[
                subresource("proxy", PROXY).sibling("NodeProxyOptions").handled_by(SubresourceHandler::Proxy),
                STATUS,
            ])])
            .short_names(&["no"])
            .stored_at("minions")
            .fields(FieldRefusal::Plain, NODE_FIELDS),
        namespaced(GROUP, "persistentvolumeclaims", "persistentvolumeclaim", "PersistentVolumeClaim")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["pvc"]),
        cluster(GROUP, "persistentvolumes", "persistentvolume", "PersistentVolume")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["pv"]),
        namespaced(GROUP, "pods", "pod", "Pod")
            .versions(&[served("v1").with(&[
                subresource("attach", CREATE_GET).sibling("PodAttachOptions").handled_by(SubresourceHandler::Kubelet),
                subresource("binding", CREATE).sibling("Binding").handled_by(SubresourceHandler::Binding),
                subresource("ephemeralcontainers", GET_PATCH_UPDATE),
                subresource("eviction", CREATE)
                    .foreign("policy", "v1", "Eviction")
                    .handled_by(SubresourceHandler::Eviction),
                subresource("exec", CREATE_GET).sibling("PodExecOptions").handled_by(SubresourceHandler::Kubelet),
                subresource("log", GET).handled_by(SubresourceHandler::Kubelet),
                subresource("portforward", CREATE_GET)
                    .sibling("PodPortForwardOptions")
                    .handled_by(SubresourceHandler::Kubelet),
                subresource("proxy", PROXY).sibling("PodProxyOptions").handled_by(SubresourceHandler::PodProxy),
                subresource("resize", GET_PATCH_UPDATE),
                STATUS,
            ])])
            .short_names(&["po"])
            .categories(&["all"])
            .fields(FieldRefusal::Plain, POD_FIELDS)
            .dispatched_by("spec.nodeName")
            .holding_others()
            .counts_generations(),
        namespaced(GROUP, "podtemplates", "podtemplate", "PodTemplate").counts_generations(),
        namespaced(GROUP, "replicationcontrollers", "replicationcontroller", "ReplicationController")
            .versions(&[served("v1").with(&[SCALE, STATUS])])
            .short_names(&["rc"])
            .categories(&["all"])
            .stored_at("controllers")
            .fields(FieldRefusal::Plain, REPLICATIONCONTROLLER_FIELDS)
            .counts_generations(),
        namespaced(GROUP, "resourcequotas", "resourcequota", "ResourceQuota")
            .versions(&[served("v1").with(&[STATUS])])
            .short_names(&["quota"]),
        namespaced(GROUP, "secrets", "secret", "Secret").fields(FieldRefusal::Plain, SECRET_FIELDS),
        namespaced(GROUP, "serviceaccounts", "serviceaccount", "ServiceAccount")
            .versions(&[served("v1").with(&[subresource("token", CREATE)
                .foreign("authentication.k8s.io", "v1", "TokenRequest")
                .handled_by(SubresourceHandler::Token)])])
            .short_names(&["sa"]),
        namespaced(GROUP, "services", "service", "Service")
            .versions(&[served("v1").with(&[
                subresource("proxy", PROXY).sibling("ServiceProxyOptions").handled_by(SubresourceHandler::Proxy),
                STATUS,
            ])])
            .short_names(&["svc"])
            .categories(&["all"])
            .stored_at("services/specs")
            .names(NameRule::DnsLabel)
            .fields(FieldRefusal::Plain, SERVICE_FIELDS)
            .created_by_update(),
    ],
};

/// Streams can be opened with either method.
const CREATE_GET: &[Verb] = &[Verb::Create, Verb::Get];

/// The verbs for all methods that a proxied server may accept.
const PROXY: &[Verb] = &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update];

/// All verbs except deletion of a collection, for namespaces.
const ONE_BY_ONE: &[Verb] =
    &[Verb::Create, Verb::Delete, Verb::Get, Verb::List, Verb::Patch, Verb::Update, Verb::Watch];

/// Only reads, for health that is computed and not stored.
const READ: &[Verb] = &[Verb::Get, Verb::List];

/// Only updates, for `finalize` of namespaces.
const UPDATE: &[Verb] = &[Verb::Update];

/// Only reads of single objects.
const GET: &[Verb] = &[Verb::Get];

/// The field selectors of events.
const EVENT_FIELDS: &[FieldDeclaration] = &[
    text(&["involvedObject.kind"]),
    text(&["involvedObject.namespace"]),
    text(&["involvedObject.name"]),
    text(&["involvedObject.uid"]),
    text(&["involvedObject.apiVersion"]),
    text(&["involvedObject.resourceVersion"]),
    text(&["involvedObject.fieldPath"]),
    text(&["reason"]),
    text(&["reportingComponent"]),
    reads("source", &["source.component", "reportingComponent"]),
    text(&["type"]),
];

/// The field selectors of namespaces.
const NAMESPACE_FIELDS: &[FieldDeclaration] = &[text(&["status.phase"])];

/// The field selectors of nodes.
const NODE_FIELDS: &[FieldDeclaration] = &[boolean(&["spec.unschedulable"])];

/// The field selectors of pods.
const POD_FIELDS: &[FieldDeclaration] = &[
    text(&["spec.nodeName"]),
    reads("spec.host", &["spec.nodeName"]),
    text(&["spec.restartPolicy"]),
    text(&["spec.schedulerName"]),
    text(&["spec.serviceAccountName"]),
    boolean(&["spec.hostNetwork"]),
    text(&["status.phase"]),
    text(&["status.podIP"]),
    reads("status.podIPs", &[]),
    text(&["status.nominatedNodeName"]),
];

/// The field selectors of replicationcontrollers.
const REPLICATIONCONTROLLER_FIELDS: &[FieldDeclaration] = &[count("status.replicas", &["status.replicas"])];

/// The field selectors of secrets.
const SECRET_FIELDS: &[FieldDeclaration] = &[text(&["type"])];

/// The field selectors of services.
const SERVICE_FIELDS: &[FieldDeclaration] = &[text(&["spec.clusterIP"]), text(&["spec.type"])];

pub(crate) const DEPRECATIONS: &[Deprecation] = &[
    stays("v1", &["Endpoints"], 33).instead("discovery.k8s.io/v1 EndpointSlice"),
    stays("v1", &["ComponentStatus"], 19),
];
