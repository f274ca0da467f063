//! Banned forms of prose: they hide the subject of a sentence, or join several claims.
//!
//! The check covers every Markdown page, the comments of Rust and TypeScript, and the texts of Rust: errors, log lines
//! and descriptions. [`EXCEPTIONS`] names exempt files with the reason.

mod texts;

use super::Finding;
use crate::markdown::{Block, Kind, blocks, plain};

/// Exempt files.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("docs/reference/flags.md", "generated from the help texts of the flags"),
    ("docs/reference/kube-apiserver-flags.md", "generated from the notes on the flags"),
    ("docs/reference/query-parameters.md", "generated from the descriptions in the API"),
    ("docs/reference/validation.md", "generated from the descriptions of the rules"),
    ("crates/builtin/src/apiregistration/columns.rs", "descriptions of kube-apiserver"),
    ("crates/builtin/src/batch/column_docs.rs", "descriptions of kube-apiserver"),
    ("crates/encryption/src/config/validation.rs", "texts of kube-apiserver"),
];
/// The largest number of exempt files.
const MAX_EXCEPTIONS: usize = 10;
const MAX_SENTENCE_WORDS: usize = 30;
const MAX_CELL_WORDS: usize = 25;
const MAX_PARAGRAPH_WORDS: usize = 80;

/// Openers of sentences that are no question but have a clause as their subject.
const OPENERS: [&str; 9] = ["what", "who", "whoever", "whether", "where", "how", "why", "those", "the same"];
/// Words in lower case that treat programs as people, or name no one in particular.
const WORDS: [&str; 17] = [
    "told",
    "tells",
    "nobody",
    "somebody",
    "anybody",
    "whoever",
    "whom",
    "judge",
    "judges",
    "judged",
    "judging",
    "judgement",
    "judgements",
    "judgment",
    "judgments",
    "stranger",
    "strangers",
];
const STEMS: [&str; 1] = ["rehears"];
const PHRASES: [&str; 4] = ["gets on", "led on", "goes on", "at the door"];
const RELATIVES: [&str; 3] = ["of which", "by which", "to which"];

