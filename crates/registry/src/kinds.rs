//! The few rules that differ by kind, as the strategies of the built-in kinds.
//!
//! [`strategy_of`] is the one place that knows which kind has which; it is asked once for each resource, when that becomes part
//! of a surface. The verbs reach the strategy by the version that a request is for.

mod account;
mod apiextensions;
mod apiregistration;
mod certificates;
mod classes;
mod config;
mod gates;
mod limits;
mod namespaces;
mod nodes;
mod pod;
mod resource;
mod roles;
mod services;
mod status;
mod strategy;
mod volume_claims;
mod volumes;
mod workload;

use keelson_meta::Object;

pub use apiextensions::CLEANUP_FINALIZER;
pub(crate) use gates::{ClosedFields, closed_fields, drop_closed};
pub(crate) use status::{initial_status, quality_of_service};
pub(crate) use strategy::{Confined, Defined, FieldPath, Ordinary, Strategy};

/// The strategy of a built-in resource, by its group and plural name.
pub(crate) fn strategy_of(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", "limitranges") => &limits::LimitRanges,
        ("", "namespaces") => &namespaces::Namespaces,
        ("", "nodes") => &nodes::Nodes,
        ("", "persistentvolumeclaims") => &volumes::Claims,
        ("", "persistentvolumes") => &volumes::Volumes,
        ("", "pods") => &pod::Pods,
        ("", "podtemplates") => &strategy::ReturnsDeleted,
        ("", "replicationcontrollers") => &workload::ReplicationControllers,
        ("", "resourcequotas") => &limits::ResourceQuotas,
        ("", "secrets") => &config::Secrets,
        ("", "serviceaccounts") => &account::ServiceAccounts,
        ("", "services") => &services::Services,
        ("admissionregistration.k8s.io", _) => &strategy::AdmissionRules,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &apiextensions::CustomResourceDefinitions,
        ("apiregistration.k8s.io", "apiservices") => &apiregistration::ApiServices,
        ("apps", "daemonsets") => &workload::DaemonSets,
        ("apps", "deployments") => &workload::Deployments,
        ("batch", "jobs") => &workload::Jobs,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateSigningRequests,
        ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations") => &strategy::StatusAlone,
        ("coordination.k8s.io", "leases") => &strategy::Leases,
        ("internal.apiserver.k8s.io", "storageversions") => &strategy::StorageVersions,
        ("networking.k8s.io", "ingresses") => &classes::Ingresses,
        ("networking.k8s.io", "ipaddresses") => &services::Addresses,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => &roles::Grants::Bound,
        ("rbac.authorization.k8s.io", "clusterroles" | "roles") => &roles::Grants::Stated,
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => &resource::Devices,
        ("resource.k8s.io", "resourceclaims") => &resource::DeviceClaims,
        ("resource.k8s.io", "resourceclaimtemplates") => &resource::DeviceClaimTemplates,
        ("scheduling.k8s.io", "priorityclasses") => &classes::PriorityClasses,
        ("storage.k8s.io", "storageclasses") => &strategy::ReturnsDeleted,
        ("storage.k8s.io", "volumeattachments") => &strategy::StatusAlone,
        ("storage.k8s.io", "volumeattributesclasses") => &volumes::VolumeAttributesClasses,
        ("storagemigration.k8s.io", "storageversionmigrations") => &strategy::StatusAlone,
        _ => &Ordinary,
    }
}

/// Which rules hold for the metadata of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetadataRules {
    /// Those for all objects.
    Plain,
    /// A finalizer needs a domain besides.
    DomainsForFinalizers,
    /// The kind has no rules of its own for metadata: those for all objects are asked once everything else is right.
    PlainAndLast,
}

/// The rules for the metadata of a built-in resource.
pub(crate) fn metadata_rules_of(group: &str, plural: &str) -> MetadataRules {
    match (group, plural) {
        ("" | "events.k8s.io", "events") | ("policy", "poddisruptionbudgets") => MetadataRules::PlainAndLast,
        (
            "admissionregistration.k8s.io"
            | "apiextensions.k8s.io"
            | "apiregistration.k8s.io"
            | "coordination.k8s.io"
            | "internal.apiserver.k8s.io",
            _,
        ) => MetadataRules::Plain,
        _ => MetadataRules::DomainsForFinalizers,
    }
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespaces::finalize(object);
}
