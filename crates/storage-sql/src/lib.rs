//! The store on SQL: SQLite, embedded and for one server; PostgreSQL, for any number of servers.
//!
//! Both keep one multi-version table: every change is a row, numbered by its revision, and only compaction deletes any. Paths
//! are compared bytewise. What a group of transactions writes becomes durable and visible at once, so a revision is
//! never seen before all smaller ones; recent changes are kept in memory for the tails that keep up.
//!
//! `backup` copies the SQLite store of a running server; `restore` makes a data directory of the copy; `check` tells what
//! of a store is damaged. Each engine is a feature, and brings nothing of the other along.

#[cfg(feature = "postgres")]
mod postgres;
mod ranges;
mod recent;
#[cfg(feature = "sqlite")]
mod sqlite;
mod tail;

#[cfg(feature = "postgres")]
pub use postgres::{PasswordSources, PostgresConfig, PostgresCounters, PostgresError, PostgresStats, PostgresStore};
#[cfg(feature = "sqlite")]
pub use sqlite::{
    ACCEPTED_LOSS_MARGIN, Checked, DEFAULT_HISTORY_BYTES, DirectoryLock, OpenError, SpaceGauges, SpaceStats,
    SqliteConfig, SqlitePath, SqliteStore, backup, check, restore,
};
