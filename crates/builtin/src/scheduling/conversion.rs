//! Conversion of priority classes from versions that are only read.
//!
//! Their fields are those of the served version.

use crate::converting::retired::{BOTH, Retired, row};

pub(crate) const RETIRED: &[Retired] = &[row("PriorityClass", "scheduling.k8s.io", BOTH)];
