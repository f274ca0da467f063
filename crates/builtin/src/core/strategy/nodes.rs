//! Strategy of nodes: a create keeps the status, since a kubelet registers its node with one request.
//!
//! An admission plugin, which can be disabled, adds the taint of a node that is not ready.

use keelson_registry::Caller;
use keelson_registry::strategy::{ClosedFields, CreateStrategy};

/// The fields of a node that feature gates guard. kube-apiserver has dropped the configuration of nodes since 1.26, so no
/// gate opens it.
pub(super) fn gated_fields() -> Vec<ClosedFields> {
    vec![
        ClosedFields::new("", &["spec"], &[&["configSource"]]),
        ClosedFields::new("", &["status"], &[&["config"]]),
        ClosedFields::new("InPlacePodVerticalScalingSchedulerPreemption", &["spec"], &[&["podPreemptionPolicy"]]),
    ]
}

/// The strategy of nodes.
pub(super) struct Nodes;

impl CreateStrategy for Nodes {
    fn keeps_status_on_create(&self, _: &Caller) -> bool {
        true
    }
}