pub(super) fn check(place: &str, text: &str) -> Vec<Finding> {
    let is_exempt = EXCEPTIONS.iter().any(|(file, _)| *file == place);
    match place.rsplit_once('.') {
        Some((_, "md")) if !is_exempt => page(place, text),
        Some((_, "rs" | "ts" | "tsx")) if !is_exempt => {
            let mut faults = comment_faults(text);
            if is_read_by_people(place) {
                faults.extend(text_faults(text));
            }
            faults.into_iter().map(|(line, why)| Finding::fault(format_args!("{place}:{line}"), why)).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns true if the string literals of a source reach users.
fn is_read_by_people(place: &str) -> bool {
    let is_source = place.ends_with(".rs") && place.contains("/src/");
    is_source && !["/tests", "/testkit/", "/fuzz/", "xtask/"].iter().any(|part| place.contains(part))
}

/// The faults of the texts in a source, with their lines. Their lengths are not limited: some are tables.
fn text_faults(source: &str) -> Vec<(usize, String)> {
    let faults = |(line, text): (usize, String)| form_faults(&text).into_iter().map(move |why| (line, why));
    texts::texts(source).into_iter().flat_map(faults).collect()
}

/// The faults of the comments in a source, with the lines where their paragraphs begin.
fn comment_faults(source: &str) -> Vec<(usize, String)> {
    let faults =
        |(line, comment): (usize, String)| sentence_faults(&plain(&comment)).into_iter().map(move |why| (line, why));
    comments(source).into_iter().flat_map(faults).collect()
}

/// The paragraphs of the comments in a source with their first lines. Code between fences, headings and tables are
/// omitted.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut continues, mut is_code) = (false, false);
    for (index, line) in source.lines().enumerate() {
        let comment = line.trim_start().strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']).trim());
        is_code = match comment {
            Some(text) if text.starts_with("```") => !is_code,
            Some(_) => is_code,
            None => false,
        };
        let Some(text) = comment
            .filter(|text| !is_code && !text.is_empty() && !text.starts_with(['#', '|']) && !text.starts_with("```"))
        else {
            continues = false;
            continue;
        };
        continues &= !text.starts_with("- ") && !text.starts_with("* ");
        push(&mut found, &mut continues, index + 1, text);
    }
    found
}

fn push(found: &mut Vec<(usize, String)>, continues: &mut bool, line: usize, text: &str) {
    match found.last_mut().filter(|_| *continues) {
        Some((_, paragraph)) => {
            paragraph.push(' ');
            paragraph.push_str(text);
        }
        None => found.push((line, text.trim_start_matches(['-', '*', ' ']).to_owned())),
    }
    *continues = true;
}

fn page(place: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut relatives = 0;
    for block in blocks(text) {
        let mut fault = |why: String| found.push(Finding::fault(format_args!("{place}:{}", block.line), why));
        faults(&block, &mut fault);
        relatives += lower_words(&block.text).matches_of(&RELATIVES);
        if relatives > 1 {
            fault("\"of which\", \"by which\" or \"to which\" stands more than once on the page".to_owned());
            relatives = 0;
        }
    }
    found
}

/// Checks the number of exempt pages.
pub(super) fn exceptions() -> Option<Finding> {
    (EXCEPTIONS.len() > MAX_EXCEPTIONS)
        .then(|| Finding::fault("xtask/src/tidy/prose.rs", format!("more than {MAX_EXCEPTIONS} exceptions")))
}

fn faults(block: &Block, fault: &mut impl FnMut(String)) {
    let text = plain(&block.text);
    let words = count(&text);
    match block.kind {
        Kind::Cell if words > MAX_CELL_WORDS => {
            fault(format!("a table cell of {words} words, {MAX_CELL_WORDS} at most"));
        }
        Kind::Paragraph if words > MAX_PARAGRAPH_WORDS => {
            fault(format!("a paragraph of {words} words, {MAX_PARAGRAPH_WORDS} at most"));
        }
        _ => {}
    }
    if text.contains("; ") {
        fault("a semicolon joins two claims".to_owned());
    }
    sentence_faults(&text).into_iter().for_each(fault);
}

/// The faults of the sentences of a text.
fn sentence_faults(text: &str) -> Vec<String> {
    let mut found = form_faults(text);
    for sentence in sentences(text) {
        let words = count(sentence);
        if words > MAX_SENTENCE_WORDS {
            found.push(format!("a sentence of {words} words, {MAX_SENTENCE_WORDS} at most"));
        }
    }
    found
}

/// The banned openers and words in the sentences of a text.
fn form_faults(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for sentence in sentences(text) {
        let words = lower_words(sentence);
        if let Some(opener) = words.opener().filter(|_| !sentence.contains('?')) {
            found.push(format!("a sentence opens with \"{opener}\""));
        }
        found.extend(words.banned().into_iter().map(|banned| format!("the word \"{banned}\"")));
    }
    found
}

/// Splits after a full stop, question mark, exclamation mark or colon that a new sentence follows.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in text
        .match_indices(". ")
        .chain(text.match_indices("? "))
        .chain(text.match_indices("! "))
        .chain(text.match_indices(": "))
    {
        let next = text[at + 2..].trim_start().chars().next();
        if next.is_some_and(|c| c.is_uppercase() || matches!(c, '`' | '"' | '(')) {
            parts.push(at + 2);
        }
    }
    parts.sort_unstable();
    parts.push(text.len());
    parts.into_iter().map(move |end| {
        let part = text[start..end].trim();
        start = end;
        part
    })
}

fn count(text: &str) -> usize {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '`' | '\'' | '-')))
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .count()
}

/// The words of a text in lower case.
struct Words(Vec<String>);

fn lower_words(text: &str) -> Words {
    let words = text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '`' | '-')));
    Words(words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect())
}

impl Words {
    fn opener(&self) -> Option<&'static str> {
        OPENERS.into_iter().find(|opener| self.begins(0, opener))
    }

    fn begins(&self, at: usize, phrase: &str) -> bool {
        let mut words = self.0[at..].iter();
        phrase.split(' ').all(|expected| words.next().is_some_and(|word| word == expected))
    }

    fn banned(&self) -> Vec<&str> {
        let word = self
            .0
            .iter()
            .map(String::as_str)
            .filter(|word| WORDS.contains(word) || STEMS.iter().any(|stem| word.starts_with(stem)));
        let phrase = PHRASES.into_iter().filter(|phrase| self.matches_of(&[*phrase]) > 0);
        word.chain(phrase).collect()
    }

    fn matches_of(&self, phrases: &[&str]) -> usize {
        (0..self.0.len()).filter(|&at| phrases.iter().any(|phrase| self.begins(at, phrase))).count()
    }
}

