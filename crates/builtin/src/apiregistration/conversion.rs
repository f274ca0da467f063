//! Conversion of APIServices from a version that is not served.
//!
//! The versions have the same fields.

use crate::converting::retired::{BETA, RetiredVersions, row};

pub(crate) const RETIRED: &[RetiredVersions] = &[row("APIService", "apiregistration.k8s.io", BETA)];
