//! Marks the writes that a full store accepts: steps of deletions, updates that make an object smaller, and upkeep.
//!
//! A graceful deletion, or one with finalizers, is a chain of updates before it is a deletion. Upkeep is small: leases,
//! and the server's own writes. Without its lease, a server could write nothing more. Without its published address,
//! other servers could not find it. Without leases of nodes, controllers would treat the nodes as lost. The store
//! limits the sum of all these writes.

use keelson_storage::Relief;

use super::commit::{Content, Plan};
use crate::admission::WriteOptions;

/// The largest number of bytes that the mark of a deletion adds to an object: its timestamp, its grace period, a
/// finalizer for its dependents.
const MARK_BYTES: usize = 1024;
/// The largest number of bytes that an update may add to an object that is being deleted: conditions, and the end of
/// containers.
const DELETION_BYTES: usize = 8 * 1024;
/// The largest object of upkeep, in bytes.
pub(super) const SMALL_BYTES: usize = 4 * 1024;
/// The largest number of bytes that an update may add to a small object.
const SMALL_GROWTH_BYTES: usize = 1024;
/// The namespaces with the leases of servers, nodes and controllers.
const UPKEEP_NAMESPACES: [&str; 2] = ["kube-system", "kube-node-lease"];

/// The reason why a full store accepts a write that frees space or keeps the cluster alive.
pub(super) fn relief(plan: &Plan<'_>) -> Relief {
    let Content::Put(new) = &plan.content else { return Relief::Mark };
    let (size, target) = (new.object().size(), plan.request.target);
    let (by_server, keeps_alive) = (plan.request.caller.is_server(), target.strategy().write.keeps_alive());
    let Some(live) = plan.live else {
        let is_there = target.namespace.as_deref().is_some_and(|name| UPKEEP_NAMESPACES.contains(&name));
        let is_upkeep = size <= SMALL_BYTES && (by_server || keeps_alive && is_there);
        return if is_upkeep { Relief::Upkeep } else { Relief::None };
    };
    let before = live.size();
    let is_upkeep = (by_server || keeps_alive) && size <= SMALL_BYTES && size <= before + SMALL_GROWTH_BYTES;
    let is_deletion = matches!(plan.request.options, WriteOptions::Delete(_));
    if is_deletion && !live.terminating && size <= before + MARK_BYTES {
        Relief::Mark
    } else if (live.terminating || is_deletion) && size <= before + DELETION_BYTES {
        Relief::Step
    } else if size < before || is_upkeep {
        Relief::Upkeep
    } else {
        Relief::None
    }
}
