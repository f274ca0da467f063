//! Full-text search with a score: words, parts of words and typing errors.
//!
//! Each word has to occur in the name, the namespace, a label value, a container image, or a selectable field. The
//! search ignores case. The name has the highest weight. A match of a whole text or word scores more than a match of
//! its beginning, of a part of it, or of a word with a typing error.
//!
//! Texts may be as long as objects. So the search reads only the beginning of each text, and a limited amount of text
//! of each object. This takes a few milliseconds at most.

mod index;
mod part;
mod postings;
mod texts;

use std::sync::LazyLock;

use keelson_codec::cursor::Cursor;

pub use self::index::{RankedResults, SearchIndex};
pub use self::part::GatheredTexts;
pub use self::texts::SearchedTexts;
use crate::error::QueryError;
use crate::path::{Path, Segment};
use crate::value::{Subject, Value};

/// The maximum number of words.
const MAX_WORDS: usize = 8;
/// The maximum length of a word in characters. Longer words of objects never match with typing errors.
const MAX_WORD: usize = 64;
/// The word lengths from which one and two typing errors are allowed.
const ONE_ERROR_FROM: usize = 4;
const TWO_ERRORS_FROM: usize = 8;
/// The maximum number of errors in a word.
const MOST_ERRORS: usize = 2;
/// The searched length of a text in bytes.
const TEXT_BYTES: usize = 2048;
/// The searched length of all texts of an object in bytes.
const OBJECT_BYTES: usize = 32 << 10;
/// The cost of searching a byte for a word, in walks over it.
const STEPS_OF_WORD: u64 = 4;

/// The weights of fields.
mod weight {
    pub(super) const NAME: u16 = 3;
    pub(super) const LABEL: u16 = 2;
    pub(super) const OTHER: u16 = 1;
}

/// The maximum length of a text in the result, in bytes.
const TOLD_BYTES: usize = 256;

/// The searched paths of every object, with their weights.
static PLACES: LazyLock<Vec<(Path, u16)>> = LazyLock::new(places);

/// The words of a search.
#[derive(Clone, Debug)]
pub struct Search {
    words: Vec<Word>,
}

/// One word of a search.
#[derive(Clone, Debug)]
struct Word {
    /// In lower case.
    text: String,
    letters: Vec<char>,
    /// The maximum number of typing errors.
    errors: usize,
}

impl Word {
    fn new(word: &str) -> Self {
        let text = word.to_lowercase();
        let letters: Vec<char> = text.chars().collect();
        let errors = match letters.len() {
            0..ONE_ERROR_FROM => 0,
            ONE_ERROR_FROM..TWO_ERRORS_FROM => 1,
            _ => MOST_ERRORS,
        };
        Self { text, letters, errors }
    }
}

/// The best match of a word in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordMatch {
    /// The searched word, in lower case.
    pub word: String,
    /// The path of the text. For a text within a list, the path of all its items.
    pub field: String,
    /// The beginning of the text.
    pub text: String,
    /// The kind of match.
    pub manner: MatchKind,
    /// The score.
    pub points: u16,
}

/// The kind of match in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MatchKind {
    /// A word with typing errors.
    Error,
    /// A part of a word.
    Part,
    /// The beginning of a word.
    BeginsWord,
    /// The beginning of the text.
    BeginsText,
    /// A whole word.
    WholeWord,
    /// The whole text.
    WholeText,
}

impl MatchKind {
    /// The score before weighting.
    const fn points(self) -> u16 {
        match self {
            Self::WholeText => 100,
            Self::WholeWord => 80,
            Self::BeginsText => 60,
            Self::BeginsWord => 50,
            Self::Part => 30,
            Self::Error => 10,
        }
    }

    /// The name in responses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WholeText => "wholeText",
            Self::WholeWord => "wholeWord",
            Self::BeginsText => "beginsText",
            Self::BeginsWord => "beginsWord",
            Self::Part => "part",
            Self::Error => "typingError",
        }
    }
}

impl Search {
    /// Parses words separated by spaces.
    ///
    /// # Errors
    /// No words, too many, or too long ones.
    pub fn parse(parameter: &'static str, text: &str) -> Result<Self, QueryError> {
        let refused = |why| QueryError::Value { name: parameter, why, value: text.to_owned() };
        let words: Vec<Word> = text.split_whitespace().map(Word::new).collect();
        if words.is_empty() {
            return Err(refused("a word to search for is expected"));
        }
        if words.len() > MAX_WORDS {
            return Err(refused("at most 8 words are searched for"));
        }
        if words.iter().any(|word| word.letters.len() > MAX_WORD) {
            return Err(refused("words have at most 64 characters"));
        }
        Ok(Self { words })
    }

