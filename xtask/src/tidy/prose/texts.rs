//! The string literals of a source that people may read: errors, log lines and descriptions.
//!
//! Help texts of flags are doc comments, which are checked as comments.

/// A text of fewer words is a name or a part of a sentence.
const MIN_WORDS: usize = 4;

/// The texts of a source with their lines, without its tests, placeholders and raw strings.
pub(super) fn texts(source: &str) -> Vec<(usize, String)> {
    let source = source.find("#[cfg(test)]\nmod ").map_or(source, |end| &source[..end]);
    let mut found = Vec::new();
    let mut rest = source;
    while let Some((at, literal)) = next_literal(rest) {
        let line = 1 + source[..source.len() - rest.len() + at].matches('\n').count();
        let text = readable(literal);
        if text.split_whitespace().count() >= MIN_WORDS {
            found.push((line, text));
        }
        rest = &rest[at + literal.len() + 1..];
    }
    found
}

/// The position of the next string literal behind its quote, and its content. Skips comments, raw strings and
/// characters.
fn next_literal(source: &str) -> Option<(usize, &str)> {
    let bytes = source.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &source[at..];
        at += match bytes[at] {
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'\'' if rest.starts_with("'\"'") => 3,
            b'\'' if rest.starts_with("'\\") => 3 + rest.get(3..).and_then(|tail| tail.find('\''))?,
            b'r' if is_raw(source, at) => raw_length(rest)?,
            b'"' => return Some((at + 1, &rest[1..=literal_length(&rest[1..])?])),
            _ => rest.chars().next()?.len_utf8(),
        };
    }
    None
}

/// Returns true if a raw string begins here.
fn is_raw(source: &str, at: usize) -> bool {
    let before = source[..at].chars().next_back();
    let is_word = before.is_some_and(|c| (c.is_alphanumeric() && c != 'b') || c == '_');
    !is_word && source[at + 1..].trim_start_matches('#').starts_with('"')
}

fn raw_length(source: &str) -> Option<usize> {
    let hashes = source[1..].len() - source[1..].trim_start_matches('#').len();
    let end = format!("\"{}", "#".repeat(hashes));
    let begin = 2 + hashes;
    source[begin..].find(&end).map(|length| begin + length + end.len())
}

/// The length up to the closing quote.
fn literal_length(source: &str) -> Option<usize> {
    let mut is_escaped = false;
    source.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

/// A literal as people read it: joined lines, and `x` in the place of each placeholder.
fn readable(literal: &str) -> String {
    let mut text = String::new();
    let mut depth = 0_usize;
    for line in literal.split("\\\n") {
        for c in line.trim_start().chars() {
            match c {
                '{' => {
                    depth += 1;
                    text.push('x');
                }
                '}' => depth = depth.saturating_sub(1),
                _ if depth == 0 => text.push(c),
                _ => {}
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::texts;

    fn texts_of(source: &str) -> Vec<(usize, String)> {
        texts(source)
    }

    #[test]
    fn texts_have_their_lines_and_no_placeholders() {
        let source = "fn a() {\n    bail!(\"the key {told} is not \\\n           valid\");\n}\n";
        assert_eq!(texts_of(source), [(2, "the key x is not valid".to_owned())]);
    }

    #[test]
    fn comments_characters_and_raw_strings_are_no_texts() {
        let source = "// \"one two three four\"\nlet a = '\"'; let b = '\\''; let c = r#\"one \" two three four\"#;\n\
                      let d = \"one \\\" two three four\";";
        assert_eq!(texts_of(source), [(3, "one \\\" two three four".to_owned())]);
    }

    #[test]
    fn names_and_tests_are_no_texts() {
        assert!(
            texts_of("let a = \"three words only\";\n#[cfg(test)]\nmod tests { \"one two three four\" }\n").is_empty()
        );
    }
}
