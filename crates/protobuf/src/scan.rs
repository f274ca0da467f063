//! A reader of compact and valid JSON text that this server has written.
//!
//! The reader checks only the bytes that it needs, not the content of strings and skipped values. On invalid text the
//! cursor moves to its end, and [`Scanner::finish`] returns the error. Values read before that may be wrong, but the
//! cursor never panics and always ends.

use std::borrow::Cow;

use crate::error::ProtobufError;

/// A position in compact JSON.
#[derive(Clone, Debug)]
pub(crate) struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
    /// The position of an invalid byte.
    broken: Option<usize>,
}

/// The content of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    raw: &'a [u8],
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The bytes of a text without escapes, as nearly all are.
    #[inline]
    pub(crate) fn plain(self) -> Option<&'a [u8]> {
        if self.escaped { None } else { Some(self.raw) }
    }

    /// The bytes of the text, copied only if it has escapes.
    pub(crate) fn bytes(self) -> Result<Cow<'a, [u8]>, ProtobufError> {
        if !self.escaped {
            return Ok(Cow::Borrowed(self.raw));
        }
        let quoted = [b"\"", self.raw, b"\""].concat();
        let text: String =
            serde_json::from_slice(&quoted).map_err(|error| ProtobufError::NotJson(error.to_string()))?;
        Ok(Cow::Owned(text.into_bytes()))
    }

    /// The text.
    pub(crate) fn text(self) -> Result<Cow<'a, str>, ProtobufError> {
        let not_text = |error: std::str::Utf8Error| ProtobufError::NotJson(error.to_string());
        Ok(match self.bytes()? {
            Cow::Borrowed(bytes) => Cow::Borrowed(std::str::from_utf8(bytes).map_err(not_text)?),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8(bytes).map_err(|error| not_text(error.utf8_error()))?),
        })
    }
}

