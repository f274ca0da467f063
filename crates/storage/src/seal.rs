//! The seal of a stored value: the name of the key with which the value is encrypted in the engine, or none.
//!
//! Engines do not know seals. To an engine, every value is plain bytes. A store that encrypts sets the seal of each
//! value that it decrypts. So a cache can find the values to encrypt again without reading the store. The store that
//! encrypts defines the meaning of a seal.

use std::sync::{OnceLock, PoisonError, RwLock};

/// The maximum number of distinct seals. Values under further names count as encrypted by a key that is not used for
/// writing.
const MOST: usize = 60_000;

/// The number of a seal. Equal names have equal numbers in one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seal(u16);

impl Seal {
    /// The value is not encrypted.
    pub const PLAIN: Self = Self(0);
    /// The value could not be decrypted. Its bytes are the reason, as UTF-8.
    pub const UNREADABLE: Self = Self(u16::MAX);
    /// The common seal of all names beyond the maximum number.
    const OTHER: Self = Self(u16::MAX - 1);

    /// Returns the seal of this name. Names stay in memory until the process ends.
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

    /// The number of the seal, for code that stores seals without depending on stores.
    pub const fn number(self) -> u16 {
        self.0
    }

    /// Returns true if the value could not be decrypted.
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
