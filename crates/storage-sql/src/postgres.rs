//! The store on PostgreSQL, shared by any number of servers.
//!
//! A server sends all waiting transactions as one group to a function in the database. The function locks the row of
//! the state, compares, assigns revisions and inserts, in one round trip and one commit. The groups of several servers
//! get the lock one after another, and hold it until the commit is durable. So revisions become visible in order and
//! without a gap.
//!
//! Every read is one statement, which sees the row of the state and the history in one snapshot. A server compares the
//! incarnation in that row, the highest revision and the newest changes with those that it has read before. So it
//! detects a database that was restored or exchanged, and a replica that lacks commits.

mod access;
mod batch;
mod config;
mod error;
mod feed;
mod maintenance;
mod password;
mod read;
mod refusal;
mod rows;
mod scan;
mod seen;
mod session;
mod settle;
mod setup;
mod statements;
mod stats;
mod store;
mod timeline;
mod tls;
mod unknown;
mod writer;

pub use config::PostgresConfig;
pub use error::PostgresError;
pub use password::PasswordSources;
pub use stats::{PostgresCounters, PostgresStats};
pub use store::PostgresStore;
