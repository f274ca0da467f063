//! Warnings for the writer of a workload: those about its pod template, and about a name that its pods can't have.
//!
//! Stateful sets and daemon sets name their pods in other ways.

use crate::core::warnings::{name_of_pods, template};
use crate::validating::Written;

pub(crate) fn warnings(kind: &str, written: Written<'_>, warnings: &mut Vec<String>) {
    match kind {
        "Deployment" | "ReplicaSet" => {
            name_of_pods(written, warnings);
            template(written, warnings);
        }
        "DaemonSet" | "StatefulSet" => template(written, warnings),
        _ => {}
    }
}
