//! The versions of workloads and groups of pods, and those of priority classes that are not served.
//!
//! The versions of a kind have the same fields.

use crate::converting::families::{Family, family, hub};
use crate::converting::retired::{BOTH, RetiredVersions, row};

const GROUP: &str = "scheduling.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[
    family("PodGroup", &[hub(GROUP, "v1beta1"), hub(GROUP, "v1alpha3")]),
    family("Workload", &[hub(GROUP, "v1beta1"), hub(GROUP, "v1alpha3")]),
];

pub(crate) const RETIRED: &[RetiredVersions] = &[row("PriorityClass", GROUP, BOTH)];
