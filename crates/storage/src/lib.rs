//! The contract of storage engines, with keys, continue tokens, the conformance suite, and a deterministic in-memory
//! engine.
//!
//! This crate does not know objects: values are bytes. Keys sort by the bytes of their paths in every engine. Revisions
//! become visible in order: once a reader has seen revision R, no lower revision can appear.

pub mod bounded;
pub mod conformance;
pub mod continue_token;
pub mod copy;
pub mod crowd;
pub mod disk;
pub mod faulty;
pub mod fence;
pub mod guarded;
pub mod key;
pub mod memory;
pub mod meter;
pub mod pages;
pub mod probe;
pub mod seal;
pub mod store;

pub use bounded::BoundedStore;
pub use continue_token::ContinueToken;
pub use disk::{Disk, DiskSpace, SystemDisk};
pub use fence::{Fence, FencedStore, Identity};
pub use key::{StoreKey, behind};
pub use meter::{StoreMeter, StoreOperation};
pub use pages::{pages, pages_from};
pub use probe::StoreProbe;
pub use seal::Seal;
pub use store::{
    CommitError, Committed, Compare, Condition, KeyValue, RangePage, RangeRequest, Relief, Scan, ScanRequest, Store,
    StoreError, StoreEvent, Tail, TailBatch, Transaction, Write,
};
