//! Values that objects of one list have in common, which are transcoded once: objects and lists that stood at a place before.
//!
//! Neighbours in a list are mostly alike: the pods of one deployment differ in a name and an address, and have their containers,
//! tolerations and owners byte for byte. The bytes of such a value are compared with those of the last one that began like it at
//! the same place, and where they are equal the message that was made of it is copied. A value that never comes again costs a look
//! at its first bytes.

use std::ops::Range;

use crate::encode::Place;

/// How many bytes of a value decide with which other one it is compared: enough to tell apart the elements of lists, which begin with
/// a name or a type.
const PREFIX_BYTES: usize = 32;
/// Shorter values are as soon made anew.
const LEAST_BYTES: usize = 24;
/// How many values are kept for comparison.
const SLOTS: usize = 512;
/// How many values are noted at the most, so that their numbers fit into a slot.
const MOST_NOTES: usize = u16::MAX as usize;

/// How many names are known to follow others. Those that fall together cost no more than a comparison in vain.
const NAMES: usize = 1024;

/// Values of some texts, and where in the output the messages are that were made of them.
pub(crate) struct Repeats<'a> {
    /// In the order of their ends in the output.
    notes: Vec<Note<'a>>,
    /// The number of a note, counted from 1, by place and prefix.
    slots: Box<[u16; SLOTS]>,
    /// Which place in its message the name had that followed another one the last time, by the number of that.
    followers: Box<[u8; NAMES]>,
}

struct Note<'a> {
    place: Place,
    text: &'a [u8],
    start: usize,
    length: usize,
}

/// Where a value is looked for, and noted when it is not there.
#[derive(Clone, Copy)]
pub(crate) struct Slot(usize);

impl Default for Repeats<'_> {
    fn default() -> Self {
        Self { notes: Vec::new(), slots: Box::new([0; SLOTS]), followers: Box::new([0; NAMES]) }
    }
}

impl<'a> Repeats<'a> {
    /// The place of the name that is likely to follow the one with this number.
    #[inline]
    pub(crate) fn next_name(&self, number: usize) -> usize {
        self.followers[number % NAMES].into()
    }

    /// The name at this place followed the one with this number.
    #[inline]
    pub(crate) fn note_name(&mut self, number: usize, place: usize) {
        self.followers[number % NAMES] = u8::try_from(place).unwrap_or(0);
    }

    /// The slot of the value with which this text begins; `None` near the end of the text, where nothing long can stand.
    #[inline]
    pub(crate) fn slot(place: Place, text: &[u8]) -> Option<Slot> {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        let (words, _) = text.first_chunk::<PREFIX_BYTES>()?.as_chunks::<8>();
        let mixed = words
            .iter()
            .fold(place.number(), |hash, word| (hash.rotate_left(5) ^ u64::from_le_bytes(*word)).wrapping_mul(SPREAD));
        Some(Slot((mixed >> (u64::BITS - SLOTS.ilog2())) as usize))
    }

    /// The value in the slot, if this text begins with it and it stood at such a place: how long it is, and where the message is.
    #[inline]
    pub(crate) fn find(&self, Slot(slot): Slot, place: Place, text: &[u8]) -> Option<(usize, Range<usize>)> {
        let note = self.notes.get(usize::from(self.slots[slot]).checked_sub(1)?)?;
        // A value of compact JSON in brackets ends with itself, so whatever begins like it is it.
        let is_same = note.place == place && text.starts_with(note.text);
        is_same.then(|| (note.text.len(), note.start..note.start + note.length))
    }

    /// Notes a value and the message that was made of it, the last one in the output.
    #[inline]
    pub(crate) fn note(&mut self, Slot(slot): Slot, place: Place, text: &'a [u8], message: Range<usize>) {
        if text.len() >= LEAST_BYTES && self.notes.len() < MOST_NOTES {
            self.notes.push(Note { place, text, start: message.start, length: message.len() });
            self.slots[slot] = u16::try_from(self.notes.len()).unwrap_or(0);
        }
    }

    /// All that stands behind this place of the output was moved by so many bytes.
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