    /// The words in lower case, separated by spaces.
    pub fn text(&self) -> String {
        self.words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>().join(" ")
    }

    /// The number of walks through an object.
    pub fn walks() -> usize {
        PLACES.len()
    }

    /// The maximum cost for an object of this size, in bytes walked.
    pub fn cost(&self, bytes: u64) -> u64 {
        cost_of_words(bytes, self.words.len())
    }

    /// The searched texts of an object, independent of the words. `fields` are texts of selectable fields.
    pub fn texts<'f>(subject: &Subject<'_>, fields: impl Iterator<Item = &'f str>) -> SearchedTexts {
        let mut texts = SearchedTexts::default();
        each_text(subject, fields.map(|text| ((), text)), |_, text, weight| texts.push(text, weight));
        texts
    }

    /// The maximum cost of [`Search::texts`] for an object of this size, in bytes walked.
    pub fn cost_of_texts(bytes: u64) -> u64 {
        // Each text is written, and looked up among the known texts.
        cost_of_words(bytes, 1)
    }

    /// The sort key of a score. The best scores sort first.
    pub const fn place(score: u16) -> [u8; 2] {
        (u16::MAX - score).to_be_bytes()
    }

    /// The score of an object. `None` if a word is missing. `fields` are texts of selectable fields.
    pub fn score<'f>(&self, subject: &Subject<'_>, fields: impl Iterator<Item = &'f str>) -> Option<u16> {
        let mut best = vec![0; self.words.len()];
        self.visit(subject, fields.map(|text| ((), text)), |word, _, manner, weight| {
            best[word] = best[word].max(manner.points() * weight);
        });
        best.iter().all(|points| *points > 0).then(|| best.iter().sum())
    }

    /// The best match of each word, in the given order. An object that contains all words has one match for each.
    /// `fields` are selectable fields, by path.
    pub fn matches<'f>(
        &self,
        subject: &Subject<'_>,
        fields: impl Iterator<Item = (&'f str, &'f str)>,
    ) -> Vec<WordMatch> {
        let mut best: Vec<Option<Best<'_>>> = vec![None; self.words.len()];
        self.visit(subject, fields, |word, (field, text), manner, weight| {
            let points = manner.points() * weight;
            if best[word].as_ref().is_none_or(|(.., known)| *known < points) {
                best[word] = Some((field, text.to_owned(), manner, points));
            }
        });
        let told = self.words.iter().zip(best).filter_map(|(word, best)| {
            let (field, text, manner, points) = best?;
            let field = match field {
                SearchedField::At(path) => match path.segments().split_last() {
                    // The path of the one label is more useful than the path of all labels.
                    Some((Segment::Each, of)) => member_with(subject, of, &text).unwrap_or_else(|| path.to_string()),
                    _ => path.to_string(),
                },
                SearchedField::In(field) => format!(".{field}"),
            };
            let text = text[..text.floor_char_boundary(TOLD_BYTES)].to_owned();
            Some(WordMatch { word: word.text.clone(), field, text, manner, points })
        });
        told.collect()
    }

    /// Calls `found` with each match: the field, the index of the word, the kind of match and the weight.
    fn visit<'f, F: Copy>(
        &self,
        subject: &Subject<'_>,
        fields: impl Iterator<Item = (F, &'f str)>,
        mut found: impl FnMut(usize, (SearchedField<F>, &str), MatchKind, u16),
    ) {
        each_text(subject, fields, |field, text, weight| {
            let small = text.to_lowercase();
            for (place, word) in self.words.iter().enumerate() {
                if let Some(manner) = found_in(word, &small) {
                    found(place, (field, text), manner, weight);
                }
            }
        });
    }
}

/// The cost of searching an object of this size for this number of words.
fn cost_of_words(bytes: u64, words: usize) -> u64 {
    let looked_at = bytes.min(OBJECT_BYTES as u64);
    bytes * PLACES.len() as u64 + looked_at * words as u64 * STEPS_OF_WORD
}

/// Calls `look` with the beginning and the weight of each searched text of an object, up to the limit of an object.
fn each_text<'f, F: Copy>(
    subject: &Subject<'_>,
    fields: impl Iterator<Item = (F, &'f str)>,
    mut look: impl FnMut(SearchedField<F>, &str, u16),
) {
    let mut left = OBJECT_BYTES;
    let mut look = |field: SearchedField<F>, text: &str, weight: u16| {
        let looked_at = &text[..text.floor_char_boundary(TEXT_BYTES)];
        // A truncated text might contain further words.
        left = left.saturating_sub(looked_at.len());
        if left == 0 {
            return false;
        }
        look(field, looked_at, weight);
        true
    };
    for (path, weight) in PLACES.iter() {
        subject.visit(path, |value| look(SearchedField::At(path), value.text(), *weight));
    }
    for (field, text) in fields {
        if !look(SearchedField::In(field), text, weight::OTHER) {
            break;
        }
    }
}

