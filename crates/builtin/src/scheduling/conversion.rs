//! Conversion of priority classes from versions that are not served.
//!
//! The versions have the same fields.

use crate::converting::retired::{BOTH, Retired, row};

pub(crate) const RETIRED: &[Retired] = &[row("PriorityClass", "scheduling.k8s.io", BOTH)];
