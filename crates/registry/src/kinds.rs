//! The few rules that differ by kind, as the strategies of the built-in kinds, one file for each API group, as in the other
//! crates that know these kinds; `core/` has one for each family of its kinds.
//!
//! [`strategy_of`] knows which kind has which; it is asked once for each resource, when that becomes part of a surface. The
//! verbs reach the strategy by the version that a request is for.

mod admissionregistration;
mod apiextensions;
mod apiregistration;
mod apps;
mod batch;
mod certificates;
mod classes;
mod coordination;
mod core;
mod discovery;
mod gates;
mod internal_apiserver;
mod networking;
mod rbac;
mod resource;
mod scheduling;
mod status;
mod storage;
mod strategy;

use keelson_meta::Object;
use keelson_meta::json::{Map, Value, json};

use crate::config::InherentPlugin;
use crate::registry::Registry;

pub(crate) use self::core::finalize_namespace;
pub use apiextensions::CLEANUP_FINALIZER;
pub(crate) use gates::{ClosedFields, closed_fields, drop_closed};
pub(crate) use status::{initial_status, quality_of_service};
pub(crate) use strategy::{Confined, Defined, FieldPath, Ordinary, Strategy};

/// The strategy of a built-in resource, by its group and plural name.
pub(crate) fn strategy_of(group: &str, plural: &str) -> &'static dyn Strategy {
    match (group, plural) {
        ("", _) => core::strategy_of(plural),
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies" | "validatingadmissionpolicies") => {
            &admissionregistration::AdmissionRules::Policies
        }
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => {
            &admissionregistration::MUTATING_BINDINGS
        }
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => {
            &admissionregistration::VALIDATING_BINDINGS
        }
        ("admissionregistration.k8s.io", _) => &admissionregistration::AdmissionRules::Webhooks,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &apiextensions::CustomResourceDefinitions,
        ("apiregistration.k8s.io", "apiservices") => &apiregistration::ApiServices,
        ("apps", "daemonsets") => &apps::DaemonSets,
        ("apps", "deployments") => &apps::Deployments,
        ("batch", "jobs") => &batch::Jobs,
        ("certificates.k8s.io", "certificatesigningrequests") => &certificates::CertificateSigningRequests,
        ("discovery.k8s.io", "endpointslices") => &discovery::EndpointSlices,
        ("flowcontrol.apiserver.k8s.io", "flowschemas" | "prioritylevelconfigurations") => &strategy::StatusAlone,
        ("coordination.k8s.io", "leases") => &coordination::Leases,
        ("internal.apiserver.k8s.io", "storageversions") => &internal_apiserver::StorageVersions,
        ("networking.k8s.io", "ingresses") => &networking::Ingresses,
        ("networking.k8s.io", "ipaddresses") => &networking::Addresses,
        ("networking.k8s.io", "servicecidrs") => &strategy::StatusAlone,
        ("rbac.authorization.k8s.io", "clusterrolebindings" | "rolebindings") => &rbac::Grants::Bound,
        ("rbac.authorization.k8s.io", "clusterroles" | "roles") => &rbac::Grants::Stated,
        ("resource.k8s.io", "deviceclasses" | "resourcepoolstatusrequests") => &strategy::ReturnsDeleted,
        ("resource.k8s.io", "devicetaintrules" | "resourceslices") => &resource::Devices,
        ("resource.k8s.io", "resourceclaims") => &resource::DeviceClaims,
        ("resource.k8s.io", "resourceclaimtemplates") => &resource::DeviceClaimTemplates,
        ("scheduling.k8s.io", "priorityclasses") => &scheduling::PriorityClasses,
        ("storage.k8s.io", "csidrivers" | "csinodes" | "storageclasses") => &strategy::ReturnsDeleted,
        ("storage.k8s.io", "volumeattachments") => &storage::VolumeAttachments,
        ("storage.k8s.io", "volumeattributesclasses") => &storage::VolumeAttributesClasses,
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

/// The object at a path, made where there is nothing.
fn inner<'a>(map: &'a mut Map, path: &[&str]) -> Option<&'a mut Map> {
    path.iter().try_fold(map, |map, name| {
        let value = map.entry(*name).or_insert(Value::Null);
        if value.is_null() {
            *value = json!({});
        }
        value.as_object_mut()
    })
}

/// Holds an object until nobody uses it any more. Says whether it does.
fn protect(registry: &Registry, object: &mut Object, finalizer: &str) -> bool {
    if !registry.does(InherentPlugin::StorageObjectInUseProtection) {
        return false;
    }
    let mut finalizers: Vec<String> = object.finalizers().into_iter().map(str::to_owned).collect();
    if !finalizers.iter().any(|held| held == finalizer) {
        finalizers.push(finalizer.to_owned());
        object.set_meta("finalizers", finalizers);
    }
    true
}
