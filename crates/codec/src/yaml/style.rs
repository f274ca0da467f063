//! The style in which `go-yaml` writes a string: plain if possible, otherwise quoted or as a literal block.
//!
//! This module applies all rules. For most strings one [`look`](super::glance::look) decides before that.

use super::scalar::{Meaning, is_base_60, meaning};

/// The style of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Determines the style of a text by all rules. For most plain texts, one [`look`] decides without them.
pub(super) fn style(text: &str, key: bool) -> Style {
    let shape = Styles::new(text);
    let wanted = if text.contains('\n') {
        Style::Literal
    } else if meaning(text) == Meaning::Text && !is_base_60(text) {
        Style::Plain
    } else {
        Style::Double
    };
    match wanted {
        Style::Literal if key || !shape.literal => Style::Double,
        Style::Plain if shape.plain => Style::Plain,
        Style::Plain if shape.single => Style::Single,
        Style::Plain | Style::Single => Style::Double,
        Style::Literal | Style::Double => wanted,
    }
}

/// The possible styles of a text.
struct Styles {
    plain: bool,
    single: bool,
    literal: bool,
}

impl Styles {
    fn new(text: &str) -> Self {
        let special = text.chars().any(|char| char != '\n' && !is_printable(char));
        let space_break = text.contains(" \n");
        let edges = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        Self {
            plain: !special && !edges && !text.contains('\n') && !has_indicator(text),
            single: !special && !space_break && !text.contains("\n "),
            literal: !special && !space_break && !text.ends_with(' '),
        }
    }
}

/// Returns true if plain text would have another meaning in block style.
fn has_indicator(text: &str) -> bool {
    let starts = match text.as_bytes() {
        [] => false,
        [b'-', b'-', b'-', ..] | [b'.', b'.', b'.', ..] => true,
        [first, rest @ ..] => match first {
            b'#' | b',' | b'[' | b']' | b'{' | b'}' | b'&' | b'*' | b'!' | b'|' | b'>' | b'\'' | b'"' | b'%' | b'@'
            | b'`' => true,
            b'?' | b':' | b'-' => matches!(rest.first(), None | Some(b' ')),
            _ => false,
        },
    };
    starts || text.ends_with(':') || text.contains(": ") || text.contains(" #")
}

pub(super) fn is_break(char: char) -> bool {
    matches!(char, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Returns true for characters that `go-yaml` prints literally. Characters above U+FFFF are not among them. Line breaks
/// other than `\n` are excluded too, because YAML 1.2 does not treat them as line breaks.
fn is_printable(char: char) -> bool {
    match char {
        ' '..='~' | '\u{a0}'..='\u{d7ff}' => !is_break(char),
        '\u{e000}'..='\u{fffd}' => char != '\u{feff}',
        _ => false,
    }
}

pub(super) fn must_escape(char: char) -> bool {
    matches!(char, '"' | '\\') || !is_printable(char)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::yaml::glance::{Verdict, look};

    proptest! {
        #[test]
        fn the_fast_scalar_check_agrees_with_the_rules(
            text in prop_oneof![
                "[a-zA-Z0-9:# '\"._/<>=~+,{}\\[\\]&*!|%@`?é\n-]{0,24}",
                "[0-9]{0,4}[-+._:xobeEZTm0-9 ]{0,20}",
                "-{0,3}[.a-zA-Z0-9=: ]{0,6}",
                "[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}[Zm.5 ]{0,2}",
            ],
            key: bool,
        ) {
            let expected = match look(text.as_bytes()).verdict(&text) {
                Verdict::Plain => Style::Plain,
                Verdict::Quoted => Style::Double,
                Verdict::Unknown => return Ok(()),
            };
            prop_assert_eq!(style(&text, key), expected);
        }
    }
}
