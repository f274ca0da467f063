//! A fast walk over compact JSON that is already known to be valid.
//!
//! Nothing is built and nothing is checked twice: values that nobody asked for are skipped byte by byte. On bytes that
//! are not valid the walk gives wrong answers, but it never panics and always ends.

use std::borrow::Cow;

/// A position in compact, valid JSON.
#[derive(Clone, Debug)]
pub struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// The inside of a JSON string, escapes and all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawText<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    /// Stands on the token at `at`.
    pub fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    /// Where the cursor stands.
    pub fn position(&self) -> usize {
        self.at
    }

    /// The byte at the cursor; 0 at the end, which no token starts with.
    pub fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    /// Steps over one byte.
    pub fn step(&mut self) {
        self.at += 1;
    }

    /// Steps over `expected` and says whether it was there.
    pub fn take(&mut self, expected: &[u8]) -> bool {
        let there = self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(expected));
        if there {
            self.at += expected.len();
        }
        there
    }

    /// The next key of the object the cursor is in, leaving the cursor on its value, which the caller must step over.
    /// `None` once the object is closed.
    pub fn key(&mut self) -> Option<RawText<'a>> {
        if self.peek() == b',' {
            self.at += 1;
        }
        if self.peek() != b'"' {
            self.at += 1;
            return None;
        }
        let key = self.string();
        self.at += 1;
        Some(key)
    }

    /// Steps over the string at the cursor.
    pub fn string(&mut self) -> RawText<'a> {
        let start = self.at + 1;
        self.skip_string();
        RawText(self.bytes.get(start..self.at.saturating_sub(1)).unwrap_or_default())
    }

    /// Steps over the value at the cursor and gives its bytes.
    pub fn raw(&mut self) -> &'a [u8] {
        let start = self.at;
        self.skip();
        self.bytes.get(start..self.at).unwrap_or_default()
    }

    /// Steps over the value at the cursor and gives the text of a scalar. `None` for null, arrays and objects.
    pub fn scalar(&mut self) -> Option<Cow<'a, str>> {
        match self.peek() {
            b'"' => Some(self.string().decode()),
            b'n' | b'{' | b'[' => {
                self.skip();
                None
            }
            _ => Some(String::from_utf8_lossy(self.raw())),
        }
    }

    /// Steps over the value at the cursor.
    pub fn skip(&mut self) {
        match self.peek() {
            b'"' => self.skip_string(),
            b'{' | b'[' => self.skip_container(),
            _ => {
                while !matches!(self.peek(), b',' | b'}' | b']' | 0) {
                    self.at += 1;
                }
            }
        }
    }

    fn skip_container(&mut self) {
        let mut depth = 0usize;
        while let Some(byte) = self.bytes.get(self.at) {
            match byte {
                b'"' => {
                    self.skip_string();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            match self.bytes.get(self.at..).and_then(quote_or_backslash) {
                None => {
                    self.at = self.bytes.len();
                    return;
                }
                Some(distance) => self.at += distance,
            }
            if self.peek() == b'"' {
                self.at += 1;
                return;
            }
            self.at += 2;
        }
    }
}

impl<'a> RawText<'a> {
    /// Whether this is the key `name`, which must not need escapes.
    pub fn is(self, name: &str) -> bool {
        self.0 == name.as_bytes()
    }

    /// Whether this is one of the keys `names`, which must not need escapes.
    pub fn is_any(self, names: &[&str]) -> bool {
        names.iter().any(|name| self.is(name))
    }

    /// The bytes between the quotes.
    pub fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The text without its escapes.
    pub fn decode(self) -> Cow<'a, str> {
        if self.0.contains(&b'\\') {
            let quoted = [b"\"", self.0, b"\""].concat();
            return Cow::Owned(serde_json::from_slice(&quoted).unwrap_or_default());
        }
        String::from_utf8_lossy(self.0)
    }
}

/// The distance to the next `"` or `\`, looked for eight bytes at a time.
pub(crate) fn quote_or_backslash(bytes: &[u8]) -> Option<usize> {
    let mut distance = 0;
    let (words, _) = bytes.as_chunks::<8>();
    for word in words {
        let word = u64::from_le_bytes(*word);
        let found = zero_bytes(word ^ repeat(b'"')) | zero_bytes(word ^ repeat(b'\\'));
        if found != 0 {
            return Some(distance + (found.trailing_zeros() / 8) as usize);
        }
        distance += 8;
    }
    bytes[distance..].iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|rest| distance + rest)
}

const fn repeat(byte: u8) -> u64 {
    u64::from_le_bytes([byte; 8])
}

/// Sets the top bit of every byte that is zero. Only the lowest set bit is exact, which is the one that is used.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(repeat(0x01)) & !word & repeat(0x80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_walked() {
        let text = br#"{"a":"x\"}","bcdefghijkl":[{"y":"]"},2],"c":-1.5,"d":{}}"#;
        let mut cursor = Cursor::new(text, 1);
        let mut seen = Vec::new();
        while let Some(key) = cursor.key() {
            seen.push((key.decode().into_owned(), String::from_utf8_lossy(cursor.raw()).into_owned()));
        }
        let expected = [("a", r#""x\"}""#), ("bcdefghijkl", r#"[{"y":"]"},2]"#), ("c", "-1.5"), ("d", "{}")].map(own);
        assert_eq!(seen, expected);
        assert_eq!(cursor.position(), text.len());
    }

    fn own((key, value): (&str, &str)) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn quotes_are_found_at_every_distance() {
        for distance in 0..40 {
            let mut text = vec![b'x'; distance];
            assert_eq!(quote_or_backslash(&text), None);
            text.extend_from_slice(b"\\\"xxxxxxxx");
            assert_eq!(quote_or_backslash(&text), Some(distance));
        }
    }

    #[test]
    fn broken_text_ends_the_walk() {
        for text in [&b"{\"a"[..], b"{\"a\\", b"{\"a\":", b"{\"a\":[[", b"{,", b"", b"{\"a\":]]]]"] {
            let mut cursor = Cursor::new(text, 1);
            while cursor.key().is_some() {
                cursor.skip();
            }
        }
    }
}