/// The best match so far: the field, the beginning of its text, the kind, and the score.
type Best<'f> = (SearchedField<&'f str>, String, MatchKind, u16);

/// A searched field.
#[derive(Clone, Copy)]
enum SearchedField<F> {
    /// A path of every object.
    At(&'static Path),
    /// A selectable field.
    In(F),
}

/// The path of the member with this text, in the object at the path `segments`.
fn member_with(subject: &Subject<'_>, segments: &[Segment], text: &str) -> Option<String> {
    let of = Path::of_segments(segments.iter().cloned());
    let mut cursor = Cursor::new(of.first(subject.json)?, 0);
    if cursor.peek() != b'{' {
        return None;
    }
    cursor.step();
    while let Some(key) = cursor.key() {
        let name = key.decode();
        if Value::from_json(cursor.raw()).is_some_and(|value| value.text() == text) {
            let member = Segment::Member((&*name).into());
            return Some(Path::of_segments(segments.iter().cloned().chain([member])).to_string());
        }
    }
    None
}

/// The searched paths of every object.
fn places() -> Vec<(Path, u16)> {
    let image = [Segment::Each, Segment::Member("image".into())];
    let images = |above: &[&str]| Path::of_segments(Path::of_members(above).segments().iter().chain(&image).cloned());
    let labels =
        Path::of_segments(Path::of_members(&["metadata", "labels"]).segments().iter().cloned().chain([Segment::Each]));
    vec![
        (Path::of_members(&["metadata", "name"]), weight::NAME),
        (Path::of_members(&["metadata", "namespace"]), weight::OTHER),
        (labels, weight::LABEL),
        (images(&["spec", "containers"]), weight::OTHER),
        (images(&["spec", "template", "spec", "containers"]), weight::OTHER),
    ]
}

/// The kind of match in a lower-case text.
fn found_in(word: &Word, text: &str) -> Option<MatchKind> {
    let Word { text: word, letters, errors } = word;
    if text == word {
        return Some(MatchKind::WholeText);
    }
    if !text.contains(word) {
        let is_near = *errors > 0 && words_of(text).any(|part| is_near(letters, part, *errors));
        return is_near.then_some(MatchKind::Error);
    }
    if words_of(text).any(|part| part == word) {
        return Some(MatchKind::WholeWord);
    }
    Some(match text.starts_with(word) {
        true => MatchKind::BeginsText,
        false if words_of(text).any(|part| part.starts_with(word)) => MatchKind::BeginsWord,
        false => MatchKind::Part,
    })
}

/// The words of a text.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric()).filter(|part| !part.is_empty())
}

/// The maximum number of letters in a word of an object that can match with typing errors.
const MAX_NEAR: usize = MAX_WORD + MOST_ERRORS;

