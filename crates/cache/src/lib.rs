//! The cache: what lists, gets and watches are answered from.
//!
//! One tail of the store feeds all collections, under one watermark ([`Cache`]). A [`Collection`] is a counted
//! copy-on-write tree of its newest state, a ring of events with states kept on the way, and an index of who watches what.
//! A [`Snapshot`] is a pointer; a [`WatchCursor`] is a position. Nothing here knows HTTP, selectors or how a resource is
//! declared: it is told which fields to keep and by which to dispatch.
//!
//! Invariants:
//! - Whoever sees the watermark at R finds every write up to R in every collection.
//! - A snapshot at a readable revision equals the store at that revision, whatever is written or compacted meanwhile.
//! - A cursor delivers every event of its scope after its start once and in order, or says that it can't.
//! - An event costs nothing for watchers of other scopes.

mod cache;
mod check;
mod collection;
mod common;
mod entry;
mod event;
mod history;
mod labels;
mod load;
mod postings;
mod snapshot;
mod tail;
pub mod tree;
mod trees;
mod watch;
mod watermark;
mod written;

pub use cache::{
    Cache, CacheConfig, CacheStats, DEFAULT_CHECK_INTERVAL, DEFAULT_HISTORY, DEFAULT_HISTORY_BYTES, TailFault,
};
pub use collection::{Collection, CollectionSpec, CollectionStats, Complete};
pub use entry::Entry;
pub use event::{Event, FrameKind, ViewId};
pub use labels::Labels;
pub use snapshot::{LeafSlice, RangeCursor, Selected, Snapshot, SnapshotError};
pub use trees::IndexTerm;
pub use watch::{CursorBatch, Scope, TooOld, WatchCursor};
pub use watermark::Behind;
