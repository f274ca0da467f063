//! The store on PostgreSQL, shared by any number of servers.
//!
//! A server sends all transactions that wait as one group to a function in the database, which takes the lock on the
//! state's row, compares, numbers and inserts, all in one round trip and one commit. Groups of several servers take turns
//! at the lock, which is held until the commit is durable: revisions become visible in order and without a gap.
//!
//! Every read is one statement, which sees the state's row and the history of the same moment. The incarnation in that row,
//! the highest revision that was ever seen and the newest changes tell a restored or exchanged database, or a replica that had
//! missed commits, from the one that this server knows.

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