/// Returns true if at most `most` errors separate the words. An error is an added, missing, different or swapped
/// letter.
/// Cost: the letters of `one` times the errors, since only a diagonal band of the usual table of edit distances is
/// computed.
fn is_near(one: &[char], other: &str, most: usize) -> bool {
    let mut letters = ['\0'; MAX_NEAR];
    let mut count = 0;
    for letter in other.chars() {
        if count == letters.len() || count == one.len() + most {
            return false;
        }
        letters[count] = letter;
        count += 1;
    }
    let other = &letters[..count];
    if one.len() > other.len() + most {
        return false;
    }
    // Rows of the table: the errors between prefixes of both words.
    let too_many = most + 1;
    let (mut before, mut row) = ([too_many; MAX_NEAR + 1], [too_many; MAX_NEAR + 1]);
    for (errors, place) in row.iter_mut().take(most + 1).enumerate() {
        *place = errors;
    }
    for i in 1..=one.len() {
        let mut next = [too_many; MAX_NEAR + 1];
        let mut least = too_many;
        for j in i.saturating_sub(most)..=(i + most).min(other.len()) {
            let errors = match j.checked_sub(1) {
                None => i,
                Some(last) => {
                    let letter = (one[i - 1], other[last]);
                    let changed = row[last] + usize::from(letter.0 != letter.1);
                    let errors = changed.min(row[j] + 1).min(next[last] + 1);
                    let is_swapped = i > 1 && last > 0 && (other[last - 1], one[i - 2]) == letter;
                    if is_swapped { errors.min(before[last - 1] + 1) } else { errors }
                }
            };
            next[j] = errors.min(too_many);
            least = least.min(errors);
        }
        if least > most {
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
        let subject = Subject::new(json.as_bytes(), Revision::new(1));
        Search::parse("search", search).unwrap().score(&subject, ["node-seven"].into_iter())
    }

    const POD: &str = concat!(
        r#"{"metadata":{"name":"checkout-web-0","namespace":"shop","labels":{"app":"Checkout","tier":"front"}},"#,
        r#""spec":{"containers":[{"image":"registry.example.com/nginx:1.27"}]}}"#
    );

    #[test]
    fn better_matches_come_first() {
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

    #[test]
    fn the_matches_of_each_word_are_returned() {
        let subject = Subject::new(POD.as_bytes(), Revision::new(1));
        let matches = |search: &str| {
            let fields = [("spec.nodeName", "node-seven")].into_iter();
            let matches = Search::parse("search", search).unwrap().matches(&subject, fields);
            matches.into_iter().map(|one| (one.word, one.field, one.text, one.manner.as_str())).collect::<Vec<_>>()
        };
        let found =
            |word: &str, field: &str, text: &str, manner| (word.to_owned(), field.to_owned(), text.to_owned(), manner);
        assert_eq!(
            matches("Checkout seven ngnix"),
            [
                found("checkout", ".metadata.name", "checkout-web-0", "wholeWord"),
                found("seven", ".spec.nodeName", "node-seven", "wholeWord"),
                found("ngnix", ".spec.containers[*].image", "registry.example.com/nginx:1.27", "typingError"),
            ]
        );
        assert_eq!(matches("front"), [found("front", ".metadata.labels.tier", "front", "wholeText")]);
        assert_eq!(matches("mysql"), []);
        // The score is the sum over all words.
        let search = Search::parse("search", "checkout web").unwrap();
        let points: u16 = search.matches(&subject, std::iter::empty()).iter().map(|one| one.points).sum();
        assert_eq!(search.score(&subject, std::iter::empty()), Some(points));
    }

    #[test]
    fn of_long_texts_and_of_many_the_beginning_is_looked_at() {
        let object = |texts: &[String]| {
            let containers: Vec<String> = texts.iter().map(|text| format!("{{\"image\":\"{text}\"}}")).collect();
            format!(r#"{{"metadata":{{"name":"web-0"}},"spec":{{"containers":[{}]}}}}"#, containers.join(","))
        };
        let behind = |bytes: usize| object(&[format!("{} nginx", "x".repeat(bytes))]);
        assert_eq!(score("nginx", &behind(2000)), Some(80));
        assert_eq!(score("nginx", &behind(2100)), None);
        let many = |count: usize| {
            let texts: Vec<String> = (0..count).map(|_| "x".repeat(1024)).chain(["nginx".to_owned()]).collect();
            object(&texts)
        };
        assert_eq!(score("nginx", &many(30)), Some(100));
        assert_eq!(score("nginx", &many(32)), None);
        // The searched amount and the cost are limited for every object.
        let search = Search::parse("search", "aaaaaaaa bbbbbbbb").unwrap();
        assert_eq!(search.cost(100), 100 * (5 + 2 * STEPS_OF_WORD));
        assert_eq!(search.cost(1 << 20), (5 << 20) + (64 << 10) * STEPS_OF_WORD);
    }

    /// Computes the complete table of edit distances.
    fn errors(one: &str, other: &str) -> usize {
        let (one, other): (Vec<char>, Vec<char>) = (one.chars().collect(), other.chars().collect());
        let mut table = vec![vec![0; other.len() + 1]; one.len() + 1];
        for i in 0..=one.len() {
            for j in 0..=other.len() {
                let at = |i: usize, j: usize| table[i][j];
                table[i][j] = match (i, j) {
                    (0, errors) | (errors, 0) => errors,
                    _ => {
                        let changed = at(i - 1, j - 1) + usize::from(one[i - 1] != other[j - 1]);
                        let least = changed.min(at(i - 1, j) + 1).min(at(i, j - 1) + 1);
                        let is_swapped = i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1];
                        if is_swapped { least.min(at(i - 2, j - 2) + 1) } else { least }
                    }
                };
            }
        }
        table[one.len()][other.len()]
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
            let near = |one: &str, other: &str, most: usize| is_near(&one.chars().collect::<Vec<_>>(), other, most);
            for other in [word.clone(), changed, shorter, swapped.into_iter().collect()] {
                prop_assert!(near(&word, &other, 1), "{word} {other}");
            }
            for most in 0..3 {
                prop_assert_eq!(near(&word, &other, most), near(&other, &word, most));
                prop_assert_eq!(near(&word, &other, most), errors(&word, &other) <= most, "{} {} {}", word, other, most);
            }
        }
    }
}
