//! The versions of leases and lease candidates.
//!
//! All versions have the same fields.

use crate::converting::families::{Family, family, hub};
use crate::converting::retired::{BETA, RetiredVersions, row};

const GROUP: &str = "coordination.k8s.io";

pub(crate) const FAMILIES: &[Family] = &[family("LeaseCandidate", &[hub(GROUP, "v1beta1"), hub(GROUP, "v1alpha2")])];

pub(crate) const RETIRED: &[RetiredVersions] = &[row("Lease", GROUP, BETA)];
