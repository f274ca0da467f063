//! Stack for what goes as deep as an expression is nested.
//!
//! The nesting is bounded, but at its bound a thread of the runtime would not do in a build without optimization; there and
//! where a caller has used up its own, another piece of stack is taken for as long as it is needed.

/// With less than so many bytes left another piece is taken.
const LEFT: usize = 128 << 10;
/// How many bytes it has.
const PIECE: usize = 1 << 20;

/// Does something with enough stack for one more level.
#[inline]
pub(crate) fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT, PIECE, work)
}

/// The stack for the deepest regular expression, in bytes: the library goes down its tree by recursion.
const DEEP_PIECE: usize = 32 << 20;

/// Calls `work` with the stack that a deep regular expression takes.
pub(crate) fn with_deep_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(DEEP_PIECE, work)
}
