//! Leases: those of the cluster itself are written before anything else.
//!
//! By them its servers know each other, so none could publish its versions before it has one.

use super::strategy::Strategy;
use crate::target::Target;

/// The strategy of leases.
pub(super) struct Leases;

impl Strategy for Leases {
    fn keeps_alive(&self) -> bool {
        true
    }

    fn precedes_publication(&self, target: &Target) -> bool {
        target.namespace.as_deref() == Some("kube-system")
    }
}
