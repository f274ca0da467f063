//! Planted faults of the store, each of which a run must find.
//!
//! They model the consistency bugs that were published for etcd, and losses that a cache in front of a store could have.
//! A run without a mutant has none of them, and no server contains their code.

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mutant {
    /// A commit is acknowledged, and not written.
    AcknowledgesUnwritten,
    /// A commit is written, and its answer says that nothing was written.
    DeniesWritten,
    /// The newest revision is read from a member that lags.
    StaleRevision,
    /// A feed loses an event.
    LosesEvent,
    /// A feed gives the old value of a key with the revision of the new one.
    OldValue,
    /// A feed resumes one revision too late.
    ResumesLate,
    /// A feed that a compaction has overtaken continues behind it.
    HidesCompaction,
    /// A feed swaps two events.
    Reorders,
    /// A feed reports its progress before the events below it.
    EarlyProgress,
    /// A commit ignores the conditions of its transaction.
    IgnoresConditions,
    /// A read at a revision returns the newest values.
    ForgetsSnapshot,
    /// A member that was killed comes back without its last writes.
    DivergesAfterKill,
    /// All members lose the last write when a server is killed.
    LosesLastOnKill,
    /// An answer has the revision before that of the write.
    WrongRevision,
    /// A write is applied twice, with two revisions.
    WritesTwice,
}
