//! The meter of a store: counts each engine request with its key, duration and outcome.
//!
//! A [`GuardedStore`](crate::guarded::GuardedStore) calls the meter, so metrics need no wrapper of their own.

use std::time::Duration;

use crate::key::StoreKey;
use crate::store::{CommitError, Condition, StoreError, Transaction, Write};

/// A request to an engine, named as in kube-apiserver's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StoreOperation {
    /// A transaction that creates its first key.
    Create,
    /// A transaction that sets its first key.
    Update,
    /// A transaction that deletes its first key.
    Delete,
    /// A read of one key.
    Get,
    /// A read of a range.
    List,
    /// The count of a range.
    Count,
}

impl StoreOperation {
    /// All operations.
    pub const ALL: [Self; 6] = [Self::Create, Self::Update, Self::Delete, Self::Get, Self::List, Self::Count];

    /// The name of the operation in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Get => "get",
            Self::List => "list",
            Self::Count => "count",
        }
    }

    /// Returns the operation of a transaction and the key under which it is counted: the first written key.
    pub(crate) fn from_transaction(transaction: &Transaction) -> Option<(Self, StoreKey)> {
        let first = transaction.writes.first()?;
        let key = first.key();
        let makes = || {
            let is_absent = |condition| matches!(condition, Condition::Absent);
            transaction.compares.iter().any(|compare| compare.key == *key && is_absent(compare.condition))
        };
        let operation = match first {
            Write::Delete { .. } => Self::Delete,
            Write::Put { .. } if makes() => Self::Create,
            Write::Put { .. } => Self::Update,
        };
        Some((operation, key.clone()))
    }
}

/// Counts requests to an engine.
pub trait StoreMeter: Send + Sync + 'static {
    /// Counts a request. `failed` means that the engine did not answer. A failed compare is not a failure.
    fn note(&self, operation: StoreOperation, key: &StoreKey, took: Duration, failed: bool);
}

/// Returns true if the engine failed.
pub(crate) fn has_failed(error: &CommitError) -> bool {
    match error {
        CommitError::Compare { .. } => false,
        CommitError::Store(error) => is_fault(error),
    }
}

/// Returns true for an error of the engine, and false for a refusal of the request.
pub(crate) fn is_fault(error: &StoreError) -> bool {
    match error {
        StoreError::Unavailable(_)
        | StoreError::Unknown(_)
        | StoreError::Full(_)
        | StoreError::EtcdFull(_)
        | StoreError::ReadOnly(_)
        | StoreError::Corrupt(_) => true,
        StoreError::Compacted { .. }
        | StoreError::Future { .. }
        | StoreError::TooLarge(_)
        | StoreError::Unstorable(_)
        | StoreError::AboveLimit { .. }
        | StoreError::Unsealed(_) => false,
    }
}
