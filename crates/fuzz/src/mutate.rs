//! Mutates known inputs: a few changes at random places, with words of the target's language.
//!
//! Equal seeds give equal inputs, so that a run can be repeated. `run` selects the inputs to keep.

/// A deterministic random number generator (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`. 0 for an empty range.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }
}

/// The maximum length of an input in bytes. Dedicated tests cover longer ones.
pub(crate) const LONGEST: usize = 4096;
/// The maximum number of changes to an input.
const CHANGES: usize = 6;
/// Bytes that are significant to parsers of texts and numbers.
const BYTES: &[u8] = b"\0\t\n\r \"#$%&'()*+,-./0123456789:;<=>?@AEZ[\\]^_`aez{|}~\x7f\x80\xbf\xc0\xe2\xed\xf0\xff";

/// A mutated copy of an input. `others` supply parts, `words` those of the target's language.
pub(crate) fn mutate(input: &[u8], others: &[Vec<u8>], words: &[&str], numbers: &mut Numbers) -> Vec<u8> {
    let mut out = input.to_vec();
    for _ in 0..=numbers.below(CHANGES) {
        change(&mut out, others, words, numbers);
    }
    out.truncate(LONGEST);
    out
}

fn change(out: &mut Vec<u8>, others: &[Vec<u8>], words: &[&str], numbers: &mut Numbers) {
    let place = numbers.below(out.len() + 1);
    let end = (place + 1 + numbers.below(16)).min(out.len());
    match numbers.below(9) {
        0 if place < out.len() => out[place] ^= 1 << numbers.below(8),
        1 if place < out.len() => out[place] = BYTES[numbers.below(BYTES.len())],
        2 => out.insert(place, BYTES[numbers.below(BYTES.len())]),
        3 => drop(out.drain(place..end.max(place))),
        4 => {
            let part = out[place..end.max(place)].to_vec();
            let again = 1 + numbers.below(8);
            out.splice(place..place, part.repeat(again));
        }
        5 | 6 if !words.is_empty() => {
            let word = words[numbers.below(words.len())];
            let replaced = if numbers.below(2) == 0 { place } else { end.max(place) };
            out.splice(place..replaced, word.bytes());
        }
        7 => out.truncate(place),
        _ => {
            let Some(other) = others.get(numbers.below(others.len())) else { return };
            let from = numbers.below(other.len() + 1);
            let to = from + numbers.below(other.len() - from + 1);
            out.splice(place..end.max(place), other[from..to].iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_inputs_and_none_grows_without_bound() {
        let inputs = |seed| {
            let mut numbers = Numbers::new(seed);
            let mut input = b"{}".to_vec();
            let mut made = Vec::new();
            for _ in 0..2000 {
                input = mutate(&input, &[b"[1,2]".to_vec()], &["null"], &mut numbers);
                assert!(input.len() <= LONGEST);
                made.push(input.clone());
            }
            made
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
    }
}
