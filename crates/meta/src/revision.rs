//! The store's global write counter, which clients see as `resourceVersion`.
//!
//! The counter has its own type, since versions, generations and counts are numbers too. The options of lists define
//! what zero means in a request.

use std::fmt;
use std::str::FromStr;

/// A point in the store's history. Revisions only increase. 0 is the revision before the first write.
///
/// Clients see it as `resourceVersion`: decimal, no leading zeros, ordered as an integer (KEP-5504).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before the first write.
    pub const ZERO: Self = Self(0);

    /// A revision with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this revision.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The next revision.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Revision {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}
