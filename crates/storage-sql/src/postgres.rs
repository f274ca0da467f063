//! The store on PostgreSQL, shared by any number of servers.
//!
//! A server sends all waiting transactions as one group to a function in the database. It locks the state's row, compares, numbers
//! and inserts, all in one round trip and one commit. Groups of several servers take turns at the lock, which is held until the
//! commit is durable: revisions become visible in order and without a gap.
//!
//! Every read is one statement, which sees the state's row and the history of the same moment. The incarnation in that row, the
//! highest seen revision and the newest changes distinguish the known database from a restored or exchanged one, or a replica that
//! missed commits.

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