impl<'a> Scanner<'a> {
    /// A cursor at the start.
    pub(crate) fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0, broken: None }
    }

    /// The current byte. 0 at the end, which starts no token.
    #[inline]
    pub(crate) fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    /// The rest of the text.
    #[inline]
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The part of `rest`, an earlier rest of the text, that was skipped since. `None` for invalid JSON.
    #[inline]
    pub(crate) fn passed(&self, rest: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.text.len() - rest.len();
        if self.broken.is_none() { rest.get(..self.at.checked_sub(start)?) } else { None }
    }

    /// Skips a value of this length.
    #[inline]
    pub(crate) fn pass(&mut self, bytes: usize) {
        self.at += bytes;
    }

    /// Ends the walk after the outermost value.
    ///
    /// # Errors
    /// Invalid JSON among the checked bytes, or trailing text.
    pub(crate) fn finish(self) -> Result<(), ProtobufError> {
        let more = (self.at != self.text.len()).then_some(self.at);
        match self.broken.or(more) {
            None => Ok(()),
            Some(at) => Err(ProtobufError::NotJson(format!("not compact JSON at byte {at}"))),
        }
    }

    /// Moves to the end of the text, where every object and list counts as closed.
    #[cold]
    pub(crate) fn give_up(&mut self) {
        self.broken.get_or_insert(self.at);
        self.at = self.text.len();
    }

    /// Skips the opening bracket of an object or list.
    #[inline]
    pub(crate) fn open(&mut self) {
        self.at += 1;
    }

    /// The next key of an object, with the cursor on its value. `None` at the end of the object.
    #[inline]
    pub(crate) fn key(&mut self) -> Option<Text<'a>> {
        if self.peek() == b',' {
            self.at += 1;
        }
        match self.peek() {
            b'"' => {
                let key = self.string();
                if self.peek() != b':' {
                    self.give_up();
                    return None;
                }
                self.at += 1;
                Some(key)
            }
            b'}' => {
                self.at += 1;
                None
            }
            _ => {
                self.give_up();
                None
            }
        }
    }

    /// Skips the next member's key with its quotes and colon, if it is this key. Returns false otherwise.
    #[inline]
    pub(crate) fn expected_key(&mut self, key: &[u8]) -> bool {
        let at = self.at + usize::from(self.peek() == b',');
        let is_here = self.text.get(at..).is_some_and(|rest| rest.starts_with(key));
        if is_here {
            self.at = at + key.len();
        }
        is_here
    }

    /// Moves to the next element of a list and returns true. At the end of the list, skips its bracket and returns
    /// false.
    #[inline]
    pub(crate) fn element(&mut self) -> bool {
        match self.peek() {
            b',' => {
                self.at += 1;
                true
            }
            b']' => {
                self.at += 1;
                false
            }
            0 if self.at >= self.text.len() => {
                self.give_up();
                false
            }
            // The first element, or an invalid byte.
            _ => true,
        }
    }

    /// Reads a string.
    #[inline]
    pub(crate) fn string(&mut self) -> Text<'a> {
        let start = self.at + 1;
        let mut escaped = false;
        self.at = start;
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let Some(distance) = quote_or_backslash(rest) else {
                self.give_up();
                return Text { raw: &[], escaped: false };
            };
            self.at += distance;
            if rest[distance] == b'"' {
                let raw = &self.text[start..self.at];
                self.at += 1;
                return Text { raw, escaped };
            }
            escaped = true;
            self.at += 2;
        }
    }

    /// Skips a value and returns its text.
    pub(crate) fn raw(&mut self) -> &'a [u8] {
        let start = self.at;
        match self.peek() {
            b'"' => {
                self.string();
            }
            b'{' | b'[' => self.pass_container(),
            _ => {
                let rest = self.text.get(start..).unwrap_or_default();
                let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']');
                self.at += rest.iter().position(ends).unwrap_or(rest.len());
            }
        }
        if self.at == start {
            self.give_up();
            return &[];
        }
        &self.text[start..self.at]
    }

    fn pass_container(&mut self) {
        let mut depth = 0usize;
        loop {
            match self.peek() {
                b'"' => {
                    self.string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth -= 1,
                0 if self.at >= self.text.len() => return self.give_up(),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }
}

/// The distance to the next `"` or `\`, searched eight bytes at a time.
#[inline]
fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let (words, rest) = bytes.as_chunks::<8>();
    for (place, word) in words.iter().enumerate() {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\'));
        if found != 0 {
            return Some(place * 8 + (found.trailing_zeros() / 8) as usize);
        }
    }
    let place = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
    Some(words.len() * 8 + place)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Sets the top bit of every zero byte. Only the lowest set bit is reliable, and callers use only that one.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::json::{Value, json};
    use proptest::prelude::*;

    #[test]
    fn values_are_passed_over_whole() {
        let text = br#"{"a\"":"x\"}","bcdefghijkl":[{"y":"]"},2],"c":-1.5,"d":{}}"#;
        let mut scanner = Scanner::new(text);
        scanner.open();
        let mut seen = Vec::new();
        while let Some(key) = scanner.key() {
            let value: Value = serde_json::from_slice(scanner.raw()).unwrap();
            seen.push((key.text().unwrap().into_owned(), value));
        }
        let expected =
            [("a\"", json!("x\"}")), ("bcdefghijkl", json!([{"y": "]"}, 2])), ("c", json!(-1.5)), ("d", json!({}))];
        assert_eq!(seen, expected.map(|(key, value)| (key.to_owned(), value)));
        assert_eq!(scanner.finish(), Ok(()));
    }

    proptest! {
        #[test]
        fn strings_end_where_they_end(text: String, after in "[a-z\"]{0,9}") {
            let quoted = Value::from(text.as_str()).to_string();
            let whole = format!("{quoted}{after}");
            let mut scanner = Scanner::new(whole.as_bytes());
            prop_assert_eq!(scanner.string().text().unwrap(), text);
            prop_assert_eq!(scanner.at, quoted.len());
        }

        #[test]
        fn any_bytes_end_the_walk(text in proptest::collection::vec(
            prop_oneof![Just(b'{'), Just(b'}'), Just(b'['), Just(b']'), Just(b'"'), Just(b'\\'), Just(b','), any::<u8>()], 0..40,
        )) {
            let mut scanner = Scanner::new(&text);
            while !scanner.raw().is_empty() {}
            let mut scanner = Scanner::new(&text);
            while scanner.key().is_some() {
                scanner.raw();
            }
            let mut scanner = Scanner::new(&text);
            while scanner.element() {
                scanner.raw();
            }
        }
    }
}
