//! Defaults of priority classes.
//!
//! Admission sets the priority of a pod; that is not a default. The schema has the defaults of groups.

use crate::defaulting::type_defaults::Rule::TextIfAbsent;
use crate::defaulting::type_defaults::TypeDefaults;

/// The defaults of a kind of `scheduling.k8s.io`.
pub(crate) fn defaults(kind: &str) -> Option<&'static TypeDefaults> {
    match kind {
        "PriorityClass" => Some(&PRIORITY_CLASS),
        _ => None,
    }
}

const PRIORITY_CLASS: TypeDefaults = TypeDefaults::new(&[("preemptionPolicy", TextIfAbsent("PreemptLowerPriority"))]);
