//! Warnings about workloads: about the pod template, and about names that cannot be hostnames of pods.
//!
//! Names of pods are derived differently for stateful sets and daemon sets.

use crate::core::warnings::{name_of_pods, template};
use crate::validating::ValidatedObject;

pub(crate) fn warnings(kind: &str, written: ValidatedObject<'_>, warnings: &mut Vec<String>) {
    match kind {
        "Deployment" | "ReplicaSet" => {
            name_of_pods(written, warnings);
            template(written, warnings);
        }
        "DaemonSet" | "StatefulSet" => template(written, warnings),
        _ => {}
    }
}
