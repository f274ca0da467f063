//! The searched texts of an object in lower case, each with the weight of its field.
//!
//! Objects with equal texts have equal bytes here, so a comparison of the bytes detects changes.

use super::weight;

/// The mark before a text, one for each weight. Marks are spaces. Searched words do not contain spaces, so no match
/// spans two texts.
const MARKS: [(u16, &str); 3] = [(weight::NAME, "\t"), (weight::LABEL, "\n"), (weight::OTHER, "\u{b}")];

/// The texts of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchedTexts {
    /// The texts, each with a mark before it.
    all: String,
    ends: Vec<usize>,
}

impl SearchedTexts {
    pub(super) fn push(&mut self, text: &str, weight: u16) {
        if text.is_empty() {
            return;
        }
        let mark = MARKS.iter().find(|(of, _)| *of == weight).map_or("\u{b}", |(_, mark)| mark);
        self.all.push_str(mark);
        if text.is_ascii() {
            let start = self.all.len();
            self.all.push_str(text);
            self.all[start..].make_ascii_lowercase();
        } else {
            self.all.push_str(&text.to_lowercase());
        }
        self.ends.push(self.all.len());
    }

    /// The texts, each with its mark of one byte.
    pub(super) fn marked(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.all[std::mem::replace(&mut start, *end)..*end])
    }
}

/// The weight of a marked text.
pub(super) fn weight_of(marked: &str) -> u16 {
    MARKS.iter().find(|(_, mark)| marked.starts_with(mark)).map_or(weight::OTHER, |(weight, _)| *weight)
}
