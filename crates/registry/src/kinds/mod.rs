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

use std::time::SystemTime;

use keelson_meta::options::FieldValidation;
use keelson_meta::{ApiError, GroupVersion, GroupVersionKind, Object};

use crate::intake::shape;
use crate::registry::Registry;
use crate::target::Target;

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

/// Fills in what a new object is read as having said, by its kind.
pub(crate) fn complete_new(target: &Target, object: &mut Object, now: SystemTime) {
    if target.strategy().complete_new(object, now) {
        in_order(target, object);
    }
}

/// The same of what an object shall become.
pub(crate) fn complete_update(target: &Target, current: &Object, next: &mut Object, now: SystemTime) {
    if target.strategy().complete_update(current, next, now) {
        in_order(target, next);
    }
}

/// Has a new object take over what other objects say.
///
/// # Errors
/// 403 when it contradicts them.
pub(crate) fn admit_new(registry: &Registry, target: &Target, object: &mut Object) -> Result<(), ApiError> {
    if target.strategy().admit(registry, target, object)? {
        in_order(target, object);
    }
    Ok(())
}

/// The same of what an object shall become.
///
/// # Errors
/// 403 when it contradicts other objects.
pub(crate) fn admit_update(
    registry: &Registry,
    target: &Target,
    current: &Object,
    next: &mut Object,
) -> Result<(), ApiError> {
    if target.strategy().admit_update(registry, target, current, next)? {
        in_order(target, next);
    }
    Ok(())
}

/// Gives a new object what its kind gets beyond what it was sent with.
pub(crate) fn prepare_create(target: &Target, object: &mut Object) {
    if target.strategy().prepare_create(object) {
        in_order(target, object);
    }
}

/// Gives an object what its kind keeps or gets on an update.
pub(crate) fn prepare_update(target: &Target, current: &Object, next: &mut Object) {
    if target.strategy().prepare_update(target, current, next) {
        in_order(target, next);
    }
}

/// Puts fields that were added where they belong, so that equal objects have equal bytes.
pub(crate) fn in_order(target: &Target, object: &mut Object) {
    let Some(GroupVersion { group, version }) = object.api_version().and_then(GroupVersion::parse) else { return };
    let kind = GroupVersionKind { group, version, kind: target.resource.kind.to_string() };
    if let Err(fault) = shape(target, &kind, object, &[], FieldValidation::Ignore) {
        tracing::error!(?kind, %fault, "what the server added to an object does not fit its schema");
    }
}

/// Takes the finalizer off a namespace that stands for its content.
pub(crate) fn finalize_namespace(object: &mut Object) {
    namespace::finalize(object);
}
