//! The number of files and connections that the process may open.
//!
//! A process often starts with a soft limit of 1,024 and may raise it to its hard limit. Client connections get all
//! descriptors that have no other use.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The number of descriptors for other uses than connections: the files and connections of the store, certificates, the
/// log.
const RESERVED: u64 = 256;
/// The part of the other descriptors that outgoing connections get (one in so many): webhooks and aggregated servers.
const OUTBOUND_PART: u64 = 4;
/// The number of connections that are allowed at any limit, so that a server with a low limit can still report it.
const LEAST_CONNECTIONS: u64 = 16;

/// The number of connections that the limit allows.
pub(crate) struct DescriptorShares {
    /// Client connections.
    pub(crate) clients: usize,
    /// Outgoing connections.
    pub(crate) others: usize,
}

/// Raises the soft limit to the hard limit. Returns the number of possible connections.
pub(crate) fn raise() -> DescriptorShares {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // `None` is no limit.
    let most = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    let rest = most.saturating_sub(RESERVED);
    let others = (rest / OUTBOUND_PART).max(LEAST_CONNECTIONS);
    let clients = rest.saturating_sub(others).max(LEAST_CONNECTIONS);
    tracing::debug!(descriptors = most, clients, others, "the limit of open files");
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    DescriptorShares { clients: count(clients), others: count(others) }
}
