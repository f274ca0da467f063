//! Search: words, parts of words and typing errors, and how well an object answers to them.
//!
//! Each word that is searched for has to be found somewhere: in the name, the namespace, the values of the labels, the images of the
//! containers, or a field that objects are selected by. Letters of either case are the same. What is found in the name counts most, and a
//! whole text or word more than its beginning, a part of it, or one with a typing error.

use crate::error::QueryError;
use crate::path::{Path, Step};
use crate::value::Subject;

/// The most words of a search.
const MAX_WORDS: usize = 8;
/// The longest word, in characters. Longer ones of objects are no typing errors of it.
const MAX_WORD: usize = 64;
/// From how many characters on a word may have one typing error, and from how many two.
const ONE_ERROR_FROM: usize = 4;
const TWO_ERRORS_FROM: usize = 8;

/// How well a word answers to what is searched for.
mod points {
    pub(super) const WHOLE_TEXT: u16 = 100;
    pub(super) const WHOLE_WORD: u16 = 80;
    pub(super) const BEGINS_TEXT: u16 = 60;
    pub(super) const BEGINS_WORD: u16 = 50;
    pub(super) const PART: u16 = 30;
    pub(super) const ERROR: u16 = 10;
}

/// How much a place counts where a word is found.
mod weight {
    pub(super) const NAME: u16 = 3;
    pub(super) const LABEL: u16 = 2;
    pub(super) const OTHER: u16 = 1;
}

/// Words that are searched for.
#[derive(Clone, Debug)]
pub struct Search {
    words: Vec<String>,
    places: Vec<(Path, u16)>,
}

impl Search {
    /// Reads words that are separated by spaces.
    ///
    /// # Errors
    /// When there are none, or too many or too long ones.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let refused = |why| QueryError::Value { name: parameter, why, value: text.to_owned() };
        let words: Vec<String> = text.split_whitespace().map(str::to_lowercase).collect();
        if words.is_empty() {
            return Err(refused("a word to search for is expected"));
        }
        if words.len() > MAX_WORDS {
            return Err(refused("at most 8 words are searched for"));
        }
        if words.iter().any(|word| word.chars().count() > MAX_WORD) {
            return Err(refused("words have at most 64 characters"));
        }
        Ok(Self { words, places: places() })
    }

    /// The words, in small letters.
    pub fn text(&self) -> String {
        self.words.join(" ")
    }

    /// How many walks through an object it takes.
    pub fn walks(&self) -> usize {
        self.places.len()
    }

    /// How well an object answers: more for a better answer, `None` where a word is not found. `fields` are texts of other fields.
    pub fn score<'f>(&self, subject: &Subject<'_>, fields: impl Iterator<Item = &'f str>) -> Option<u16> {
        let mut best = vec![0; self.words.len()];
        let mut look = |text: &str, weight: u16| {
            let text = text.to_lowercase();
            for (word, best) in self.words.iter().zip(&mut best) {
                *best = (*best).max(found(word, &text) * weight);
            }
        };
        for (path, weight) in &self.places {
            subject.visit(path, |value| {
                look(value.text(), *weight);
                true
            });
        }
        fields.for_each(|field| look(field, weight::OTHER));
        best.iter().all(|points| *points > 0).then(|| best.iter().sum())
    }
}

/// Where words are looked for in every object.
fn places() -> Vec<(Path, u16)> {
    let image = [Step::Each, Step::Member("image".into())];
    let images = |above: &[&str]| Path::of_steps(Path::of_members(above).steps().iter().chain(&image).cloned());
    let labels = Path::of_steps(Path::of_members(&["metadata", "labels"]).steps().iter().cloned().chain([Step::Each]));
    vec![
        (Path::of_members(&["metadata", "name"]), weight::NAME),
        (Path::of_members(&["metadata", "namespace"]), weight::OTHER),
        (labels, weight::LABEL),
        (images(&["spec", "containers"]), weight::OTHER),
        (images(&["spec", "template", "spec", "containers"]), weight::OTHER),
    ]
}

