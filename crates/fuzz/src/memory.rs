//! Counts the memory that a piece of work asks for, for each thread by itself.
//!
//! Linking this crate puts the counting allocator in place. Counts are of requested bytes, so that they are the same on every
//! machine; what the allocator below makes of a request is not seen.

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
    /// Bytes that this thread asked for and did not give back. Less than nothing where it gave back what another asked for.
    held: isize,
    peak: isize,
    asked: usize,
}

/// What a piece of work cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// The most bytes that it held at once, beyond those that were held before.
    pub peak: usize,
    /// The bytes that it holds when it is done, what it returns included.
    pub held: usize,
    /// The bytes that it asked for altogether: where work is done by allocating, its amount.
    pub asked: usize,
}

/// Does something and says what it cost, what it returns included.
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
    // A thread that ends gives memory back after its counts are gone.
    let _ = COUNTS.try_with(|counts| {
        let mut now = counts.get();
        now.held += signed(taken) - signed(given_back);
        now.peak = now.peak.max(now.held);
        now.asked += taken;
        counts.set(now);
    });
}

// SAFETY: every call is passed on to the system's allocator as it came; counting touches no memory but a thread's own cell,
// which needs no allocation.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller keeps the contract of this call.
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
    fn what_is_held_and_what_is_asked_for_are_told_apart() {
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
