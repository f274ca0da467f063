//! The few rules that differ by kind, as the strategies of the built-in kinds.
//!
//! [`strategy_of`] is the one place that knows which kind has which; it is asked once for each resource, when that becomes part
//! of a surface. The verbs reach the strategy by the version that a request is for.

mod api_service;
mod certificate;
mod classes;
mod definition;
mod device;
mod namespace;
mod node;
mod pod;
mod secret;
mod service;
mod status;
mod strategy;
mod volume;
mod workload;

use keelson_meta::Object;

pub(crate) use status::{initial_status, quality_of_service};
pub(crate) use strategy::{Confined, FieldPath, Ordinary, Strategy};

/// The strategy of a built-in resource, by its group and plural name.
pub(crate) fn strategy_of(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", "namespaces") => &namespace::Namespaces,
        ("", "nodes") => &node::Nodes,
        ("", "persistentvolumeclaims") => &volume::Claims,
        ("", "persistentvolumes") => &volume::Volumes,
        ("", "pods") => &pod::Pods,
        ("", "podtemplates" | "resourcequotas" | "serviceaccounts") => &strategy::ReturnsDeleted,
        ("", "replicationcontrollers") => &workload::ReplicationControllers,
        ("", "secrets") => &secret::Secrets,
        ("", "services") => &service::Services,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies" | "validatingadmissionpolicies") => {
            &strategy::StatusAlone
        }
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definition::CustomResourceDefinitions,
        ("apiregistration.k8s.io", "apiservices") => &api_service::ApiServices,
        ("apps", "daemonsets") => &workload::DaemonSets,
        ("apps", "deployments") => &workload::Deployments,
        ("batch", "jobs") => &workload::Jobs,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificate::CertificateSigningRequests,
        ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations") => &strategy::StatusAlone,
        ("internal.apiserver.k8s.io", "storageversions") => &strategy::StatusAlone,
        ("networking.k8s.io", "ingresses") => &classes::Ingresses,
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => &device::Devices,
        ("scheduling.k8s.io", "priorityclasses") => &classes::PriorityClasses,
        ("storage.k8s.io", "storageclasses") => &strategy::ReturnsDeleted,
        ("storage.k8s.io", "volumeattachments") => &strategy::StatusAlone,
        ("storage.k8s.io", "volumeattributesclasses") => &volume::VolumeAttributesClasses,
        ("storagemigration.k8s.io", "storageversionmigrations") => &strategy::StatusAlone,
        _ => &Ordinary,
    }
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespace::finalize(object);
}
