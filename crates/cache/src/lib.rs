//! The cache, which answers lists, gets and watches.
//!
//! One tail of the store feeds all collections, under one watermark ([`Cache`]). A [`Collection`] has a counted
//! copy-on-write tree of its newest state, a ring of events with kept states, and an index of its watches. A
//! [`Snapshot`] is a pointer, and a [`WatchCursor`] a position. This crate must not know HTTP, selectors or the
//! declaration of resources: callers define the fields to keep and the field for dispatching.
//!
//! Invariants:
//! - A reader that sees the watermark at revision R finds every write up to R in every collection.
//! - A snapshot at a readable revision equals the store at that revision, whatever is written or compacted meanwhile.
//! - A cursor delivers every event of its scope after its start once and in order, or returns an error.
//! - An event costs nothing for watches of other scopes.
//! - An entry has the same object, whether it is plain or packed, and no reader waits for packing.

mod additions;
mod cache;
mod check;
mod collection;
mod common;
mod compactor;
mod config;
mod cores;
mod counts;
mod cursor;
mod dispatch;
mod encodings;
mod entry;
mod environment;
mod event;
mod feed;
mod fill;
mod fork;
mod history;
mod labels;
mod load;
mod packing;
mod postings;
mod scope;
mod shared;
mod snapshot;
mod spec;
mod stats;
mod tail;
mod times;
pub mod tree;
mod trees;
mod views;
mod watermark;
mod written;

pub use additions::AddError;
pub use cache::Cache;
pub use collection::{Collection, CollectionStats};
pub use compactor::Compactor;
pub use config::{CacheConfig, DEFAULT_CHECK_INTERVAL, DEFAULT_HISTORY, DEFAULT_HISTORY_BYTES, DEFAULT_VIEW_BYTES};
pub use counts::{CollectionCounts, ListCounts, ListIndex};
pub use cursor::{CursorBatch, TooOld, WatchCursor};
pub use encodings::StalePage;
pub use entry::Entry;
pub use event::{Event, FrameKind, ViewId};
pub use fork::CacheState;
pub use labels::Labels;
pub use packing::{DEFAULT_PLAIN_BYTES, ObjectRef, Packing, PackingStats};
pub use scope::{Scope, ScopeTerm, SelectedScope};
pub use shared::Overlap;
pub use snapshot::{LeafSlice, RangeCursor, SelectedEntries, Snapshot, SnapshotError};
pub use spec::{CollectionSpec, Complete, Layout};
pub use stats::{CacheStats, TailFault};
pub use trees::IndexTerm;
pub use views::{
    CachedIndex, Change, GatheredPositions, LookupResult, MemoryReservation, Places, Position, PositionSource,
    Positions, ReservationError, Turn, View, ViewOwner, ViewUpdate,
};
pub use watermark::BehindError;
