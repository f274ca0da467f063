//! Conversion of API services from a version that is only read.
//!
//! Its fields are those of the served version.

use crate::converting::retired::{BETA, Retired, row};

pub(crate) const RETIRED: &[Retired] = &[row("APIService", "apiregistration.k8s.io", BETA)];
