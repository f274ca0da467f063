//! The progress of a backup, a restore or a check, and its end at the request of the caller.
//!
//! The caller's function is called several times a second. A break ends the work as an interrupt of SQLite does, so that
//! the work removes its files as after any other error.

use std::ops::ControlFlow;

use rusqlite::ffi;

/// A part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStage {
    /// Pages are copied. The unit is a byte.
    Copying,
    /// Rows are compared with their checksums. The unit is a row.
    Verifying,
    /// The checksum of the file is computed. The unit is a byte.
    Summing,
}

/// The progress of a part of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkProgress {
    /// The part.
    pub stage: WorkStage,
    /// The number of units done. It equals `total` in the last report of a part.
    pub done: u64,
    /// The number of units of this part.
    pub total: u64,
}

/// A function that receives the progress. The work ends if it returns a break.
pub type OnProgress<'p> = dyn FnMut(WorkProgress) -> ControlFlow<()> + 'p;

/// Ignores the progress, for work that nothing observes or ends.
pub fn unobserved(_: WorkProgress) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Reports progress. A break of the caller becomes an interrupt.
pub(crate) fn report(
    on_progress: &mut OnProgress<'_>,
    stage: WorkStage,
    done: u64,
    total: u64,
) -> rusqlite::Result<()> {
    match on_progress(WorkProgress { stage, done, total }) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(failure(ffi::SQLITE_INTERRUPT)),
    }
}

/// Returns true for the error after a break.
pub(crate) fn is_interrupted(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted)
}

/// The error for a database that another process holds.
pub(crate) fn busy() -> rusqlite::Error {
    failure(ffi::SQLITE_BUSY)
}

fn failure(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
}
