//! Provides stack for recursion over nested expressions.
//!
//! Nesting is limited. But at the limit, the stack of a runtime thread is too small in an unoptimized build. Then, or
//! if the caller has used up most of its stack, another piece is allocated temporarily.

/// The remaining stack below which another piece is allocated, in bytes.
const LEFT: usize = 128 << 10;
/// The size of a piece in bytes.
const PIECE: usize = 1 << 20;

/// Calls `work` with enough stack for one more level.
#[inline]
pub(crate) fn with_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(LEFT, PIECE, work)
}

/// The size in bytes of the stack for the deepest regular expression. The library recurses over its tree.
const DEEP_PIECE: usize = 32 << 20;

/// Calls `work` with the stack that a deep regular expression needs.
pub(crate) fn with_deep_room<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(DEEP_PIECE, work)
}
