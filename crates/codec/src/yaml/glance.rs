//! One look at a text: what kinds of characters it has, and from that whether it can be written plain as it is.
//!
//! Says yes only where the rules of `go-yaml` do; where it says no, they have to be asked. It exists because nearly all
//! texts of objects are names, times, paths and keys, and asking all rules takes ten times as long as writing the text.

use super::scalar::{Meaning, meaning};

/// A space.
pub(super) const SPACE: u8 = 1;
/// What may end a key or begin a comment: `:` and `#`.
const SEPARATOR: u8 = 2;
/// Not printable ASCII: it may need an escape, and its width is not its length.
const ODD: u8 = 4;

/// The class of every byte; zero for those that matter at most as the first.
const CLASSES: [u8; 256] = {
    let mut classes = [ODD; 256];
    let mut byte = b'!';
    while byte <= b'~' {
        classes[byte as usize] = 0;
        byte += 1;
    }
    classes[b' ' as usize] = SPACE;
    classes[b':' as usize] = SEPARATOR;
    classes[b'#' as usize] = SEPARATOR;
    classes
};

/// Texts of at most this many bytes may be words that mean something other than text, such as `null` and `false`.
const LONGEST_WORD_BYTES: usize = 5;

/// The classes of the characters of a text.
#[derive(Clone, Copy)]
pub(super) struct Look(u8);

/// Looks at every byte once.
pub(super) fn look(text: &[u8]) -> Look {
    Look(text.iter().fold(0, |seen, &byte| seen | CLASSES[usize::from(byte)]))
}

impl Look {
    /// Whether no character is of this class.
    pub(super) fn lacks(self, class: u8) -> bool {
        self.0 & class == 0
    }

    /// Whether this is the look of a text of ASCII that reads back as itself when it is written as it is.
    pub(super) fn is_plain(self, text: &str) -> bool {
        if !self.lacks(ODD) || !starts_plain(text) {
            return false;
        }
        let bytes = text.as_bytes();
        let ends_plain = !matches!(bytes.last(), Some(b':' | b' '));
        let separates = |pair: &[u8]| matches!(pair, [b':', b' '] | [b' ', b'#']);
        ends_plain && (self.lacks(SEPARATOR) || self.lacks(SPACE) || !bytes.windows(2).any(separates))
    }
}

/// Whether the beginning of a text is neither an indicator nor the beginning of something other than text.
fn starts_plain(text: &str) -> bool {
    match text.as_bytes() {
        [b'/' | b'(' | b'$' | b';' | b'^', ..] => true,
        [first, ..] if first.is_ascii_alphabetic() => text.len() > LONGEST_WORD_BYTES || meaning(text) == Meaning::Text,
        // Digits, signs and dots may begin numbers and times.
        _ => false,
    }
}
