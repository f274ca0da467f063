//! Marks the writes that a full store takes: steps of deletions, updates that make an object smaller, and leases.
//!
//! A graceful deletion, or one that finalizers hold, is a chain of updates before it is a deletion. Leases are renewed in place: a server
//! that can't renew its own writes nothing more, and controllers would take nodes for lost.

use super::commit::{Content, Plan};
use crate::admission::WriteOptions;
use crate::target::Target;

/// The most bytes that an update may add to an object that is being deleted: conditions, and the end of containers.
const DELETION_BYTES: usize = 8 * 1024;
/// The largest lease that counts as one.
const LEASE_BYTES: usize = 4 * 1024;
/// The namespaces of the leases of servers, nodes and controllers.
const LEASE_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// Returns true for a write that makes room or keeps the cluster alive.
pub(super) fn relieves(plan: &Plan<'_>) -> bool {
    let Content::Put(new) = &plan.content else { return true };
    let (target, size) = (plan.request.target, new.object().size());
    if is_lease(target) && size <= LEASE_BYTES {
        return plan.live.is_some() || target.namespace.as_deref().is_some_and(|name| LEASE_NAMESPACES.contains(&name));
    }
    plan.live.is_some_and(|live| {
        let before = live.object.size();
        let is_deleted = live.terminating || matches!(plan.request.options, WriteOptions::Delete(_));
        size < before || is_deleted && size <= before + DELETION_BYTES
    })
}

fn is_lease(target: &Target) -> bool {
    let resource = target.group_resource();
    resource.resource == "leases" && resource.group == "coordination.k8s.io"
}
