//! Counts the memory that work allocates, separately for each thread.
//!
//! Linking this crate installs the counting allocator. Counts are of requested bytes, so they are equal on every
//! machine. The overhead of the allocator below is not included.

#![allow(unsafe_code, reason = "an allocator can only be wrapped by implementing an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Counting;

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { held: 0, peak: 0, asked: 0 }) };
}

#[derive(Clone, Copy)]
struct Counts {
    /// Bytes allocated and not freed by this thread. Negative if it freed memory of other threads.
    held: isize,
    peak: isize,
    asked: usize,
}

/// The cost of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The peak of bytes held at once, in addition to those held before.
    pub peak: usize,
    /// The bytes held at the end, including the result.
    pub held: usize,
    /// The total of allocated bytes, which measures the work of allocating code.
    pub asked: usize,
}

/// Runs `work` and returns its result with its cost, including the result.
pub fn measure<T>(work: impl FnOnce() -> T) -> (T, Cost) {
    let before = COUNTS.get();
    COUNTS.set(Counts { peak: before.held, ..before });
    let done = work();
    let after = COUNTS.get();
    COUNTS.set(Counts { peak: before.peak.max(after.peak), ..after });
    let peak = usize::try_from(after.peak - before.held).unwrap_or(0);
    let held = usize::try_from(after.held - before.held).unwrap_or(0);
    (done, Cost { peak, held, asked: after.asked - before.asked })
}

fn count(taken: usize, given_back: usize) {
    let signed = |bytes: usize| isize::try_from(bytes).unwrap_or(isize::MAX);
    // A thread frees memory after its counters are destroyed.
    let _ = COUNTS.try_with(|counts| {
        let mut now = counts.get();
        now.held += signed(taken) - signed(given_back);
        now.peak = now.peak.max(now.held);
        now.asked += taken;
        counts.set(now);
    });
}

// SAFETY: every call is forwarded unchanged to the system's allocator. Counting uses only a cell of the thread, which
// needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller upholds the contract of this call.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_and_requested_memory_are_distinguished() {
        let (kept, cost) = measure(|| {
            (0..10).for_each(|_| drop(vec![0_u8; 1000]));
            vec![0_u8; 100]
        });
        assert_eq!(kept.len(), 100);
        assert_eq!(cost, Cost { peak: 1000, held: 100, asked: 10_100 });
        let ((), inner) = measure(|| drop(kept));
        assert_eq!(inner, Cost { peak: 0, held: 0, asked: 0 });
    }
}
