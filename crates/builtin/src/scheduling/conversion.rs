//! Conversion of priority classes from versions that are not served.
//!
//! The versions have the same fields.

use crate::converting::retired::{BOTH, RetiredVersions, row};

pub(crate) const RETIRED: &[RetiredVersions] = &[row("PriorityClass", "scheduling.k8s.io", BOTH)];