#[cfg(test)]
mod tests {
    use super::{EXCEPTIONS, MAX_EXCEPTIONS, OPENERS, PHRASES, WORDS, check, comment_faults, exceptions};

    #[track_caller]
    fn refused(page: &str, why: &str) {
        let found = check("a.md", page);
        assert!(
            found.iter().any(|finding| finding.fault && finding.text.contains(why)),
            "{page:?}: no fault with {why:?}"
        );
    }

    #[test]
    fn a_planted_sentence_of_each_banned_form_is_refused() {
        for opener in OPENERS {
            let capital = opener[..1].to_uppercase() + &opener[1..];
            refused(&format!("Fine.\n\n{capital} thing is stored here.\n"), &format!("opens with \"{opener}\""));
            refused(&format!("# {capital} thing\n"), "opens with");
            refused(&format!("A first claim. {capital} thing follows.\n"), "opens with");
        }
        for word in WORDS.into_iter().chain(PHRASES).chain(["rehearsal", "Rehearsed"]) {
            refused(&format!("- The server {word} now.\n"), &format!("the word \"{}\"", word.to_lowercase()));
        }
        refused("A list of which one part is old.\n\nA name by which it is known.\n", "more than once");
        refused(&format!("It is{}.\n", " long".repeat(29)), "a sentence of 31 words");
        refused(&format!("| a | b{} |\n", " c".repeat(25)), "a table cell of 26 words");
        refused(&format!("{}\n", "A short one. ".repeat(27)), "a paragraph of 81 words");
        refused("The server starts; it is ready.\n", "semicolon");
    }

    #[test]
    fn comments_of_sources_are_checked() {
        let check = |source: &str| comment_faults(source).into_iter().map(|(line, _)| line).collect::<Vec<_>>();
        assert_eq!(check("fn a() {}\n\n/// Returns it. The caller is\n/// told of it.\nfn b() {}\n"), [3]);
        assert_eq!(check("    // Whether it is so.\n"), [1]);
        assert_eq!(check(&format!("//! It is\n//!{}.\n", " long".repeat(29))), [1]);
        assert_eq!(check("/// - One item\n/// - What is another.\n"), [2]);
    }

    #[test]
    fn texts_of_sources_are_checked() {
        let source = |text: &str| format!("fn a() {{\n    bail!(\"{text}\");\n}}\n");
        for text in ["nobody reads the pipe", "what was written is gone", "the key {key} was told so"] {
            assert_eq!(check("crates/a/src/b.rs", &source(text)).len(), 1, "{text}");
            assert!(check("crates/a/tests/b.rs", &source(text)).is_empty(), "{text}");
        }
        assert!(check("crates/a/src/b.rs", &source("the key {told} is not valid")).is_empty());
    }

    #[test]
    fn sources_are_held_to_the_rules_by_their_names() {
        for place in ["a.rs", "b/a.ts", "b/a.tsx"] {
            assert_eq!(check(place, "// It is told.\n").len(), 1, "{place}");
        }
        assert!(check("a.sql", "// It is told.\n").is_empty());
    }

    #[test]
    fn plain_prose_code_and_questions_pass() {
        for page in [
            "What is stored?\n",
            "The cache keeps one copy of `fieldsV1` for all objects that share it.\n",
            "```console\n$ whoever told nobody; who\n```\n",
            "Run `whoami; who`, then see [the page](who.md).\n",
            "# Server leases\n\nThe part of which it is made. The others are whole.\n",
        ] {
            assert_eq!(check("a.md", page).iter().map(|f| f.text.as_str()).collect::<Vec<_>>(), [""; 0], "{page:?}");
        }
        for source in [
            "//! Head.\n//!\n//! What is it?\n",
            "let told = 1; // fine\n",
            "/// ```\n/// // What is told.\n/// ```\n/// Done.\n",
        ] {
            assert!(comment_faults(source).is_empty(), "{source:?}");
        }
    }

    #[test]
    fn there_are_few_exceptions() {
        assert!(EXCEPTIONS.len() <= MAX_EXCEPTIONS && exceptions().is_none());
    }
}
