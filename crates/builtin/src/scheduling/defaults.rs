//! Defaults of priority classes and pod groups.
//!
//! Admission sets the priority of a pod; that is not a default.

use crate::defaulting::type_defaults::Rule::{In, Text, TextIfAbsent};
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `scheduling.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "PriorityClass" => Some(&PRIORITY_CLASS),
        "PodGroup" => Some(&POD_GROUP),
        _ => None,
    }
}

const PRIORITY_CLASS: TypeDefaults = TypeDefaults::new(&[("preemptionPolicy", TextIfAbsent("PreemptLowerPriority"))]);

const POD_GROUP: TypeDefaults =
    TypeDefaults::new(&[("spec", In(&const { TypeDefaults::new(&[("disruptionMode", Text("Pod"))]) }))]);
