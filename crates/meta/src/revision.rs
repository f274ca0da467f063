//! The store's global write counter, which clients see as `resourceVersion`.
//!
//! A type of its own, since versions, generations and counts are numbers too. What zero means to a request is said by the
//! options of lists.

use std::fmt;
use std::str::FromStr;

/// A point in the store's history. Revisions only grow; 0 means "before the first write".
///
/// Clients read it as `resourceVersion`: decimal, no leading zeros, ordered as an integer (KEP-5504).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(u64);

impl Revision {
    /// Before the first write.
    pub const ZERO: Self = Self(0);

    /// The revision with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of this revision.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The revision that follows this one.
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
