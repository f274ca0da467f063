//! The `Store` trait: what the API server asks of an engine.
//!
//! The contract is small: transactions with compares, ranges at a revision, one tail of all changes, compaction, times to
//! live. What each must keep is tested by `conformance`, which every engine runs. Objects are unknown here.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use keelson_meta::Revision;

use crate::key::StoreKey;

/// A key, its value, and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: StoreKey,
    /// The bytes as they were written.
    pub value: Bytes,
    /// The revision of the write that made this value.
    pub revision: Revision,
}

/// Compares and writes that take effect together or not at all. A key is written at most once in a transaction.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// What must hold for the writes to happen. Any keys, also ones that are not written.
    pub compares: Vec<Compare>,
    /// What is written when all compares hold.
    pub writes: Vec<Write>,
    /// The reason for which a store that is full takes its puts.
    pub relief: Relief,
}

/// A reason for which a store that is full takes puts, from those that it bounds most to those that it bounds least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relief {
    /// None: the puts need room.
    #[default]
    None,
    /// They keep the cluster alive, as the renewal of a lease does, or make an object smaller.
    Upkeep,
    /// They bring a deletion forward that has begun.
    Step,
    /// They begin a deletion. An object is marked once and grows by some bytes that no client chooses, so this needs no bound.
    Mark,
}

impl Transaction {
    /// Adds a compare.
    #[must_use]
    pub fn when(mut self, key: StoreKey, condition: Condition) -> Self {
        self.compares.push(Compare { key, condition });
        self
    }

    /// Adds a put of a value that does not end by itself.
    #[must_use]
    pub fn put(mut self, key: StoreKey, value: impl Into<Bytes>) -> Self {
        self.writes.push(Write::Put { key, value: value.into(), expires: None });
        self
    }

    /// Adds a delete.
    #[must_use]
    pub fn delete(mut self, key: StoreKey) -> Self {
        self.writes.push(Write::Delete { key });
        self
    }

    /// Returns true for a transaction that puts something.
    pub fn has_puts(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Put { .. }))
    }

    /// Returns true for a transaction that deletes something and puts nothing.
    pub fn deletes_only(&self) -> bool {
        !self.writes.is_empty() && !self.has_puts()
    }

    /// Returns true for a transaction that a full store takes.
    pub fn needs_no_room(&self) -> bool {
        self.relief() != Relief::None
    }

    /// The reason for which a full store takes it. A transaction that puts nothing needs none.
    pub fn relief(&self) -> Relief {
        if self.has_puts() { self.relief } else { Relief::Mark }
    }
}

/// One condition on one key.
#[derive(Clone, Debug)]
pub struct Compare {
    /// The key.
    pub key: StoreKey,
    /// What must be true of it.
    pub condition: Condition,
}

/// What a [`Compare`] asks of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key has no value.
    Absent,
    /// The key has a value, any.
    Exists,
    /// The key's value was written at this revision.
    At(Revision),
}

impl Condition {
    /// Whether the condition is true of a key whose value was written at `current` (`None`: it has no value).
    pub fn holds(self, current: Option<Revision>) -> bool {
        match self {
            Self::Absent => current.is_none(),
            Self::Exists => current.is_some(),
            Self::At(revision) => current == Some(revision),
        }
    }
}

/// One write.
#[derive(Clone, Debug)]
pub enum Write {
    /// Sets the value. `expires` is the time after which [`Store::expire`] deletes it (whole seconds count).
    Put {
        /// The key.
        key: StoreKey,
        /// Its new value.
        value: Bytes,
        /// When it ends by itself, if ever.
        expires: Option<SystemTime>,
    },
    /// Deletes the key. Deleting an absent key does nothing and makes no event.
    Delete {
        /// The key.
        key: StoreKey,
    },
}