/// How well a text answers to a word; 0 where it does not. Both are in small letters.
fn found(word: &str, text: &str) -> u16 {
    if text == word {
        return points::WHOLE_TEXT;
    }
    let words = || text.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty());
    if !text.contains(word) {
        let errors = match word.chars().count() {
            0..ONE_ERROR_FROM => return 0,
            ONE_ERROR_FROM..TWO_ERRORS_FROM => 1,
            _ => 2,
        };
        return if words().any(|part| is_near(word, part, errors)) { points::ERROR } else { 0 };
    }
    if words().any(|part| part == word) {
        return points::WHOLE_WORD;
    }
    match text.starts_with(word) {
        true => points::BEGINS_TEXT,
        false if words().any(|part| part.starts_with(word)) => points::BEGINS_WORD,
        false => points::PART,
    }
}

/// Whether one word becomes the other by so many errors at the most: a letter too many, too few, another one, or two that are swapped.
fn is_near(one: &str, other: &str, most: usize) -> bool {
    if one.len().abs_diff(other.len()) > most * 4 || other.len() > MAX_WORD * 4 {
        return false;
    }
    let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
    if one.len().abs_diff(other.len()) > most {
        return false;
    }
    // Rows of the usual table: errors between the first letters of the one and the first letters of the other.
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, letter) in one.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, with) in other.iter().enumerate() {
            let changed = row[j] + usize::from(letter != with);
            let mut least = changed.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *letter == other[j - 1] && one[i - 1] == *with {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        if next.iter().min().is_some_and(|least| *least > most) {
            return false;
        }
        before = std::mem::replace(&mut row, next);
    }
    row[other.len()] <= most
}

#[cfg(test)]
mod tests {
    use keelson_meta::Revision;
    use proptest::prelude::*;

    use super::*;

    fn score(search: &str, json: &str) -> Option<u16> {
        let subject = Subject { json: json.as_bytes(), revision: Revision::new(1) };
        Search::parse("search", search).unwrap().score(&subject, ["node-seven"].into_iter())
    }

    const POD: &str = concat!(
        r#"{"metadata":{"name":"checkout-web-0","namespace":"shop","labels":{"app":"Checkout","tier":"front"}},"#,
        r#""spec":{"containers":[{"image":"registry.example.com/nginx:1.27"}]}}"#
    );

    #[test]
    fn what_answers_better_comes_first() {
        let order = [
            score("checkout-web-0", POD),
            score("web", POD),
            score("front", POD),
            score("check", POD),
            score("shop", POD),
            score("eckou", POD),
            score("nginx", POD),
            score("ginx", POD),
            score("chekcout", r#"{"metadata":{"name":"x","labels":{"app":"checkout"}}}"#),
            score("ngnix", POD),
        ];
        assert!(order.iter().all(Option::is_some), "{order:?}");
        assert!(order.windows(2).all(|pair| pair[0] > pair[1]), "{order:?}");
        assert_eq!(score("seven", POD), Some(80));
        assert_eq!(score("FRONT Web", POD), Some(2 * 100 + 3 * 80));
    }

    #[test]
    fn every_word_has_to_be_found_and_short_ones_without_errors() {
        for missing in ["mysql", "web mysql", "wev", "frxxt", "chckuot1xx"] {
            assert_eq!(score(missing, POD), None, "{missing}");
        }
        let refused = |text: &str| Search::parse("s", text).unwrap_err().to_string();
        assert_eq!(refused(" "), "s: a word to search for is expected, not \" \"");
        assert!(refused("a b c d e f g h i").contains("at most 8 words"));
        assert!(refused(&"a".repeat(65)).contains("at most 64 characters"));
    }

    proptest! {
        #[test]
        fn a_word_with_an_error_is_near_and_nearness_has_no_direction(word in "[a-d]{4,12}", at in 0..4usize, other in "[a-d]{0,12}") {
            let mut letters: Vec<char> = word.chars().collect();
            letters[at] = 'x';
            let changed: String = letters.iter().collect();
            letters.remove(at);
            let shorter: String = letters.iter().collect();
            let mut swapped: Vec<char> = word.chars().collect();
            swapped.swap(at.min(2), at.min(2) + 1);
            for near in [word.clone(), changed, shorter, swapped.into_iter().collect()] {
                prop_assert!(is_near(&word, &near, 1), "{word} {near}");
            }
            for most in 0..3 {
                prop_assert_eq!(is_near(&word, &other, most), is_near(&other, &word, most));
            }
        }
    }
}
