//! The store on SQL databases: SQLite, embedded in one server, and PostgreSQL, for any number of servers.
//!
//! Both engines keep one multi-version table: every change is a row, numbered by its revision, and only compaction
//! deletes rows. Paths are compared bytewise. The writes of a group of transactions become durable and visible at once,
//! so a revision is never visible before all smaller ones. Recent changes stay in memory for tails.
//!
//! `backup` copies the SQLite store of a running server, `restore` makes a data directory of the copy, and `check`
//! finds damage. Each engine is a feature of the crate, and needs nothing of the other engine.

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
    ACCEPTED_LOSS_MARGIN, BackedUp, CheckResult, DEFAULT_HISTORY_BYTES, DirectoryLock, OnProgress, OpenError, Restored,
    SpaceGauges, SpaceStats, SqliteConfig, SqlitePath, SqliteStore, WorkProgress, WorkStage, backup, check, restore,
    unobserved,
};