impl Write {
    /// The key that is written.
    pub const fn key(&self) -> &StoreKey {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Seconds since the epoch, rounded down: the unit in which engines keep times to live. 0 for times before 1970.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A transaction that took effect and is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision of each write, in the transaction's order. They ascend; an engine may give all writes of one
    /// transaction the same revision. A delete of an absent key has no revision of its own: it reports the newest one
    /// at its place in the order.
    pub revisions: Vec<Revision>,
}

/// Why a transaction had no effect.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A compare did not hold. Nothing was written.
    #[error("compare {index} of the transaction does not hold")]
    Compare {
        /// The first compare that failed, by its place in the transaction.
        index: usize,
        /// What the key holds now.
        current: Option<KeyValue>,
    },
    /// The engine failed. Whether the writes happened is unknown for [`StoreError::Unknown`]; for all others nothing was
    /// written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A failure of the engine itself.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The revision asked for is compacted away; reads work from `oldest` on.
    #[error("revision {requested} is compacted; the oldest readable is {oldest}")]
    Compacted {
        /// The revision that was asked for.
        requested: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The revision asked for does not exist yet.
    #[error("revision {requested} is in the future; the newest is {current}")]
    Future {
        /// The revision that was asked for.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The engine can't be reached, has stopped, or has no room. Nothing was written, and a retry may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A transaction was sent, its answer was lost, and the engine could not find out what became of it: it took effect as a
    /// whole, or it did not, or it may still do so. Only a commit ends so. Who repeats it unseen may write twice.
    #[error("whether a write took effect is not known: {0}")]
    Unknown(String),
    /// The engine has no room for what a write adds. Nothing was written, a retry does not help before there is room, and
    /// deletions make some. The text is for clients too: it says what to do.
    #[error("the store is full: {0}")]
    Full(String),
    /// An etcd without room, in its own words, which clients know.
    #[error("etcd has no room: {0}")]
    EtcdFull(String),
    /// The engine answers reads and takes no writes, deletions included, before an operator changes that: why, and how.
    #[error("the store takes no writes: {0}")]
    ReadOnly(String),
    /// A limit of the engine's forbids a write, which has not happened; a retry does not help.
    #[error("the store does not take this write: {0}")]
    TooLarge(String),
    /// A write is larger than this server's own limit allows. It has not happened; a retry does not help.
    #[error("writing {key} takes {bytes} bytes, and --max-object-bytes allows {limit}")]
    AboveLimit {
        /// The first key that it writes.
        key: StoreKey,
        /// Its size in bytes, with everything around the values.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// What is stored can't be understood, or the engine broke its own rules; a retry does not help.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Returns true where the engine works and refuses puts before an operator changes something.
    pub const fn refuses_puts(&self) -> bool {
        match self {
            Self::Full(_) | Self::EtcdFull(_) | Self::ReadOnly(_) => true,
            Self::Unavailable(_)
            | Self::Future { .. }
            | Self::Compacted { .. }
            | Self::Unknown(_)
            | Self::TooLarge(_)
            | Self::AboveLimit { .. }
            | Self::Corrupt(_) => false,
        }
    }

    /// Whether the same call may work later, and may be made again without a look at what the last one did.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Future { .. } => true,
            Self::Compacted { .. }
            | Self::Unknown(_)
            | Self::Full(_)
            | Self::EtcdFull(_)
            | Self::ReadOnly(_)
            | Self::TooLarge(_)
            | Self::AboveLimit { .. }
            | Self::Corrupt(_) => false,
        }
    }
}

/// A read of all keys in `[from, to)`, in bytewise order, at one revision.
#[derive(Clone, Debug)]
pub struct RangeRequest {
    /// The first key.
    pub from: StoreKey,
    /// The key behind the last one.
    pub to: StoreKey,
    /// The revision to read at; `None` reads the newest.
    pub revision: Option<Revision>,
    /// How many entries at the most; `None` is all.
    pub limit: Option<usize>,
}

/// The answer to a [`RangeRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePage {
    /// The entries in key order.
    pub entries: Vec<KeyValue>,
    /// The revision that was read at.
    pub revision: Revision,
    /// Whether entries behind the limit were left out.
    pub more: bool,
}

