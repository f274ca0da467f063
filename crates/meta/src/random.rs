//! Randomness as a trait, and the two random texts in the API: UIDs, and the suffixes of generated names.
//!
//! No other code uses a random number generator, so a generator with a fixed seed makes a whole server reproducible.

use std::sync::{Mutex, PoisonError};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// The characters of a generated suffix: no vowels and no characters that look alike, so that no words appear by
/// accident.
const SUFFIX_ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The length of the suffix of a `generateName`, in characters.
pub const SUFFIX_LENGTH: usize = 5;

/// A source of random bytes.
pub trait Random: Send + Sync + 'static {
    /// Fills the buffer with random bytes.
    fn fill(&self, buffer: &mut [u8]);

    /// A random number in the full range.
    fn u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// A version 4 UUID in lower case, the form of `metadata.uid`.
    fn uuid(&self) -> String {
        let mut bytes = [0; 16];
        self.fill(&mut bytes);
        let uuid = uuid::Builder::from_random_bytes(bytes).into_uuid();
        uuid.hyphenated().encode_lower(&mut uuid::Uuid::encode_buffer()).to_owned()
    }

    /// The five characters appended to a `generateName`.
    fn name_suffix(&self) -> String {
        // Bytes beyond the last whole multiple of the alphabet are drawn again, so that all characters are equally
        // likely.
        let usable = u8::MAX - (u8::MAX % SUFFIX_ALPHABET.len() as u8);
        let mut suffix = String::with_capacity(SUFFIX_LENGTH);
        let mut bytes = [0; 8];
        while suffix.len() < SUFFIX_LENGTH {
            self.fill(&mut bytes);
            let wanted = SUFFIX_LENGTH - suffix.len();
            let drawn = bytes.iter().filter(|byte| **byte < usable).take(wanted);
            suffix.extend(drawn.map(|byte| char::from(SUFFIX_ALPHABET[usize::from(*byte) % SUFFIX_ALPHABET.len()])));
        }
        suffix
    }
}

/// The operating system's randomness, through a fast generator for each thread.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemRandom;

impl Random for SystemRandom {
    fn fill(&self, buffer: &mut [u8]) {
        rand::rng().fill_bytes(buffer);
    }
}

/// A generator whose seed determines its output, for tests and simulations.
#[derive(Debug)]
pub struct SeededRandom(Mutex<StdRng>);

impl SeededRandom {
    /// A generator that always produces the same bytes for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(Mutex::new(StdRng::seed_from_u64(seed)))
    }
}

impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_values() {
        let (one, two) = (SeededRandom::new(7), SeededRandom::new(7));
        assert_eq!((one.uuid(), one.name_suffix(), one.u64()), (two.uuid(), two.name_suffix(), two.u64()));
        assert_ne!(SeededRandom::new(7).u64(), SeededRandom::new(8).u64());
    }

    #[test]
    fn uuids_are_version_4() {
        let uuid = SystemRandom.uuid();
        assert_eq!(uuid.len(), 36);
        assert_eq!(&uuid[14..15], "4");
        assert!(matches!(&uuid[19..20], "8" | "9" | "a" | "b"));
    }

    #[test]
    fn suffixes_use_every_letter_of_the_alphabet_about_equally() {
        let random = SeededRandom::new(1);
        let mut counts = [0usize; 256];
        for _ in 0..5_400 {
            let suffix = random.name_suffix();
            assert_eq!(suffix.len(), SUFFIX_LENGTH);
            suffix.bytes().for_each(|byte| counts[usize::from(byte)] += 1);
        }
        for byte in 0..=u8::MAX {
            let count = counts[usize::from(byte)];
            let expected = if SUFFIX_ALPHABET.contains(&byte) { 850..1150 } else { 0..1 };
            assert!(expected.contains(&count), "{:?}: {count}", char::from(byte));
        }
    }
}
