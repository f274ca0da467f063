//! The `Store` trait: the operations that the API server needs from an engine.
//!
//! The contract is small: transactions with compares, ranges at a revision, one tail of all changes, compaction, and
//! times to live. `conformance` tests it for every engine. Engines do not know objects.

use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::BoxStream;
use keelson_meta::Revision;

use crate::key::StoreKey;
use crate::seal::Seal;

/// A key, its value, and the revision that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: StoreKey,
    /// The bytes as written.
    pub value: Bytes,
    /// The revision of the write.
    pub revision: Revision,
    /// The seal of the value. For a value that [is unreadable](Seal::is_unreadable), the bytes are the reason.
    pub seal: Seal,
}

impl KeyValue {
    /// Creates an entry whose value is not encrypted.
    pub fn new(key: StoreKey, value: Bytes, revision: Revision) -> Self {
        Self { key, value, revision, seal: Seal::PLAIN }
    }
}

/// Compares and writes that take effect together or not at all. A transaction writes a key at most once.
#[derive(Clone, Debug, Default)]
pub struct Transaction {
    /// The conditions for the writes, on any keys.
    pub compares: Vec<Compare>,
    /// The writes, applied if all compares hold.
    pub writes: Vec<Write>,
    /// The reason for accepting the puts when the store is full.
    pub relief: Relief,
}

/// A reason for accepting puts when the store is full, from the most limited to the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Relief {
    /// None: the puts need room.
    #[default]
    None,
    /// The puts keep the cluster alive, such as the renewal of a lease, or make an object smaller.
    Upkeep,
    /// The puts continue a deletion that has begun.
    Step,
    /// The puts start a deletion. An object is marked for deletion once. The mark adds a few bytes, whose number no
    /// client controls, so these puts need no limit.
    Mark,
}

impl Transaction {
    /// Adds a compare.
    #[must_use]
    pub fn when(mut self, key: StoreKey, condition: Condition) -> Self {
        self.compares.push(Compare { key, condition });
        self
    }

    /// Adds a put without an expiry.
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

    /// Returns true for a transaction with a put.
    pub fn has_puts(&self) -> bool {
        self.writes.iter().any(|write| matches!(write, Write::Put { .. }))
    }

    /// Returns true for a transaction with deletes and without puts.
    pub fn deletes_only(&self) -> bool {
        !self.writes.is_empty() && !self.has_puts()
    }

    /// Returns true if a full store accepts the transaction.
    pub fn needs_no_room(&self) -> bool {
        self.relief() != Relief::None
    }

    /// The reason for which a full store accepts the transaction. A transaction without puts is always accepted.
    pub fn relief(&self) -> Relief {
        if self.has_puts() { self.relief } else { Relief::Mark }
    }
}

/// One condition on one key.
#[derive(Clone, Debug)]
pub struct Compare {
    /// The key.
    pub key: StoreKey,
    /// The condition.
    pub condition: Condition,
}

/// The condition of a [`Compare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The key has no value.
    Absent,
    /// The key has some value.
    Exists,
    /// The key's value was written at this revision.
    At(Revision),
}

impl Condition {
    /// Returns true if the condition holds for a key whose value was written at `current` (`None`: no value).
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
    /// Sets the value. [`Store::expire`] deletes it after the time `expires`, in whole seconds.
    Put {
        /// The key.
        key: StoreKey,
        /// Its new value.
        value: Bytes,
        /// The expiry, if any.
        expires: Option<SystemTime>,
    },
    /// Deletes the key. Deleting an absent key has no effect and makes no event.
    Delete {
        /// The key.
        key: StoreKey,
    },
}

impl Write {
    /// The written key.
    pub const fn key(&self) -> &StoreKey {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }
}

/// Seconds since the epoch, rounded down: the resolution of times to live in engines. 0 for times before 1970.
pub fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// A transaction that has taken effect and is durable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The revision of each write, in the transaction's order. They ascend; an engine may give all writes of a
    /// transaction the same revision. A delete of an absent key gets no new revision: its entry is the newest revision
    /// at its position.
    pub revisions: Vec<Revision>,
}

