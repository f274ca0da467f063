//! Kubernetes' defaults, filled in where a client left something out of an object of a built-in kind.
//!
//! Defaults are data wherever a field has one, whatever the rest of the object says: a [`Shape`](shape::Shape) for each
//! kind names them. The few that depend on other fields are functions beside the shape that uses them.
//! Knows JSON and nothing of storage, time or other objects. Filling in twice changes nothing more. An object may still be
//! of the wrong types: what is not as expected is left to the schema to refuse.

mod access;
mod admission;
mod autoscaling;
mod cluster;
mod image;
mod missing;
mod networking;
mod pod;
mod shape;
mod storage;
mod volumes;
mod workloads;

use keelson_codec::Checked;
use keelson_meta::{GroupVersionKind, Object};

use shape::Shape;

/// The defaults of a kind in one version, which are found once and then filled into as many objects as there are.
#[derive(Clone, Copy)]
pub struct Defaults {
    shape: &'static Shape,
}

impl Defaults {
    /// The defaults of a kind in a version; `None` for one without any.
    pub fn of(kind: &GroupVersionKind) -> Option<Self> {
        let shape = shape_of(&kind.group, &kind.version, &kind.kind)?;
        Some(Self { shape })
    }

    /// Fills in what the object, which is in that version, leaves out.
    pub fn fill(self, object: &mut Object) {
        self.shape.fill(&mut object.0);
    }

    /// Whether filling in would change an object, as it lies in a store. Cost: about a third of what checking its text takes.
    pub fn lacks(self, checked: &Checked) -> bool {
        self.shape.lacks_root(checked.cursor())
    }
}

/// The shape of a kind; `None` for one without defaults.
fn shape_of(group: &str, version: &str, kind: &str) -> Option<&'static Shape> {
    match group {
        "" => core(kind),
        "admissionregistration.k8s.io" => admission::shape(kind),
        "apiextensions.k8s.io" | "apiregistration.k8s.io" => cluster::extension(kind),
        "apps" | "batch" => workloads::shape(kind),
        "authentication.k8s.io" | "certificates.k8s.io" => access::shape_of_proof(kind),
        "autoscaling" => autoscaling::shape(version, kind),
        "discovery.k8s.io" | "networking.k8s.io" => networking::shape(kind),
        "flowcontrol.apiserver.k8s.io" | "scheduling.k8s.io" => cluster::shape(kind),
        "rbac.authorization.k8s.io" => access::shape(kind),
        "resource.k8s.io" => cluster::devices(version, kind),
        "storage.k8s.io" => storage::shape(kind),
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
        "LimitRange" | "Namespace" | "Node" | "Secret" => cluster::shape(kind),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
