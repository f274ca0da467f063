//! Nodes: the creator of a node also states its status, since a kubelet registers its node whole.
//!
//! The taint of a node that is not ready yet is the matter of an admission plugin, which can be switched off.

use keelson_registry::Caller;
use keelson_registry::strategy::CreateStrategy;

/// The strategy of nodes.
pub(super) struct Nodes;

impl CreateStrategy for Nodes {
    fn keeps_status_on_create(&self, _: &Caller) -> bool {
        true
    }
}
