//! What is filled in where a client left something out of an object of a built-in kind: Kubernetes' defaults.
//!
//! Defaults are data wherever a field has one, whatever the rest of the object says: a [`Shape`](shape::Shape) for each
//! kind names them. The few that depend on other fields are functions beside the shape that uses them. Defaults that the
//! published schemas state (`protocol: TCP`) are not repeated here.
//! Knows JSON trees and nothing of storage, time or other objects. Filling in twice changes nothing more. An object may
//! still be of the wrong types: what is not as expected is left to the schema to refuse.

mod access;
mod admission;
mod autoscaling;
mod cluster;
mod networking;
mod pod;
mod shape;
mod storage;
mod volumes;
mod workloads;

use keelson_meta::{GroupVersionKind, Object};

use shape::Shape;

/// Fills in what the object leaves out. `kind` is the kind, and the version, that it is in.
pub fn apply(kind: &GroupVersionKind, object: &mut Object) {
    if let Some(shape) = shape_of(kind) {
        shape.fill(&mut object.0);
    }
}

/// The shape of a kind; `None` for one without defaults.
fn shape_of(kind: &GroupVersionKind) -> Option<&'static Shape> {
    match kind.group.as_str() {
        "" => core(&kind.kind),
        "admissionregistration.k8s.io" => admission::shape(&kind.kind),
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => cluster::extension(&kind.kind),
        "apps" | "batch" => workloads::shape(&kind.kind),
        "authentication.k8s.io" => access::token(&kind.kind),
        "autoscaling" => autoscaling::shape(&kind.version, &kind.kind),
        "discovery.k8s.io" | "networking.k8s.io" => networking::shape(&kind.kind),
        "flowcontrol.apiserver.k8s.io" | "scheduling.k8s.io" => cluster::shape(&kind.kind),
        "rbac.authorization.k8s.io" => access::shape(&kind.kind),
        "resource.k8s.io" => cluster::devices(&kind.version, &kind.kind),
        "storage.k8s.io" => storage::shape(&kind.kind),
        _ => None,
    }
}

fn core(kind: &str) -> Option<&'static Shape> {
    match kind {
        "Pod" => Some(&pod::POD),
        "PodTemplate" => Some(&pod::POD_TEMPLATE),
        "ReplicationController" => workloads::shape(kind),
        "Service" | "Endpoints" => networking::shape(kind),
        "PersistentVolume" | "PersistentVolumeClaim" => storage::shape(kind),
        "LimitRange" | "Node" | "Secret" => cluster::shape(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