/// The reason for which a transaction had no effect.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A compare did not hold. Nothing was written.
    #[error("compare {index} of the transaction does not hold")]
    Compare {
        /// The position of the first failed compare.
        index: usize,
        /// The current value of the key.
        current: Option<KeyValue>,
    },
    /// The engine failed. For [`StoreError::Unknown`] the writes may have happened; for all others nothing was written.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A failure of the engine.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// The requested revision is compacted; reads work from `oldest` on.
    #[error("revision {requested} is compacted; the oldest readable is {oldest}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest revision that can be read.
        oldest: Revision,
    },
    /// The requested revision does not exist yet.
    #[error("revision {requested} is in the future; the newest is {current}")]
    Future {
        /// The requested revision.
        requested: Revision,
        /// The newest revision.
        current: Revision,
    },
    /// The engine is unreachable, has stopped, or has no room. Nothing was written, and a retry may help.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A transaction was sent, the answer was lost, and the engine could not find the outcome. The transaction took
    /// effect as a whole, or had no effect, or may still take effect. Only commits return this error. A repeat without
    /// a check may write twice.
    #[error("the outcome of a write is unknown: {0}")]
    Unknown(String),
    /// The engine has no space for the write. Nothing was written. A retry fails until deletions free space. Clients
    /// also see the text, which says how to free space.
    #[error("the store is full: {0}")]
    Full(String),
    /// An etcd without space. Holds etcd's own text, which clients recognize.
    #[error("etcd has no room: {0}")]
    EtcdFull(String),
    /// The engine answers reads and refuses all writes, deletions included, until an operator acts. Holds the reason
    /// and the remedy.
    #[error("the store takes no writes: {0}")]
    ReadOnly(String),
    /// A limit of the engine forbids the write. Nothing was written, and a retry does not help.
    #[error("the store does not take this write: {0}")]
    TooLarge(String),
    /// The engine can't hold a key of this form. Nothing was written, and a retry does not help. Clients also see the
    /// text.
    #[error("the store can't hold this object: {0}")]
    Unstorable(String),
    /// A write exceeds this server's own limit. Nothing was written, and a retry does not help.
    #[error("writing {key} takes {bytes} bytes, and --max-object-bytes allows {limit}")]
    AboveLimit {
        /// The first written key.
        key: StoreKey,
        /// The size of the store in bytes, including the envelope of values.
        bytes: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A value could not be encrypted, in upstream's words. Nothing was written. A key service may answer later.
    #[error("{0}")]
    Unsealed(String),
    /// The engine can't decode stored data, or broke its own rules. A retry does not help.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
}

impl StoreError {
    /// Returns true if the engine works but refuses puts until an operator acts.
    pub const fn refuses_puts(&self) -> bool {
        match self {
            Self::Full(_) | Self::EtcdFull(_) | Self::ReadOnly(_) => true,
            Self::Unavailable(_)
            | Self::Future { .. }
            | Self::Compacted { .. }
            | Self::Unknown(_)
            | Self::TooLarge(_)
            | Self::Unstorable(_)
            | Self::AboveLimit { .. }
            | Self::Unsealed(_)
            | Self::Corrupt(_) => false,
        }
    }

    /// Returns true if the same call may succeed later, and a repeat needs no check of the first outcome.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::Unavailable(_) | Self::Future { .. } => true,
            Self::Compacted { .. }
            | Self::Unknown(_)
            | Self::Full(_)
            | Self::EtcdFull(_)
            | Self::ReadOnly(_)
            | Self::TooLarge(_)
            | Self::Unstorable(_)
            | Self::AboveLimit { .. }
            | Self::Unsealed(_)
            | Self::Corrupt(_) => false,
        }
    }
}

/// A read of all keys in `[from, to)`, in bytewise order, at one revision.
#[derive(Clone, Debug)]
pub struct RangeRequest {
    /// The first key.
    pub from: StoreKey,
    /// The key after the last one.
    pub to: StoreKey,
    /// The revision to read at; `None` reads the newest.
    pub revision: Option<Revision>,
    /// The most entries; `None` for all.
    pub limit: Option<usize>,
}

/// The response to a [`RangeRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangePage {
    /// The entries in key order.
    pub entries: Vec<KeyValue>,
    /// The revision of the read.
    pub revision: Revision,
    /// True if entries beyond the limit were left out.
    pub more: bool,
}

/// A read of all entries of some ranges, in no order, at one revision.
#[derive(Clone, Debug)]
pub struct ScanRequest {
    /// The first key of each range, and the key after its last one. The ranges do not overlap.
    pub ranges: Vec<(StoreKey, StoreKey)>,
    /// The revision to read at.
    pub revision: Revision,
}

/// The entries of a [`ScanRequest`], in batches.
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
    /// The seal of the value. For a value that [is unreadable](Seal::is_unreadable), the bytes are the reason.
    pub seal: Seal,
}

impl StoreEvent {
    /// Creates an event whose value is not encrypted.
    pub fn new(key: StoreKey, revision: Revision, value: Option<Bytes>) -> Self {
        Self { key, revision, value, seal: Seal::PLAIN }
    }

