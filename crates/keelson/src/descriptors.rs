//! The number of files and connections that the process may have open.
//!
//! A process is started with a soft limit that is often 1,024, for programs from before there was another way to wait for many files, and
//! may raise it to its hard limit by itself. What is left for connections is what nothing else needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors are kept for what is no connection of a client: the store's files and connections, certificates, the log.
const RESERVED: u64 = 256;
/// Which part of the rest is for connections to others: webhooks and aggregated servers.
const OUTBOUND_PART: u64 = 4;
/// How many connections are served in any case, so that a server whose limit is too low says so rather than serve nobody.
const LEAST_CONNECTIONS: u64 = 16;

/// How many connections there is room for.
pub(crate) struct Room {
    /// Those of clients.
    pub(crate) clients: usize,
    /// Those to others.
    pub(crate) others: usize,
}

/// Raises the soft limit to the hard one. Returns how many connections there is room for.
pub(crate) fn raise() -> Room {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // No limit is told as none.
    let most = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    let rest = most.saturating_sub(RESERVED);
    let others = (rest / OUTBOUND_PART).max(LEAST_CONNECTIONS);
    let clients = rest.saturating_sub(others).max(LEAST_CONNECTIONS);
    tracing::debug!(descriptors = most, clients, others, "the limit of open files");
    let count = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Room { clients: count(clients), others: count(others) }
}
