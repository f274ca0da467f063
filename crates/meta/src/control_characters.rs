//! Makes control characters visible in texts of other parties.
//!
//! Terminals interpret control characters: an object, a webhook or an aggregated server could move the cursor, change
//! the window title or hide text. Bidirectional controls reorder the displayed text. Both kinds are replaced in every
//! text that a command prints and in every `Status`.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Replaces control characters by visible ones: ESC becomes `^[`, as kubectl shows it, and U+202E becomes `<U+202E>`.
///
/// Keeps line feeds and tabs. The result is borrowed if nothing is replaced. O(n).
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| acts(character) && !is_layout(character)) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        match character {
            '\r' => shown.push_str("\\r"),
            _ if is_layout(character) || !acts(character) => shown.push(character),
            '\0'..='\x1f' => shown.extend(['^', char::from(character as u8 + b'@')]),
            '\x7f' => shown.push_str("^?"),
            // Writing to a string cannot fail.
            _ => {
                let _done = write!(shown, "<U+{:04X}>", u32::from(character));
            }
        }
    }
    Cow::Owned(shown)
}

/// Replaces control characters in a JSON text by JSON escapes. The result decodes to the same value.
///
/// `json` must be well-formed, so that such characters can only be in strings. Line feeds and tabs are kept for
/// indentation.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    if !json.chars().any(|character| acts(character) && !is_layout(character)) {
        return Cow::Borrowed(json);
    }
    let mut escaped = String::with_capacity(json.len() + 16);
    for character in json.chars() {
        if acts(character) && !is_layout(character) {
            // Writing to a string cannot fail.
            let _done = write!(escaped, "\\u{:04x}", u32::from(character));
        } else {
            escaped.push(character);
        }
    }
    Cow::Owned(escaped)
}

/// Returns true if a terminal or the bidirectional algorithm interprets the character. All of these are below U+10000.
pub fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_layout(character: char) -> bool {
    matches!(character, '\n' | '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_visible() {
        let check = |text: &str, expect: &str| assert_eq!(visible(text), expect);
        check("plain \u{e4} \u{1f600}\n\ttext", "plain \u{e4} \u{1f600}\n\ttext");
        check("\x1b]0;title\x07", "^[]0;title^G");
        check("\x1b[2J\r\0\x08\x7f", "^[[2J\\r^@^H^?");
        check("\u{9b}31m", "<U+009B>31m");
        check("user\u{202e}txt.exe\u{2066}", "user<U+202E>txt.exe<U+2066>");
        assert!(matches!(visible("nothing to replace"), Cow::Borrowed(_)));
    }

    #[test]
    fn escaped_json_decodes_to_the_same_value() {
        let value = serde_json::json!({ "a\u{9b}": ["\u{202e}b\x7f", "\x1b\u{85}\u{2028}"] });
        let text = serde_json::to_string_pretty(&value).unwrap();
        let escaped = escaped_json(&text);
        assert!(!escaped.chars().any(|character| acts(character) && !is_layout(character)), "{escaped}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&escaped).unwrap(), value);
    }
}
