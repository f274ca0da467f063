//! The number of files and connections that the process may have open.
//!
//! A process is started with a soft limit that is often 1,024, for programs from before there was another way to wait for many files, and
//! may raise it to its hard limit by itself. What is left for connections is what nothing else needs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How many descriptors are kept for what is no connection of a client: the store's files and connections, certificates, the log.
const RESERVED: u64 = 256;
/// How many connections are served in any case, so that a server whose limit is too low says so rather than serve nobody.
const LEAST_CONNECTIONS: u64 = 16;

/// Raises the soft limit to the hard one. Returns how many connections there is room for.
pub(crate) fn raise() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = current != maximum && setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // No limit is told as none.
    let most = if raised { maximum } else { current }.unwrap_or(u64::MAX);
    let connections = most.saturating_sub(RESERVED).max(LEAST_CONNECTIONS);
    tracing::debug!(descriptors = most, connections, "the limit of open files");
    usize::try_from(connections).unwrap_or(usize::MAX)
}
