//! The random source of a simulation: every draw comes from the seed.
//!
//! Each part of a simulation has a stream of its own, so that one part's draws do not shift those of another. Draws of the
//! network and the store depend only on the seed, the time and the place. So a plan without some of its parts has the
//! same delays elsewhere, which makes short histories findable.

use std::ops::Range;

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

/// The next number of a generator (splitmix64).
pub(crate) fn step(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Dice {
    /// The stream of this name and number.
    pub(crate) fn new(seed: u64, name: &str, number: u64) -> Self {
        let mut state = seed;
        for byte in name.bytes() {
            state = step(&mut state) ^ u64::from(byte);
        }
        state ^= number.wrapping_mul(0xd6e8_feb8_6659_fd93);
        step(&mut state);
        Self(state)
    }

    /// A stream for one time and place.
    pub(crate) fn at(seed: u64, name: &str, time: u64, place: u64) -> Self {
        Self::new(seed ^ time.wrapping_mul(0xa076_1d64_78bd_642f), name, place)
    }

    pub(crate) fn next(&mut self) -> u64 {
        step(&mut self.0)
    }

    /// A number of the range, which must not be empty.
    pub(crate) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// True this many times of a thousand.
    pub(crate) fn chance(&mut self, of_thousand: u64) -> bool {
        self.within(0..1000) < of_thousand
    }

    /// An index below `count`.
    pub(crate) fn index(&mut self, count: usize) -> usize {
        (self.next() % count as u64) as usize
    }
}
