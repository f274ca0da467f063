//! Classifies the characters of a text in one pass, to decide in which style it can be written.
//!
//! This module decides only if the rules of `go-yaml` leave no doubt. Nearly all texts in objects are names, times,
//! paths and keys. Applying all rules takes ten times as long as writing the text.

use super::scalar::{Meaning, meaning};

/// The text has a space.
pub(super) const SPACE: u8 = 1;
/// The text has a byte that is not printable ASCII: it may need an escape or be a line break, and its width may differ
/// from its length.
pub(super) const ODD: u8 = 1 << 1;
/// The text has `:` or `#`, which may end a key or start a comment.
const SEPARATOR: u8 = 1 << 2;
/// The text has a letter that does not occur in numbers.
const LETTER: u8 = 1 << 3;
/// The text has a byte that is not a digit.
const OTHER: u8 = 1 << 4;

/// The classes of every byte.
const CLASSES: [u8; 256] = {
    let mut classes = [OTHER | ODD; 256];
    let mut byte = b' ';
    while byte <= b'~' {
        classes[byte as usize] = match byte {
            b' ' => OTHER | SPACE,
            b':' | b'#' => OTHER | SEPARATOR,
            b'0'..=b'9' => 0,
            b'g'..=b'n' | b'p'..=b's' | b'u'..=b'w' | b'G'..=b'N' | b'P'..=b'S' | b'U'..=b'W' => OTHER | LETTER,
            _ => OTHER,
        };
        byte += 1;
    }
    classes
};

/// The length of the longest words with another meaning than text, such as `false`.
const LONGEST_WORD_BYTES: usize = 5;
/// The number of digits that an integer always has room for.
const DIGITS: usize = 18;
/// The form of times in objects.
const TIME: &[u8; 20] = b"0000-00-00T00:00:00Z";

/// The classes of the characters of a text.
#[derive(Clone, Copy)]
pub(super) struct CharacterClasses(u8);

/// The one-line style of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Plain.
    Plain,
    /// Double quotes, without escapes.
    Quoted,
    /// Undecided: all rules are needed.
    Unknown,
}

/// Classifies every byte once.
pub(super) fn look(text: &[u8]) -> CharacterClasses {
    CharacterClasses(text.iter().fold(0, |seen, &byte| seen | CLASSES[usize::from(byte)]))
}

impl CharacterClasses {
    /// Returns true if no character has this class.
    pub(super) fn lacks(self, class: u8) -> bool {
        self.0 & class == 0
    }

    /// Decides the style of this text.
    pub(super) fn verdict(self, text: &str) -> Verdict {
        let plain = match text.as_bytes() {
            [] => return Verdict::Quoted,
            _ if !self.lacks(ODD) => false,
            [b'/' | b'(' | b'$' | b';' | b'^', ..] => true,
            // The key that makes a field of a field set a member itself.
            [b'.'] => true,
            [b'-', b'-', third, ..] => third.is_ascii_alphabetic() && !self.lacks(LETTER),
            [b'0'..=b'9', ..] if is_number_or_time(self, text) => return Verdict::Quoted,
            // A text that begins like a date may be a time, which is not plain.
            [b'0'..=b'9', rest @ ..] => !self.lacks(LETTER) && rest.get(3) != Some(&b'-'),
            [first, ..] if first.is_ascii_alphabetic() => {
                text.len() > LONGEST_WORD_BYTES || meaning(text) == Meaning::Text
            }
            _ => false,
        };
        if plain && self.ends_plain(text.as_bytes()) { Verdict::Plain } else { Verdict::Unknown }
    }

    /// Returns true if no part of an ASCII text would end a key or start a comment.
    fn ends_plain(self, text: &[u8]) -> bool {
        let separates = |pair: &[u8]| matches!(pair, [b':', b' '] | [b' ', b'#']);
        !matches!(text.last(), Some(b':' | b' '))
            && (self.lacks(SEPARATOR) || self.lacks(SPACE) || !text.windows(2).any(separates))
    }
}

/// Returns true for a number without sign and fraction, or a time with whole seconds.
fn is_number_or_time(look: CharacterClasses, text: &str) -> bool {
    if look.lacks(OTHER) {
        return text.len() <= DIGITS;
    }
    let fits = |(byte, like): (u8, &u8)| if *like == b'0' { byte.is_ascii_digit() } else { byte == *like };
    text.len() == TIME.len() && text.bytes().zip(TIME).all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_scalars_are_classified_in_one_pass() {
        let check = |text: &str, expected| assert_eq!(look(text.as_bytes()).verdict(text), expected, "{text}");
        for text in [
            "web-1",
            "f:metadata",
            "app:v1.2",
            "/var/run",
            "a b",
            "http",
            "500m",
            "k:{\"uid\":\"1\"}",
            ".",
            "--flag=:1",
        ] {
            check(text, Verdict::Plain);
        }
        for text in ["", "8080", "0644", "2026-01-02T03:04:05Z"] {
            check(text, Verdict::Quoted);
        }
        for text in ["null", "1:30", "a: b", "a:", " a", "a #b", "-", "é", "{}", "a\nb", "1e5", "2026-01-02 03:04:05 m"]
        {
            check(text, Verdict::Unknown);
        }
    }
}
