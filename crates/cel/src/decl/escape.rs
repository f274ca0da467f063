//! The names of fields in expressions, where not every name can be written.
//!
//! Rules can't read a field whose name can't be written. That is not an error.

use crate::parser::RESERVED;

/// Words that are values or operators.
const WORDS: [&str; 4] = ["true", "false", "null", "in"];

/// Returns true if a variable can have this name. As in upstream's pattern, the empty text passes.
pub fn is_identifier(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.bytes().all(plain) && !text.starts_with(|first: char| first.is_ascii_digit()) && !is_reserved(text)
}

/// Returns true for a word of the language.
pub(super) fn is_reserved(name: &str) -> bool {
    WORDS.contains(&name) || RESERVED.contains(&name)
}

/// The name of a field in expressions. `None` if expressions can't contain the name.
pub fn escape(name: &str) -> Option<String> {
    if is_reserved(name) {
        return Some(format!("__{name}__"));
    }
    let starts = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    if !name.bytes().next().is_some_and(|byte| starts(byte) || b".-/".contains(&byte)) {
        return None;
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte)) {
        return None;
    }
    let escaped =
        name.replace("__", "\u{0}").replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__");
    Some(escaped.replace('\u{0}', "__underscores__"))
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn names_that_cannot_be_written_are_escaped() {
        let check = |name: &str, escaped: Option<&str>| assert_eq!(escape(name).as_deref(), escaped, "{name}");
        check("plain_name1", Some("plain_name1"));
        check("a-b.c/d", Some("a__dash__b__dot__c__slash__d"));
        check("a__b", Some("a__underscores__b"));
        check("in", Some("__in__"));
        check("while", Some("__while__"));
        check("int", Some("int"));
        check("1a", None);
        check("a b", None);
        check("é", None);
        check("$ref", None);
        check("", None);
    }
}