    /// Returns the entry of the key after the change; `None` if the key was deleted.
    pub fn stored(&self) -> Option<KeyValue> {
        let value = self.value.clone()?;
        Some(KeyValue { key: self.key.clone(), value, revision: self.revision, seal: self.seal })
    }
}

/// Changes in revision order, and the tail's position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TailBatch {
    /// The changes, ascending by revision. All events of one revision are in one batch.
    pub events: Vec<StoreEvent>,
    /// Every change up to and including this revision has been delivered.
    pub watermark: Revision,
}

/// The stream of all changes to the store. Ends only with an error.
pub type Tail = BoxStream<'static, Result<TailBatch, StoreError>>;

/// A multi-version key-value store with one global revision counter.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Applies a transaction. Returns once it is durable and visible to every later read. If its answer was lost, the
    /// engine checks the outcome before it returns [`StoreError::Unknown`].
    ///
    /// # Errors
    /// [`CommitError::Compare`] when a condition does not hold; [`StoreError::Unknown`] when the outcome is unknown.
    async fn commit(&self, transaction: Transaction) -> Result<Committed, CommitError>;

    /// Returns the newest value of a key. Sees every commit acknowledged before the call.
    async fn get(&self, key: &StoreKey) -> Result<Option<KeyValue>, StoreError>;

    /// Reads a range at one revision.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] and [`StoreError::Future`] for a revision that can't be read.
    async fn range(&self, request: RangeRequest) -> Result<RangePage, StoreError>;

    /// Reads all entries of some ranges in any order, for engines where order costs time. `None` if the engine has no
    /// faster way than [`Store::range`].
    ///
    /// # Errors
    /// In the stream, those of [`Store::range`].
    fn scan(&self, request: ScanRequest) -> Option<Scan> {
        let _ = request;
        None
    }

    /// The number of entries that [`Store::range`] would return for the same request, without reading their values.
    ///
    /// Cost: linear in the number, so a chunked list should count once and subtract.
    ///
    /// # Errors
    /// Errors of [`Store::range`].
    async fn count(&self, request: RangeRequest) -> Result<u64, StoreError>;

    /// The seal that a new value of this key would get now. Cost: a look-up.
    fn seal(&self, key: &str) -> Seal;

    /// The newest revision. Sees every commit that was acknowledged before the call. Never 0: an empty store is at 1.
    async fn current_revision(&self) -> Result<Revision, StoreError>;

    /// The newest revision, if the engine knows it without a request because all commits pass through it.
    ///
    /// Cost: a memory read; every consistent read calls it.
    fn known_revision(&self) -> Option<Revision> {
        None
    }

    /// The oldest revision that [`Store::range`] can read. A [`Store::tail`] may start after it.
    async fn oldest_revision(&self) -> Result<Revision, StoreError>;

    /// All changes after `after`: history first, then new commits.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] when changes after `after` are compacted, at once or later when a compaction overtakes
    /// a slow reader; [`StoreError::Future`] when `after` has not happened yet.
    async fn tail(&self, after: Revision) -> Result<Tail, StoreError>;

    /// Removes history that only reads below `oldest` could see. Never changes a result at `oldest` or above.
    /// Compacting to an already compacted revision has no effect.
    ///
    /// # Errors
    /// [`StoreError::Future`] when `oldest` has not happened yet.
    async fn compact(&self, oldest: Revision) -> Result<(), StoreError>;

    /// Waits until the history exceeds the engine's limit in bytes, and returns the revision for an early compaction.
    /// Never returns for an engine without such a limit.
    async fn crowded(&self) -> Revision {
        std::future::pending().await
    }

    /// The bytes of replaced and deleted versions that the engine keeps at most; `None` without such a limit.
    fn history_limit(&self) -> Option<u64> {
        None
    }

    /// The bytes that new data may use, as of the last measurement; `None` if the engine does not know.
    fn free_bytes(&self) -> Option<u64> {
        None
    }

    /// Deletes the keys that expire at or before `now`, as ordinary deletes with revisions and events. Returns their
    /// number.
    async fn expire(&self, now: SystemTime) -> Result<usize, StoreError>;

    /// The reason for which a working engine refuses new data, with the remedy. Known from the last write.
    fn refusal(&self) -> Option<String> {
        None
    }

    /// Checks that the history has lost no row that the engine has not deleted itself. Takes about half a second for a
    /// million rows. Engines that can't detect a loss return success.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for a loss. Other errors if the engine does not answer.
    async fn verify(&self) -> Result<(), StoreError>;

    /// Checks that the engine answers and accepts writes. An engine without space that accepts deletions passes, since
    /// clients need it to free space.
    async fn check(&self) -> Result<(), StoreError>;
}
