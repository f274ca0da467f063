//! The store on SQLite: one file in a data directory, or in memory.
//!
//! One thread writes: all waiting transactions share one database transaction and one fsync. Readers have their own
//! connections and read at a published revision. So they never wait for the writer, and never see a revision before all
//! smaller ones.

mod backup;
mod check;
mod checkpoint;
mod checksum;
mod commit;
mod error;
mod expiry;
mod index;
mod log;
mod losses;
mod mark;
mod noting;
mod open;
mod place;
mod private;
mod read;
mod readers;
mod relief;
mod reserve;
mod scan;
mod schema;
mod shrink;
mod space;
mod store;
mod sum;
mod sweep;
mod tail;
mod work;
mod writer;

pub use backup::{BackedUp, Restored, backup, restore};
pub use check::{CheckResult, check};
pub use error::OpenError;
pub use losses::ACCEPTED_LOSS_MARGIN;
pub use open::{DEFAULT_HISTORY_BYTES, DirectoryLock, SqliteConfig, SqlitePath};
pub use space::{SpaceGauges, SpaceStats};
pub use store::SqliteStore;
pub use work::{OnProgress, WorkProgress, WorkStage, unobserved};