/// A read of all there is in some ranges, in no order, at one revision.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The first key of each range and the key behind its last one. No two ranges overlap.
    pub ranges: Vec<(StoreKey, StoreKey)>,
    /// The revision to read at.
    pub revision: Revision,
}

/// What a [`ScanRequest`] finds, some entries at a time.
pub type Scan = BoxStream<'static, Result<Vec<KeyValue>, StoreError>>;

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreEvent {
    /// The key.
    pub key: StoreKey,
    /// The revision of the change.
    pub revision: Revision,
    /// The new value; `None` when the key was deleted.
    pub value: Option<Bytes>,
}

/// Changes in revision order, and how far the tail has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// The changes, ascending by revision; never part of a revision (all events of one revision are in one batch).
    pub events: Vec<StoreEvent>,
    /// Every change up to and including this revision has been delivered.
    pub watermark: Revision,
}

/// The stream of all changes to the store. It ends only with an error.
pub type Tail = BoxStream<'static, Result<TailBatch, StoreError>>;

/// A multi-version key-value store with one global revision counter.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies a transaction. Returns once it is durable and visible to every read that starts afterwards. An engine whose
    /// answer is lost looks what became of the transaction before it says that it does not know.
    ///
    /// # Errors
    /// [`CommitError::Compare`] when a condition does not hold; [`StoreError::Unknown`] when it may or may not have happened.
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError>;

    /// The newest value of a key. Sees every commit that was acknowledged before the call.
    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError>;

    /// Reads a range at one revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] and [`StoreError::Future`] for a revision that can't be read.
    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError>;

    /// Reads all there is in some ranges, for who wants it soon and in any order, from an engine to which order costs time.
    ///
    /// # Errors
    /// In the stream, as for [`Store::range`].
    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        let _ = request;
        None
    }

    /// How many entries [`Store::range`] would return for the same request, without reading their values.
    ///
    /// Cost: linear in the number, so a walk should count once and subtract.
    ///
    /// # Errors
    /// As for [`Store::range`].
    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError>;

    /// The newest revision. Sees every commit that was acknowledged before the call. Never 0: an empty store is at 1.
    async fn current_revision(&self) -> Result<Revision, StoreError>;

    /// The same, from an engine that knows it without asking anybody, since all commits pass through it.
    ///
    /// Cost: a read of memory; it is asked for with every consistent read.
    fn known_revision(&self) -> Option<Revision> {
        None
    }

    /// The oldest revision that [`Store::range`] can read at. A [`Store::tail`] may start after it.
    async fn oldest_revision(&self) -> Result<Revision, StoreError>;

    /// All changes after `after`, from history first and then as they are committed.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when changes after `after` are no longer known, at once or later in the stream when
    /// a slow reader has been overtaken by a compaction; [`StoreError::Future`] when `after` has not happened yet.
    async fn tail(&self, after: Revision) -> Result<Tail, StoreError>;

    /// Forgets what only reads below `oldest` could see. Never changes a result at a revision of `oldest` or above.
    /// Compacting to a revision that is already compacted does nothing.
    ///
    /// # Errors
    /// [`StoreError::Future`] when `oldest` has not happened yet.
    async fn compact(&self, oldest: Revision) -> Result<(), StoreError>;

    /// Waits until history takes more room than the engine has for it, and returns the revision to compact to before its time.
    /// Never returns for an engine that does not bound its history by bytes.
    async fn crowded(&self) -> Revision {
        std::future::pending().await
    }

    /// The bytes that new data may take, as of the last measurement; `None` for an engine that does not know.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Deletes the keys whose time to live ended at or before `now`, as ordinary deletes with revisions and events.
    /// Returns how many.
    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError>;

    /// The reason for which the engine, which works, refuses new data, and the way out. Known from the last write.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Checks that no row of the history is gone that the engine has not deleted itself. Takes about half a second for a million rows.
    /// Engines that cannot tell find nothing.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a loss. Others when the engine can't be asked.
    async fn verify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Checks that the engine answers and takes writes. One without room that takes deletions is well: making room needs it.
    async fn check(&self) -> Result<(), StoreError>;
}
