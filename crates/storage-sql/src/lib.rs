//! The store on SQLite: one file in a data directory, or in memory.
//!
//! Every change is a row of one append-only table, numbered by its revision; a write never updates a row, and only
//! compaction deletes any. One thread writes: all transactions that wait share one database transaction and one fsync.
//! Readers have connections of their own and read at a published revision, so they never wait for the writer and
//! never see a revision before everything below it.
//!
//! [`backup`] copies the store of a running server; [`restore`] makes a data directory of the copy.

mod backup;
mod checkpoint;
mod commit;
mod error;
mod expiry;
mod open;
mod private;
mod read;
mod readers;
mod recent;
mod schema;
mod store;
mod sweep;
mod tail;
mod writer;

pub use backup::{backup, restore};
pub use error::OpenError;
pub use open::{SqliteConfig, SqlitePath};
pub use store::SqliteStore;
