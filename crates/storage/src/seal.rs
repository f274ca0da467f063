//! The seal of a stored value: the key under which an engine holds it encrypted, or none.
//!
//! Engines know no seals: all that they hold is plain to them. A store that encrypts sets the seal of each value that it opens, so
//! that a cache can tell which values are to be encrypted anew without reading the store. What a seal means is decided there.

use std::sync::{OnceLock, PoisonError, RwLock};

/// The most seals that are told apart. Values under further ones count as sealed by a key that is not used for writing.
const MOST: usize = 60_000;

/// The number of a seal. Equal names have equal numbers in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seal(u16);

impl Seal {
    /// The value is stored as it is.
    pub const PLAIN: Self = Self(0);
    /// The value could not be opened: its bytes are the reason, as UTF-8.
    pub const UNREADABLE: Self = Self(u16::MAX);
    /// The seal of values under more names than are told apart.
    const OTHER: Self = Self(u16::MAX - 1);

    /// The seal of this name. Names stay in memory for as long as the process lives.
    pub fn named(name: &str) -> Self {
        static NAMES: OnceLock<RwLock<Vec<Box<str>>>> = OnceLock::new();
        let names = NAMES.get_or_init(RwLock::default);
        let find = |names: &[Box<str>]| names.iter().position(|known| **known == *name);
        let known = find(&names.read().unwrap_or_else(PoisonError::into_inner));
        let place = known.or_else(|| {
            let mut names = names.write().unwrap_or_else(PoisonError::into_inner);
            find(&names).or_else(|| {
                let place = names.len();
                (place < MOST).then(|| names.push(name.into())).map(|()| place)
            })
        });
        place.and_then(|place| u16::try_from(place + 1).ok()).map_or(Self::OTHER, Self)
    }

    /// Its number, for what keeps seals without knowing stores.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns true for a value that could not be opened.
    pub fn is_unreadable(self) -> bool {
        self == Self::UNREADABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_one_seal_and_no_other_has_it() {
        let seal = Seal::named("a");
        assert_eq!(seal, Seal::named("a"));
        assert!(![Seal::PLAIN, Seal::UNREADABLE, Seal::named("b")].contains(&seal));
        assert!(Seal::UNREADABLE.is_unreadable() && !seal.is_unreadable());
    }
}
