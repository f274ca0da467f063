//! The seal of a stored value: the name of the key with which the value is encrypted in the engine, or none.
//!
//! Engines do not know seals. To an engine, every value is plain bytes. A store that encrypts sets the seal of each
//! value that it decrypts. So a cache can find the values to encrypt again without reading the store. The store that
//! encrypts defines the meaning of a seal.

use std::collections::HashMap;
use std::sync::LazyLock;

use parking_lot::RwLock;

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
    ///
    /// Cost: a look-up, since a store that encrypts may call this for each value that it reads.
    pub fn named(name: &str) -> Self {
        static SEALS: LazyLock<RwLock<HashMap<Box<str>, Seal>>> = LazyLock::new(RwLock::default);
        if let Some(known) = SEALS.read().get(name) {
            return *known;
        }
        let mut seals = SEALS.write();
        if let Some(known) = seals.get(name) {
            return *known;
        }
        let number = u16::try_from(seals.len() + 1).ok().filter(|_| seals.len() < MOST);
        let Some(seal) = number.map(Self) else { return Self::OTHER };
        seals.insert(name.into(), seal);
        seal
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
