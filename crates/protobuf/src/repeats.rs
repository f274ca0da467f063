//! Encodes repeated values of one list only once: objects and lists that occurred earlier at the same place.
//!
//! Neighbours in a list are mostly alike: pods of one deployment differ in name and address, but have equal containers,
//! tolerations and owners. The bytes of such a value are compared with the last value at the same place that has the
//! same prefix. If both are equal, the encoded message of the earlier value is copied. A value that never repeats costs
//! a hash of its prefix.

use std::ops::Range;

use crate::encode::Place;

/// The length in bytes of the prefix by which an earlier value is found for comparison. It distinguishes most elements
/// of lists, since these begin with a name or a type.
const PREFIX_BYTES: usize = 32;
/// The minimum length in bytes of a recorded value. Encoding a shorter one again costs no more than copying it.
const LEAST_BYTES: usize = 24;
/// The number of values available for comparison.
const SLOTS: usize = 512;
/// The maximum number of recorded values, so that their numbers fit into a slot.
const MOST_NOTES: usize = u16::MAX as usize;

/// The size of the table of names that follow each other. A collision costs one failed comparison.
const NAMES: usize = 1024;

/// The recorded values, and the ranges of their messages in the output.
pub(crate) struct Repeats<'a> {
    /// The recorded values, in the order in which their messages end in the output.
    notes: Vec<RecordedValue<'a>>,
    /// The number of a recorded value, from 1, by a hash of place and prefix. 0 for an empty slot.
    slots: Box<[u16; SLOTS]>,
    /// For the number of each name, the index of the name that followed it last.
    followers: Box<[u8; NAMES]>,
}

struct RecordedValue<'a> {
    place: Place,
    text: &'a [u8],
    start: usize,
    length: usize,
}

/// The slot in which a value is found or recorded.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Default for Repeats<'_> {
    fn default() -> Self {
        Self { notes: Vec::new(), slots: Box::new([0; SLOTS]), followers: Box::new([0; NAMES]) }
    }
}

impl<'a> Repeats<'a> {
    /// The index of the name that is likely to follow this one.
    #[inline]
    pub(crate) fn next_name(&self, number: usize) -> usize {
        self.followers[number % NAMES].into()
    }

    /// Records the index of the name that followed this one.
    #[inline]
    pub(crate) fn note_name(&mut self, number: usize, place: usize) {
        self.followers[number % NAMES] = u8::try_from(place).unwrap_or(0);
    }

    /// The slot of the value at the start of this text. `None` near the end of the text, where there is no room for a
    /// value worth recording.
    #[inline]
    pub(crate) fn slot(place: Place, text: &[u8]) -> Option<Slot> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (words, _) = text.first_chunk::<PREFIX_BYTES>()?.as_chunks::<8>();
        let mixed = words
            .iter()
            .fold(place.number(), |hash, word| (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD));
        Some(Slot((mixed >> (u64::BITS - SLOTS.ilog2())) as usize))
    }

    /// If the text begins with the slot's recorded value at the same place, returns the length of that value and the
    /// range of its message.
    #[inline]
    pub(crate) fn find(&self, Slot(slot): Slot, place: Place, text: &[u8]) -> Option<(usize, Range<usize>)> {
        let note = self.notes.get(usize::from(self.slots[slot]).checked_sub(1)?)?;
        // A value in brackets ends with its closing bracket. So if the text begins with an equal value, both values are
        // equal.
        let is_same = note.place == place && text.starts_with(note.text);
        is_same.then(|| (note.text.len(), note.start..note.start + note.length))
    }

    /// Records a value whose message was written last.
    #[inline]
    pub(crate) fn note(&mut self, Slot(slot): Slot, place: Place, text: &'a [u8], message: Range<usize>) {
        if text.len() >= LEAST_BYTES && self.notes.len() < MOST_NOTES {
            self.notes.push(RecordedValue { place, text, start: message.start, length: message.len() });
            self.slots[slot] = u16::try_from(self.notes.len()).unwrap_or(0);
        }
    }

    /// Adjusts the recorded ranges after all output behind this offset was shifted.
    #[inline]
    pub(crate) fn moved(&mut self, start: usize, by: isize) {
        for note in self.notes.iter_mut().rev() {
            if note.start < start {
                break;
            }
            note.start = note.start.wrapping_add_signed(by);
        }
    }
}
