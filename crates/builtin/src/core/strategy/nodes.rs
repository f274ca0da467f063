//! Strategy of nodes: a create keeps the status, since a kubelet registers its node with one request.
//!
//! An admission plugin, which can be disabled, adds the taint of a node that is not ready.

use keelson_registry::Caller;
use keelson_registry::strategy::CreateStrategy;

/// The strategy of nodes.
pub(super) struct Nodes;

impl CreateStrategy for Nodes {
    fn keeps_status_on_create(&self, _: &Caller) -> bool {
        true
    }
}
